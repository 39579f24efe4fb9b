#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The floor of a training step: the time that its bytes and its floating-point operations need.

  voxconv run --network minkunet42 --input CLOUD --frames 1 --json > run.json
  experiments/training/step_floor.py run.json --dtype f16

Each pass of a convolution takes the larger of two times: features in and out, weights and table
over the copy rate, and the operations of the true pairs over the dense rate. It has three passes:
forward and two gradients. A batch norm reads its input and writes its result; backward it reads
input and gradient and writes another. A concatenation reads and writes once each way. A sum reads
its second operand. The optimiser reads value, gradient and momentum, and writes value, momentum and
the 16-bit copy. Maps and the loss are not counted. Rates are those of docs/performance.md. The
dense rate of tf32 is half of f16's.
"""
import argparse
import json
import math
import re

COPY = 4.26e12  # bytes a second
DENSE = {"f16": 666e12, "tf32": 333e12}  # operations a second
SIZE = {"f16": 2, "tf32": 4}  # bytes of a feature


def offsets_of(layer):
    kernel = re.search(r" k(\d+(?:x\d+)*)", layer["geometry"])
    if not kernel:
        return 0
    edges = [int(edge) for edge in kernel[1].split("x")]
    return edges[0] ** 3 if len(edges) == 1 else math.prod(edges)


def product_seconds(layer, dtype):
    """Of all three passes, and the number of weights."""
    size, offsets = SIZE[dtype], offsets_of(layer)
    weights = max(offsets, 1) * layer["c_in"] * layer["c_out"]
    pairs = layer["pairs"] if layer["op"] == "conv" else layer["n_in"]
    work = 2 * pairs * layer["c_in"] * layer["c_out"] / DENSE[dtype]
    features = layer["n_in"] * layer["c_in"] + layer["n_out"] * layer["c_out"]
    moved = size * features + 4 * offsets * layer["n_out"]
    passes = [moved + size * weights, moved + size * weights, moved + 4 * weights]
    return sum(max(each / COPY, work) for each in passes), weights


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a line of voxconv run --json")
    parser.add_argument("--dtype", choices=sorted(SIZE), default="f16")
    options = parser.parse_args()
    with open(options.run, encoding="utf-8") as file:
        layers = json.loads(file.readline())["layers"]
    products = others = weights = 0
    for layer in layers:
        result = SIZE[options.dtype] * layer["n_out"] * layer["c_out"]
        if layer["op"] in ("conv", "linear"):
            seconds, count = product_seconds(layer, options.dtype)
            products += seconds
            weights += count
        else:
            others += {"batch_norm": 5, "concat": 4, "add": 1}[layer["op"]] * result / COPY
    optimiser = weights * (5 * 4 + (2 if options.dtype == "f16" else 0)) / COPY
    print(f"{options.dtype}: products {1e3 * products:.2f} ms, batch norms and others "
          f"{1e3 * others:.2f} ms, optimiser {1e3 * optimiser:.2f} ms, together "
          f"{1e3 * (products + others + optimiser):.2f} ms; {weights / 1e6:.1f} million weights")


if __name__ == "__main__":
    main()
