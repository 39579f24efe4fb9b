# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML page without outside parts, and what it shares with the Markdown."""

import base64
import dataclasses
import html as escape_html
import re

import again
import fields
import notes
import results as lines
import rule

RULE = re.sub(r"^.*?\n\n", "", rule.__doc__, count=1, flags=re.DOTALL).strip()

AGAIN = ("Cells that were measured a second time, in another process. The interval of a cell with one round "
         "covers its pairs alone. It leaves out what differs between processes, such as the host's speed "
         "where launches bound the work. The interval of several rounds (--rounds) covers that too.")

CHANGES_TITLE = "Verdicts before and now"

# Analyses that say which part of an engine carries what it gains.
_ANSWERS = ("parts", "variance")
ANSWERS_TITLE = "Which part carries an engine's gain"


STYLE = """
body { font: 15px/1.45 sans-serif; max-width: 72em; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 0.8em 0; font-size: 13px; }
th, td { border: 1px solid #ccc; padding: 3px 8px; text-align: left; }
th { background: #eee; cursor: pointer; user-select: none; }
th[aria-sort=ascending]::after { content: " \\25b2"; }
th[aria-sort=descending]::after { content: " \\25bc"; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
.reproduced { background: #d9f2d9; } .reproduced-in-direction { background: #fff3c4; }
.not-reproduced { background: #f8d0d0; } .not-measurable-here { background: #e8e8e8; }
.problem { background: #f8d0d0; padding: 0.4em 0.8em; }
img { max-width: 100%; } pre { background: #f4f4f4; padding: 0.8em; overflow-x: auto; }
summary { cursor: pointer; }
"""

SCRIPT = """
const search = document.querySelector("input[type=search]");
if (search) search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(" ").filter((word) => word);
  for (const section of document.querySelectorAll("section")) {
    const title = section.querySelector("h2").textContent;
    let found = 0;
    for (const row of section.querySelectorAll("tbody tr")) {
      const text = (title + " " + row.textContent).toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      if (!row.hidden) found += 1;
    }
    section.hidden = words.length > 0 && found === 0;
    for (const details of section.querySelectorAll("details")) details.open = words.length > 0;
  }
});
for (const th of document.querySelectorAll("th")) {
  th.addEventListener("click", () => {
    const table = th.closest("table"), body = table.tBodies[0];
    const column = Array.from(th.parentNode.children).indexOf(th);
    const down = th.getAttribute("aria-sort") === "ascending";
    for (const other of th.parentNode.children) other.removeAttribute("aria-sort");
    th.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => row.cells[column].dataset.sort ?? row.cells[column].textContent;
    const compare = (x, y) => {
      const a = value(x), b = value(y), p = parseFloat(a), q = parseFloat(b);
      return (isNaN(p) || isNaN(q) ? a.localeCompare(b) : p - q) * (down ? -1 : 1);
    };
    for (const row of Array.from(body.rows).sort(compare)) body.appendChild(row);
  });
}
"""


@dataclasses.dataclass
class Section:
    experiment: lines.Results
    claims: list  # rule.Claim
    images: list   # (title, path)
    tables: list   # (title, header, rows)
    text: list
    anchor: str    # unique; letters, digits, dashes, dots and underscores
    answer: tuple = None  # (header, rows) for the front page


class Link(str):
    """A text in a table that leads to a section."""

    def __new__(cls, text, section):
        link = super().__new__(cls, text)
        link.section = section
        return link


def _number(value):
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _quantity(figure, value):
    if figure.get("metric") in rule.SHARES:
        return f"{100 * value:.3g} %"
    return _number(value)


def _published(figure):
    if figure.get("faster"):
        return "faster"
    if "ratio" in figure:
        return f"{_number(figure['ratio'])}x"
    for key, words in (("value", ""), ("at_least", "at least "), ("at_most", "at most ")):
        if key in figure:
            return words + _quantity(figure, figure[key])
    return ""


def _ours(figure, outcome):
    if outcome.ours is None:
        return ""
    value, low, high = outcome.ours
    if "ratio" not in figure and not figure.get("faster"):
        return _quantity(figure, value)
    text = f"{value:.2f}x ({low:.2f}..{high:.2f})"
    if outcome.captured:
        text += " [as graphs {:.2f}x ({:.2f}..{:.2f})]".format(*outcome.captured)
    return text


# Which of its cells a figure is about, where a claim has several figures.
_OVER = {"mean": "mean ", "max": "at most ", "min": "at least "}


def _joined(claim, text_of):
    """The texts of a claim's parts, which say what they are where there are several."""
    several = len(claim.parts) > 1
    texts = [((_OVER[figure.get("over", "mean")] if several else "") + text)
             for figure, outcome in claim.parts if (text := text_of(figure, outcome))]
    return ", ".join(texts)


def verdict_text(claim):
    """The verdict, and what there is to say of it."""
    weakest = next(outcome for _, outcome in claim.parts if outcome.verdict == claim.verdict)
    text = claim.verdict + (f": {weakest.reason}" if weakest.reason else "")
    if len(weakest.commits) > 1:
        text += f" (cells of several commits: {', '.join(weakest.commits)})"
    if weakest.stand_ins:
        data = next(figure["data"] for figure, outcome in claim.parts if outcome is weakest)
        text += f" ({', '.join(weakest.stand_ins)} in place of {data})"
    return text


def claim_row(claim):
    """What is claimed, as published, ours, and the verdict."""
    what = claim.parts[0][0]["what"]
    if len(claim.parts) > 1:
        what = re.sub("[,:] at (most|least)$", "", what)
    return [what, _joined(claim, lambda figure, _: _published(figure)),
            _joined(claim, _ours), verdict_text(claim)]


CLAIMS_HEADER = ["claim", "metric", "published", "ours (interval)", "verdict", "cells",
                 "source", "GPU of the paper"]


def full_claim_row(claim):
    figure, outcome = claim.parts[0]
    what, published, ours, verdict = claim_row(claim)
    cells = str(outcome.cells)
    if outcome.cells > 1 and len(claim.parts) == 1:
        cells += f" ({outcome.combined})"
    return [what, lines.METRIC_NAMES[figure.get("metric", "time")], published, ours, verdict, cells,
            figure["source"], figure["gpu"]]


CELLS_HEADER = ["configuration", "against", "input", "voxels", "neighbours", "work", "dtype",
                "maps", "A ms", "B ms", "B / A", "interval", "pairs", "verdict"]


CAPTURED_HEADER = ["captured: A ms", "B ms", "B / A", "interval", "launch-bound as run"]


def _captured(cell):
    return cell.get("result", {}).get("captured")


def _captured_cells(cell):
    """The same cell with both sides as graphs: what the device does, without the host."""
    captured = _captured(cell)
    if not captured:
        return [""] * len(CAPTURED_HEADER)
    ratio = captured.get("speedup")
    if not ratio:
        return ["", "", "", "", f"not captured: {captured.get('why', 'no times')}"]
    return [f"{captured['a']['wall_ms']['median']:.4g}", f"{captured['b']['wall_ms']['median']:.4g}",
            f"{ratio['ratio']:.3f}", f"{ratio['low']:.3f}..{ratio['high']:.3f}",
            " and ".join(side.upper() for side in captured["launch_bound"])]


def _more_columns(experiment):
    """[(header, what a cell has there)]: those that not every experiment needs."""
    columns = []
    if any(lines.tuned_of(cell) for cell in experiment.cells):
        columns.append((["tuned"], lambda cell: [lines.tuned_of(cell) or "untuned"]))
    if any(lines.cache_of(cell) for cell in experiment.cells):
        columns.append((["cache"], lambda cell: [lines.cache_of(cell) or "warm"]))
    if any(_captured(cell) for cell in experiment.cells):
        columns.append((CAPTURED_HEADER, _captured_cells))
    if len(lines.commits_of(experiment.cells)) > 1:
        columns.append((["commit"], lambda cell: [lines.commit_of(cell)]))
    return columns


def cells_header(experiment):
    return CELLS_HEADER + [name for header, _ in _more_columns(experiment) for name in header]


def cell_rows(experiment):
    columns = _more_columns(experiment)
    return [_cell_row(cell) + [text for _, texts in columns for text in texts(cell)]
            for cell in experiment.cells]


def _cell_row(cell):
    about = cell["cell"]
    row = [about["configuration"], about["against"] or "", about["input"], str(about["voxels"]),
           f"{about['neighbours']:.2f}", about["work"], about["dtype"], about["maps"]]
    if cell["status"] != "measured":
        return row + ["", "", "", "", "", f"{cell['status']}: {cell['reason']}"]
    if "result" not in cell:
        return row + ["", "", "", "", "", "no times"]
    result = cell["result"]
    ratio = result["speedup"]
    pairs = str(result["pairs"])
    if "rounds" in result:
        pairs += f" in {result['rounds']} rounds"
    verdict = result["verdict"] + (" (quick)" if cell["quick"] else "")
    if result.get("busy"):
        verdict += f" (busy machine: {result['busy']})"
    if result.get("clocks"):
        verdict += f" (clocks: {result['clocks']})"
    return row + [f"{result['a']['wall_ms']['median']:.4g}",
                  f"{result['b']['wall_ms']['median']:.4g}", f"{ratio['ratio']:.3f}",
                  f"{ratio['low']:.3f}..{ratio['high']:.3f}", pairs, verdict]


SUPERSEDED = ("Cells that were measured again later, or that the experiment no longer has. They are in "
              "no figure and in no verdict.")
OLD_HEADER = CELLS_HEADER + ["spec of A", "spec of B", "program", "plugins"]


def _spec(specs):
    return "/".join(specs[part] for part in ("mapping", "dataflow", "output_coords")
                    if part in specs)


def old_row(cell):
    """What may differ from the cell that took its place."""
    about = cell["cell"]
    specs = about.get("specs", {})
    return _cell_row(cell) + [_spec(specs.get("a", {})), _spec(specs.get("b", {})),
                              about.get("program", ""), " ".join(about.get("plugins", []))]


STAGES_HEADER = ["configuration", "against", "input", "work", "metric", "A", "B", "B / A", "interval"]


def _stage_rows(cell):
    about = cell["cell"]
    rows = []
    for metric in lines.METRIC_NAMES:
        ratio = lines.ratio_of(cell, metric)
        if metric == "time" or ratio is None:
            continue
        values = [lines.side_value(cell, metric, side) for side in "ab"]
        rows.append([about["configuration"], about["against"], about["input"], about["work"],
                     lines.METRIC_NAMES[metric], *(f"{value:.4g}" for value in values),
                     f"{ratio[0]:.3f}", f"{ratio[1]:.3f}..{ratio[2]:.3f}"])
    return rows


def provenance(experiment):
    seen = {}
    for cell in experiment.cells:
        p = cell["provenance"]
        text = (f"{p['device']}, commit {p['commit'][:12]}{' (changed)' if p['dirty'] else ''}, "
                f"{p['compiler']} {p['build_type']}, {p['time_utc'][:10]}, "
                f"order of rows {lines.order_of(cell['cell'])}")
        seen[text] = seen.get(text, 0) + 1
    return [f"{text}: {count} cells" for text, count in seen.items()]


def _e(text):
    return escape_html.escape(str(text))


_NUMERIC = re.compile(r"^[-+]?[0-9.]+(e[-+]?\d+)?( %|x)?( .*)?$")


def _table(header, rows, verdict_column=None):
    parts = ["<table><thead><tr>", *(f"<th>{_e(name)}</th>" for name in header),
             "</tr></thead><tbody>"]
    for row in rows:
        parts.append("<tr>")
        for i, cell in enumerate(row):
            text = str(cell)
            kind = ' class="n"' if _NUMERIC.match(text) else ""
            if i == verdict_column:
                verdict = max((v for v in rule.VERDICTS if text.startswith(v)), key=len)
                kind = f' class="{verdict.replace(" ", "-")}"'
            text = _e(text)
            if isinstance(cell, Link):
                text = f'<a href="#{cell.section.anchor}">{text}</a>'
            parts.append(f"<td{kind}>{text}</td>")
        parts.append("</tr>")
    return "".join(parts) + "</tbody></table>"


def _counts(section):
    return [str(sum(claim.verdict == verdict for claim in section.claims))
            for verdict in rule.VERDICTS]


def overview(sections):
    header = ["experiment", "device", "about", "cells", *rule.VERDICTS]
    rows = [[Link(s.experiment.name, s), s.experiment.device, s.experiment.definition["title"],
             str(len(s.experiment.measured())), *_counts(s)] for s in sections]
    return header, rows


def answers(sections):
    """The sections that say which part of an engine carries its gain."""
    return [section for kind in _ANSWERS for section in sections
            if section.experiment.definition.get("analysis") == kind and section.text]


def answers_notes(sections):
    """Text in answers.notes.md beside the lines, by people; empty without such sections."""
    for section in answers(sections):
        path = section.experiment.path.with_name("answers.notes.md")
        if path.exists():
            return fields.text_of(path)
    return ""


def _html_answers(sections):
    parts = []
    for section in answers(sections):
        parts += [f"<p>{_e(sentence)}</p>" for sentence in section.text]
        parts += [_table(*section.answer)] if section.answer else []
    words = answers_notes(sections)
    parts += [f'<div>{notes.html(words)}</div>'] if words else []
    return [f"<h3>{_e(ANSWERS_TITLE)}</h3>", *parts] if parts else []


def _html_pictures(section):
    """Of a Section or of a Training."""
    parts = []
    for title, path in section.images:
        data = base64.b64encode(path.read_bytes()).decode()
        parts.append(f'<p><img alt="{_e(title)}" src="data:image/png;base64,{data}"></p>')
    return parts


def _html_tables(section):
    return [part for title, header, rows in section.tables
            for part in (f"<h3>{_e(title)}</h3>", _table(header, rows))]


def _html_training(training):
    parts = [f'<h2 id="training">{_e(training.title)}</h2>']
    parts += [f'<p class="problem">{_e(problem)}</p>' for problem in training.problems]
    parts += [f"<p>{_e(sentence)}</p>" for sentence in training.text]
    return "\n".join(parts + _html_pictures(training) + _html_tables(training))


def _html_experiments(sections):
    if not sections:
        return []
    header, rows = overview(sections)
    return [*_html_answers(sections), _table(header, rows), "<details><summary>The rule</summary>", f"<pre>{_e(RULE)}</pre>",
            "</details>",
            '<p><input type="search" placeholder="words of cells, claims and titles" size="40"></p>']


def _html_section(section):
    experiment = section.experiment
    definition = experiment.definition
    parts = [f'<section><h2 id="{section.anchor}">{_e(experiment.name)}: {_e(definition["title"])}</h2>',
             f"<p>{_e(experiment.device)}. {_e(definition.get('source', ''))}</p>"]
    if definition.get("about"):
        parts.append(f"<p>{_e(definition['about'])}</p>")
    parts += [f'<p class="problem">{_e(problem)}</p>' for problem in experiment.problems]
    if section.claims:
        parts.append(_table(CLAIMS_HEADER, [full_claim_row(claim) for claim in section.claims],
                            verdict_column=4))
    parts += [f"<p>{_e(sentence)}</p>" for sentence in section.text]
    if experiment.notes():
        parts.append(f"<h3>Notes</h3><div>{notes.html(experiment.notes())}</div>")
    parts += _html_pictures(section) + _html_tables(section)
    parts.append("<details><summary>All cells</summary>"
                 + _table(cells_header(experiment), cell_rows(experiment)))
    if experiment.superseded:
        parts += [f"<p>{_e(SUPERSEDED)}</p>",
                  _table(OLD_HEADER, [old_row(cell) for cell in experiment.superseded])]
    stages = [row for cell in experiment.measured() for row in _stage_rows(cell)]
    if stages:
        parts.append("<h3>Stages and counters</h3>" + _table(STAGES_HEADER, stages))
    parts.append("</details>")
    parts.append("<p><small>" + "<br>".join(map(_e, provenance(experiment)))
                 + "</small></p></section>")
    return "\n".join(parts)


def html(title, sections, agreements, trainings, changes=None):
    repeated = []
    if changes:
        header, rows, words = changes
        repeated = [f"<h2>{_e(CHANGES_TITLE)}</h2>", f"<p>{_e(words)}</p>", _table(header, rows)]
    if agreements:
        repeated += ["<h2>Measured again</h2>", f"<p>{_e(AGAIN)}</p>",
                    _table(again.HEADER, [agreement.row() for agreement in agreements])]
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">',
        # No icon either: the page asks for nothing outside of itself.
        '<link rel="icon" href="data:,">', f"<title>{_e(title)}</title>",
        f"<style>{STYLE}</style></head><body>", f"<h1>{_e(title)}</h1>",
        *_html_experiments(sections), *map(_html_training, trainings), *repeated,
        *map(_html_section, sections),
        f"<script>{SCRIPT}</script>", "</body></html>\n"])
