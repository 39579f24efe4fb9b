# SPDX-License-Identifier: Apache-2.0
"""The plots that an experiment's definition asks for."""

import math

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (after the choice of the back end)
from matplotlib import colors, ticker  # noqa: E402

import published  # noqa: E402
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
    if name == "order" and value is None:
        return lines.order_of(about)
    if name == "x" and value is None:
        return about["voxels"]
    return value


def _series_name(cell, name, many_sides):
    value = str(_field(cell, name))
    if name == "configuration" and many_sides and cell["cell"].get("against"):
        return f"{value} against {cell['cell']['against']}"
    return value


def _many_sides(experiment):
    return len({cell["cell"].get("against") for cell in experiment.cells}) > 1


def _ratios(plot, experiment):
    many_sides = _many_sides(experiment)
    for cell in experiment.measured():
        value = lines.ratio_of(cell, plot.get("y", "time"))
        if value is not None:
            name = _series_name(cell, plot.get("series", "configuration"), many_sides)
            yield name, _field(cell, plot["x"]), value


def _side_place(cell, plot, key):
    """The series and the place of one side's own quantity."""
    name, x = (cell["cell"][key] if field == "configuration" else _field(cell, field)
               for field in (plot.get("series", "configuration"), plot["x"]))
    return str(name), x


def _values(plot, experiment):
    """Each side's own quantity; side B of many comparisons is one configuration, which stands in
    plots by configuration alone."""
    by_configuration = "configuration" in (plot.get("series", "configuration"), plot["x"])
    for cell in experiment.measured():
        for side, key in (("a", "configuration"), ("b", "against")):
            if side == "b" and not ("result" in cell and by_configuration):
                continue
            value = lines.side_value(cell, plot.get("y", "time"), side)
            if value is None:
                continue
            yield *_side_place(cell, plot, key), (value,) * 3


def _points(plot, experiment):
    """{series: [(x, y, low, high)]} and how the cells at one place became one point, as words."""
    found = _ratios if plot.get("of", "ratio") == "ratio" else _values
    places = {}
    for name, x, value in found(plot, experiment):
        if x is not None:
            places.setdefault(name, {}).setdefault(x, []).append(value)
    series = {name: [(x, *rule.combine(values, "mean")) for x, values in by_x.items()]
              for name, by_x in places.items()}
    return series, _averaged([values for by_x in places.values() for values in by_x.values()])


def _averaged(points):
    """Says of which means the points are; "" where each is one cell."""
    counts = sorted({len(values) for values in points})
    if not counts or counts[-1] == 1:
        return ""
    means = " or ".join(sorted({rule.mean_name(values) for values in points if len(values) > 1}))
    least = f"{counts[0]} to " if counts[0] != counts[-1] else ""
    return f"each point is the {means} of {least}{counts[-1]} cells"


def _published_lines(plot, experiment):
    many_sides = _many_sides(experiment)

    def points_of(cell, side):
        if plot.get("of", "ratio") == "ratio":
            return [(_series_name(cell, plot.get("series", "configuration"), many_sides),
                     _field(cell, plot["x"]))]
        return [_side_place(cell, plot, "configuration" if side == "a" else "against")]

    return published.of_plot(plot, experiment, points_of)


def _draw_published(axes, lines_of_papers, series, places):
    """Dashed, in the colour of the series that the value is about, over the cells that it is about.
    `places` gives each x its place on the axis."""
    cycle = plt.rcParams["axes.prop_cycle"].by_key()["color"]
    names = list(series)
    whole = min(places.values()), max(places.values())
    for line in lines_of_papers:
        color = "black"
        if len(line.series) == 1 and len(names) > 1 and next(iter(line.series)) in names:
            color = cycle[names.index(next(iter(line.series))) % len(cycle)]
        at = [places[x] for x in line.places if x in places]
        if not at:
            continue
        style = {"color": color, "linestyle": "--", "linewidth": 1.1, "label": plain(line.label)}
        margin = 0.48 if isinstance(whole[0], int) else 0  # of groups of bars
        if (min(at), max(at)) == whole or min(at) == max(at) and not margin:
            axes.axhline(line.value, **style)
        else:
            axes.plot([min(at) - margin, max(at) + margin], [line.value] * 2, **style)


def _draw_lines(axes, series):
    for name, points in series.items():
        points = sorted(points, key=lambda point: point[0])
        xs, ys, low, high = zip(*points)
        axes.plot(xs, ys, marker="o", markersize=4, label=plain(name))
        axes.fill_between(xs, low, high, alpha=0.2)


def _groups(series):
    return list(dict.fromkeys(str(p[0]) for points in series.values() for p in points))


def _draw_bars(axes, series):
    groups = _groups(series)
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
    series, averaged = _points(plot, experiment)
    if not series:
        return False
    papers = _published_lines(plot, experiment)
    figure, axes = plt.subplots(figsize=(7.2, 3.8), dpi=110)
    numbers = all(_is_number(p[0]) for points in series.values() for p in points)
    if plot.get("type") == "lines" and numbers:
        _draw_lines(axes, series)
        if "x" in plot.get("log", []):
            axes.set_xscale("log")
        places = sorted({point[0] for points in series.values() for point in points})
        if len(places) <= MAX_TICKS:
            _place_ticks(axes, places, "x" in plot.get("log", []))
        _draw_published(axes, papers, series, {place: float(place) for place in places})
    else:
        _draw_bars(axes, series)
        at = {group: i for i, group in enumerate(_groups(series))}
        papers = [line._replace(places={str(x) for x in line.places}) for line in papers]
        _draw_published(axes, papers, series, at)
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
    title = plain(plot.get("title", experiment.definition["title"]))
    axes.set_title(f"{title}\n{averaged}" if averaged else title, fontsize=9)
    axes.grid(axis="y", linewidth=0.3)
    _legend(axes, len(series), len(papers))
    save(figure, path)
    return True


def _legend(axes, series, papers):
    handles, labels = axes.get_legend_handles_labels()
    if series <= 1:
        handles, labels = handles[-papers:] if papers else [], labels[-papers:] if papers else []
    if len(handles) > 6:  # would hide what it is about
        axes.figure.set_size_inches(10.6, axes.figure.get_figheight())
        axes.legend(handles, labels, fontsize=6, loc="upper left", bbox_to_anchor=(1.01, 1))
    elif handles:
        axes.legend(handles, labels, fontsize=6 if papers else 7)


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


def heat_map(path, title, rows, columns, values, label, form="{:.2f}", notes=None):
    """A table of colours, on a logarithmic scale, each with its value. `values[row][column]` is above
    0, or None where there is none. `notes` are texts below the values, or None."""
    shown = [[math.nan if value is None else value for value in row] for row in values]
    known = [value for row in values for value in row if value is not None]
    figure, axes = plt.subplots(figsize=(2.2 + 1.05 * len(columns), 1.7 + 0.42 * len(rows)), dpi=110)
    norm = colors.LogNorm(min(known), max(max(known), min(known) * 1.01))
    image = axes.imshow(shown, cmap="viridis_r", norm=norm, aspect="auto")
    for i, row in enumerate(values):
        for k, value in enumerate(row):
            text = "-" if value is None else form.format(value)
            if notes is not None and notes[i][k]:
                text += f"\n{plain(notes[i][k])}"
            dark = value is not None and norm(value) > 0.5
            axes.text(k, i, text, ha="center", va="center", fontsize=7,
                      color="white" if dark else "black")
    axes.set_xticks(range(len(columns)), [plain(name) for name in columns], rotation=30, ha="right",
                    fontsize=7)
    axes.set_yticks(range(len(rows)), [plain(name) for name in rows], fontsize=7)
    bar = figure.colorbar(image, ax=axes)
    bar.set_label(plain(label), fontsize=7)
    bar.ax.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    bar.ax.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    bar.ax.yaxis.set_minor_formatter(ticker.NullFormatter())
    bar.ax.tick_params(labelsize=7)
    axes.set_title(plain(title), fontsize=9)
    save(figure, path)


def curves(path, title, xlabel, ylabel, lines_of):
    """Curves of [(name, [(x, y)], "steps" or "epochs")]; False where all are empty. Points of epochs
    are marked, of which there may be one."""
    drawn = [curve for curve in lines_of if curve[1]]
    if not drawn:
        return False
    figure, axes = plt.subplots(figsize=(7.2, 3.4), dpi=110)
    for name, points, kind in drawn:
        xs, ys = zip(*points)
        style = {"linewidth": 0.7, "alpha": 0.6} if kind == "steps" else {"marker": "o", "markersize": 4}
        axes.plot(xs, ys, label=plain(name), **style)
    axes.set_xlabel(plain(xlabel))
    axes.set_ylabel(plain(ylabel))
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    axes.set_title(plain(title), fontsize=9)
    axes.grid(linewidth=0.3)
    axes.legend(fontsize=7)
    save(figure, path)
    return True


def confusion(path, title, shares, names, written):
    """A confusion matrix of shares of rows, NaN where a class has none. `names` may be None."""
    size = 2.4 + max(2.0, min(10.0, 0.34 * len(shares)))
    figure, axes = plt.subplots(figsize=(size + 0.6, size), dpi=110)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if written:
        for i, row in enumerate(shares):
            for k, share in enumerate(row):
                if share == share and share > 0:
                    axes.text(k, i, f"{100 * share:.0f}", ha="center", va="center", fontsize=6,
                              color="white" if share > 0.5 else "black")
    if names is not None:
        at = range(len(names))
        axes.set_xticks(at, [plain(name) for name in names], rotation=90, fontsize=6)
        axes.set_yticks(at, [plain(name) for name in names], fontsize=6)
    axes.set_xlabel("predicted")
    axes.set_ylabel("label")
    axes.set_title(plain(title), fontsize=8)
    figure.colorbar(image, ax=axes, fraction=0.046)
    save(figure, path)
    return True
