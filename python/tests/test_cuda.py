# SPDX-License-Identifier: Apache-2.0
"""CUDA through PyTorch. Empty for a build without CUDA, and without PyTorch or a device."""

import importlib.util
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import reference
import voxconv

if voxconv.has_cuda and importlib.util.find_spec("torch"):
    import torch
    from device_memory import kept_by

    HAS_DEVICE = torch.cuda.is_available()
else:
    HAS_DEVICE = False


def inputs(dtype=None):
    coords, features = reference.scene(channels=16)
    w = reference.weights(27, 16, 32)
    dtype = dtype or torch.float32
    x = torch.from_numpy(features).cuda().to(dtype)
    return coords, x, torch.from_numpy(w).cuda().to(dtype)


def expected(coords, x, w):
    on_cpu = voxconv.SparseTensor(coords, x.float().cpu().numpy())
    return voxconv.conv(on_cpu, w.float().cpu().numpy(), kernel=3).features


def busy():
    """Keeps the current stream busy for some tenths of a second."""
    torch.cuda._sleep(500_000_000)


def norm_error(a, b):
    a, b = a.double().cpu().numpy(), np.asarray(b, np.float64)
    return np.linalg.norm(a - b) / np.linalg.norm(b)


if HAS_DEVICE:

    @pytest.mark.parametrize(
        "name, bound", [("float32", 1e-5), ("float16", 1e-2), ("bfloat16", 2e-2)]
    )
    def test_results_are_the_cpus(name, bound):
        coords, features, w = inputs(getattr(torch, name))
        x = voxconv.SparseTensor(coords, features)
        assert x.features is features
        assert x.device == "cuda:0"
        y = voxconv.conv(x, w, kernel=3)
        assert y.features.is_cuda and y.features.dtype == features.dtype
        assert norm_error(y.features, expected(coords, features, w)) < bound

    def test_a_map_serves_equal_voxels_alone():
        coords, features, w = inputs()
        x = voxconv.SparseTensor(coords, features)
        m = voxconv.KernelMap(x, kernel=3)
        want = voxconv.conv(x, w, map=m).features
        before = voxconv._voxconv._synchronisations(0)
        voxconv.conv(x.with_features(features), w, map=m)
        assert voxconv._voxconv._synchronisations(0) == before  # the voxels are shared
        assert torch.equal(voxconv.conv(voxconv.SparseTensor(coords, features), w, map=m).features, want)
        other = coords.copy()
        other[7] = [0, 99, 99, 99]
        with pytest.raises(ValueError, match="map: made for other voxels than x has: row 7 differs"):
            voxconv.conv(voxconv.SparseTensor(other, features), w, map=m)

    def test_passes_are_the_cpus():
        coords, features, w = inputs()
        m = voxconv.KernelMap(voxconv.SparseTensor(coords, features), kernel=3)
        dy = torch.randn(len(coords), 32, device="cuda")
        on_cpu = voxconv.KernelMap(voxconv.SparseTensor(coords, features.cpu().numpy()), kernel=3)
        host = [t.cpu().numpy() for t in (features, w, dy)]
        for got, want in [
            (voxconv.convolve(m, features, w), voxconv.convolve(on_cpu, host[0], host[1])),
            (voxconv.input_grad(m, dy, w), voxconv.input_grad(on_cpu, host[2], host[1])),
            (voxconv.weight_grad(m, features, dy), voxconv.weight_grad(on_cpu, host[0], host[2])),
        ]:
            assert norm_error(got, want) < 1e-5
        for got, want in zip(m.pairs()[:2], on_cpu.pairs()[:2]):
            np.testing.assert_array_equal(torch.from_dlpack(got).cpu().numpy(), want)

    def test_out_is_the_callers_memory():
        coords, features, w = inputs()
        m = voxconv.KernelMap(voxconv.SparseTensor(coords, features), kernel=3)
        out = torch.empty(len(coords), 32, device="cuda")
        before = out.data_ptr()
        assert voxconv.convolve(m, features, w, out=out) is out
        assert out.data_ptr() == before
        assert norm_error(out, expected(coords, features, w)) < 1e-5

    @pytest.mark.parametrize("own_stream", [False, True])
    def test_calls_are_ordered_with_the_current_stream(own_stream):
        stream = torch.cuda.Stream() if own_stream else torch.cuda.current_stream()
        with torch.cuda.stream(stream):
            coords, features, w = inputs()
            want = expected(coords, features, w)
            m = voxconv.KernelMap(voxconv.SparseTensor(coords, features), kernel=3)
            late = torch.zeros_like(features)
            torch.cuda.synchronize()
            busy()
            late.copy_(features)  # done only after the delay
            y = voxconv.convolve(m, late, w)
            z = y * 2  # reads the result on the caller's stream
            late.zero_()  # must not overtake the convolution
        torch.cuda.synchronize()
        assert norm_error(z, 2 * want) < 1e-5

    @pytest.mark.parametrize("own_stream", [False, True])
    def test_a_call_with_a_map_does_not_wait(own_stream):
        stream = torch.cuda.Stream() if own_stream else torch.cuda.current_stream()
        with torch.cuda.stream(stream):
            coords, features, w = inputs()
            x = voxconv.SparseTensor(coords, features)
            m = voxconv.KernelMap(x, kernel=3)
            voxconv.conv(x, w, map=m)  # the first call loads kernels
            torch.cuda.synchronize()
            busy()
            delay = torch.cuda.Event()
            delay.record()
            voxconv.conv(x, w, map=m)
            assert not delay.query()  # the device is still busy: the host went on
        torch.cuda.synchronize()

    def test_page_locked_memory_is_the_hosts():
        coords, features, w = inputs()
        pinned = [t.cpu().pin_memory() for t in (torch.from_numpy(coords), features, w)]
        x = voxconv.SparseTensor(pinned[0], pinned[1])
        assert x.device == "cpu" and x.features is pinned[1]
        y = voxconv.conv(x, pinned[2], kernel=3).features
        np.testing.assert_array_equal(y, expected(coords, features, w))

    def test_streams_are_not_mixed():
        coords, features, w = inputs()
        x = voxconv.SparseTensor(coords, features)
        with torch.cuda.stream(torch.cuda.Stream()):
            with pytest.raises(ValueError, match="^weights: was made for another CUDA stream"):
                voxconv.conv(x, w, kernel=3)

    def test_devices_are_not_mixed():
        coords, features, w = inputs()
        x = voxconv.SparseTensor(coords, features)
        with pytest.raises(ValueError, match="^weights: lies on cpu; the other arguments"):
            voxconv.conv(x, w.cpu(), kernel=3)

    def test_calls_take_no_memory():
        coords, features, w = inputs()

        def call():
            x = voxconv.SparseTensor(coords, features)
            m = voxconv.KernelMap(x, kernel=3)
            voxconv.input_grad(m, voxconv.conv(x, w, map=m).features, w)

        for _ in range(100):
            call()
        assert kept_by(call) < 8 << 20

    def test_a_network_is_the_cpus():
        x = voxconv.load("scene:sphere?n=2000", channels=4)
        network = voxconv.networks.minkunet42(width=0.25).initialize()
        on_device = voxconv.load("scene:sphere?n=2000", channels=4, device="cuda:0")
        assert norm_error(network(on_device).features, network(x).features) < 1e-4

    def test_a_result_outlives_all_else():
        coords, features, w = inputs()
        y = voxconv.conv(voxconv.SparseTensor(coords, features), w, kernel=3).features
        want = y.clone()
        for _ in range(20):
            voxconv.conv(voxconv.SparseTensor(coords, 2 * features), w, kernel=3)
        torch.cuda.synchronize()
        assert torch.equal(y, want)


if HAS_DEVICE and importlib.util.find_spec("cupy"):
    # A process of its own: in this one PyTorch's current stream is the one that counts.
    CUPY = """
import sys
sys.path.insert(0, {tests!r})
import cupy
import numpy as np
import reference
import voxconv

coords, features = reference.scene(channels=16)
w = reference.weights(27, 16, 32)
with cupy.cuda.Stream(non_blocking=True):
    values = cupy.asarray(features)
    x = voxconv.SparseTensor(coords, values)
    assert x.features is values and x.device == "cuda:0"
    y = voxconv.conv(x, cupy.asarray(w), kernel=3).features
    assert isinstance(y, cupy.ndarray)
    expected = voxconv.conv(voxconv.SparseTensor(coords, features), w, kernel=3).features
    np.testing.assert_allclose(cupy.asnumpy(y), expected, rtol=1e-3, atol=1e-4)
    out = cupy.empty_like(y)
    m = voxconv.KernelMap(x, kernel=3)
    assert voxconv.convolve(m, values, cupy.asarray(w), out=out) is out
    np.testing.assert_array_equal(cupy.asnumpy(out), cupy.asnumpy(y))


@voxconv.register_dataflow
class ByOffset:
    name, backends = "cupy_by_offset", ("cuda",)

    def forward(self, map, x, w, y):
        in_rows, out_rows, ends = map
        y[:] = 0
        for k in range(len(w)):
            pairs = slice(int(ends[k]), int(ends[k + 1]))
            y[out_rows[pairs]] += x[in_rows[pairs]] @ w[k]


records = voxconv.verify(dataflow=ByOffset.name, backend="cuda", filter="conv/reference/*submanifold")
found = {{r["verdict"] for r in records}}
assert "passed" in found and "failed" not in found, records
assert "torch" not in sys.modules
"""

    def test_arrays_of_cupy():
        script = CUPY.format(tests=str(pathlib.Path(__file__).parent))
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def test_outputs_of_layers_that_follow_are_found_with_the_first_ones():
        coords, features, _ = inputs()
        on_cpu = voxconv.SparseTensor(coords, features.cpu().numpy())
        stream = torch.cuda.Stream()  # whose engine has seen no layers yet
        stream.wait_stream(torch.cuda.current_stream())

        def frame(x, *layers):
            """The coordinates of a chain of layers."""
            found = []
            for layer in layers:
                kernel_map = voxconv.KernelMap(x, output_coords="fused", **layer)
                column = np.zeros((kernel_map.num_outputs, 1), np.float32)
                x = kernel_map.out_tensor(torch.from_numpy(column).cuda() if x.device != "cpu" else column)
                found.append(kernel_map.out_coords)
            return found

        def waits_of(x, *layers):
            before = voxconv._voxconv._synchronisations(0)
            found = frame(x, *layers)
            waits = voxconv._voxconv._synchronisations(0) - before
            for ours, theirs in zip(found, frame(on_cpu, *layers)):
                np.testing.assert_array_equal(torch.from_dlpack(ours).cpu().numpy(), theirs)
            return waits

        half, third = {"kernel": 2, "stride": 2}, {"kernel": 3, "stride": 2, "rule": "dilate"}
        with torch.cuda.stream(stream):
            x = voxconv.SparseTensor(coords, features)
            first = waits_of(x, half, half, half)
            assert waits_of(x, half, half, half) == first - 2
            # Other networks on the same voxels: what is found for nobody is dropped.
            assert waits_of(x, half) == first - 2
            assert waits_of(x, half, third) <= first
            assert waits_of(x, third, third) <= first
            waits_of(x, half, third)
            assert waits_of(x, half, third) == first - 2
            waits_of(x, half, half, half)
            waits_of(x, half, half, half)
            assert waits_of(x, half, half, half) == first - 2
        torch.cuda.current_stream().wait_stream(stream)
