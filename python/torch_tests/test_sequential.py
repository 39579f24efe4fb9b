# SPDX-License-Identifier: Apache-2.0
"""Layers that are joined in evaluation, and kernels of 1."""

import copy

import pytest
import torch
import torch.nn.utils.prune
import voxconv
import voxconv.torch as vt
from test_torch import DATAFLOWS, raises, scene
from voxconv.torch import models


@pytest.fixture
def calls(monkeypatch):
    """The joined calls of the engine, by name."""
    made = []

    def counted(name):
        function = getattr(voxconv._voxconv, name)

        def call(*args):
            made.append(name)
            return function(*args)

        return call

    for name in ("_convolve_norm", "_multiply_norm", "_residual_norm", "_training_norm"):
        monkeypatch.setattr(voxconv._voxconv, name, counted(name))
    return made


def trained(network):
    """The network in evaluation, with other statistics and parameters than at first."""
    generator = torch.Generator().manual_seed(3)
    for part in network.modules():
        if isinstance(part, torch.nn.BatchNorm1d) and part.running_mean is not None:
            part.running_mean.copy_(torch.randn(part.num_features, generator=generator))
            part.running_var.copy_(0.5 + torch.rand(part.num_features, generator=generator))
            if part.affine:
                torch.nn.init.normal_(part.weight)
                torch.nn.init.normal_(part.bias)
    return network.eval()


def block(dataflow=None, norm=vt.BatchNorm, **settings):
    torch.manual_seed(0)
    conv = vt.SubMConv3d(5, 6, 3, bias=False, dataflow=dataflow)
    return trained(vt.Sequential(conv, norm(6, **settings), torch.nn.ReLU()))


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_a_joined_block_equals_its_layers(dataflow, calls):
    network, x = block(dataflow, eps=0.01), scene()
    expected = network(x).features
    assert not calls and expected.requires_grad  # a gradient may be needed
    with torch.no_grad():
        torch.testing.assert_close(network(x).features, expected.detach())
        torch.testing.assert_close(network[:2](x).features, network[1](network[0](x)).features)
    assert len(calls) == 2
    with torch.inference_mode():
        torch.testing.assert_close(network(scene()).features, expected.detach())


@pytest.mark.parametrize("channels", [5, 8])
def test_a_residual_block_equals_its_layers(channels, calls):
    torch.manual_seed(0)
    network, x = trained(models.ResidualBlock(5, channels)), scene()
    expected = network(x)
    assert not calls
    with torch.no_grad():
        y = network(x)
    assert calls == ["_residual_norm"]
    torch.testing.assert_close(y.features, expected.features.detach())
    calls.clear()
    network.conv1.bn.register_forward_hook(lambda *_: None)
    with torch.no_grad():
        y = network(x)
    product = ["_multiply_norm"] if channels != 5 else []  # the shortcut, a kernel of 1
    assert calls == [*product, "_convolve_norm"]
    torch.testing.assert_close(y.features, expected.features.detach())
    network.conv2.conv = vt.SubMConv3d(channels, channels, 3, dilation=2, bias=False)  # another map
    with torch.no_grad():
        y = network(x)
    torch.testing.assert_close(y.features, network(x).features.detach())


def test_a_network_equals_itself_layer_by_layer(calls):
    torch.manual_seed(0)
    network, x = trained(models.MinkUNet42(5, width=0.25)), scene()
    expected = network(x).features
    with torch.no_grad():
        torch.testing.assert_close(network(x).features, expected.detach(), rtol=1e-4, atol=1e-4)
    assert calls.count("_residual_norm") == 16 and calls.count("_convolve_norm") == 42 - 2 * 16
    calls.clear()
    with torch.no_grad():
        torch.testing.assert_close(vt.compile(network)(x).features, expected.detach(), rtol=1e-4, atol=1e-4)
    assert not calls


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_dtypes_are_rounded_once(dtype, calls):
    x = scene()
    network = block().to(dtype)
    exact = copy.deepcopy(network).float()
    half = x.to(dtype)
    with torch.no_grad():
        expected = exact(half.float()).features.to(dtype)
        torch.testing.assert_close(network(half).features, expected, rtol=0, atol=0)
    assert len(calls) == 2


def test_autocast_joins(calls):
    network, x = block(), scene()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        y = network(x)
    assert y.dtype == torch.bfloat16 and len(calls) == 1
    with torch.no_grad():
        torch.testing.assert_close(y.features.float(), network(x).features, rtol=0.03, atol=0.03)
    residual = trained(models.ResidualBlock(5, 5))
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        y = residual(x)  # of an input in float32, which decides the dtype of the sum
    assert y.dtype == torch.float32
    with torch.no_grad():
        torch.testing.assert_close(y.features, residual(x).features, rtol=0.03, atol=0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_of_one_and_inverse_layers_are_joined(dtype, calls):
    torch.manual_seed(0)
    network = trained(vt.Sequential(
        vt.SubMConv3d(5, 7, 1, bias=False), vt.BatchNorm(7), torch.nn.ReLU(),
        vt.SparseConv3d(7, 8, 2, bias=False, key="a"), torch.nn.BatchNorm1d(8),
        vt.SparseInverseConv3d(8, 6, 2, bias=False, key="a"), vt.SyncBatchNorm(6), torch.nn.ReLU(),
    )).to(dtype)
    x = scene(grad=True)
    expected = copy.deepcopy(network).float()(x.to(dtype).float()).features
    with torch.no_grad():
        y = network(x.to(dtype))
    assert calls == ["_multiply_norm", "_convolve_norm", "_convolve_norm"] and y.voxels is x.voxels
    bound = {"rtol": 0.05, "atol": 0.05} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(y.features.float(), expected.detach(), **bound)


class Doubled(vt.BatchNorm):
    def forward(self, x):
        return super().forward(super().forward(x))


def test_what_somebody_looks_at_is_not_joined(calls):
    x = scene()
    separate = [block().train(), block(track_running_stats=False), block(affine=False)]
    separate += [block().double(), trained(vt.Sequential(vt.SubMConv3d(5, 6), vt.BatchNorm(6)))]
    separate.append(trained(vt.Sequential(vt.SubMConv3d(5, 6, bias=False), Doubled(6))))
    pruned = block()
    torch.nn.utils.prune.random_unstructured(pruned[0], "weight", 0.5)  # computed of others
    separate.append(pruned)
    seen = []
    for place in (0, 1):
        hooked = block()
        hooked[place].register_forward_hook(lambda *_: seen.append(1))
        separate.append(hooked)
        hooked = block()
        hooked[place].register_forward_pre_hook(lambda *_: seen.append(1))
        separate.append(hooked)
    with torch.no_grad():
        for network in separate:
            network(x.to(network[0].weight.dtype))
    assert not calls and len(seen) == 4
    hooked = block()
    hooked[2].register_forward_hook(lambda *_: seen.append(1))
    everywhere = torch.nn.modules.module.register_module_forward_hook(lambda *_: seen.append(1))
    with torch.no_grad():
        block()(x)
        everywhere.remove()
        assert not calls and len(seen) > 5
        before = len(seen)
        hooked(x)
    assert len(calls) == 1 and len(seen) == before + 1  # without the ReLU


def test_changed_weights_are_seen(calls):
    network, x = block(), scene()
    with torch.no_grad():
        before = network(x).features
        network[1].bias.data.add_(1)  # which PyTorch does not count
        after = network(x).features
        torch.testing.assert_close(after, network[2](network[1](network[0](x).features)))
    assert not torch.equal(before, after)


def test_a_sum_on_other_voxels_is_an_error():
    x = scene()
    network = models.ResidualBlock(5, 5)
    network.conv2.conv = vt.SparseConv3d(5, 5, 2, bias=False)
    for mode in (True, False):
        network.train(mode)
        with torch.set_grad_enabled(mode):
            raises("all must come from the same voxels of one network", lambda: network(x))


def test_bad_input():
    x = scene()
    network = vt.Sequential(vt.SubMConv3d(5, 6, bias=False), vt.BatchNorm(7)).eval()
    with torch.no_grad():
        raises("running_mean: float32 [7]; float32 [6] is needed", lambda: network(x))
        raises("4 channels; in_channels is 5", lambda: network(scene(channels=4)))
        half = block().half()
        raises("features: torch.float32; the weights are torch.float16", lambda: half(x))


# Kernels of 1.


@pytest.mark.parametrize("bias", [True, False])
def test_a_kernel_of_one_is_a_product(bias):
    torch.manual_seed(0)
    layer, x = vt.SubMConv3d(5, 7, 1, bias=bias), scene(grad=True)
    by_map = vt.SubMConv3d(5, 7, 1, bias=bias, key="a", dataflow="direct")
    by_map.load_state_dict(layer.state_dict())
    y, expected = layer(x).features, by_map(x).features
    torch.testing.assert_close(y, expected)
    given = torch.randn(y.shape)
    grads = [
        torch.autograd.grad(out, (x.features, *part.parameters()), given)
        for out, part in ((y, layer), (expected, by_map))
    ]
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b)
    half = copy.deepcopy(layer).bfloat16()
    y = half(x.detach().bfloat16())
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.features.float(), expected.detach(), rtol=0.03, atol=0.03)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    raises("features: torch.float32; the weights are torch.bfloat16", lambda: half(x))
    empty = vt.SparseTensor(torch.zeros((0, 4), dtype=torch.int32), torch.zeros((0, 5)))
    assert layer(empty).features.shape == (0, 7)
