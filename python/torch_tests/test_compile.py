# SPDX-License-Identifier: Apache-2.0
"""torch.compile through operators, and torch.export, which is refused."""

import copy
import gc

import pytest
import torch
import voxconv.torch as vt
from test_torch import scene, unet
from voxconv.torch import ops

needs_operators = pytest.mark.skipif(
    not ops.HAS_OPERATORS,
    reason=f"PyTorch {torch.__version__} has no torch.library.custom_op, which came with 2.4",
)


def gradients(network, x):
    network.zero_grad()
    y = network(x).features
    y.square().mean().backward()
    return y.detach(), [parameter.grad.clone() for parameter in network.parameters()]


@needs_operators
def test_a_compiled_network_equals_the_network():
    network = unet()
    expected = copy.deepcopy(network)
    compiled = torch.compile(network, backend="aot_eager")
    for n in (200, 150, 120):  # other voxels, other maps, other sizes
        x = scene(n=n)
        y, grads = gradients(compiled, x)
        y2, grads2 = gradients(expected, x)
        torch.testing.assert_close(y, y2)
        for a, b in zip(grads, grads2):
            torch.testing.assert_close(a, b)


@needs_operators
def test_convolutions_are_in_graphs():
    graphs = []

    def backend(graph, inputs):
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return graph.forward

    x = scene()
    for layer in (vt.SubMConv3d(5, 4, 3), vt.SparseConv3d(5, 4, 2)):
        graphs.clear()
        torch._dynamo.reset()
        torch.compile(layer, backend=backend)(x)
        assert any("voxconv.convolve" in target for graph in graphs for target in graph), graphs


@needs_operators
def test_operators_pass_pytorchs_own_checks():
    x = scene(n=40, channels=3)
    layer = vt.SparseConv3d(3, 4, 2)
    made = layer._layer(x).for_graph()
    features, weight = x.features.requires_grad_(), layer.weight
    for bias in (None, layer.bias, layer.bias.double()):
        torch.library.opcheck(
            ops.convolve_op, (features, weight, bias, made.token, made.outputs.rows, "implicit_gemm")
        )
    dy = torch.ones(made.outputs.rows, 4)
    torch.library.opcheck(
        ops.input_grad_op, (dy, weight.detach(), made.token, len(x), "implicit_gemm")
    )
    torch.library.opcheck(
        ops.weight_grad_op, (features.detach(), dy, made.token, 8, "implicit_gemm")
    )


@needs_operators
def test_a_graph_keeps_its_maps():
    before = len(ops._maps)
    compiled = torch.compile(vt.SubMConv3d(5, 4, 3), backend="aot_eager")
    y = compiled(scene()).features  # the input and its voxels are gone
    gc.collect()
    assert len(ops._maps) > before
    y.sum().backward()
    del y
    torch._dynamo.reset()
    gc.collect()
    assert len(ops._maps) == before


@needs_operators
def test_autocast_and_compile():
    layer, x = vt.SubMConv3d(5, 4, 3), scene()
    compiled = torch.compile(layer, backend="aot_eager")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, expected = compiled(x).features, layer(x).features
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y, expected)


@pytest.mark.skipif(not hasattr(torch, "export"), reason="this PyTorch has no torch.export")
def test_export_is_refused_by_name():
    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = vt.SubMConv3d(5, 4, 3)

        def forward(self, coords, features):
            return self.layer(vt.SparseTensor(coords, features)).features

    x = scene()
    for strict in (True, False):
        with pytest.raises(Exception, match="torch.export is not supported"):
            torch.export.export(Network(), (x.coords, x.features), strict=strict)
