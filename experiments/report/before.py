# SPDX-License-Identifier: Apache-2.0
"""The verdicts of earlier results beside today's, with the reason of each change."""

import json
import re
from typing import NamedTuple

import fields
import pages
import results as lines
import rule

HEADER = ["experiment", "claim", "published", "before", "verdict before", "now", "verdict now",
          "why it changed"]
REASONS = "changes.json"  # beside the new results: {EXPERIMENT or "EXPERIMENT: CLAIM": TEXT}, by people
UNEXPLAINED = "not explained"
NOT_THERE = "no such claim"


class Change(NamedTuple):
    """One claim, earlier and today; None where it was not made."""

    experiment: str
    claim: str
    published: str
    before: rule.Claim
    now: rule.Claim
    reason: str

    @property
    def changed(self):
        return self.before is None or self.now is None or self.before.verdict != self.now.verdict

    def row(self):
        def cells(claim):
            if claim is None:
                return ["", NOT_THERE]
            return pages.claim_row(claim)[2:4]
        reason = self.reason or (UNEXPLAINED if self.changed else "")
        return [self.experiment, self.claim, self.published, *cells(self.before), *cells(self.now),
                reason]


def reasons(directory):
    """{key: text}, or ({}, problem) where the file is none."""
    path = directory / REASONS
    if not path.exists():
        return {}, None
    try:
        found = json.loads(fields.text_of(path))
        if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
            raise ValueError("it is no object of texts")
    except ValueError as error:
        return {}, f"{REASONS} cannot be read: {error}"
    return found, None


def _by_claim(experiments):
    """{(experiment, backend): {what: claim}}. The device does not count: it is one of the changes."""
    found = {}
    for experiment in experiments:
        claims = found.setdefault((experiment.name, experiment.backend), {})
        for claim in rule.claims(experiment):
            what = re.sub("[,:] at (most|least)$", "", claim.parts[0][0]["what"])
            claims[what] = claim
    return found


def compare(experiments, earlier, texts):
    """A Change for each claim of the experiments that both have."""
    before, now = _by_claim(earlier), _by_claim(experiments)
    changes = []
    for key in now:
        if key not in before:
            continue
        for what in dict.fromkeys([*now[key], *before[key]]):
            claim, old = now[key].get(what), before[key].get(what)
            reason = texts.get(f"{key[0]}: {what}", "")
            change = Change(key[0], what, pages.claim_row(claim or old)[1], old, claim, reason)
            if change.changed and not reason:
                change = change._replace(reason=texts.get(key[0], ""))
            changes.append(change)
    return changes


def in_words(changes):
    changed = [change for change in changes if change.changed]
    unexplained = sum(not change.reason for change in changed)
    return (f"Of {len(changes)} claims, {len(changes) - len(changed)} have the verdict that they had "
            f"before; {len(changed)} have another one, {unexplained} of these without an "
            "explanation.")


def commits(experiments):
    return " ".join(lines.commits_of(cell for experiment in experiments
                                     for cell in experiment.measured()))
