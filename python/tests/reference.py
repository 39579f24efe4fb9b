# SPDX-License-Identifier: Apache-2.0
"""Sparse convolution in plain NumPy, by comparing all rows with all rows."""

import itertools

import numpy as np


def scene(n=200, size=12, channels=5, seed=0, stride=1, batches=2):
    """Unique coordinates [N, 4] and float32 features [N, channels]."""
    random = np.random.default_rng(seed)
    rows = random.integers(0, size, (n, 4)).astype(np.int32)
    rows[:, 0] %= batches
    rows[:, 1:] *= stride
    rows = np.unique(rows, axis=0)
    random.shuffle(rows)
    return rows, random.standard_normal((len(rows), channels)).astype(np.float32)


def weights(k, c_in, c_out, seed=1):
    return np.random.default_rng(seed).standard_normal((k, c_in, c_out)).astype(np.float32)


def offsets(kernel, stride=1):
    """[K, 3]: x slowest, z fastest; centred for odd kernels."""
    axis = np.arange(kernel) - (kernel // 2 if kernel % 2 else 0)
    return np.array(list(itertools.product(axis, axis, axis)), np.int64) * stride


def pairs(coords, outputs, deltas):
    """Per offset the pairs (p, q) with coords[p] = outputs[q] + delta, ascending by q."""
    row_of = {tuple(c): i for i, c in enumerate(coords.tolist())}
    result = []
    for dx, dy, dz in deltas.tolist():
        found = []
        for q, (b, x, y, z) in enumerate(outputs.tolist()):
            p = row_of.get((b, x + dx, y + dy, z + dz))
            if p is not None:
                found.append((p, q))
        result.append(np.array(found, np.int64).reshape(-1, 2))
    return result


def forward(map_pairs, n_out, x, w):
    y = np.zeros((n_out, w.shape[2]))
    for k, found in enumerate(map_pairs):
        np.add.at(y, found[:, 1], x[found[:, 0]].astype(np.float64) @ w[k])
    return y


def input_grad(map_pairs, n_in, dy, w):
    dx = np.zeros((n_in, w.shape[1]))
    for k, found in enumerate(map_pairs):
        np.add.at(dx, found[:, 0], dy[found[:, 1]].astype(np.float64) @ w[k].T)
    return dx


def weight_grad(map_pairs, x, dy):
    return np.stack(
        [x[found[:, 0]].astype(np.float64).T @ dy[found[:, 1]] for found in map_pairs]
    )


def quantized(coords, stride):
    """The output voxels of rule quantize, sorted."""
    rows = coords.copy()
    rows[:, 1:] = np.floor_divide(rows[:, 1:], stride) * stride
    return np.unique(rows, axis=0)


def close(a, b):
    """Norm-wise, as f32 sums of some hundred products allow."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    assert a.shape == b.shape
    np.testing.assert_array_less(np.linalg.norm(a - b), 1e-5 * max(np.linalg.norm(b), 1e-30))
