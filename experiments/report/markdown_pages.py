# SPDX-License-Identifier: Apache-2.0
"""The report as Markdown: a front page, and a page for each experiment."""

import os
import re
import urllib.parse

import again
import fields
import notes
import pages
import rule

# What ends a line to somebody.
_LINE_ENDS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


def _m(text):
    """Text within a line of Markdown, which shows it as it is: names and labels are no Markdown."""
    text = _LINE_ENDS.sub(" ", str(text)).replace("\\", "\\\\")
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text).replace("<", "&lt;")
    text = re.sub(r"([`*\[\]|~$])", r"\\\1", text)
    # Between letters and digits it is no emphasis.
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)


def _paragraph(text):
    """The same where the text begins a line, which must not become a heading, a list or a quote."""
    text = re.sub(r"^(\s*)([#>+=-])", r"\1\\\2", _m(text))
    return re.sub(r"^(\s*\d+)([.)])", r"\1\\\2", text)


RULE_PAGE = "experiments/rule.md"  # a section's anchor ends with its device
CHANGES_PAGE = "experiments/changes.md"


def page_of(section):
    """Where the page of an experiment lies, from the front page."""
    return f"experiments/{section.anchor}.md"


def _md_cell(cell):
    return f"[{_m(cell)}]({page_of(cell.section)})" if isinstance(cell, pages.Link) else _m(cell)


def _md_table(header, rows):
    def line(cells):
        return "| " + " | ".join(map(_md_cell, cells)) + " |"
    return [line(header), "|" + " --- |" * len(header), *map(line, rows), ""]


def _md_image(title, path, out):
    # A path may have blanks and brackets in it.
    return f"![{_m(title)}]({urllib.parse.quote(os.path.relpath(path, out))})"


def _md_pictures(section, out):
    return [part for title, path in section.images for part in (_md_image(title, path, out), "")]


def _md_tables(section):
    parts = []
    for name, header, rows in section.tables:
        parts += [f"### {_m(name)}", ""] + _md_table(header, rows)
    return parts


def _md_training(training, out):
    parts = [f"## {_m(training.title)}", ""]
    for problem in training.problems:
        parts += [f"**{_m(problem)}**", ""]
    for sentence in training.text:
        parts += [_paragraph(sentence), ""]
    return parts + _md_pictures(training, out) + _md_tables(training)


def experiment_page(section, out):
    """All of one experiment; `out` is the folder of the page."""
    experiment = section.experiment
    definition = experiment.definition
    parts = [f"# {_m(experiment.name)}: {_m(definition['title'])}", "",
             _paragraph(f"{experiment.device}. {definition.get('source', '')}"), "",
             "[All experiments](../report.md)", ""]
    if definition.get("about"):
        parts += [_paragraph(definition["about"]), ""]
    for problem in experiment.problems:
        parts += [f"**{_m(problem)}**", ""]
    if section.claims:
        parts += _md_table(pages.CLAIMS_HEADER, map(pages.full_claim_row, section.claims))
    for sentence in section.text:
        parts += [_paragraph(sentence), ""]
    if experiment.notes():
        parts += [notes.markdown(experiment.notes()), ""]
    parts += _md_pictures(section, out) + _md_tables(section)
    parts += ["## All cells", ""]
    parts += _md_table(pages.cells_header(experiment), pages.cell_rows(experiment))
    if experiment.superseded:
        parts += ["## Earlier results", "", pages.SUPERSEDED, ""]
        parts += _md_table(pages.OLD_HEADER, map(pages.old_row, experiment.superseded))
    parts += [f"{_paragraph(text)}  " for text in pages.provenance(experiment)] + [""]
    return "\n".join(parts)


def _by_paper(sections):
    """{paper: sections that have claims}, in the order of the sections. A paper is what stands before
    the first comma of a source: "TorchSparse (MLSys 2022), Figure 11"."""
    found = {}
    for section in sections:
        if section.claims:
            source = section.experiment.definition.get("source", "")
            found.setdefault(source.partition(",")[0] or "Claims", []).append(section)
    return found


CLAIMS_HEADER = ["experiment", "claim", "published", "here (interval)", "verdict"]


def _commits(claim):
    return sorted({commit for _, outcome in claim.parts for commit in outcome.commits})


def _notes_of_paper(section):
    """Text in PAPER.notes.md beside PAPER-fig1.jsonl, by people."""
    paper = section.experiment.name.partition("/")[0]
    path = section.experiment.path.with_name(f"{paper}.notes.md")
    is_own = path == section.experiment.path.with_suffix(".notes.md")
    return [notes.markdown(fields.text_of(path)), ""] if path.exists() and not is_own else []


def _paper(title, sections, out):
    """A paper's claims, and the plot of its first experiment that has one."""
    claims = [(section, claim) for section in sections for claim in section.claims]
    # What was measured at another commit does not stand here without a mark.
    several = len({commit for _, claim in claims for commit in _commits(claim)}) > 1
    header = CLAIMS_HEADER + (["commit"] if several else [])
    rows = [[pages.Link(section.experiment.name, section), *pages.claim_row(claim)]
            + ([" ".join(_commits(claim))] if several else []) for section, claim in claims]
    counts = [f"{sum(claim.verdict == verdict for s in sections for claim in s.claims)} {verdict}"
              for verdict in rule.VERDICTS]
    parts = [f"## {_m(title)}", "", f"Claims: {', '.join(counts)}.", ""]
    parts += _notes_of_paper(sections[0])
    parts += _md_table(header, rows)
    images = [image for section in sections for image in section.images]
    return parts + ([_md_image(*images[0], out), ""] if images else [])


def _answers(sections, out):
    parts = []
    for section in pages.answers(sections):
        title = _m(section.experiment.definition["title"])
        bullets = [f"- {_m(sentence)}" for sentence in section.text]
        parts += [*bullets[:-1], f"{bullets[-1]} All of it: [{title}]({page_of(section)}).", ""]
        parts += _md_table(*section.answer) if section.answer else []
        parts += [part for image in section.images[:1] for part in (_md_image(*image, out), "")]
    words = pages.answers_notes(sections)
    parts += [notes.markdown(words), ""] if words else []
    return [f"## {pages.ANSWERS_TITLE}", "", *parts] if parts else []


def _others(sections):
    """The experiments without claims."""
    rows = [[pages.Link(s.experiment.name, s), s.experiment.device, s.experiment.definition["title"],
             len(s.experiment.measured())] for s in sections if not s.claims]
    if not rows:
        return []
    return ["## Experiments beyond the papers", ""] + _md_table(
        ["experiment", "device", "about", "cells"], rows)


def _problems(sections):
    return [part for section in sections for problem in section.experiment.problems
            for part in (f"**{_m(section.experiment.name)}: {_m(problem)}**", "")]


def front_page(title, sections, agreements, trainings, out, changes=None):
    """What holds, with links to the pages of the experiments; `out` is the folder of the page."""
    parts = [f"# {_m(title)}", "", *_problems(sections), *_answers(sections, out)]
    for paper, of_paper in _by_paper(sections).items():
        parts += _paper(paper, of_paper, out)
    parts += _others(sections)
    for training in trainings:
        parts += _md_training(training, out)
    if agreements:
        parts += ["## Measured again", "", pages.AGAIN, ""]
        parts += _md_table(again.HEADER, [agreement.row() for agreement in agreements])
    if changes:
        parts += [f"## {pages.CHANGES_TITLE}", "",
                  f"{_paragraph(changes[2])} [Each verdict before and now]({CHANGES_PAGE})."]
    if sections:
        parts += [f"[The rule]({RULE_PAGE}) decides on each verdict.", ""]
    return "\n".join(parts)


def changes_page(changes, commits_before, commits_now):
    header, rows, words = changes
    return "\n".join([f"# {pages.CHANGES_TITLE}", "", "[All experiments](../report.md)", "",
                      _paragraph(words), "",
                      _paragraph(f"Before: {commits_before}. Now: {commits_now}."), "",
                      *_md_table(header, rows)])


def rule_page():
    return "\n".join(["# The rule of verdicts", "", "[All experiments](../report.md)", "", "```", pages.RULE,
                      "```", ""])
