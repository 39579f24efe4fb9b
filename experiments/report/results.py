# SPDX-License-Identifier: Apache-2.0
"""Result files of experiments: what they hold, and whether a line agrees with itself."""

import json
import pathlib
import statistics

import fields
import rounds

# A stated ratio may differ from that of its samples by this much: both are rounded.
AGREEMENT = 1e-3

# Stages that are published as one; each is stored like a stage.
METRIC_NAMES = {
    "time": "time",
    "map_query": "map query",
    "index_build": "index build",
    "output_coords": "output coordinates",
    "convert": "layout conversion",
    "gather": "gather",
    "gemm": "matmul",
    "scatter": "scatter",
    "fused": "fused stage",
    "mapping": "mapping",
    "movement": "gather and scatter",
    "convolution": "convolution without mapping",
    "bytes": "bytes moved (by formula)",
    "launches": "launches",
    "padding": "padding",
    "queries": "lookups",
    "index_bytes": "bytes of the index",
    "workspace": "bytes of workspace",
    "l2_hit": "L2 hit ratio (ncu)",
    "dram_bytes": "DRAM bytes (ncu)",
    "utilisation": "utilisation of the multiprocessors (ncu)",
    "empty": "empty share of the dense table",
    "redundancy": "redundancy R (Eq. 2)",
    "transfer": "time by another work's best",
}
# Those that are read by ncu (experiment --counters).
HARDWARE = ("l2_hit", "dram_bytes", "utilisation")


# What lines of results may be. Those of format 1 lack what tells some cells apart: the report reads
# them, and the program does not continue them.
FORMATS = (1, 2)


class Results:
    """One experiment on one device: its definition and its cells."""

    def __init__(self, path, definition, device, cells, problems, asked=None, superseded=()):
        self.path = path
        self.definition = definition
        self.device = device
        self.cells = cells
        self.problems = problems  # "line N: ..."
        # The cells that its runs were asked for, as the "cell" of their lines; None: not known.
        self.asked = asked
        self.superseded = list(superseded)  # lines that a later one of the same cell replaces

    @property
    def name(self):
        return self.definition["name"]

    def measured(self):
        return [cell for cell in self.cells if cell["status"] == "measured"]

    @property
    def backend(self):
        return self.device.partition(": ")[0]

    def notes(self):
        """Text in NAME.notes.md beside the lines, by people."""
        path = self.path.with_suffix(".notes.md")
        return fields.text_of(path) if path.exists() else ""


def order_of(about):
    """The order of rows of a line's "cell". Older lines have none: their rows were sorted."""
    return about.get("order", "sorted")


def cache_of(cell):
    """How runs found the GPU's cache, where not as usual: "cold, 28 MiB"."""
    about, factors = cell["cell"], cell.get("factors", {})
    left = factors.get("l2_mib", about.get("l2_mib"))
    return ", ".join(filter(None, [about.get("cache"), left and f"{left:.3g} MiB"]))


def tuned_of(cell):
    """Which sides are plans of a search, and in which space: "A: 4 mappings, 12 dataflows"."""
    found = []
    for side in "ab":
        tuned = (cell.get("configurations", {}).get(side) or {}).get("tuned")
        if tuned:
            found.append(f"{side.upper()}: {tuned.get('what', 'a plan')}")
    return "; ".join(found)


def commit_of(cell):
    """Seven letters of the commit, with a mark where the tree had changes."""
    provenance = cell["provenance"]
    return provenance["commit"][:7] + ("+" if provenance["dirty"] else "")


def commits_of(cells):
    return tuple(sorted({commit_of(cell) for cell in cells}))


def disagreement(line):
    """What of a line's claims its own figures do not bear out, or None."""
    result = line["result"]
    a, b = result["a"], result["b"]
    if result.get("speedup"):
        samples = statistics.median(b["wall_ms_samples"]) / statistics.median(a["wall_ms_samples"])
        stated = result["speedup"]["ratio"]
        if abs(samples / stated - 1) > AGREEMENT:
            return f"speedup {stated:.4g} is stated and the samples give {samples:.4g}"
    if len(a["wall_ms_samples"]) != result["pairs"]:
        return f"{result['pairs']} pairs are stated and there are {len(a['wall_ms_samples'])} samples"
    for stage, ratio in result.get("stage_speedups", {}).items():
        medians = b["stages_ms"][stage]["median"] / a["stages_ms"][stage]["median"]
        if abs(medians / ratio["ratio"] - 1) > AGREEMENT:
            return f"{stage}: {ratio['ratio']:.4g} is stated and the medians give {medians:.4g}"
    for name, ratio in [("speedup", result.get("speedup"))] + list(
            result.get("stage_speedups", {}).items()):
        if ratio and not ratio["low"] <= ratio["ratio"] * (1 + AGREEMENT):
            return f"{name}: the interval {ratio['low']:.4g}.. begins above the ratio"
    return None


def _counter(side, metric):
    counters = side["counters"]
    if metric == "bytes":
        return counters["bytes_read"] + counters["bytes_written"]
    if metric == "padding":
        pairs = counters["true_pairs"]
        return counters["padded_pairs"] / pairs - 1 if pairs else None
    if metric == "workspace":
        return counters["peak_workspace"]
    return counters.get(metric)


def side_value(cell, metric, side="a"):
    """A quantity of one side: milliseconds, a count, a share; None where it was not measured."""
    if metric in HARDWARE:
        profile = (cell.get("hardware") or {}).get(side) or {}
        return profile.get(metric)
    if "layers" in cell:
        return look_value(cell["layers"], metric)
    if "result" not in cell:
        return None
    values = cell["result"][side]
    if metric == "time":
        return values["wall_ms"]["median"]
    if metric in values["stages_ms"]:
        return values["stages_ms"][metric]["median"]
    return _counter(values, metric)


def look_value(layers, metric):
    """Of a network that was looked at, all layers together."""
    if metric == "padding":
        pairs = sum(layer["counters"]["true_pairs"] for layer in layers)
        padded = sum(layer["counters"]["padded_pairs"] for layer in layers)
        return padded / pairs - 1 if pairs else None
    if metric == "launches":
        return sum(layer["counters"]["launches"] for layer in layers) / len(layers)
    mapped = [layer for layer in layers if len(layer["map_sizes"]) > 1 and layer["n_in"]]
    if metric == "empty":
        return max((empty_share(layer) for layer in mapped), default=None)
    if metric == "redundancy":
        return max((redundancy_of(layer) for layer in mapped), default=None)
    return None


def empty_share(layer):
    """Cells of the (input x offset) table without a pair."""
    return 1 - layer["pairs"] / (layer["n_in"] * len(layer["map_sizes"]))


def redundancy_of(layer):
    """PCEngine's Eq. 2, R = (1 - density) / (IF / MP + 1), of a layer's input table: IF is every
    input row read once, MP the table, both with 4 bytes an element."""
    return empty_share(layer) / (layer["c_in"] / len(layer["map_sizes"]) + 1)


def ratio_of(cell, metric):
    """(ratio, low, high): how many times less A takes than B, or how many times better it uses the
    GPU; None where there is no such figure."""
    if "result" not in cell:
        return None
    if metric == "time":
        ratio = cell["result"].get("speedup")
    else:
        ratio = cell["result"].get("stage_speedups", {}).get(metric)
    if ratio:
        return ratio["ratio"], ratio["low"], ratio["high"]
    a, b = side_value(cell, metric, "a"), side_value(cell, metric, "b")
    if metric in cell["result"]["a"]["stages_ms"] or not a or not b:
        return None
    ratio = a / b if metric == "utilisation" else b / a
    return ratio, ratio, ratio


def captured_ratio_of(cell):
    """The same of both sides as replayed graphs, whole runs."""
    ratio = ((cell.get("result") or {}).get("captured") or {}).get("speedup")
    return (ratio["ratio"], ratio["low"], ratio["high"]) if ratio else None


def _identity(line):
    """What makes two lines results of the same round of a cell; the later one then counts. A new
    commit's result takes the place of an older one's."""
    return rounds.identity(line), rounds.round_of(line)


class _File:
    """What a file of results holds."""

    def __init__(self, paths):
        self.definition = None
        self.devices = {}  # {device: {identity: line}}
        self.asked = {}    # {(device, quick): [cells]} of the last definition
        self.problems = []
        for path in paths:
            self._read(path)

    def _read(self, path):
        # Lines end with a line feed alone: names may hold what else ends a line to Python.
        for number, line in enumerate(fields.text_of(path).split("\n"), 1):
            if not line.strip():
                continue
            try:
                self._add(json.loads(line), number)
            except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError,
                    RecursionError) as error:
                reason = error if isinstance(error, ValueError) else repr(error)
                self.problems.append(
                    f"line {number} is left out, for it cannot be read: {reason}")

    def _add(self, line, number):
        if not isinstance(line, dict):
            raise ValueError("it is no object")
        if line.get("kind") not in ("experiment", "cell"):
            return
        if line.get("format") not in FORMATS:
            raise ValueError(f"key 'format' is {line.get('format')!r:.60}; allowed are "
                             + " and ".join(map(str, FORMATS)))
        if line["kind"] == "experiment":
            self._add_definition(line)
        else:
            self._add_cell(line, number)

    def _add_definition(self, line):
        fields.check_definition(line)
        if line["definition"] != self.definition:
            self.asked = {}
        self.definition = line["definition"]
        asked = line.get("asked")
        if asked is None:
            return
        cells = self.asked.setdefault(
            (f"{asked['backend']}: {asked['device']}", asked["quick"]), [])
        cells += [cell for cell in asked["cells"] if cell not in cells]

    def _add_cell(self, line, number):
        fields.check_cell(line)
        problem = disagreement(line) if "result" in line else None
        if problem:
            self.problems.append(
                f"line {number} is left out, for it contradicts itself: {problem}")
            return
        if line["status"] == "failed":
            self.problems.append(f"line {number}: a cell failed: {line.get('reason')}")
        provenance = line["provenance"]
        device = f"{provenance['backend']}: {provenance['device']}"
        self.devices.setdefault(device, {})[_identity(line)] = line


def is_asked(asked, about):
    """Whether the "cell" of a line is one of those that were asked for."""
    return any(all(about.get(key) == value for key, value in cell.items()) for cell in asked)


def _without_quick(lines):
    """Quick cells count only where no full cell does."""
    full = [line for line in lines if not line["quick"]]
    return full or lines


def _of_device(path, file, device, lines):
    quick = all(line["quick"] for line in lines)
    current, superseded = rounds.latest(rounds.merge(_without_quick(lines)))
    asked = file.asked.get((device, quick))
    if asked is not None:
        # Of an older definition: no longer a part of the experiment.
        superseded += [line for line in current if not is_asked(asked, line["cell"])]
        current = [line for line in current if is_asked(asked, line["cell"])]
    return Results(path, file.definition, device, current, file.problems, asked, superseded)


def load(directory, others=()):
    """All experiments of a directory, by device and name. `others` are files of something else.

    NAME.jsonl.gz is NAME.jsonl, packed. Where both are, the lines of NAME.jsonl follow.
    """
    packed = {path.with_suffix(""): path for path in pathlib.Path(directory).glob("*.jsonl.gz")}
    plain = set(pathlib.Path(directory).glob("*.jsonl")) - set(others)
    experiments = []
    for path in sorted(plain | packed.keys()):
        file = _File(([packed[path]] if path in packed else []) + ([path] if path in plain else []))
        if file.definition is None:
            continue
        devices = {device: list(cells.values()) for device, cells in file.devices.items()}
        for device, lines in devices.items() or [("no device", [])]:
            experiments.append(_of_device(path, file, device, lines))
            file.problems = []  # once
    return sorted(experiments, key=lambda results: (results.device, results.name))
