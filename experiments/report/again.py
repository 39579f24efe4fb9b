# SPDX-License-Identifier: Apache-2.0
"""Two sets of results of the same experiments, held against each other."""

import copy
import json
import math
import statistics
from typing import NamedTuple

import results as lines
import rounds
import rule

HEADER = ["experiment", "device", "commits", "cells in both", "same verdict", "opposite verdict",
          "intervals meet", "median change of the ratio", "claims", "same verdict"]


OPPOSITE_OF_CLAIMS = {rule.REPRODUCED, rule.NOT_REPRODUCED}
OPPOSITE_OF_CELLS = {"faster", "slower"}


class Agreement(NamedTuple):
    """Of one experiment on one device."""

    name: str
    device: str
    commits: str
    cells: int
    same_verdicts: int      # faster, slower, no difference
    opposite_verdicts: int  # faster against slower
    meeting: int            # intervals of the ratio that have a point in common
    change: float           # the median over cells of |log ratio|, as a factor; None without times
    claims: int
    same_claims: int
    opposite_claims: int    # reproduced against not reproduced

    def row(self):
        return [self.name, self.device, self.commits, self.cells, self.same_verdicts,
                self.opposite_verdicts, self.meeting, f"{self.change:.2f}x" if self.change else "",
                self.claims or "", self.same_claims if self.claims else ""]


def _key(cell):
    """The same cell on the same input: another program or plugin is what the second run may have."""
    return rounds.slot(cell), cell["cell"].get("input_hash")


def _ratios(experiment):
    return {_key(cell): cell["result"]
            for cell in experiment.measured() if cell.get("result", {}).get("speedup")}


def _shared(first, second):
    """The keys of cells that both have measured. Those of `info` have no ratio."""
    return {_key(cell) for cell in first.measured()} & {_key(cell) for cell in second.measured()}


def _meet(a, b):
    return a["low"] <= b["high"] and b["low"] <= a["high"]


def _commits(*experiments):
    found = []
    for experiment in experiments:
        found.append(" ".join(lines.commits_of(experiment.measured())))
    return " / ".join(found)


def _claims(experiment, keys):
    """From the cells of these keys alone: figures over other cells would be other claims."""
    shared = copy.copy(experiment)
    shared.asked = None
    shared.cells = [cell for cell in experiment.cells if _key(cell) in keys]
    return rule.claims(shared)


def _verdicts(experiment, keys):
    return [claim.verdict for claim in _claims(experiment, keys)]


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
        shared = _shared(experiment, other)
        if not shared:
            continue
        changes = [abs(math.log(a["speedup"]["ratio"] / b["speedup"]["ratio"])) for a, b in both]
        verdicts = list(zip(_verdicts(experiment, shared), _verdicts(other, shared)))
        agreements.append(Agreement(
            experiment.name, experiment.device, _commits(experiment, other), len(both),
            sum(a["verdict"] == b["verdict"] for a, b in both),
            sum({a["verdict"], b["verdict"]} == OPPOSITE_OF_CELLS for a, b in both),
            sum(_meet(a["speedup"], b["speedup"]) for a, b in both),
            math.exp(statistics.median(changes)) if changes else None, len(verdicts),
            sum(a == b for a, b in verdicts),
            sum({a, b} == OPPOSITE_OF_CLAIMS for a, b in verdicts)))
    return agreements


def totals(agreements):
    """(what, equal, opposite, all) of claims and of cells, over all experiments."""
    def total(field):
        return sum(getattr(one, field) for one in agreements)

    return [("claims", total("same_claims"), total("opposite_claims"), total("claims")),
            ("cells", total("same_verdicts"), total("opposite_verdicts"), total("cells"))]


def differences(first, second):
    """A line of text for each claim with another verdict in the second run, and for each cell with
    the opposite one."""
    others = {(experiment.name, experiment.device): experiment for experiment in second}
    for experiment in first:
        other = others.get((experiment.name, experiment.device))
        if other is None:
            continue
        ours, theirs = _ratios(experiment), _ratios(other)
        shared = _shared(experiment, other)
        for a, b in zip(_claims(experiment, shared), _claims(other, shared)):
            if a.verdict != b.verdict:
                yield f"{experiment.name}: {a.parts[0][0]['what']}: {a.verdict}, then {b.verdict}"
        for key in ours:
            if key in theirs and {ours[key]["verdict"], theirs[key]["verdict"]} == OPPOSITE_OF_CELLS:
                about = json.loads(key[0])[0]
                cell = (f"{about['configuration']} against {about.get('against')}, {about['input']}, "
                        f"{about.get('work')}, {about.get('dtype')}")
                yield (f"{experiment.name}: {cell}: {ours[key]['verdict']}, then "
                       f"{theirs[key]['verdict']}")
