# SPDX-License-Identifier: Apache-2.0
"""Writes report.html, report.md, experiments/*.md and plots/*.png from the result files of a directory,
which may also be the folder of a training run.

    report.py DIR [--again DIR] [--before DIR] [--out DIR] [--title TEXT]

The exit status is 1 where a file has lines that cannot be read, contradict themselves or failed.
"""

import argparse
import hashlib
import os
import pathlib
import re
import sys

sys.dont_write_bytecode = True

import again
import analysis
import before
import markdown_pages
import pages
import plots
import results
import rule
import training


def stems(experiments):
    """A stem for the file names of each experiment's plots. Devices and experiments whose names differ
    in what a stem leaves out get a part of the names' hash."""
    found = {}
    for experiment in experiments:
        # Plots of several devices lie side by side.
        device = re.sub("[^a-z0-9]+", "-", experiment.device.partition(": ")[2].lower()).strip("-")
        stem = f"{experiment.path.stem}-{device}"
        if stem in found.values():
            names = f"{experiment.path.stem}\n{experiment.device}"
            stem += "-" + hashlib.sha256(names.encode("utf-8", "replace")).hexdigest()[:8]
        found[id(experiment)] = stem
    return found


def drawn(experiment, what, draw):
    """What `draw` returns, or None where it fails: one plot must not cost the whole report."""
    try:
        return draw()
    except Exception as error:  # pylint: disable=broad-except  (Matplotlib has no common one)
        experiment.problems.append(f"'{what}' cannot be drawn: {error!r:.200}")
        plots.close_all()
        return None


def build(experiment, stem, anchor, out):
    """One experiment's part of the report."""
    images = []
    for i, plot in enumerate(experiment.definition.get("plots", [])):
        path = out / "plots" / f"{stem}-{i + 1}.png"
        title = plot.get("title", experiment.definition["title"])
        if drawn(experiment, title, lambda: plots.draw(plot, experiment, path)):
            images.append((title, path))
    kind = experiment.definition.get("analysis")
    extra = None
    if kind:
        extra = drawn(experiment, kind,
                      lambda: analysis.run(kind, experiment, out / "plots", stem))
    extra = extra or analysis.Extra()
    return pages.Section(experiment, rule.claims(experiment), images + extra.images, extra.tables,
                         extra.text, anchor, extra.answer)


def anchors(names):
    """For each stem a name that both pages can link to, each another one."""
    found = {}
    taken = {pathlib.PurePath(page).stem
             for page in (markdown_pages.RULE_PAGE, markdown_pages.CHANGES_PAGE)}
    for name in names:
        plain = re.sub("[^A-Za-z0-9_.-]+", "-", name).strip("-") or "experiment"
        anchor, number = plain, 1
        while anchor in taken:
            number += 1
            anchor = f"{plain}-{number}"
        found[name] = anchor
        taken.add(anchor)
    return found


def write(path, text):
    # A name may hold what UTF-8 cannot say.
    path.write_text(text, encoding="utf-8", errors="replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--again", type=pathlib.Path)
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--title", default="voxconv experiments")
    arguments = parser.parse_args()
    out = arguments.out or arguments.directory
    experiments = results.load(arguments.directory, training.files(arguments.directory))
    if not experiments and not training.files(arguments.directory):
        print(f"report: {arguments.directory} has no results of experiments (*.jsonl), and is not the "
              "folder of a training run (epochs.jsonl)", file=sys.stderr)
        return 1
    repeats = results.load(arguments.again) if arguments.again else []
    agreements = again.compare(experiments, repeats)
    if arguments.again and not agreements:
        print(f"report: --again {arguments.again} has no cell that {arguments.directory} has",
              file=sys.stderr)
        return 1
    earlier = results.load(arguments.before) if arguments.before else []
    texts, problem_of_texts = before.reasons(arguments.directory)
    changes = before.compare(experiments, earlier, texts)
    if arguments.before and not changes:
        print(f"report: --before {arguments.before} has no claim that {arguments.directory} has",
              file=sys.stderr)
        return 1
    (out / "plots").mkdir(parents=True, exist_ok=True)
    stem_of = stems(experiments)
    anchor_of = anchors(stem_of.values())
    sections = [build(experiment, stem_of[id(experiment)], anchor_of[stem_of[id(experiment)]], out)
                for experiment in experiments]
    run = training.load(arguments.directory, out / "plots")
    trainings = [] if run is None else [run]
    change_table = (before.HEADER, [change.row() for change in changes],
                    before.in_words(changes)) if changes else None
    write(out / "report.html",
          pages.html(arguments.title, sections, agreements, trainings, change_table))
    write(out / "report.md",
          markdown_pages.front_page(arguments.title, sections, agreements, trainings, out,
                                    change_table))
    if changes:
        (out / markdown_pages.CHANGES_PAGE).parent.mkdir(exist_ok=True)
        write(out / markdown_pages.CHANGES_PAGE,
              markdown_pages.changes_page(change_table, before.commits(earlier),
                                          before.commits(experiments)))
    if sections:
        (out / markdown_pages.RULE_PAGE).parent.mkdir(exist_ok=True)
        write(out / markdown_pages.RULE_PAGE, markdown_pages.rule_page())
    for section in sections:
        page = out / markdown_pages.page_of(section)
        write(page, markdown_pages.experiment_page(section, page.parent))

    counts = {verdict: 0 for verdict in rule.VERDICTS}
    for section in sections:
        for claim in section.claims:
            counts[claim.verdict] += 1
    problems = 0
    for experiment in experiments + repeats + earlier:
        for problem in experiment.problems:
            problems += 1
            print(f"report: {experiment.path.name}: {problem}", file=sys.stderr)
    if problem_of_texts:
        problems += 1
        print(f"report: {problem_of_texts}", file=sys.stderr)
    for problem in [problem for run in trainings for problem in run.problems]:
        problems += 1
        print(f"report: {problem}", file=sys.stderr)
    for run in trainings:
        print(f"{run.title}: {run.text[0]}")
    if sections:
        print(f"{len(sections)} experiments; claims: "
              + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    print(f"{out / 'report.html'}\n{out / 'report.md'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")
    try:
        code = main()
        sys.stdout.flush()
    except OSError as error:
        where = error.filename or "standard output"
        print(f"report: {where} cannot be read or written ({error.strerror})", file=sys.stderr)
        # What is still held back for standard output would be tried, and told, again.
        os._exit(1)
    sys.exit(code)
