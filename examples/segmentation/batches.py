# SPDX-License-Identifier: Apache-2.0
"""Batches of labelled voxels, each a function of its step and its samples alone: processes that share a
step's samples have what one process with all of them has."""

import pathlib
from typing import NamedTuple

import numpy as np
import torch
import voxconv

IGNORED = -100  # nn.functional.cross_entropy leaves it out


class Batch(NamedTuple):
    """Voxels on the CPU."""

    coords: torch.Tensor  # int32 [N, 4]
    features: torch.Tensor  # float32 [N, 4]
    labels: torch.Tensor  # int64 [N]


class Scans:
    """Synthetic scans. A voxel's class is its height."""

    classes = 4

    def __init__(self, azimuths: int):
        self.azimuths = azimuths

    def size(self, step: int, index: int) -> int:
        """Of a sample, in proportion to its voxels: all scans are much alike."""
        return 1

    def sample(self, step: int, index: int) -> tuple[np.ndarray, ...]:
        x = voxconv.load(
            f"scene:lidar64?azimuths={self.azimuths}&seed={1000 * step + index}",
            voxel_size=0.5, channels=4,
        )
        height = x.coords[:, 3] - x.coords[:, 3].min()
        return x.coords, x.features / 10, np.minimum(height // 4, self.classes - 1)


class Frames:
    """Frames of points in .npz files with xyz, intensity and label (0: ignored), turned, mirrored and
    scaled anew in every step."""

    def __init__(self, files: list[pathlib.Path], voxel_size: float):
        self.voxel_size, self.frames, self.voxels = voxel_size, [], []
        for file in files:
            with np.load(file) as arrays:
                xyz, label = arrays["xyz"], arrays["label"]
                self.classes = len(arrays["class_names"]) - 1  # but the ignored one
                # The mean over a voxel's points is each class's share of them.
                columns = np.zeros((len(xyz), 1 + self.classes), np.float32)
                columns[:, 0] = arrays["intensity"]
            columns[label > 0, label[label > 0]] = 1
            self.frames.append((xyz, columns))
            # Counted by NumPy: loader() forks before the first call of voxconv.
            cells = np.floor(xyz / voxel_size).astype(np.int64)
            self.voxels.append(len(np.unique(cells @ (1 << 40, 1 << 20, 1))))

    def size(self, step: int, index: int) -> int:
        """The voxels of a sample's frame as it was recorded, which turning changes little."""
        return self.voxels[(step + index) % len(self.frames)]

    def sample(self, step: int, index: int) -> tuple[np.ndarray, ...]:
        xyz, columns = self.frames[(step + index) % len(self.frames)]
        draw = np.random.default_rng([step, index])
        angle, scale = draw.uniform(0, 2 * np.pi), draw.uniform(0.95, 1.05)
        mirror = draw.choice([-1.0, 1.0])
        cos, sin = scale * np.cos(angle), scale * np.sin(angle)
        turn = np.array([[mirror * cos, mirror * -sin, 0], [sin, cos, 0], [0, 0, scale]])
        x = voxconv.voxelize(xyz @ turn.T.astype(np.float32), columns, voxel_size=self.voxel_size)
        shares = x.features[:, 4:]
        labels = np.where(shares.any(1), shares.argmax(1), IGNORED)
        return x.coords, x.features[:, :4] * np.float32([0.04, 0.04, 0.25, 1]), labels


def balanced(sizes: list[int], processes: int) -> list[list[int]]:
    """Shares of as many samples each, whose sizes add up to much the same: the largest first, each to the
    smallest share that is not full. A step takes as long as its largest share."""
    shares: list[list[int]] = [[] for _ in range(processes)]
    sums = [0] * processes
    for sample in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        least = min((p for p in range(processes) if len(shares[p]) < len(sizes) // processes),
                    key=sums.__getitem__)
        shares[least].append(sample)
        sums[least] += sizes[sample]
    return [sorted(share) for share in shares]


class Steps(torch.utils.data.Dataset):
    """A process's share of each step's samples as one batch, by the number of the step. `samples`, of all
    `processes`, must be a multiple of these."""

    def __init__(self, source: Scans | Frames, samples: int, processes: int = 1, rank: int = 0):
        self.source, self.samples, self.processes, self.rank = source, samples, processes, rank

    def share(self, step: int) -> list[int]:
        sizes = [self.source.size(step, index) for index in range(self.samples)]
        return balanced(sizes, self.processes)[self.rank]

    def __getitem__(self, step: int) -> Batch:
        coords, features, labels = [], [], []
        for place, index in enumerate(self.share(step)):
            rows, values, classes = self.source.sample(step, index)
            rows = np.array(rows)
            rows[:, 0] = place
            coords.append(torch.from_numpy(rows))
            features.append(torch.from_numpy(np.ascontiguousarray(values, np.float32)))
            labels.append(torch.from_numpy(classes.astype(np.int64)))
        return Batch(torch.cat(coords), torch.cat(features), torch.cat(labels))


def loader(dataset: Steps, steps: range, workers: int, pinned: bool) -> torch.utils.data.DataLoader:
    """The batches of these steps, made by so many processes while the steps before are computed. They are
    forked by iter(): call it before the first call of voxconv."""
    return torch.utils.data.DataLoader(
        dataset, batch_size=None, sampler=steps, num_workers=workers, pin_memory=pinned
    )
