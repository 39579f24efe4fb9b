# SPDX-License-Identifier: Apache-2.0
"""The papers' values as lines in the plots of the same metric."""

from typing import NamedTuple

import results as lines
import rule

LONGEST = 44  # letters of a line's label


class Line(NamedTuple):
    """A published value, and where in the plot it belongs."""

    label: str
    value: float
    series: set  # names of the series whose cells it is about
    places: set  # their places along x


def _label(figure, value):
    bound = {"max": "at most ", "min": "at least "}.get(figure.get("over"), "")
    bound = "at least " if "at_least" in figure else "at most " if "at_most" in figure else bound
    what = figure["what"]
    if len(what) > LONGEST:
        what = what[:LONGEST - 1] + "…"
    unit = "x" if "ratio" in figure else ""
    bound = "" if bound.strip() in what else bound
    return f"published: {bound}{value:.3g}{unit} ({what})"


def _value(figure, is_ratio):
    if is_ratio:
        return figure.get("ratio")
    return next((figure[key] for key in ("value", "at_least", "at_most") if key in figure), None)


def of_plot(plot, experiment, points_of):
    """The lines of one plot. `points_of(cell)` gives the (series, x) of the cell's points by side."""
    is_ratio = plot.get("of", "ratio") == "ratio"
    metric = plot.get("y", "time")
    found = []
    for figure in experiment.definition.get("published", []):
        # A claim about what cannot be measured here is not about these cells.
        value = None if figure.get("unmeasurable") else _value(figure, is_ratio)
        if value is None or not value > 0 or figure.get("metric", "time") != metric:
            continue
        sides = [(cell, rule.orientation(figure, cell)) for cell in experiment.measured()]
        # As for the verdict: where the pair was measured in the claim's order, that counts.
        wanted = "a" if any(side == "a" for _, side in sides) else "b"
        if is_ratio and wanted == "b":
            value = 1 / value
        series, places = set(), set()
        for cell, side in sides:
            if side is None or (is_ratio and side != wanted):
                continue
            if is_ratio and lines.ratio_of(cell, metric) is None:
                continue
            for name, x in points_of(cell, "a" if is_ratio else side):
                series.add(name)
                places.add(x)
        if places:
            found.append(Line(_label(figure, value), value, series, places))
    return found
