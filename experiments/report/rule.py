# SPDX-License-Identifier: Apache-2.0
"""The rule by which a published figure is reproduced or not. Nothing else decides it.

A published ratio p (below 1: both sides are exchanged) against ours r with the interval low..high:
  reproduced               the direction holds and the interval meets 1 + (p - 1) / 2 .. 1 + 2 (p - 1):
                           half to twice the published gain
  reproduced in direction  low > 1 and r > 1.01, and the interval meets p / 3 .. 3 p
  not reproduced           otherwise
A paper that says "faster" without a number: reproduced where the direction holds, else not.
A p within 5 % of 1 says that there is no difference: reproduced where the interval meets
1/1.1 .. 1.1, else in direction where low > 1 and the interval meets p / 3 .. 3 p.

A published quantity v: reproduced within 25 %, in direction within a factor of 2. A share, such as a
hit ratio: reproduced within 5 percentage points, in direction within 10. A bound ("at least", "at
most"): reproduced where it holds, in direction as above.

The mean, the greatest and the least of the same cells are one claim: it has the weakest of their
verdicts.

The best configuration of a work, where a claim is about what is tuned for another work: the one with
the greatest ratio to the baseline. Configurations whose intervals meet its interval are not told from
it by their ratios, in which the baseline's noise is. Of all these, the one with the least time is the
best.

Not measurable here: the file says why; or the claim is about a GPU and the lines are of another kind
of device; or a cell of the claim was not measured, was refused, is of a quick run or has fewer than
20 pairs; or the claim is about a data set that is smaller than another one, and what stands in for
it is not. Where the lines' file had no way to measure a figure, and the experiment's file of today has
one, the report says that the lines are older. A claim whose cells are of several commits names them,
and so does one whose inputs stand in for the paper's data set.
"""

import dataclasses
import functools
import json
import math
import pathlib
import re

import results as lines
from rounds import SMALLEST_DIFFERENCE

REPRODUCED = "reproduced"
IN_DIRECTION = "reproduced in direction"
NOT_REPRODUCED = "not reproduced"
NOT_MEASURABLE = "not measurable here"
VERDICTS = (REPRODUCED, IN_DIRECTION, NOT_REPRODUCED, NOT_MEASURABLE)  # from strong to weak

OLDER = "these lines are older than the experiment's way to measure it"

MIN_PAIRS = 20
NO_DIFFERENCE = 0.05
NO_DIFFERENCE_BAND = 1.1
FARTHEST = 3  # times the published ratio
VALUE_TOLERANCE = 0.25
VALUE_FACTOR = 2
SHARES = ("padding", "l2_hit", "utilisation", "empty", "redundancy")
SHARE_TOLERANCE = 0.05
SHARE_DISTANCE = 0.10


@dataclasses.dataclass
class Outcome:
    verdict: str
    ours: tuple = None  # (value, low, high)
    cells: int = 0
    reason: str = ""
    combined: str = ""  # how several cells became one figure
    commits: tuple = ()  # those of its cells
    stand_ins: tuple = ()  # inputs in place of the paper's data set
    captured: tuple = None  # as `ours`, with both sides as graphs; no verdict follows from it


@dataclasses.dataclass
class Claim:
    """One figure; or the mean, the greatest and the least that a paper gives of the same cells."""
    parts: list  # (published, Outcome)

    @property
    def verdict(self):
        return max((outcome.verdict for _, outcome in self.parts), key=VERDICTS.index)


def judge_ratio(published, ours):
    value, low, high = ours
    if published < 1:
        published, value, low, high = 1 / published, 1 / value, 1 / high, 1 / low
    near = low <= FARTHEST * published and high >= published / FARTHEST
    if published - 1 <= NO_DIFFERENCE:
        if low <= NO_DIFFERENCE_BAND and high >= 1 / NO_DIFFERENCE_BAND:
            return REPRODUCED
        return IN_DIRECTION if low > 1 and near else NOT_REPRODUCED
    if not (low > 1 and value > 1 + SMALLEST_DIFFERENCE):
        return NOT_REPRODUCED
    gain = published - 1
    if high >= 1 + gain / 2 and low <= 1 + 2 * gain:
        return REPRODUCED
    return IN_DIRECTION if near else NOT_REPRODUCED


def judge_value(figure, value):
    published = next(figure[key] for key in ("value", "at_least", "at_most") if key in figure)
    if figure.get("metric") in SHARES:
        distance, close, far = abs(value - published), SHARE_TOLERANCE, SHARE_DISTANCE
    elif "value" in figure and abs(value / published - 1) <= VALUE_TOLERANCE:
        return REPRODUCED
    else:
        factor = max(value, published) / min(value, published) if value > 0 else math.inf
        distance, close, far = factor, 1, VALUE_FACTOR
    if "at_least" in figure:
        holds = value >= published
    elif "at_most" in figure:
        holds = value <= published
    else:
        holds = distance <= close
    if holds:
        return REPRODUCED
    return IN_DIRECTION if distance <= far else NOT_REPRODUCED


def _holds(condition, actual):
    wanted = condition if isinstance(condition, list) else [condition]
    return any(str(one) == str(actual) for one in wanted)


def orientation(figure, cell):
    """How a published figure is about a cell: "a" as it stands, "b" with its sides exchanged, or
    None."""
    about = cell["cell"]
    for key, condition in figure.get("where", {}).items():
        actual = about.get("params", {}).get(key, about.get(key))
        if not _holds(condition, actual):
            return None
    first, second = figure.get("configuration"), figure.get("against")
    sides = about["configuration"], about.get("against")
    if first in (None, sides[0]) and second in (None, sides[1]):
        return "a"
    if first in (None, sides[1]) and second in (None, sides[0]):
        return "b"
    return None


def _value(figure, cell, side):
    """(value, low, high) of a claim in a cell, or None."""
    metric = figure.get("metric", "time")
    if "ratio" not in figure and not figure.get("faster"):
        value = lines.side_value(cell, metric, side)
        return None if value is None else (value,) * 3
    return _turned(lines.ratio_of(cell, metric), side)


def _turned(ratio, side):
    """A ratio as a claim about `side` has it."""
    if ratio is None or side == "a":
        return ratio
    return 1 / ratio[0], 1 / ratio[2], 1 / ratio[1]


def _captured(figure, found):
    """The claim's ratio of whole runs with both sides as graphs, or None."""
    if figure.get("metric", "time") != "time" or not ("ratio" in figure or figure.get("faster")):
        return None
    values = [_turned(lines.captured_ratio_of(cell), side) for cell, side in found]
    return None if None in values else combine(values, figure.get("over", "mean"))


def mean_name(values):
    """Which mean `combine` takes of the values."""
    # Shares may be 0, and then have no geometric mean.
    return "mean" if min(low for _, low, _ in values) <= 0 else "geometric mean"


def combine(values, over):
    """Several cells as one: their geometric mean, or the cell with the extreme value."""
    if over == "max":
        return max(values)
    if over == "min":
        return min(values)
    if mean_name(values) == "mean":
        return tuple(sum(column) / len(values) for column in zip(*values))
    return tuple(math.exp(sum(map(math.log, column)) / len(values)) for column in zip(*values))


def _best(ratios, times):
    """The name of the best configuration. {name: (ratio, low, high)}, {name: time}."""
    _, low, _ = max(ratios.values())
    return min((name for name, ratio in ratios.items() if ratio[2] >= low), key=times.get)


def transfer_losses(experiment):
    """How much slower each work is with another work's best configuration than with its own."""
    groups, times = {}, {}
    for cell in experiment.measured():
        about = cell["cell"]
        ratio = lines.ratio_of(cell, "time")
        if ratio is not None and not cell["quick"] and cell["result"]["pairs"] >= MIN_PAIRS:
            groups.setdefault((about["input"], about["work"]), {})[about["configuration"]] = ratio
            times.setdefault((about["input"], about["work"]), {})[about["configuration"]] = \
                lines.side_value(cell, "time", "a")
    best = {group: _best(ratios, times[group]) for group, ratios in groups.items()}
    losses = []
    for group, ratios in groups.items():
        own = ratios[best[group]]
        for other, choice in best.items():
            if other != group and choice in ratios:
                theirs = ratios[choice]
                losses.append((group, other, choice, (own[0] / theirs[0], own[1] / theirs[2],
                                                      own[2] / theirs[1])))
    return losses


def _backend_of(figure):
    """The kind of device that a claim is about: papers measure on GPUs, whether they name them or not.
    "none" says that the figure does not depend on a device."""
    return None if figure.get("gpu") == "none" else "cuda"


def _not_measured(figure, of_claim, counted, asked):
    """Why a claim has no verdict: what is missing of its cells."""
    refused = sorted({cell["reason"] for cell in of_claim if cell["status"] == "refused"})
    reasons = []
    if counted:
        reasons.append(f"{counted} of {asked} cells")
    elif any(cell["quick"] for cell in of_claim):
        return f"only quick cells; {MIN_PAIRS} pairs are needed"
    elif not refused:
        if figure.get("metric") in lines.HARDWARE and of_claim:
            return "no hardware counters were read (experiment --counters)"
        return "no such cell was measured"
    if refused:
        reasons.append("refused: " + "; ".join(refused))
    return "; ".join(reasons)


def _of_claim(figure, abouts):
    """Those of `abouts` (pairs of a cell's description and anything) that the claim is about, each with
    the side that it is about. Where a pair of configurations was measured in the claim's order, that
    counts."""
    sides = [(about, thing, orientation(figure, {"cell": about})) for about, thing in abouts]
    wanted = "a" if any(side == "a" for _, _, side in sides) else "b"
    takes_both = "ratio" not in figure and not figure.get("faster")
    return [(thing, side) for _, thing, side in sides
            if side is not None and (side == wanted or takes_both)]


def _contradiction(figure, found, experiment):
    """Why what stands in for the claim's data set is unlike it; empty where it is not."""
    than = figure.get("fewer_voxels_than")
    others = [cell["cell"] for cell in experiment.cells if cell["cell"].get("like") == than]
    if not than or not others:
        return ""
    other = min(others, key=lambda about: about["voxels"])
    for cell, _ in found:
        about = cell["cell"]
        if about["voxels"] >= other["voxels"]:
            return (f"the claim is about inputs smaller than {other['input']} ({other['voxels']} "
                    f"voxels); what stands in for them, {about['input']}, has {about['voxels']}")
    return ""


def _stand_ins(figure, found):
    data = figure.get("data")
    # Older lines name the data set in the input's name alone.
    return tuple(sorted({cell["cell"]["input"] for cell, _ in found
                         if data and cell["cell"].get("data", cell["cell"]["input"]) != data}))


def _judge_transfer(figure, experiment):
    values = [loss for _, _, _, loss in transfer_losses(experiment)]
    measured = sum(_counts(cell) for cell in experiment.cells)
    asked = max(len(experiment.cells), len(experiment.asked or []))
    if not values or measured < asked:
        return Outcome(NOT_MEASURABLE,
                       reason=_not_measured(figure, experiment.cells, measured, asked))
    outcome = _verdict(figure, values)
    outcome.commits = lines.commits_of(experiment.cells)
    return outcome


def _counts(cell):
    """Whether a line may carry a verdict."""
    return (cell["status"] == "measured" and not cell["quick"]
            and not ("result" in cell and cell["result"]["pairs"] < MIN_PAIRS))


def _verdict(figure, values):
    ours = combine(values, figure.get("over", "mean"))
    if figure.get("faster"):
        holds = ours[1] > 1 and ours[0] > 1 + SMALLEST_DIFFERENCE
        verdict = REPRODUCED if holds else NOT_REPRODUCED
    elif "ratio" in figure:
        verdict = judge_ratio(figure["ratio"], ours)
    else:
        verdict = judge_value(figure, ours[0])
    combined = {"max": "the greatest", "min": "the least"}.get(figure.get("over"),
                                                               mean_name(values))
    return Outcome(verdict, ours=ours, cells=len(values), combined=combined)


def judge(figure, experiment):
    """The outcome of one published figure, from the lines alone."""
    if figure.get("unmeasurable"):
        return Outcome(NOT_MEASURABLE, reason=OLDER if _is_measured_today(figure, experiment)
                       else figure["unmeasurable"])
    wanted = _backend_of(figure)
    if wanted is not None and experiment.cells and experiment.backend != wanted:
        return Outcome(NOT_MEASURABLE, reason=f"the claim is about a GPU ({figure['gpu']}); "
                       f"these cells were measured on {experiment.backend}")
    if figure.get("metric") == "transfer":
        return _judge_transfer(figure, experiment)
    found = _of_claim(figure, [(cell["cell"], cell) for cell in experiment.cells])
    values = [_value(figure, cell, side) for cell, side in found if _counts(cell)]
    values = [value for value in values if value is not None]
    asked = len(found)
    if experiment.asked is not None:
        asked = max(asked, len(_of_claim(figure, [(cell, cell) for cell in experiment.asked])))
    if not values or len(values) < asked:
        reason = _not_measured(figure, [cell for cell, _ in found], len(values), asked)
        return Outcome(NOT_MEASURABLE, reason=reason)
    contradiction = _contradiction(figure, found, experiment)
    if contradiction:
        return Outcome(NOT_MEASURABLE, reason=contradiction)
    outcome = _verdict(figure, values)
    outcome.stand_ins = _stand_ins(figure, found)
    outcome.commits = lines.commits_of(cell for cell, _ in found)
    outcome.captured = _captured(figure, found)
    return outcome


@functools.cache
def _measured_today(name):
    """What the experiment's file of today claims and measures, of all its claims by their names."""
    if not re.fullmatch(r"[a-z0-9_]+(/[a-z0-9_]+)?", name):
        return frozenset()
    above = pathlib.Path(__file__).parent.parent
    for folder in (above, above / "experiments"):  # of the repository, and where it is installed
        try:
            published = json.loads((folder / f"{name}.json").read_text("utf-8"))["published"]
            return frozenset(figure["what"] for figure in published if "unmeasurable" not in figure)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # somebody else's experiment has no file here
    return frozenset()


def _is_measured_today(figure, experiment):
    return figure["what"] in _measured_today(str(experiment.definition.get("name", "")))


def _cells_of(figure):
    """What two figures of one claim have in common; None for a figure that stands alone."""
    if "ratio" not in figure or figure.get("unmeasurable"):
        return None
    about = ("metric", "configuration", "against", "where", "gpu")
    return json.dumps([figure.get(key) for key in about], sort_keys=True)


def claims(experiment):
    """The published figures of an experiment as Claims, in the order in which they are defined."""
    found, by_cells = [], {}
    for figure in experiment.definition.get("published", []):
        part = figure, judge(figure, experiment)
        cells = _cells_of(figure)
        claim = by_cells.get(cells) if cells else None
        over = figure.get("over", "mean")
        if claim is None or over in {other.get("over", "mean") for other, _ in claim.parts}:
            claim = Claim([])
            found.append(claim)
            if cells:
                by_cells[cells] = claim
        claim.parts.append(part)
    return found
