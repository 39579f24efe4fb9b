"""The rule by which a published figure is reproduced or not. Nothing else decides it.

A published ratio p (below 1: both sides are exchanged) against ours r with the interval low..high:
  reproduced               the direction holds and the interval meets 1 + (p - 1) / 2 .. 1 + 2 (p - 1):
                           half to twice the published gain
  reproduced in direction  low > 1 and r > 1.01, whatever the size
  not reproduced           otherwise
A p within 5 % of 1 says that there is no difference: reproduced where the interval meets
1/1.1 .. 1.1, else in direction where r is on p's side of 1.

A published quantity v: reproduced within 25 %, in direction within a factor of 2. A bound ("at
least", "at most"): reproduced where it holds, in direction within a factor of 2.

Not measurable here: the file says why; or no cell of the claim was measured; or the lines are of a
quick run or have fewer than 20 pairs.
"""

import dataclasses
import math

import results as lines

REPRODUCED = "reproduced"
IN_DIRECTION = "reproduced in direction"
NOT_REPRODUCED = "not reproduced"
NOT_MEASURABLE = "not measurable here"
VERDICTS = (REPRODUCED, IN_DIRECTION, NOT_REPRODUCED, NOT_MEASURABLE)

MIN_PAIRS = 20
SMALLEST_DIFFERENCE = 0.01
NO_DIFFERENCE = 0.05
NO_DIFFERENCE_BAND = 1.1
VALUE_TOLERANCE = 0.25
VALUE_FACTOR = 2


@dataclasses.dataclass
class Outcome:
    verdict: str
    ours: tuple = None  # (value, low, high)
    cells: int = 0
    reason: str = ""


def judge_ratio(published, ours):
    value, low, high = ours
    if published < 1:
        published, value, low, high = 1 / published, 1 / value, 1 / high, 1 / low
    if published - 1 <= NO_DIFFERENCE:
        if low <= NO_DIFFERENCE_BAND and high >= 1 / NO_DIFFERENCE_BAND:
            return REPRODUCED
        return IN_DIRECTION if low > 1 else NOT_REPRODUCED
    if not (low > 1 and value > 1 + SMALLEST_DIFFERENCE):
        return NOT_REPRODUCED
    gain = published - 1
    if high >= 1 + gain / 2 and low <= 1 + 2 * gain:
        return REPRODUCED
    return IN_DIRECTION


def judge_value(figure, value):
    if "value" in figure:
        published = figure["value"]
        if abs(value / published - 1) <= VALUE_TOLERANCE:
            return REPRODUCED
        within = published / VALUE_FACTOR <= value <= published * VALUE_FACTOR
    elif "at_least" in figure:
        if value >= figure["at_least"]:
            return REPRODUCED
        within = value * VALUE_FACTOR >= figure["at_least"]
    else:
        if value <= figure["at_most"]:
            return REPRODUCED
        within = value <= VALUE_FACTOR * figure["at_most"]
    return IN_DIRECTION if within else NOT_REPRODUCED


def _holds(condition, actual):
    wanted = condition if isinstance(condition, list) else [condition]
    return any(str(one) == str(actual) for one in wanted)


def matches(figure, cell):
    """Whether a published figure is about a cell."""
    about = cell["cell"]
    for key in ("configuration", "against"):
        if figure.get(key) and figure[key] != about.get(key):
            return False
    for key, condition in figure.get("where", {}).items():
        actual = about.get("params", {}).get(key, about.get(key))
        if not _holds(condition, actual):
            return False
    return True


def combine(values, over):
    """Several cells as one: their geometric mean, or the cell with the extreme value."""
    if over == "max":
        return max(values)
    if over == "min":
        return min(values)
    if min(low for _, low, _ in values) <= 0:  # of shares, which may be 0
        return tuple(sum(column) / len(values) for column in zip(*values))
    return tuple(math.exp(sum(map(math.log, column)) / len(values)) for column in zip(*values))


def judge(figure, experiment):
    """The outcome of one published figure, from the lines alone."""
    if figure.get("unmeasurable"):
        return Outcome(NOT_MEASURABLE, reason=figure["unmeasurable"])
    metric = figure.get("metric", "time")
    is_ratio = "ratio" in figure
    of_claim = [cell for cell in experiment.cells if matches(figure, cell)]
    values, quick = [], False
    for cell in of_claim:
        if cell["status"] != "measured":
            continue
        if is_ratio:
            value = lines.ratio_of(cell, metric)
        else:
            value = lines.side_value(cell, metric)
            value = None if value is None else (value,) * 3
        if value is None:
            continue
        timed = "result" in cell
        if cell["quick"] or (timed and cell["result"]["pairs"] < MIN_PAIRS):
            quick = True
            continue
        values.append(value)
    if not values:
        refused = sorted({cell["reason"] for cell in of_claim if cell["status"] == "refused"})
        if quick:
            reason = f"only quick cells; {MIN_PAIRS} pairs are needed"
        elif refused:
            reason = "refused: " + "; ".join(refused)
        elif metric in ("l2_hit", "dram_bytes") and of_claim:
            reason = "no hardware counters were read (experiment --counters)"
        else:
            reason = "no such cell was measured"
        return Outcome(NOT_MEASURABLE, cells=0, reason=reason)
    ours = combine(values, figure.get("over", "mean"))
    verdict = judge_ratio(figure["ratio"], ours) if is_ratio else judge_value(figure, ours[0])
    return Outcome(verdict, ours=ours, cells=len(values))
