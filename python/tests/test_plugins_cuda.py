# SPDX-License-Identifier: Apache-2.0
"""Plugins in Python on CUDA, with PyTorch inside. Empty for a build without CUDA, and without PyTorch or a
device."""

import importlib.util
import pathlib

import numpy as np
import pytest
import reference
import voxconv

if voxconv.has_cuda and importlib.util.find_spec("torch"):
    import torch

    HAS_DEVICE = torch.cuda.is_available()
else:
    HAS_DEVICE = False

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "python" / "triton_dataflow.py"
seen = {}


def keys_of(rows):
    """9 bits of batch and 18 of each axis, as a voxel's coordinates have."""
    rows = rows.long()
    inside = ((rows[:, 1:] >= -(1 << 17)) & (rows[:, 1:] < 1 << 17)).all(1)
    key = rows[:, 0]
    for axis in (1, 2, 3):
        key = (key << 18) + rows[:, axis] + (1 << 17)
    return torch.where(inside, key, -1)


class SortedKeys:
    """sorted 64-bit keys and bisection"""

    name, backends = "torch_sorted_keys", ("cpu", "cuda")
    options = {"stable": {"default": True, "help": "whether equal keys keep their order"}}

    def __init__(self, stable):
        self.stable = stable

    def build_index(self, coords):
        return torch.sort(keys_of(torch.as_tensor(coords)), stable=self.stable)

    def query(self, index, outputs, offsets):
        keys, order = index
        outputs, offsets = torch.as_tensor(outputs), torch.as_tensor(offsets)
        wanted = outputs[:, None].repeat(1, len(offsets), 1)
        wanted[:, :, 1:] += offsets
        wanted = keys_of(wanted.reshape(-1, 4))
        if len(keys) == 0:
            return torch.full_like(wanted, -1, dtype=torch.int32)
        at = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
        return torch.where(keys[at] == wanted, order[at], -1).int()


class ByOffset:
    """index_select, matmul and index_add, offset by offset"""

    name, backends, dtypes = "torch_by_offset", ("cuda",), ("f32", "f16")
    rounds_partial_sums = True
    options = {
        "wide": {"default": False, "help": "products in float32"},
        "chunk": {"default": 1 << 20, "min": 1, "max": 1 << 30, "help": "pairs of a product"},
    }
    extra_variants = ["wide=true,chunk=50"]

    def __init__(self, wide, chunk):
        self.wide, self.chunk = wide, chunk

    def forward(self, map, x, w, y):
        in_rows, out_rows, ends = map
        seen.update(x=x.data_ptr(), w=w.data_ptr(), y=y.data_ptr(), stream=voxconv.plugin_stream(),
                    current=torch.cuda.current_stream().cuda_stream, device=x.device)
        total = torch.zeros_like(y, dtype=torch.float32)
        for k in range(len(w)):
            for begin in range(int(ends[k]), int(ends[k + 1]), self.chunk):
                pairs = slice(begin, min(begin + self.chunk, int(ends[k + 1])))
                rows = x[in_rows[pairs].long()]
                part = rows.float() @ w[k].float() if self.wide else rows @ w[k]
                total.index_add_(0, out_rows[pairs].long(), part.float())
        y.copy_(total)


if HAS_DEVICE:
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    voxconv.register_mapping(SortedKeys)
    voxconv.register_dataflow(ByOffset)

    def inputs():
        coords, features = reference.scene(channels=16)
        w = torch.from_numpy(reference.weights(27, 16, 32)).cuda()
        return coords, torch.from_numpy(features).cuda(), w

    def expected(coords, x, w):
        on_cpu = voxconv.SparseTensor(coords, x.cpu().numpy())
        return voxconv.conv(on_cpu, w.cpu().numpy(), kernel=3).features

    def close(a, b):
        np.testing.assert_allclose(a.float().cpu().numpy(), b, rtol=1e-3, atol=1e-4)

    def failed(records):
        assert any(r["verdict"] == "passed" for r in records)
        return [f"{r['case']}: {r['detail']}" for r in records if r["verdict"] == "failed"][:5]

    @pytest.mark.parametrize("backend", ["cpu", "cuda"])
    def test_a_mapping_passes_verify(backend):
        records = voxconv.verify(mapping=SortedKeys.name, backend=backend, quick=True)
        assert not failed(records)
        assert any("stable=false" in r["case"] for r in records)

    def test_a_dataflow_passes_verify():
        records = voxconv.verify(dataflow=ByOffset.name, backend="cuda", quick=True)
        assert not failed(records)
        assert any("wide=true,chunk=50" in r["case"] for r in records)

    @pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="Triton is missing")
    def test_the_triton_example_passes_verify():
        spec = importlib.util.spec_from_file_location("triton_example", EXAMPLE)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        records = voxconv.verify(dataflow=module.TritonFetch.name + ":", backend="cuda", quick=True)
        assert not failed(records)

    def test_ab_compares_them():
        wall = voxconv.ab("torch_sorted_keys/torch_by_offset", "hash/implicit_gemm",
                          "scene:sphere?n=500", channels=(8, 8), precision="f16", backend="cuda")[-1]
        assert wall["stage"] == "wall" and wall["a_ms"] > 0

    @pytest.mark.parametrize("own_stream", [False, True])
    def test_nothing_is_copied_and_the_stream_is_the_callers(own_stream):
        stream = torch.cuda.Stream() if own_stream else torch.cuda.current_stream()
        with torch.cuda.stream(stream):
            coords, features, w = inputs()
            m = voxconv.KernelMap(voxconv.SparseTensor(coords, features), kernel=3)
            late, out = torch.zeros_like(features), torch.empty(len(coords), 32, device="cuda")
            voxconv.convolve(m, late, w, dataflow=ByOffset.name, out=out)
            torch.cuda.synchronize()
            torch.cuda._sleep(500_000_000)
            late.copy_(features)  # done only after the delay
            voxconv.convolve(m, late, w, dataflow=ByOffset.name, out=out)
            z = out * 2
            late.zero_()  # must not overtake the plugin
        torch.cuda.synchronize()
        close(z, 2 * expected(coords, features, w))
        assert [seen[name] for name in "xwy"] == [late.data_ptr(), w.data_ptr(), out.data_ptr()]
        assert seen["stream"] == seen["current"] and seen["device"] == features.device
        assert not own_stream or seen["stream"] == stream.cuda_stream
        assert voxconv.plugin_stream() == 0

    def test_all_passes():
        coords, features, w = inputs()
        m = voxconv.KernelMap(voxconv.SparseTensor(coords, features), kernel=3,
                              mapping=SortedKeys.name)
        dy = torch.randn(len(coords), 32, device="cuda")
        for call, arguments in [(voxconv.input_grad, (dy, w)), (voxconv.weight_grad, (features, dy))]:
            close(call(m, *arguments, dataflow=ByOffset.name), call(m, *arguments).cpu().numpy())

    def test_a_plugin_may_call_voxconv():
        class Nested:
            name, backends = "torch_nested", ("cuda",)

            def forward(self, map, x, w, y):
                on_own = voxconv.SparseTensor(reference.scene(n=50)[0], torch.ones_like(x[:50]))
                y.fill_(float(len(on_own)))

        voxconv.register_dataflow(Nested)
        coords, features, w = inputs()
        rows = reference.scene(n=50)[0]
        x = voxconv.SparseTensor(rows, features[:len(rows)])
        y = voxconv.conv(x, w, kernel=3, dataflow=Nested.name)
        assert (y.features == len(rows)).all()

    def test_what_goes_wrong_is_one_line():
        kept = []

        class Keeps:
            name, backends = "torch_keeps", ("cuda",)
            options = {"how": {"default": "keep", "choices": ["keep", "raise"]}}

            def __init__(self, how):
                self.how = how

            def forward(self, map, x, w, y):
                if self.how == "raise":
                    raise KeyError("two\nlines")
                kept.append(x)

        voxconv.register_dataflow(Keeps)
        coords, features, w = inputs()
        x = voxconv.SparseTensor(coords, features)
        for spec, message in [("torch_keeps", "keeps an array"), ("torch_keeps:how=raise", "KeyError")]:
            with pytest.raises(RuntimeError, match=message) as caught:
                voxconv.conv(x, w, kernel=3, dataflow=spec)
            assert "\n" not in str(caught.value)
        on_cpu = voxconv.SparseTensor(coords, features.cpu().numpy())
        with pytest.raises(NotImplementedError, match="cpu"):
            voxconv.conv(on_cpu, w.cpu().numpy(), kernel=3, dataflow="torch_keeps")
        with pytest.raises(NotImplementedError, match="torch_by_offset takes f32 and f16 only, not bf16"):
            voxconv.conv(x.with_features(features.bfloat16()), w.bfloat16(), kernel=3,
                         dataflow=ByOffset.name)
