#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the models of a voxel data set that occur twice, and what an accuracy says about the others.

    modelnet10_defects.py MODELS.npz [RUN_epochs.jsonl ...]

MODELS has voxel models (docs/user_guide.md). Two models are equal if they have the same cells. For each
RUN, a training's lines of epochs, it prints how many test models the last epoch has right, and bounds on
the accuracy over the test models that equal no training model. The lines do not say which models are
right, but how many of each class are. Needs NumPy. Memory: the test models times the training models.
"""

import argparse
import collections
import json
import pathlib

import numpy as np

BINS = 8  # on each axis, of the nearest neighbour's counts


def models_of(file, split):
    coords, offsets = file[f"coords_{split}"], file[f"offsets_{split}"]
    return [coords[begin:end] for begin, end in zip(offsets[:-1], offsets[1:])]


def key(model):
    return model[np.lexsort(model.T)].tobytes()


def counts(models, low, high):
    """[models, bins] f32 of norm 1: how many cells of a model each bin has."""
    rows = np.zeros((len(models), BINS**3), np.float32)
    for row, model in zip(rows, models):
        x, y, z = ((model.astype(np.int64) - low) * BINS // (high + 1 - low)).T
        np.add.at(row, (x * BINS + y) * BINS + z, 1)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def bounds(confusion, equal):
    """The least and the most right models among those without an equal one, of `equal` by class."""
    right = np.diag(confusion)
    return np.sum(np.maximum(right - equal, 0)), np.sum(np.minimum(right, confusion.sum(1) - equal))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models")
    parser.add_argument("runs", nargs="*")
    arguments = parser.parse_args()
    with np.load(arguments.models) as file:
        models = {split: models_of(file, split) for split in ("train", "test")}
        labels = {split: file[f"labels_{split}"] for split in models}
        names = [str(name) for name in file["class_names"]]
    for split, all_models in models.items():
        kept = [i for i, model in enumerate(all_models) if len(model)]
        print(f"{split}: {len(all_models)} models, {len(all_models) - len(kept)} without voxels")
        models[split], labels[split] = [all_models[i] for i in kept], labels[split][kept]
    places = collections.defaultdict(list)
    for i, model in enumerate(models["train"]):
        places[key(model)].append(i)
    twins = [places.get(key(model), []) for model in models["test"]]
    equal = np.array([bool(same) for same in twins])
    other = [label not in labels["train"][same] for same, label in zip(twins, labels["test"]) if same]
    print(f"{len(models['train']) - len(places)} training models equal an earlier one; "
          f"{sum(len(set(labels['train'][same])) > 1 for same in places.values())} sets of equal ones "
          "have two labels")
    print(f"{equal.sum()} test models equal a training model, {sum(other)} of them one of another label alone")
    by_class = np.bincount(labels["test"][equal], minlength=len(names))
    print("by class:", ", ".join(f"{name} {count}" for name, count in zip(names, by_class)))
    low, high = (extreme(np.concatenate(models["train"])) for extreme in (np.min, np.max))
    rows = {split: counts(models[split], int(low), int(high)) for split in models}
    nearest = np.argmax(rows["test"] @ rows["train"].T, axis=1)
    right = labels["train"][nearest] == labels["test"]
    print(f"nearest neighbour by {BINS}^3 counts: {right.sum()} of {len(right)} right, "
          f"{right[~equal].sum()} of the {(~equal).sum()} without an equal one")
    for run in arguments.runs:
        last = json.loads(pathlib.Path(run).read_text(encoding="utf-8").splitlines()[-1])
        confusion = np.array(last["test_confusion"])
        least, most = bounds(confusion, by_class)
        print(f"{pathlib.Path(run).stem}: {np.trace(confusion)} of {confusion.sum()} right; "
              f"{least} ({least / (~equal).sum():.2%}) to {most} ({most / (~equal).sum():.2%}) of the "
              f"{(~equal).sum()} others")


if __name__ == "__main__":
    main()
