# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML page without outside parts, and as Markdown."""

import base64
import dataclasses
import html as escape_html
import os
import re
import urllib.parse

import again
import notes
import results as lines
import rule

RULE = re.sub(r"^.*?\n\n", "", rule.__doc__, count=1, flags=re.DOTALL).strip()

AGAIN = ("Cells that were measured a second time, in another process. The interval of a cell that ran one "
         "round is of its pairs alone: what differs from process to process, such as the host's speed "
         "in work bound by launches, is not in it. Of several rounds (--rounds) it is.")

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
    figures: list  # (published, Outcome)
    images: list   # (title, path)
    tables: list   # (title, header, rows)
    text: list
    anchor: str    # unique; letters, digits, dashes, dots and underscores


class Link(str):
    """A text in a table that leads to a section of the same page."""

    def __new__(cls, text, anchor):
        link = super().__new__(cls, text)
        link.anchor = anchor
        return link


def _number(value):
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _published(figure):
    if figure.get("faster"):
        return "faster"
    if "ratio" in figure:
        return f"{_number(figure['ratio'])}x"
    for key, words in (("value", ""), ("at_least", "at least "), ("at_most", "at most ")):
        if key in figure:
            return words + _number(figure[key])
    return ""


def _ours(figure, outcome):
    if outcome.ours is None:
        return ""
    value, low, high = outcome.ours
    if "ratio" not in figure and not figure.get("faster"):
        return _number(value)
    return f"{value:.2f}x ({low:.2f}..{high:.2f})"


FIGURES_HEADER = ["claim", "metric", "published", "ours (interval)", "verdict", "cells",
                  "source", "GPU of the paper"]


def _figure_row(figure, outcome):
    verdict = outcome.verdict + (f": {outcome.reason}" if outcome.reason else "")
    cells = str(outcome.cells) + (f" ({outcome.combined})" if outcome.cells > 1 else "")
    return [figure["what"], lines.METRIC_NAMES[figure.get("metric", "time")], _published(figure),
            _ours(figure, outcome), verdict, cells, figure["source"], figure["gpu"]]


CELLS_HEADER = ["configuration", "against", "input", "voxels", "neighbours", "work", "dtype",
                "maps", "A ms", "B ms", "B / A", "interval", "pairs", "verdict"]


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
    return row + [f"{result['a']['wall_ms']['median']:.4g}",
                  f"{result['b']['wall_ms']['median']:.4g}", f"{ratio['ratio']:.3f}",
                  f"{ratio['low']:.3f}..{ratio['high']:.3f}", pairs, verdict]


SUPERSEDED = ("Cells that were measured again later, or that the experiment no longer has. They are in "
              "no figure and in no verdict.")
OLD_HEADER = CELLS_HEADER + ["spec of A", "spec of B", "program", "plugins"]


def _spec(specs):
    return "/".join(specs[part] for part in ("mapping", "dataflow", "output_coords")
                    if part in specs)


def _old_row(cell):
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


def _provenance(experiment):
    seen = {}
    for cell in experiment.cells:
        p = cell["provenance"]
        text = (f"{p['device']}, commit {p['commit'][:12]}{' (changed)' if p['dirty'] else ''}, "
                f"{p['compiler']} {p['build_type']}, {p['time_utc'][:10]}")
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
                text = f'<a href="#{cell.anchor}">{text}</a>'
            parts.append(f"<td{kind}>{text}</td>")
        parts.append("</tr>")
    return "".join(parts) + "</tbody></table>"


def _counts(section):
    return [str(sum(outcome.verdict == verdict for _, outcome in section.figures))
            for verdict in rule.VERDICTS]


def _overview(sections):
    header = ["experiment", "device", "about", "cells", *rule.VERDICTS]
    rows = [[Link(s.experiment.name, s.anchor), s.experiment.device, s.experiment.definition["title"],
             str(len(s.experiment.measured())), *_counts(s)] for s in sections]
    return header, rows


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
    header, rows = _overview(sections)
    return [_table(header, rows), "<details><summary>The rule</summary>", f"<pre>{_e(RULE)}</pre>",
            "</details>"]


def _html_section(section):
    experiment = section.experiment
    definition = experiment.definition
    parts = [f'<h2 id="{section.anchor}">{_e(experiment.name)}: {_e(definition["title"])}</h2>',
             f"<p>{_e(experiment.device)}. {_e(definition.get('source', ''))}</p>"]
    if definition.get("about"):
        parts.append(f"<p>{_e(definition['about'])}</p>")
    parts += [f'<p class="problem">{_e(problem)}</p>' for problem in experiment.problems]
    if section.figures:
        parts.append(_table(FIGURES_HEADER, [_figure_row(*pair) for pair in section.figures],
                            verdict_column=4))
    parts += [f"<p>{_e(sentence)}</p>" for sentence in section.text]
    if experiment.notes():
        parts.append(f"<h3>Notes</h3><div>{notes.html(experiment.notes())}</div>")
    parts += _html_pictures(section) + _html_tables(section)
    parts.append("<details><summary>All cells</summary>"
                 + _table(CELLS_HEADER, [_cell_row(cell) for cell in experiment.cells]))
    if experiment.superseded:
        parts += [f"<p>{_e(SUPERSEDED)}</p>",
                  _table(OLD_HEADER, [_old_row(cell) for cell in experiment.superseded])]
    stages = [row for cell in experiment.measured() for row in _stage_rows(cell)]
    if stages:
        parts.append("<h3>Stages and counters</h3>" + _table(STAGES_HEADER, stages))
    parts.append("</details>")
    parts.append("<p><small>" + "<br>".join(map(_e, _provenance(experiment))) + "</small></p>")
    return "\n".join(parts)


def html(title, sections, agreements, trainings):
    repeated = []
    if agreements:
        repeated = ["<h2>Measured again</h2>", f"<p>{_e(AGAIN)}</p>",
                    _table(again.HEADER, [agreement.row() for agreement in agreements])]
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">',
        # No icon either: the page asks for nothing outside of itself.
        '<link rel="icon" href="data:,">', f"<title>{_e(title)}</title>",
        f"<style>{STYLE}</style></head><body>", f"<h1>{_e(title)}</h1>",
        *_html_experiments(sections), *map(_html_training, trainings), *repeated,
        *map(_html_section, sections),
        f"<script>{SCRIPT}</script>", "</body></html>\n"])


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


def _md_cell(cell):
    return f"[{_m(cell)}](#{cell.anchor})" if isinstance(cell, Link) else _m(cell)


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


def _md_section(section, out):
    experiment = section.experiment
    definition = experiment.definition
    parts = [f'<a id="{section.anchor}"></a>', "",
             f"## {_m(experiment.name)}: {_m(definition['title'])}", "",
             _paragraph(f"{experiment.device}. {definition.get('source', '')}"), ""]
    if definition.get("about"):
        parts += [_paragraph(definition["about"]), ""]
    for problem in experiment.problems:
        parts += [f"**{_m(problem)}**", ""]
    if section.figures:
        parts += _md_table(FIGURES_HEADER, [_figure_row(*pair) for pair in section.figures])
    for sentence in section.text:
        parts += [_paragraph(sentence), ""]
    if experiment.notes():
        parts += [notes.markdown(experiment.notes()), ""]
    parts += _md_pictures(section, out) + _md_tables(section)
    parts += ["<details><summary>All cells</summary>", ""]
    parts += _md_table(CELLS_HEADER, [_cell_row(cell) for cell in experiment.cells])
    if experiment.superseded:
        parts += [SUPERSEDED, ""]
        parts += _md_table(OLD_HEADER, [_old_row(cell) for cell in experiment.superseded])
    parts += ["</details>", ""]
    return parts + [f"{_paragraph(text)}  " for text in _provenance(experiment)] + [""]


def markdown(title, sections, agreements, trainings, out):
    parts = [f"# {_m(title)}", ""]
    if sections:
        header, rows = _overview(sections)
        parts += _md_table(header, rows) + ["```", RULE, "```", ""]
    for training in trainings:
        parts += _md_training(training, out)
    if agreements:
        parts += ["## Measured again", "", AGAIN, ""]
        parts += _md_table(again.HEADER, [agreement.row() for agreement in agreements])
    for section in sections:
        parts += _md_section(section, out)
    return "\n".join(parts)
