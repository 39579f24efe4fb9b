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
    "empty": "empty share of the dense table",
    "redundancy": "redundancy R (Eq. 2)",
    "transfer": "time by another work's best",
}


class Results:
    """One experiment on one device: its definition and its cells."""

    def __init__(self, path, definition, device, cells, problems):
        self.path = path
        self.definition = definition
        self.device = device
        self.cells = cells
        self.problems = problems  # "line N: ..."

    @property
    def name(self):
        return self.definition["name"]

    def measured(self):
        return [cell for cell in self.cells if cell["status"] == "measured"]

    def notes(self):
        """Text in NAME.notes.md beside the lines, by people."""
        path = self.path.with_suffix(".notes.md")
        return path.read_text() if path.exists() else ""


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
    if metric in ("l2_hit", "dram_bytes"):
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
    """(ratio, low, high): how many times less A takes than B; None where there is no such figure."""
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
    return b / a, b / a, b / a


def _identity(line):
    """What makes two lines results of the same round of a cell; the later one then counts. A new
    commit's result takes the place of an older one's."""
    return rounds.identity(line), rounds.round_of(line)


def _read(path):
    """(definition, {device: {identity: line}}, problems) of a file."""
    definition, devices, problems = None, {}, []
    for number, text in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            if not isinstance(line, dict):
                raise ValueError("it is no object")
            if line.get("kind") == "experiment":
                fields.check_definition(line)
                definition = line["definition"]
            if line.get("kind") != "cell":
                continue
            fields.check_cell(line)
            problem = disagreement(line) if "result" in line else None
            if problem:
                problems.append(f"line {number} is left out, for it contradicts itself: {problem}")
                continue
            if line["status"] == "failed":
                problems.append(f"line {number}: a cell failed: {line.get('reason')}")
            provenance = line["provenance"]
            device = f"{provenance['backend']}: {provenance['device']}"
            devices.setdefault(device, {})[_identity(line)] = line
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError,
                RecursionError) as error:
            reason = error if isinstance(error, ValueError) else repr(error)
            problems.append(f"line {number} is left out, for it cannot be read: {reason}")
    return definition, devices, problems


def _without_superseded(lines):
    """Quick cells count only where no full cell does."""
    full = [line for line in lines if not line["quick"]]
    return full or lines


def load(directory):
    """All experiments of a directory, by device and name."""
    experiments = []
    for path in sorted(pathlib.Path(directory).glob("*.jsonl")):
        definition, devices, problems = _read(path)
        if definition is None:
            continue
        for device, cells in devices.items() or [("no device", {})]:
            lines = rounds.merge(_without_superseded(list(cells.values())))
            experiments.append(Results(path, definition, device, lines, problems))
            problems = []  # once
    return sorted(experiments, key=lambda results: (results.device, results.name))
