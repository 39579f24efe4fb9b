# SPDX-License-Identifier: Apache-2.0
"""A dataflow in Triton: fetch-on-demand over a neighbour table, verified against the reference and compared
with a built-in one.

    python examples/python/triton_dataflow.py [FILE|scene:NAME]
"""

import sys

import torch  # noqa: F401  (voxconv gives arrays of what is loaded)
import triton
import triton.language as tl
import voxconv


@triton.jit(do_not_specialize=["rows", "offsets"])
def fetch(table, x, w, y, rows, offsets, c_in, c_out,
          ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.program_id(1) * COLS + tl.arange(0, COLS)
    total = tl.zeros((ROWS, COLS), tl.float32)
    for k in range(offsets):
        found = tl.load(table + row.to(tl.int64) * offsets + k, mask=row < rows, other=-1)
        if tl.max(found, 0) >= 0:  # a row of the block has a voxel at this offset
            part = tl.zeros((ROWS, COLS), tl.float32)
            for first in range(0, c_in, DEPTH):
                c = first + tl.arange(0, DEPTH)
                a = tl.load(x + found[:, None].to(tl.int64) * c_in + c[None, :],
                            mask=(found[:, None] >= 0) & (c[None, :] < c_in), other=0.0)
                b = tl.load(w + (k * c_in + c[:, None]) * c_out + col[None, :],
                            mask=(c[:, None] < c_in) & (col[None, :] < c_out), other=0.0)
                part = tl.dot(a, b, part, input_precision="ieee")
            # A NaN in w[k] must not reach rows that have no voxel there: 0 * NaN is NaN.
            total += tl.where(found[:, None] >= 0, part, 0.0)
    tl.store(y + row[:, None].to(tl.int64) * c_out + col[None, :], total.to(y.dtype.element_ty),
             mask=(row[:, None] < rows) & (col[None, :] < c_out))


@voxconv.register_dataflow
class TritonFetch:
    """a block of rows fetches its inputs offset by offset into tl.dot"""

    name = "triton_fetch"
    form = "neighbour_table"
    backends = ("cuda",)
    dtypes = ("f32", "f16", "bf16")
    options = {"rows": {"default": "64", "choices": ["32", "64", "128"], "help": "rows of a block"}}

    def __init__(self, rows):
        self.rows = int(rows)

    def forward(self, map, x, w, y):  # PyTorch tensors on voxconv's memory and stream
        (rows, offsets), (c_in, c_out) = map.shape, w.shape[1:]
        if y.numel() == 0:
            return
        cols = min(64, max(16, triton.next_power_of_2(c_out)))
        grid = (triton.cdiv(rows, self.rows), triton.cdiv(c_out, cols))
        fetch[grid](map, x, w, y, rows, offsets, c_in, c_out, ROWS=self.rows, COLS=cols, DEPTH=32)


def main(source="scene:lidar64"):
    records = voxconv.verify(dataflow=TritonFetch.name + ":", backend="cuda", quick=True)
    failed = [r for r in records if r["verdict"] == "failed"]
    for record in failed[:5]:
        print(record["case"], record["detail"])
    print(f"{TritonFetch.name}: {len(records)} cases, {len(failed)} failed", flush=True)
    for dtype in ("f16", "f32"):
        for other in ("fetch_on_demand", "implicit_gemm"):
            wall = voxconv.ab(f"hash/{TritonFetch.name}", f"hash/{other}", source, channels=(64, 64),
                              precision=dtype, rebuild_maps=False, backend="cuda")[-1]
            print(f"{dtype}: {TritonFetch.name} {1e3 * wall['a_ms']:.1f} us, {other} "
                  f"{1e3 * wall['b_ms']:.1f} us", flush=True)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) > 0)
