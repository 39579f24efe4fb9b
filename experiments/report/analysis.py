# SPDX-License-Identifier: Apache-2.0
"""What some experiments need beyond ratios: variance of log time, map sizes, redundancy."""

import dataclasses
import itertools
import math
import statistics

import plots
import results as lines
import rule


@dataclasses.dataclass
class Extra:
    images: list = dataclasses.field(default_factory=list)  # (title, path)
    tables: list = dataclasses.field(default_factory=list)  # (title, header, rows)
    text: list = dataclasses.field(default_factory=list)    # sentences
    answer: tuple = None  # (header, rows) for the front page


def run(kind, experiment, folder, stem):
    analyses = {"variance": variance, "map_sizes": map_sizes, "redundancy": redundancy,
                "best": best, "transfer": transfer, "parts": parts, "identical": identical}
    return analyses[kind](experiment, folder, stem)


def effects(observations, factors):
    """Main effects and two-way interactions of a full design, as shares of the sum of squares.

    `observations`: [({factor: level}, value)], one for every combination. Returns
    ({effect: share}, {factor: {level: mean deviation}}). Exact for a balanced design (every
    combination once): the effects are orthogonal and what they leave is "rest".
    """
    mean = statistics.fmean(value for _, value in observations)
    total = sum((value - mean) ** 2 for _, value in observations)
    if total == 0:
        return {}, {}

    def group_means(names):
        groups = {}
        for levels, value in observations:
            groups.setdefault(tuple(levels[name] for name in names), []).append(value)
        return groups

    main = {}
    shares = {}
    for factor in factors:
        groups = group_means([factor])
        if len(groups) < 2:
            continue
        main[factor] = {key[0]: statistics.fmean(values) - mean for key, values in groups.items()}
        shares[factor] = sum(len(values) * main[factor][key[0]] ** 2
                             for key, values in groups.items()) / total
    for first, second in itertools.combinations(main, 2):
        groups = group_means([first, second])
        shares[f"{first} × {second}"] = sum(
            len(values) * (statistics.fmean(values) - mean - main[first][key[0]]
                           - main[second][key[1]]) ** 2
            for key, values in groups.items()) / total
    shares["rest"] = max(0.0, 1 - sum(shares.values()))
    return shares, main


def balanced(observations, factors):
    """The observations of the levels that every combination has, dropping what is incomplete:
    levels of the first factors go first where a combination is missing."""
    while True:
        levels = {factor: sorted({row[0][factor] for row in observations}, key=str)
                  for factor in factors}
        size = math.prod(len(values) for values in levels.values())
        if not observations or len(observations) == size:
            return observations
        # The level with the least complete rows goes.
        worst = min(
            ((factor, level) for factor in factors for level in levels[factor]
             if len(levels[factor]) > 1),
            key=lambda fl: sum(row[0][fl[0]] == fl[1] for row in observations)
            / (size / len(levels[fl[0]])), default=None)
        if worst is None:
            return observations
        observations = [row for row in observations if row[0][worst[0]] != worst[1]]


def _observations(experiment):
    """Log time of every mapping and dataflow, from the ratio to the common side B of its group.

    The ratio is of interleaved pairs, so slow drifts of the machine are not in it; the median of
    B's times in the group sets the scale.
    """
    groups = {}
    for cell in experiment.measured():
        about = cell["cell"]
        group = (about["input"], about["work"], about["dtype"], about["maps"])
        groups.setdefault(group, []).append(cell)
    observations = []
    for (name, work, dtype, maps), cells in groups.items():
        scale = statistics.median(lines.side_value(cell, "time", "b") for cell in cells)
        for cell in cells:
            levels = dict(cell["cell"]["params"], input=name, network=work, dtype=dtype, maps=maps)
            ratio = lines.ratio_of(cell, "time")
            if ratio is not None:
                observations.append((levels, math.log(scale / ratio[0])))
    return observations


def variance(experiment, folder, stem):
    extra = Extra()
    observations = _observations(experiment)
    if not observations:
        return extra
    parameters = sorted({name for levels, _ in observations for name in levels})
    factors = [name for name in ("mapping", "dataflow", "network", "input", "dtype", "maps")
               if name in parameters]
    kept = balanced([row for row in observations if all(f in row[0] for f in factors)], factors)
    if len(kept) < 4:
        return extra
    shares, main = effects(kept, factors)
    rows = sorted(shares.items(), key=lambda item: -item[1])
    extra.tables.append(("Variance of log time", ["effect", "share"],
                         [[name, f"{100 * share:.1f} %"] for name, share in rows]))
    # Inputs and networks differ in size; what a choice of plugins decides is apart from that.
    for factor in ("mapping", "dataflow"):
        if factor not in main:
            continue
        levels = sorted(main[factor].items(), key=lambda item: item[1])
        of_cells = f"geometric mean of {len(kept) // len(levels)} cells each"
        title = f"Time by {factor}, against that of all ({of_cells})"
        extra.tables.append((title, [factor, "times the mean"],
                             [[level, f"{math.exp(effect):.2f}"] for level, effect in levels]))
        plots.bars(folder / f"{stem}-{factor}.png", title, "times the mean of all",
                   [(level, math.exp(effect)) for level, effect in levels])
        extra.images.append((title, folder / f"{stem}-{factor}.png"))
    extra.images += _heat_map(observations, folder / f"{stem}-heat.png")
    extra.text += _in_words(shares, main) + _without_farthest(kept, factors, main)
    extra.tables.append(_best(experiment, observations))
    dropped = len(observations) - len(kept)
    if dropped:
        extra.text.append(f"{dropped} of {len(observations)} cells are not in the decomposition, "
                          "which needs every combination of the levels that it has.")
    return extra


def _heat_map(observations, path):
    """[(title, path)] of the times of every mapping with every dataflow, over the fastest of the same
    input and network; [] without both."""
    groups = {}
    for levels, value in observations:
        if "mapping" in levels and "dataflow" in levels:
            group = (levels["input"], levels["network"], levels["dtype"], levels["maps"])
            groups.setdefault(group, {})[levels["mapping"], levels["dataflow"]] = value
    over = {}
    for times in groups.values():
        fastest = min(times.values())
        for choice, value in times.items():
            over.setdefault(choice, []).append(value - fastest)
    if not over:
        return []
    mean = {choice: statistics.fmean(values) for choice, values in over.items()}

    def ordered(part):
        names = {choice[part] for choice in over}
        return sorted(names, key=lambda name: statistics.fmean(
            value for choice, value in mean.items() if choice[part] == name))

    rows, columns = ordered(0), ordered(1)
    values = [[math.exp(mean[row, column]) if (row, column) in mean else None for column in columns]
              for row in rows]
    missing = [[f"{len(over[row, column])} of {len(groups)}"
                if 0 < len(over.get((row, column), ())) < len(groups) else "" for column in columns]
               for row in rows]
    title = ("Time of every mapping with every dataflow, over the fastest of the same input and network "
             f"(geometric mean of {len(groups)})")
    plots.heat_map(path, title.replace(", over", ",\nover"), rows, columns, values,
                   "times the fastest", notes=missing)
    return [(title, path)]


def _of_plugins(shares):
    """{"mapping", "dataflow", "interaction"}: parts of what the choice of plugins makes, or None."""
    plugins = {name: share for name, share in shares.items()
               if name in ("mapping", "dataflow", "mapping × dataflow", "dataflow × mapping")}
    total = sum(plugins.values())
    if "mapping" not in plugins or "dataflow" not in plugins or total == 0:
        return None
    mapping, dataflow = plugins["mapping"] / total, plugins["dataflow"] / total
    return {"mapping": mapping, "dataflow": dataflow,
            "interaction": max(0.0, 1 - mapping - dataflow)}


def _without_farthest(observations, factors, main):
    """The same without the mapping, the dataflow, and both, that are farthest from the mean."""
    farthest = {factor: max(sorted(main[factor]), key=lambda level: abs(main[factor][level]))
                for factor in ("mapping", "dataflow") if len(main.get(factor, ())) >= 3}
    left_out = [({factor: level}, level) for factor, level in farthest.items()]
    if len(farthest) == 2:
        left_out.append((farthest, "both"))
    found = []
    for levels, names in left_out:
        shares, _ = effects([row for row in observations
                             if all(row[0][factor] != level for factor, level in levels.items())],
                            factors)
        of_plugins = _of_plugins(shares)
        if of_plugins is not None:
            found.append(f"without {names} {100 * of_plugins['mapping']:.0f} %, "
                         f"{100 * of_plugins['dataflow']:.0f} % and "
                         f"{100 * of_plugins['interaction']:.0f} %")
    return [f"The same shares of the mapping, the dataflow and their interaction, where extreme "
            f"choices are left out: {'; '.join(found)}."] if found else []


def _in_words(shares, main):
    """Sentences made from the shares alone."""
    plugins = _of_plugins(shares)
    if plugins is None:
        return []
    larger, smaller = sorted(("mapping", "dataflow"), key=lambda name: -plugins[name])
    spread = {name: math.exp(max(main[name].values()) - min(main[name].values()))
              for name in ("mapping", "dataflow")}
    return [
        f"All mappings with all dataflows: the choice of the {larger} carries {100 * plugins[larger]:.0f} % "
        f"of the differences that plugins make (variance of log time), the {smaller} "
        f"{100 * plugins[smaller]:.0f} %, and their interaction {100 * plugins['interaction']:.0f} %. "
        f"The slowest {larger} takes {spread[larger]:.2f} times as long as the fastest, the slowest "
        f"{smaller} {spread[smaller]:.2f} times (geometric mean of all cells)."]


def _best(experiment, observations):
    """The fastest combination of each class of inputs and network."""
    classes = {cell["cell"]["input"]: cell["cell"]["input_class"] for cell in experiment.cells}
    best = {}
    for levels, value in observations:
        group = (classes[levels["input"]], levels["network"], levels["dtype"], levels["maps"])
        choice = (levels.get("mapping", "?"), levels.get("dataflow", "?"))
        best.setdefault(group, {}).setdefault(choice, []).append(value)
    rows = []
    for group, choices in sorted(best.items()):
        ranked = sorted(choices, key=lambda choice: statistics.fmean(choices[choice]))
        first = statistics.fmean(choices[ranked[0]])
        row = list(group) + [" / ".join(ranked[0])]
        if len(ranked) > 1:
            lead = math.exp(statistics.fmean(choices[ranked[1]]) - first)
            row += [" / ".join(ranked[1]), f"{lead:.2f}"]
        else:
            row += ["", ""]
        rows.append(row)
    return ("The best of each class of inputs, by the geometric mean of its inputs",
            ["input class", "network", "dtype", "maps", "fastest", "second", "times slower"], rows)


def best(experiment, folder, stem):
    """The best configuration of each input and work, by every metric that was compared."""
    del folder, stem
    rows = []
    for metric in ("time", "map_query", "gather", "scatter"):
        groups = {}
        for cell in experiment.measured():
            about = cell["cell"]
            ratio = lines.ratio_of(cell, metric)
            if ratio is None:
                continue
            group = (about["input"], about["work"], about["dtype"])
            # Side B, to which all are compared, is a candidate, too.
            ranked = groups.setdefault(group, {about["against"]: (1.0, 1.0, 1.0)})
            ranked[about["configuration"]] = ratio
        for group, ranked in groups.items():
            first = max(ranked, key=lambda name: ranked[name][0])
            value, low, high = ranked[first]
            rows.append([lines.METRIC_NAMES[metric], *group, first, f"{value:.3f}",
                         f"{low:.3f}..{high:.3f}"])
    return Extra(tables=[("The best of each input and work",
                          ["metric", "input", "work", "dtype", "best", "times the baseline",
                           "interval"], rows)])


PARTS = ("both", "dataflow", "mapping")
_PART_NAMES = ["times as fast as the plain engine", "by its dataflow alone", "by its mapping alone",
               "by its mapping beside its dataflow"]


def parts(experiment, folder, stem):
    """How much of an engine's gain its mapping and its dataflow alone bring."""
    del folder, stem
    engines = {}
    for cell in experiment.measured():
        params = cell["cell"]["params"]
        ratio = lines.ratio_of(cell, "time")
        if ratio is not None and "engine" in params:
            place = (cell["cell"]["input"], cell["cell"]["work"], cell["cell"]["dtype"])
            engines.setdefault(params["engine"], {}).setdefault(params["part"], {})[place] = ratio
    gains, rows, front, places_rows = {}, [], [], []
    for engine, by_part in engines.items():
        places = sorted(set.intersection(*map(set, by_part.values())))
        if set(by_part) != set(PARTS) or not places:
            continue
        ratios = [[by_part[part][place] for part in PARTS] for place in places]
        ratios = [[*of_place, _over(of_place[0], of_place[1])] for of_place in ratios]
        means = [rule.combine(column, "mean") for column in zip(*ratios)]
        gains[engine] = dict(zip(PARTS, means))
        rows.append([engine, *map(_with_interval, means), str(len(places))])
        front.append([engine, *map(_with_interval, means), *_extremes(by_part["both"], places)])
        places_rows += [[engine, *place] + [f"{ratio[0]:.2f}" for ratio in of_place]
                        for place, of_place in zip(places, ratios)]
    return Extra(text=_gains_in_words(gains, engines) if gains else [],
                 answer=(["engine", *_PART_NAMES, "least", "greatest"], front) if front else None,
                 tables=[("Geometric mean of the cells", ["engine", *_PART_NAMES, "cells"], rows),
                         ("The same by input and network",
                          ["engine", "input", "work", "dtype", *_PART_NAMES], places_rows)])


def _over(first, second):
    """The quotient of two ratios that were measured apart, with the interval that is certain."""
    return first[0] / second[0], first[1] / second[2], first[2] / second[1]


def _with_interval(ratio):
    return f"{ratio[0]:.2f} ({ratio[1]:.2f}..{ratio[2]:.2f})"


def _extremes(ratios, places):
    """The least and the greatest ratio of `places`, each with its input and network."""
    found = [pick(places, key=lambda place: ratios[place][0]) for pick in (min, max)]
    return [f"{ratios[place][0]:.2f} ({place[0]}, {place[1]})" for place in found]


def _range(values):
    least, most = f"{min(values):.2f}", f"{max(values):.2f}"
    return f"{least}x" if least == most else f"{least}x to {most}x"


def _listed(names):
    names = list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _by_input(by_place, unit=""):
    """The ranges of ratios in [{place: ratio}], by input."""
    values = {}
    for ratios in by_place:
        for place, ratio in ratios.items():
            values.setdefault(place[0], []).append(ratio[0])
    return _listed(f"{_range(ratios)}{unit} on {name}" for name, ratios in values.items())


def _gains_in_words(gains, engines):
    """Which part carries each engine's gain, and on which inputs, from the ratios and their intervals
    alone. `gains` has the means of `engines`, {engine: {part: {place: ratio}}}."""
    faster = {engine: gain for engine, gain in gains.items() if gain["both"][1] > 1}
    left, sentences = dict(faster), []
    for first, second in (("dataflow", "mapping"), ("mapping", "dataflow")):
        carried = [engine for engine, gain in faster.items()
                   if gain[first][1] > max(1, gain[second][2])]
        if carried:
            firsts = _by_input((engines[engine][first] for engine in carried), " as fast")
            seconds = _range([gains[engine][second][0] for engine in carried])
            sentences.append(
                f"The {first} carries the gain of {_listed(carried)}. It alone makes the plain engine "
                f"{firsts}, and the {second} alone {seconds} in the mean.")
        left = {engine: gain for engine, gain in left.items() if engine not in carried}
    if left:
        sentences.append(f"{_listed(left)}: faster than the plain engine, and neither part alone brings "
                         "more than the other beyond the intervals.")
    others = [engine for engine in gains if engine not in faster]
    if others:
        sentences.append("In the mean there is no gain to share out in " + _listed(
            f"{engine} ({_by_input([engines[engine]['both']])})" for engine in others) + ".")
    return sentences


def _holding(ratios):
    inside = sum(low <= 1 <= high for _, low, high in ratios)
    return f"{inside} of {len(ratios)} cells ({100 * inside / len(ratios):.0f} %)"


def identical(experiment, folder, stem):
    """How often the interval of two equal sides holds 1, which it must in 93 of 100 cells."""
    del folder, stem
    cells = [cell for cell in experiment.measured() if not cell["quick"]]
    found = [("as they run", [lines.ratio_of(cell, "time") for cell in cells]),
             ("as graphs", [lines.captured_ratio_of(cell) for cell in cells])]
    extra = Extra()
    rows = []
    for how, ratios in found:
        ratios = [ratio for ratio in ratios if ratio]
        if not ratios:
            continue
        farthest = max(ratios, key=lambda ratio: abs(math.log(ratio[0])))
        widest = max(ratios, key=lambda ratio: ratio[2] / ratio[1])
        rows.append([how, _holding(ratios), f"{farthest[0]:.3f}",
                     f"{widest[1]:.3f}..{widest[2]:.3f}"])
        extra.text.append(f"Sides that are equal, {how}: the interval holds 1 in {_holding(ratios)}.")
    rounds = {cell["result"].get("rounds", 1) for cell in cells if "result" in cell}
    if rounds and min(rounds) < 5:
        extra.text.append(f"Some cells have {min(rounds)} rounds only; the rule is about five.")
    if rows:
        extra.tables.append(("Two equal sides", ["sides", "1 is in the interval", "farthest ratio",
                                                 "widest interval"], rows))
    return extra


def transfer(experiment, folder, stem):
    del folder, stem
    rows = [[*group, f"{other[0]}, {other[1]}", choice, f"{loss[0]:.3f}",
             f"{loss[1]:.3f}..{loss[2]:.3f}"]
            for group, other, choice, loss in rule.transfer_losses(experiment)]
    return Extra(tables=[("Time with another work's best configuration, over that with the own",
                          ["input", "work", "tuned for", "configuration", "loss", "interval"],
                          rows)])


def map_sizes(experiment, folder, stem):
    """Pairs of each kernel offset, for the maps of a network."""
    extra = Extra()
    rows = []
    for number, cell in enumerate(experiment.measured()):
        first = True
        for layer in cell["layers"]:
            sizes = layer["map_sizes"]
            if layer["map"] != "queried" or len(sizes) < 2:
                continue
            middle = len(sizes) // 2 if len(sizes) % 2 else None
            others = sorted(size for k, size in enumerate(sizes) if k != middle)
            rows.append([cell["cell"]["input"], cell["cell"]["work"], layer["name"],
                         layer["geometry"], layer["n_out"],
                         sizes[middle] if middle is not None else "", others[0],
                         int(statistics.median(others)), others[-1]])
            if first:
                path = folder / f"{stem}-sizes-{number + 1}.png"
                plots.bars(path, f"{cell['cell']['input']}: map size by kernel offset, "
                           f"{layer['name']}", "pairs", [(str(k), s) for k, s in enumerate(sizes)])
                extra.images.append((f"{cell['cell']['input']}, {layer['name']}", path))
                first = False
    extra.tables.append(("Map sizes", ["input", "network", "layer", "geometry", "outputs",
                                       "centre", "least", "median", "most"], rows))
    return extra


def redundancy(experiment, folder, stem):
    """PCEngine's Eq. 2: R = (1 - density) / (IF / MP + 1), by layer."""
    del folder, stem
    rows = []
    seen = set()
    for cell in experiment.measured():
        for layer in cell["layers"]:
            if len(layer["map_sizes"]) < 2 or not layer["n_in"]:
                continue
            row = (cell["cell"]["input"], layer["geometry"], layer["c_in"], layer["c_out"])
            if row in seen:
                continue
            seen.add(row)
            rows.append([cell["cell"]["input"], layer["name"], layer["geometry"],
                         f"{layer['c_in']}->{layer['c_out']}", f"{100 * lines.empty_share(layer):.2f} %",
                         f"{100 * lines.redundancy_of(layer):.2f} %"])
    return Extra(tables=[("Empty share of the dense table, and redundancy R",
                          ["input", "layer", "geometry", "channels", "empty", "R"], rows)])
