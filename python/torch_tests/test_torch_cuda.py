# SPDX-License-Identifier: Apache-2.0
"""voxconv.torch on CUDA: every layer against float64, memory, streams and compiled networks. Empty for a
build without CUDA, and without a device."""

import copy

import cases
import pytest
import reference
import torch
import voxconv
import voxconv.torch as vt

HAS_DEVICE = voxconv.has_cuda and torch.cuda.is_available()
# Of the norm of the difference to that of the float64 result: rounding of inputs, weights and results.
BOUNDS = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
LAYERS = [*cases.layers(16, 24), vt.SubMConv3d(16, 8, 1)]


class DownAndUp(torch.nn.Module):
    """An inverse layer, which needs the strided one's map, and what joins its result with the input."""

    def __init__(self, dataflow="implicit_gemm"):
        super().__init__()
        self.down = vt.SparseConv3d(16, 32, 2, stride=2, key="a", dataflow=dataflow)
        self.up = vt.SparseInverseConv3d(32, 16, 2, key="a", dataflow=dataflow)

    def forward(self, x):
        return vt.cat([self.up(self.down(x)), x + x])


def scene(stride=1, n=2000, size=24, dtype=torch.float64):
    coords, features = reference.scene(n=n, size=size, channels=16, stride=stride)
    features = torch.tensor(features, dtype=dtype, device="cuda", requires_grad=True)
    return vt.SparseTensor(torch.tensor(coords), features, stride)


def error(got, want):
    return float(torch.linalg.norm(got.double() - want) / torch.linalg.norm(want))


def rounded(layer, dtype):
    """Two copies with the same values, which the dtype holds: one in it and one in float64."""
    made = copy.deepcopy(layer).cuda().to(dtype)
    return made, copy.deepcopy(made).double()


if HAS_DEVICE:

    def test_a_tensor_goes_to_the_device_and_back():
        coords, features = reference.scene(channels=16)
        x = vt.SparseTensor(torch.tensor(coords), torch.tensor(features, requires_grad=True), stride=1)
        y = x.cuda()
        assert y.device.type == "cuda" and y.cuda() is y and y.to("cuda").voxels is y.voxels
        assert torch.equal(y.coords.cpu(), x.coords)
        layer = vt.SubMConv3d(16, 8, 3)
        expected = layer(x).features
        got = layer.cuda()(y).cpu()
        assert error(got.features, expected.double()) < BOUNDS[torch.float32]
        got.features.sum().backward()
        assert x.features.grad is not None and x.cuda(0).half().dtype == torch.float16

    @pytest.mark.parametrize("dtype", BOUNDS, ids=str)
    @pytest.mark.parametrize("layer", [*LAYERS, DownAndUp()], ids=lambda layer: type(layer).__name__)
    def test_values_and_gradients_are_those_of_float64(layer, dtype):
        torch.manual_seed(0)
        ours, exact = rounded(layer, dtype)
        x = scene(stride=2 if isinstance(layer, vt.TransposedConv3d) else 1)
        values = x.features.detach().to(dtype)
        a = values.clone().requires_grad_()
        b = values.double().requires_grad_()
        y, z = ours(x.with_features(a)), exact(x.with_features(b))
        assert y.features.dtype == dtype and y.features.is_cuda
        assert error(y.features, z.features) < BOUNDS[dtype]
        dy = torch.randn_like(z.features).to(dtype)
        y.features.backward(dy)
        z.features.backward(dy.double())
        assert error(a.grad, b.grad) < BOUNDS[dtype]
        for (name, p), q in zip(ours.named_parameters(), exact.parameters()):
            assert p.grad.dtype == dtype
            assert error(p.grad, q.grad) < BOUNDS[dtype], name

    @pytest.mark.parametrize("dtype", BOUNDS, ids=str)
    @pytest.mark.parametrize("mode", ["max", "sum", "average_present", "dense"])
    def test_pooling_of_samples_and_dense_grids(mode, dtype):
        run = (lambda x: vt.to_dense(x, (24, 24, 24))) if mode == "dense" else vt.GlobalPool(mode)
        x = scene()
        a = x.features.detach().to(dtype).requires_grad_()
        b = a.detach().double().requires_grad_()
        y, z = run(x.with_features(a)), run(x.with_features(b))
        assert y.dtype == dtype and error(y, z) < BOUNDS[dtype]
        dy = torch.randn_like(z).to(dtype)
        y.backward(dy)
        z.backward(dy.double())
        assert a.grad.dtype == dtype and error(a.grad, b.grad) < BOUNDS[dtype]

    @pytest.mark.parametrize("dataflow", ["gather_gemm_scatter", "fetch_on_demand", "direct", "hash2col"])
    def test_other_dataflows(dataflow):
        torch.manual_seed(0)
        ours, exact = rounded(DownAndUp(dataflow), torch.float32)
        x = scene()
        a = x.features.detach().float().requires_grad_()
        b = a.detach().double().requires_grad_()
        y, z = ours(x.with_features(a)), exact(x.with_features(b))
        y.features.square().sum().backward()
        z.features.square().sum().backward()
        assert error(y.features, z.features) < 1e-5 and error(a.grad, b.grad) < 1e-5
        for p, q in zip(ours.parameters(), exact.parameters()):
            assert error(p.grad, q.grad) < 1e-5

    def test_features_are_the_callers_memory():
        x = scene(dtype=torch.float32)
        assert vt.SparseTensor(x.coords, x.features).features is x.features
        assert x.voxels.handle.device == "cuda:0"

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    def test_autocast(dtype):
        torch.manual_seed(0)
        network = DownAndUp().cuda()
        exact = copy.deepcopy(network).double()
        x = scene()
        with torch.autocast("cuda", dtype=dtype):
            y = network(x.with_features(x.features.detach().float()))
        assert error(y.features, exact(x).features.detach()) < BOUNDS[dtype] * 2
        y.features.float().square().sum().backward()
        assert all(p.grad.dtype == torch.float32 for p in network.parameters())

    def test_a_step_is_ordered_with_a_stream_of_its_own():
        torch.manual_seed(0)
        network = DownAndUp().cuda()
        with torch.cuda.stream(torch.cuda.Stream()):
            x = scene(dtype=torch.float32)
            want = network(x).features.clone()
            late = torch.zeros_like(x.features)
            torch.cuda.synchronize()
            torch.cuda._sleep(500_000_000)
            late.copy_(x.features.detach())  # done only after the delay
            y = network(x.with_features(late)).features
            late.zero_()  # must not overtake the network
        torch.cuda.synchronize()
        assert torch.equal(y, want)

    def test_a_layer_with_its_map_does_not_wait():
        layer = vt.SubMConv3d(16, 32, 3).cuda()
        x = scene(dtype=torch.float32)
        for _ in range(2):  # maps, plans and kernels are there then
            layer(x).features.sum().backward()
        torch.cuda.synchronize()
        torch.cuda._sleep(500_000_000)
        delay = torch.cuda.Event()
        delay.record()
        layer(x).features.sum().backward()
        assert not delay.query()  # the device is still busy: the host went on
        torch.cuda.synchronize()

    def test_a_compiled_network_equals_the_network():
        torch.manual_seed(0)
        network = DownAndUp().cuda()
        compiled = torch.compile(copy.deepcopy(network))
        x = scene(dtype=torch.float32)
        y, z = network(x), compiled(x)
        assert error(z.features, y.features.double()) < 1e-6
        y.features.square().sum().backward()
        z.features.square().sum().backward()
        for p, q in zip(network.parameters(), compiled.parameters()):
            assert error(q.grad, p.grad.double()) < 1e-5
