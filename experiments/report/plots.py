# SPDX-License-Identifier: Apache-2.0
"""The plots that an experiment's definition asks for."""

import math

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (after the choice of the back end)
from matplotlib import ticker  # noqa: E402

import results as lines  # noqa: E402
import rule  # noqa: E402

MAX_BARS = 60
MAX_TICKS = 10
LABELS = {"voxels": "voxels", "neighbours": "neighbours per voxel", "x": "voxels",
          "resolution": "voxels along the diameter"}


def plain(text):
    """Text that Matplotlib shows as it is: between two dollars it would be set as mathematics, and a
    legend leaves out what begins with an underscore."""
    text = str(text).encode("utf-8", "replace").decode().replace("$", "\\$")
    return " " + text if text.startswith("_") else text


def close_all():
    """Frees what a plot that failed has left."""
    plt.close("all")


def _field(cell, name):
    about = cell["cell"]
    value = about.get("params", {}).get(name, about.get(name))
    if name == "x" and value is None:
        return about["voxels"]
    return value


def _series_name(cell, name, many_sides):
    value = str(_field(cell, name))
    if name == "configuration" and many_sides and cell["cell"].get("against"):
        return f"{value} against {cell['cell']['against']}"
    return value


def _ratios(plot, experiment):
    many_sides = len({cell["cell"].get("against") for cell in experiment.cells}) > 1
    for cell in experiment.measured():
        value = lines.ratio_of(cell, plot.get("y", "time"))
        if value is not None:
            name = _series_name(cell, plot.get("series", "configuration"), many_sides)
            yield name, _field(cell, plot["x"]), value


def _values(plot, experiment):
    """Each side's own quantity; side B of many comparisons is one configuration, which stands in
    plots by configuration alone."""
    series_by = plot.get("series", "configuration")
    by_configuration = "configuration" in (series_by, plot["x"])
    for cell in experiment.measured():
        for side, key in (("a", "configuration"), ("b", "against")):
            if side == "b" and not ("result" in cell and by_configuration):
                continue
            value = lines.side_value(cell, plot.get("y", "time"), side)
            if value is None:
                continue
            name, x = (cell["cell"][key] if field == "configuration" else _field(cell, field)
                       for field in (series_by, plot["x"]))
            yield str(name), x, (value,) * 3


def _points(plot, experiment):
    """{series: [(x, y, low, high)]}; cells at the same place are one point, their mean."""
    found = _ratios if plot.get("of", "ratio") == "ratio" else _values
    places = {}
    for name, x, value in found(plot, experiment):
        if x is not None:
            places.setdefault(name, {}).setdefault(x, []).append(value)
    return {name: [(x, *rule.combine(values, "mean")) for x, values in by_x.items()]
            for name, by_x in places.items()}


def _draw_lines(axes, series):
    for name, points in series.items():
        points = sorted(points, key=lambda point: point[0])
        xs, ys, low, high = zip(*points)
        axes.plot(xs, ys, marker="o", markersize=4, label=plain(name))
        axes.fill_between(xs, low, high, alpha=0.2)


def _draw_bars(axes, series):
    groups = list(dict.fromkeys(str(p[0]) for points in series.values() for p in points))
    width = 0.8 / len(series)
    for i, (name, points) in enumerate(series.items()):
        at = [groups.index(str(p[0])) + (i - (len(series) - 1) / 2) * width for p in points]
        heights = [p[1] for p in points]
        errors = [[max(0, p[1] - p[2]) for p in points], [max(0, p[3] - p[1]) for p in points]]
        axes.bar(at, heights, width, yerr=errors, label=plain(name), error_kw={"linewidth": 0.8})
    axes.set_xticks(range(len(groups)), [plain(group) for group in groups],
                    rotation=30 if len(groups) > 3 else 0,
                    ha="right" if len(groups) > 3 else "center", fontsize=7)


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _place_ticks(axes, places, log):
    """At the places themselves, but for those whose labels would run into each other."""
    at = [math.log(place) if log else place for place in places]
    apart = (at[-1] - at[0]) / 14
    shown = []
    for i, place in enumerate(places):
        if not shown or at[i] - at[shown[-1]] >= apart:
            shown.append(i)
    axes.set_xticks([places[i] for i in shown], [f"{places[i]:.3g}" if places[i] < 1000
                                                 else f"{places[i]:g}" for i in shown])
    axes.minorticks_off()


def draw(plot, experiment, path):
    """Writes a PNG; False where there is nothing to draw."""
    series = _points(plot, experiment)
    if not series:
        return False
    figure, axes = plt.subplots(figsize=(7.2, 3.8), dpi=110)
    numbers = all(_is_number(p[0]) for points in series.values() for p in points)
    if plot.get("type") == "lines" and numbers:
        _draw_lines(axes, series)
        if "x" in plot.get("log", []):
            axes.set_xscale("log")
        places = sorted({point[0] for points in series.values() for point in points})
        if len(places) <= MAX_TICKS:
            _place_ticks(axes, places, "x" in plot.get("log", []))
    else:
        _draw_bars(axes, series)
    if "y" in plot.get("log", []):
        axes.set_yscale("log")
        # Few series span a decade: the powers of ten alone would leave the axis without labels.
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    metric = lines.METRIC_NAMES[plot.get("y", "time")]
    if plot.get("of", "ratio") == "ratio":
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_ylabel(f"{metric}: times better")
    else:
        timed = plot.get("y", "time") in TIMES
        axes.set_ylabel(f"{metric}, ms" if timed else metric)
    axes.set_xlabel(plain(LABELS.get(plot["x"], plot["x"])))
    axes.set_title(plain(plot.get("title", experiment.definition["title"])), fontsize=9)
    axes.grid(axis="y", linewidth=0.3)
    if len(series) > 1:
        axes.legend(fontsize=7, ncols=2 if len(series) > 6 else 1)
    save(figure, path)
    return True


TIMES = {"time", "map_query", "index_build", "output_coords", "convert", "gather", "gemm",
         "scatter", "fused", "mapping", "movement", "convolution"}


def save(figure, path):
    figure.tight_layout()
    # Without the time and version that Matplotlib writes, the same data give the same file.
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


def bars(path, title, ylabel, groups, log=False):
    """A plain bar chart of [(label, value)]."""
    figure, axes = plt.subplots(figsize=(7.2, 3.2), dpi=110)
    axes.bar(range(len(groups)), [value for _, value in groups])
    if len(groups) <= MAX_BARS:
        axes.set_xticks(range(len(groups)), [plain(label) for label, _ in groups], rotation=60,
                        fontsize=6, ha="right")
    if log:
        axes.set_yscale("log")
    axes.set_ylabel(plain(ylabel))
    axes.set_title(plain(title), fontsize=9)
    save(figure, path)
