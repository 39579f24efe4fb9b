# SPDX-License-Identifier: Apache-2.0
"""Several rounds of one cell, each measured in a process of its own, as one.

Pairs of one round tell how sure its ratio is, not how it differs from process to process: with
memory elsewhere, on another core. So the ratio is the median of the rounds' ratios, and the interval
reaches from the least to the greatest of the rounds' intervals. The verdict follows from both by the
rule of a single round.
"""

import copy
import json
import statistics

TOO_FEW = "too few pairs"
MIN_PAIRS_FOR_VERDICT = 6   # as kMinPairsForVerdict of measure/statistics.h
SMALLEST_DIFFERENCE = 0.01  # as kSmallestDifference of measure/statistics.h


# Of a cell, what says on what and with what it ran, and not which cell of the experiment it is. Lines
# of format 1 have fewer of these. Where a cell runs in several orders of rows, the name of its input
# tells them apart; older lines have no order, and are of sorted rows.
_RAN = ("order", "input_hash", "voxels", "neighbours", "occupied", "input_class", "specs", "program",
        "plugins", "limits")


def identity(line):
    """What makes two lines results of the same cell, whatever their round: its labels, its whole
    geometry, the canonical specs of both sides, the hashes of the input, of the program and of the
    plugins, and the limits."""
    return json.dumps([line["cell"], line["quick"]], sort_keys=True)


def slot(line):
    """Which cell of its experiment a line is a result of, whatever the input, the program or the
    plugins were then."""
    cell = {key: value for key, value in line["cell"].items() if key not in _RAN}
    return json.dumps([cell, line["quick"]], sort_keys=True)


def round_of(line):
    return line.get("round", 1)


def judge(ratio):
    if ratio["low"] > 1 and ratio["ratio"] > 1 + SMALLEST_DIFFERENCE:
        return "faster"
    if ratio["high"] < 1 and 1 / ratio["ratio"] > 1 + SMALLEST_DIFFERENCE:
        return "slower"
    return "no difference"


def _ratio(ratios):
    return {"ratio": statistics.median(r["ratio"] for r in ratios),
            "low": min(r["low"] for r in ratios), "high": max(r["high"] for r in ratios)}


def _merge_side(sides):
    merged = copy.deepcopy(sides[0])
    merged["wall_ms"]["median"] = statistics.median(s["wall_ms"]["median"] for s in sides)
    merged["wall_ms_samples"] = [sample for side in sides for sample in side["wall_ms_samples"]]
    for stage, times in merged["stages_ms"].items():
        known = [s["stages_ms"][stage]["median"] for s in sides if stage in s["stages_ms"]]
        times["median"] = statistics.median(known)
    return merged


def _merge_captured(captured):
    """Rounds of both sides as replayed graphs; None where a round has no such ratio."""
    if not all(one and one.get("speedup") for one in captured):
        return next((one for one in captured if one), None)
    merged = copy.deepcopy(captured[0])
    merged["speedup"] = _ratio([one["speedup"] for one in captured])
    merged["verdict"] = judge(merged["speedup"])
    merged["pairs"] = sum(one["pairs"] for one in captured)
    for side in "ab":
        merged[side]["wall_ms"]["median"] = statistics.median(
            one[side]["wall_ms"]["median"] for one in captured)
    merged["launch_bound"] = sorted({side for one in captured for side in one["launch_bound"]})
    return merged


def _merge_results(results):
    merged = copy.deepcopy(results[0])
    for why in ("busy", "clocks"):  # of any round
        said = list(dict.fromkeys(r[why] for r in results if r.get(why)))
        merged[why] = "; ".join(said) or None
    merged["captured"] = _merge_captured([r.get("captured") for r in results])
    merged["a"], merged["b"] = (_merge_side([r[side] for r in results]) for side in "ab")
    merged["pairs"] = sum(r["pairs"] for r in results)
    merged["rounds"] = len(results)
    if all(r.get("speedup") for r in results):
        merged["speedup"] = _ratio([r["speedup"] for r in results])
        too_few = merged["pairs"] < MIN_PAIRS_FOR_VERDICT
        merged["verdict"] = TOO_FEW if too_few else judge(merged["speedup"])
    for stage in list(merged.get("stage_speedups", {})):
        ratios = [r["stage_speedups"].get(stage) for r in results]
        if all(ratios):
            merged["stage_speedups"][stage] = _ratio(ratios)
        else:
            del merged["stage_speedups"][stage]
    return merged


def run_of(line):
    """Rounds of one run have this in common."""
    provenance = line["provenance"]
    return (provenance["commit"], provenance.get("dirty"), provenance.get("program"),
            line.get("seed"), line.get("result", {}).get("pairs"))


def _newest(lines):
    """Of lines of one second, the one that was written last."""
    return max(reversed(lines), key=lambda line: line["provenance"]["time_utc"])


def latest(lines):
    """(current, superseded): of each slot the line that was written last, and all others."""
    slots = {}
    for line in lines:
        slots.setdefault(slot(line), []).append(line)
    current, superseded = [], []
    for rows in slots.values():
        newest = _newest(rows)
        current.append(newest)
        superseded += [row for row in rows if row is not newest]
    return current, superseded


def merge(lines):
    """The lines, with one in the place of several rounds of a cell. Rounds of another run than a cell's
    latest line with a result, of another commit say, do not count. Hardware counters are those of the
    first round that has any: one round is enough for them."""
    cells = {}
    for line in lines:
        cells.setdefault(identity(line), []).append(line)
    merged = []
    for rounds in cells.values():
        whole = [line for line in rounds if "result" in line]
        newest = _newest(whole or rounds)
        same = sorted((line for line in whole if run_of(line) == run_of(newest)), key=round_of)
        if len(same) < 2:
            merged.append(newest)
            continue
        counted = next((line["hardware"] for line in same if line.get("hardware")), None)
        merged.append({**same[0], **({"hardware": counted} if counted else {}),
                       "result": _merge_results([line["result"] for line in same])})
    return merged
