# SPDX-License-Identifier: Apache-2.0
"""A mapping and a dataflow in NumPy, verified against the reference and compared with built-in ones.

    python examples/python/plugins.py [FILE|scene:NAME]
"""

import sys

import numpy as np

import voxconv


@voxconv.register_mapping
class SortedKeys:
    """packs coordinates into sorted 64-bit keys and searches them by bisection"""

    name = "numpy_sorted_keys"

    @staticmethod
    def pack(rows):
        # 9 bits of batch and 18 of each axis, as a voxel's coordinates have.
        rows = rows.astype(np.int64) + [0, 1 << 17, 1 << 17, 1 << 17]
        outside = ((rows[:, 1:] < 0) | (rows[:, 1:] >= 1 << 18)).any(axis=1)
        keys = (rows * [1 << 54, 1 << 36, 1 << 18, 1]).sum(axis=1)
        return np.where(outside, -1, keys)

    def build_index(self, coords):
        keys = self.pack(coords)
        order = np.argsort(keys, kind="stable")
        return keys[order], order

    def query(self, index, outputs, offsets):
        keys, order = index
        table = np.full((len(outputs), len(offsets)), -1, np.int32)
        for k, offset in enumerate(offsets):
            wanted = self.pack(outputs.astype(np.int64) + [0, *offset])
            at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            if len(keys):
                table[:, k] = np.where(keys[at] == wanted, order[at], -1)
        return table


@voxconv.register_dataflow
class GatherMatmulScatter:
    """one matrix product an offset between NumPy's take and an addition by rows"""

    name = "numpy_gather_matmul_scatter"
    form = "pairs"

    def forward(self, map, x, w, y):
        in_rows, out_rows, offset_ptr = map
        y[:] = 0
        for k in range(len(w)):
            pairs = slice(offset_ptr[k], offset_ptr[k + 1])
            # An output row occurs at most once under an offset, so that += adds every product.
            y[out_rows[pairs]] += x[in_rows[pairs]] @ w[k]


def main(source="scene:sphere?n=2000"):
    for family, plugin in [("mapping", SortedKeys), ("dataflow", GatherMatmulScatter)]:
        records = voxconv.verify(**{family: plugin.name})
        failed = [r for r in records if r["verdict"] == "failed"]
        for record in failed[:5]:
            print(record["case"], record["detail"])
        print(f"{plugin.name}: {len(records)} cases, {len(failed)} failed")

    a = f"{SortedKeys.name}/{GatherMatmulScatter.name}"
    wall = voxconv.ab(a, "hash/implicit_gemm", source)[-1]
    print(f"{a} takes {wall['a_ms']:.2f} ms, hash/implicit_gemm {wall['b_ms']:.2f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
