#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The dense rate of weight gradients at the sizes of a submanifold layer of kernel 3.

  voxconv voxelize CLOUD voxels.npz --voxel-size 0.05
  experiments/training/dense_weight_gradients.py voxels.npz ...

A weight gradient is x^T g over the pairs of each kernel offset. Here the rows of all pairs lie there
already, gathered and contiguous, and PyTorch (cuBLAS) multiplies them in f16 on a GPU, replayed as a
CUDA graph: one product for each offset, one for all pairs at once, and equal batches whose partial
sums nobody adds. What voxconv's kernel takes for the same pairs has the gathers and the sums in it.
"""
import argparse

import numpy as np
import torch

CHANNELS = (64, 128, 256)
SPLITS = (16, 32, 64, 66, 128, 132, 264)  # batches of equal size


def pairs_of(path):
    """The number of voxels, and for each offset the input and the output rows that meet."""
    voxels = np.load(path)["coords"][:, 1:].astype(np.int64)
    rows = torch.from_numpy(voxels - voxels.min(0) + 2).cuda()
    span = int(rows.max()) + 4
    key, _ = torch.sort((rows[:, 0] * span + rows[:, 1]) * span + rows[:, 2])
    pairs = []
    for dx in (-1, 0, 1):
        for dy in (-1, 0, 1):
            for dz in (-1, 0, 1):
                wanted = key + (dx * span + dy) * span + dz
                at = torch.searchsorted(key, wanted).clamp_(max=len(key) - 1)
                hit = key[at] == wanted
                pairs.append((at[hit], torch.nonzero(hit)[:, 0]))
    return len(voxels), pairs


def median_us(call, repeats=60):
    """Of replays of a CUDA graph of `call`."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(1e3 * begin.elapsed_time(end))
    return float(np.median(times[5:]))


def measure(voxels, pairs, channels):
    total = sum(len(p) for p, _ in pairs)
    x, g = (torch.randn(voxels, channels, device="cuda", dtype=torch.half) for _ in "xg")
    x_rows, g_rows = [x[p] for p, _ in pairs], [g[q] for _, q in pairs]
    sums = torch.empty(len(pairs), channels, channels, device="cuda", dtype=torch.half)

    def each_offset():
        for k, (a, b) in enumerate(zip(x_rows, g_rows)):
            torch.mm(a.t(), b, out=sums[k])

    a, b = torch.cat(x_rows), torch.cat(g_rows)
    batches = []
    for split in SPLITS:
        rows = total // split
        a3, b3 = (m[:rows * split].view(split, rows, channels) for m in (a, b))
        partial = torch.empty(split, channels, channels, device="cuda", dtype=torch.half)
        batches.append(median_us(lambda a3=a3, b3=b3, p=partial: torch.bmm(
            a3.transpose(1, 2), b3, out=p)))
    results = {"each offset": median_us(each_offset),
               "all pairs": median_us(lambda: torch.mm(a.t(), b, out=sums[0])),
               "equal batches": min(batches)}
    flops, mega_bytes = 2 * total * channels**2, 4e-6 * total * channels
    print(f"  {channels} channels, {mega_bytes:.0f} MB of rows: " + ", ".join(
        f"{name} {us:.1f} us ({flops / us / 1e6:.0f} TFLOP/s)" for name, us in results.items()),
        flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("voxels", nargs="+", help=".npz file with coords [N, 4]")
    for path in parser.parse_args().voxels:
        voxels, pairs = pairs_of(path)
        print(f"{path} on {torch.cuda.get_device_name()}, PyTorch {torch.__version__}: {voxels} "
              f"voxels, {sum(len(p) for p, _ in pairs)} pairs")
        for channels in CHANNELS:
            measure(voxels, pairs, channels)


if __name__ == "__main__":
    main()
