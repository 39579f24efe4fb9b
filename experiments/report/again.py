# SPDX-License-Identifier: Apache-2.0
"""Two sets of results of the same experiments, held against each other."""

import copy
import math
import statistics
from typing import NamedTuple

import results as lines
import rounds
import rule

HEADER = ["experiment", "device", "commits", "cells in both", "same verdict", "opposite verdict",
          "intervals meet", "median change of the ratio", "claims", "same verdict"]


class Agreement(NamedTuple):
    """Of one experiment on one device."""

    name: str
    device: str
    commits: str
    cells: int
    same_verdicts: int      # faster, slower, no difference
    opposite_verdicts: int  # faster against slower
    meeting: int            # intervals of the ratio that have a point in common
    change: float           # the median over cells of |log ratio|, as a factor
    claims: int
    same_claims: int

    def row(self):
        return [self.name, self.device, self.commits, self.cells, self.same_verdicts,
                self.opposite_verdicts, self.meeting, f"{self.change:.2f}x", self.claims or "",
                self.same_claims if self.claims else ""]


def _key(cell):
    """The same cell on the same input: another program or plugin is what the second run may have."""
    return rounds.slot(cell), cell["cell"].get("input_hash")


def _ratios(experiment):
    return {_key(cell): cell["result"]
            for cell in experiment.measured() if cell.get("result", {}).get("speedup")}


def _meet(a, b):
    return a["low"] <= b["high"] and b["low"] <= a["high"]


def _commits(*experiments):
    found = []
    for experiment in experiments:
        found.append(" ".join(lines.commits_of(experiment.measured())))
    return " / ".join(found)


def _verdicts(experiment, keys):
    """Of the claims, from the cells of these keys alone: figures over other cells would be
    other claims."""
    shared = copy.copy(experiment)
    shared.asked = None
    shared.cells = [cell for cell in experiment.cells if _key(cell) in keys]
    return [claim.verdict for claim in rule.claims(shared)]


def compare(first, second):
    """One Agreement for each experiment and device that both have results of."""
    others = {(experiment.name, experiment.device): experiment for experiment in second}
    agreements = []
    for experiment in first:
        other = others.get((experiment.name, experiment.device))
        if other is None:
            continue
        ours, theirs = _ratios(experiment), _ratios(other)
        both = [(ours[key], theirs[key]) for key in ours if key in theirs]
        if not both:
            continue
        changes = [abs(math.log(a["speedup"]["ratio"] / b["speedup"]["ratio"])) for a, b in both]
        shared = ours.keys() & theirs.keys()
        verdicts = list(zip(_verdicts(experiment, shared), _verdicts(other, shared)))
        agreements.append(Agreement(
            experiment.name, experiment.device, _commits(experiment, other), len(both),
            sum(a["verdict"] == b["verdict"] for a, b in both),
            sum({a["verdict"], b["verdict"]} == {"faster", "slower"} for a, b in both),
            sum(_meet(a["speedup"], b["speedup"]) for a, b in both),
            math.exp(statistics.median(changes)), len(verdicts), sum(a == b for a, b in verdicts)))
    return agreements
