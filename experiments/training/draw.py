#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the trainings of docs/results/training.md and prints the page's table.

    draw.py RESULTS... OUT

Each RESULTS has a file NAME.jsonl for each training. Its first line says which command ran, where and at which
commit. The others are the lines of the run's epochs.jsonl; the last one has the confusion matrix. Trainings
whose names differ in the seed alone (NAME is GROUP_SEED) share a picture of test accuracy in OUT. The first
seed's confusion matrix is drawn too.
"""

import itertools
import json
import math
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "report"))
import plots  # noqa: E402  pylint: disable=wrong-import-position


def read(path):
    """The run's command, and its epochs."""
    head, *epochs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return head, epochs


def draw(group, runs, out):
    """`runs`: [(seed, epochs)]."""
    curves = [(f"seed {seed}", [(line["epoch"], 100 * line["test_accuracy"]) for line in epochs], "steps")
              for seed, epochs in runs]
    plots.curves(out / f"training-{group}-accuracy.png", f"{group}: test accuracy", "epoch", "%", curves)
    last = runs[0][1][-1]
    shares = [[count / sum(row) if sum(row) else math.nan for count in row]
              for row in last["test_confusion"]]
    plots.confusion(out / f"training-{group}-confusion.png",
                    f"{group}, seed {runs[0][0]}: share of each class, by what was predicted", shares,
                    last["test_classes"], written=len(shares) <= 16)


def main():
    *folders, out = map(pathlib.Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    named = sorted(path for folder in folders for path in folder.glob("*.jsonl"))
    for group, paths in itertools.groupby(named, lambda path: path.stem.rsplit("_", 1)[0]):
        runs = [(path.stem.rsplit("_", 1)[1], *read(path)) for path in paths]
        draw(group, [(seed, epochs) for seed, _, epochs in runs], out)
        last = [100 * epochs[-1]["test_accuracy"] for _, _, epochs in runs]
        print(f"| `{group}` | " + " | ".join(f"{value:.1f} %" for value in last) +
              f" | **{statistics.mean(last):.1f} %** | {len(runs[0][2])} | {runs[0][1]['device']}"
              f" | `{runs[0][1]['commit']}` |")


if __name__ == "__main__":
    main()
