#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a split on which settings can be chosen without the test split.

    held_out_split.py MODELS.npz OUT.npz [--share 0.2] [--alike 0.8] [--seed 1]

MODELS has voxel models or meshes, with the keys of docs/user_guide.md. OUT has the training models of
MODELS alone, as a training and a test split of its own. About --share of each class goes to the test split.

Voxel models that are alike stay on one side. Otherwise the held-out part has near-duplicates of what is
trained, and asks for less augmentation than models that were never seen. Two models are alike when their
cells, both moved to begin at 0, have an intersection over union of at least --alike. Alike models of alike
models are alike too. Meshes are not compared: each goes to a side by itself.

Needs NumPy. Memory: 4 bytes for each voxel model and cell of the largest box, and for each pair of models.
"""

import argparse

import numpy as np


def occupancy(coords, offsets):
    """[models, cells] f32 of 0 and 1, each model moved to begin at 0."""
    size = int(coords.max()) + 1
    grids = np.zeros((len(offsets) - 1, size**3), np.float32)
    for model, (begin, end) in enumerate(zip(offsets[:-1], offsets[1:])):
        cells = coords[begin:end].astype(np.int64)
        if len(cells):
            cells -= cells.min(axis=0)
            grids[model, (cells[:, 0] * size + cells[:, 1]) * size + cells[:, 2]] = 1
    return grids


def alike_pairs(grids, alike):
    """[pairs, 2] models whose intersection over union is at least `alike`."""
    common = grids @ grids.T
    cells = common.diagonal()
    union = cells[:, None] + cells[None, :] - common
    return np.argwhere(np.triu(common >= alike * np.maximum(union, 1), k=1))


def groups_of(count, pairs):
    """The number of its group for each model: the connected components of `pairs`."""
    parent = list(range(count))

    def root(model):
        while parent[model] != model:
            parent[model] = parent[parent[model]]
            model = parent[model]
        return model

    for a, b in pairs:
        parent[root(a)] = root(b)
    return np.array([root(model) for model in range(count)])


def held_out(groups, labels, share, seed):
    """bool [models]: groups in random order until each class has its share. A group goes as a whole."""
    out = np.zeros(len(labels), bool)
    wanted = share * np.bincount(labels)
    taken = np.zeros_like(wanted)
    for group in np.random.default_rng(seed).permutation(np.unique(groups)):
        members = groups == group
        counts = np.bincount(labels[members], minlength=len(wanted))
        if np.all(taken[counts > 0] + counts[counts > 0] <= wanted[counts > 0]):
            out |= members
            taken += counts
    return out


# The arrays of models, one model after the other, and the array that says where each begins.
PARTS = {"voxels": {"coords": "offsets"},
         "meshes": {"mesh_vertices": "mesh_voff", "mesh_faces": "mesh_foff"}}


def select(array, offsets, models):
    """The parts of `models`, one after the other, and where each begins."""
    parts = [array[offsets[model]:offsets[model + 1]] for model in models]
    begins = np.cumsum([0] + [len(part) for part in parts])
    return np.concatenate(parts), begins.astype(offsets.dtype)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models")
    parser.add_argument("out")
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--alike", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with np.load(arguments.models) as file:
        parts = PARTS["voxels" if "coords_train" in file else "meshes"]
        models = {name: file[f"{name}_train"] for pair in parts.items() for name in pair}
        labels = file["labels_train"]
        arrays = {"class_names": file["class_names"]}
    pairs = []
    if "coords" in models:
        pairs = alike_pairs(occupancy(models["coords"], models["offsets"]), arguments.alike)
    groups = groups_of(len(labels), pairs)
    test = held_out(groups, labels, arguments.share, arguments.seed)
    for split, chosen in (("train", np.flatnonzero(~test)), ("test", np.flatnonzero(test))):
        arrays[f"labels_{split}"] = labels[chosen]
        for name, begins in parts.items():
            arrays[f"{name}_{split}"], arrays[f"{begins}_{split}"] = select(models[name], models[begins],
                                                                            chosen)
    np.savez_compressed(arguments.out, **arrays)
    print(f"{(~test).sum()} models to train, {test.sum()} held out, "
          f"{len(np.unique(groups))} groups, the largest of {np.bincount(groups).max()}")


if __name__ == "__main__":
    main()
