# SPDX-License-Identifier: Apache-2.0
"""autocast, and modules of float16 and bfloat16, on the CPU."""

import copy

import pytest
import torch
import voxconv.torch as vt
from test_torch import DATAFLOWS, scene, unet

BF16 = torch.bfloat16


def rounded(tensor):
    return tensor.to(BF16).float()


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_a_layer_reads_and_gives_bfloat16(dataflow):
    x = scene(grad=True)
    layer = vt.SubMConv3d(5, 7, 3, bias=False, dataflow=dataflow)
    exact = vt.SubMConv3d(5, 7, 3, bias=False, dataflow=dataflow)
    exact.weight.data = rounded(layer.weight.data)
    x32 = x.with_features(rounded(x.features.detach()).requires_grad_())
    with torch.autocast("cpu", dtype=BF16):
        y = layer(x)
    y32 = exact(x32)
    assert y.features.dtype == BF16
    torch.testing.assert_close(y.features, y32.features.to(BF16), rtol=0, atol=0)
    dy = torch.randn(y.features.shape, generator=torch.Generator().manual_seed(1)).to(BF16)
    y.features.backward(dy)
    y32.features.backward(dy.float())
    # Parameters have float32 gradients, of values that were computed in bfloat16.
    for a, b in ((layer.weight, exact.weight), (x.features, x32.features)):
        assert a.grad.dtype == torch.float32
        torch.testing.assert_close(a.grad, rounded(b.grad), rtol=0, atol=0)


def test_a_network_under_autocast():
    network, x = unet(), scene(grad=True)
    exact = copy.deepcopy(network)
    with torch.autocast("cpu", dtype=BF16):
        y = network(x)
    assert y.features.dtype == BF16
    y32 = exact(x.with_features(x.features.detach()))
    error = torch.linalg.norm(y.features.float() - y32.features) / torch.linalg.norm(y32.features)
    assert 1e-4 < error < 2e-2
    y.features.float().square().mean().backward()
    y32.features.square().mean().backward()
    for (name, a), (_, b) in zip(network.named_parameters(), exact.named_parameters()):
        assert a.grad.dtype == torch.float32
        assert torch.linalg.norm(a.grad - b.grad) <= 5e-2 * torch.linalg.norm(b.grad) + 1e-4, name


def test_autocast_that_is_off_changes_nothing():
    network, x = unet(), scene()
    with torch.autocast("cpu", dtype=BF16):
        with torch.autocast("cpu", enabled=False):
            assert network(x).features.dtype == torch.float32


def test_float64_is_left_alone():
    x = scene(dtype=torch.float64)
    layer = vt.SubMConv3d(5, 7, 3).double()
    y = layer(x).features
    with torch.autocast("cpu", dtype=BF16):
        assert layer(x).features.dtype == torch.float64
        torch.testing.assert_close(layer(x).features, y)


@pytest.mark.parametrize("dtype", [torch.float16, BF16])
def test_modules_of_half_precision(dtype):
    x = scene()
    layer = vt.SubMConv3d(5, 7, 3, bias=False).to(dtype)
    half = x.with_features(x.features.to(dtype).requires_grad_())
    exact = vt.SubMConv3d(5, 7, 3, bias=False)
    exact.weight.data = layer.weight.data.float()
    y, y32 = layer(half), exact(x.with_features(half.features.detach().float()))
    assert y.features.dtype == dtype
    torch.testing.assert_close(y.features, y32.features.to(dtype), rtol=0, atol=0)
    y.features.sum().backward()
    assert layer.weight.grad.dtype == half.features.grad.dtype == dtype


def test_pooling_under_autocast():
    x = scene()
    with torch.autocast("cpu", dtype=BF16):
        y = vt.MaxPool3d()(vt.SubMConv3d(5, 7, 3)(x))
        assert y.features.dtype == BF16
        assert vt.global_pool(y).shape == (y.batch_size, 7)


@pytest.mark.parametrize("dtype", [torch.float16, BF16])
@pytest.mark.parametrize("mode", ["sum", "average_present"])
def test_sums_over_samples_are_rounded_once(mode, dtype):
    x = scene(n=3000, size=40)
    x = x.with_features(x.features.detach().to(dtype))
    y = vt.global_pool(x, mode)
    assert y.dtype == dtype
    assert torch.equal(y, vt.global_pool(x.with_features(x.features.float()), mode).to(dtype))
