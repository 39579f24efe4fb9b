# SPDX-License-Identifier: Apache-2.0
"""Layers that are joined in training, against the same layers one by one."""

import copy

import pytest
import torch
import voxconv
import voxconv.torch as vt
from test_torch import DATAFLOWS, raises, scene
from voxconv.torch import models


@pytest.fixture
def calls(monkeypatch):
    """The joined steps of the engine."""
    made = []
    function = voxconv._voxconv._training_norm

    def call(*args):
        made.append(args)
        return function(*args)

    monkeypatch.setattr(voxconv._voxconv, "_training_norm", call)
    return made


def apart(network):
    """A copy whose layers run one by one: somebody looks between them."""
    network = copy.deepcopy(network)
    for part in network.modules():
        if isinstance(part, (torch.nn.BatchNorm1d, vt.SubMConv3d)):
            part.register_forward_hook(lambda *_: None)
    return network


def step(network, x):
    """The result, all gradients and all buffers after a training step."""
    features = x.features.detach().clone().requires_grad_()
    y = network(x.with_features(features)).features
    y.backward(torch.linspace(-1, 1, y.numel()).view_as(y))
    state = {"y": y.detach(), "x": features.grad, **dict(network.named_buffers())}
    return state | {name: p.grad for name, p in network.named_parameters()}


def assert_equal(found, expected, **bound):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, msg=lambda text, n=name: f"{n}: {text}", **bound)


def block(dataflow=None, norm=vt.BatchNorm, bias=False, **settings):
    torch.manual_seed(0)
    conv = vt.SubMConv3d(5, 6, 3, bias=bias, dataflow=dataflow)
    network = vt.Sequential(conv, norm(6, **settings), torch.nn.ReLU())
    if network[1].affine:
        torch.nn.init.normal_(network[1].weight)
        torch.nn.init.normal_(network[1].bias)
    return network.train()


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_a_joined_block_equals_its_layers(dataflow, calls):
    network, x = block(dataflow, eps=0.01, momentum=0.3), scene()
    for part in (network[:2], network):
        other = apart(part)
        found = step(part, x)
        assert len(calls) == 1
        assert_equal(found, step(other, x), rtol=1e-4, atol=2e-5)
        assert len(calls) == 1
        calls.clear()
        part.zero_grad()
    assert int(network[1].num_batches_tracked) == 2


@pytest.mark.parametrize("channels", [5, 8])
def test_a_residual_block_equals_its_layers(channels, calls):
    torch.manual_seed(0)
    network, x = models.ResidualBlock(5, channels).train(), scene()
    other = apart(network)
    found = step(network, x)
    assert len(calls) == (2 if channels == 5 else 3)
    assert_equal(found, step(other, x), rtol=1e-4, atol=1e-5)


def test_strided_and_inverse_layers_are_joined(calls):
    torch.manual_seed(0)
    network = vt.Sequential(
        vt.SparseConv3d(5, 8, 2, bias=False, key="a"), torch.nn.BatchNorm1d(8), torch.nn.ReLU(),
        vt.SparseInverseConv3d(8, 6, 2, bias=False, key="a"), torch.nn.BatchNorm1d(6),
    ).train()
    other = copy.deepcopy(network)
    other[1].register_forward_pre_hook(lambda *_: None)
    other[4].register_full_backward_hook(lambda *_: None)
    found = step(network, scene())
    assert len(calls) == 2
    assert_equal(found, step(other, scene()), rtol=1e-4, atol=1e-5)
    assert len(calls) == 2


def test_several_steps_and_a_module_that_runs_twice(calls):
    torch.manual_seed(0)
    network = vt.Sequential(vt.SubMConv3d(5, 5, 3, bias=False), vt.BatchNorm(5), torch.nn.ReLU()).train()
    twice, x = vt.Sequential(network, network), scene()
    other = apart(twice)
    for run in (twice, other):
        optimizer = torch.optim.SGD(run.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            run(x).features.square().mean().backward()
            optimizer.step()
    assert len(calls) == 6
    assert_equal(dict(twice.state_dict()), dict(other.state_dict()), rtol=1e-4, atol=1e-5)
    twice.eval(), other.eval()
    with torch.no_grad():  # with the statistics of the steps
        torch.testing.assert_close(twice(x).features, other(x).features, rtol=1e-4, atol=1e-5)


def test_what_must_run_by_itself_is_not_joined(calls):
    x = scene(grad=True)
    separate = [block(bias=True), block(affine=False), block(track_running_stats=False), block(momentum=None)]
    separate += [block().double(), block(norm=vt.SyncBatchNorm), block().eval()]
    frozen = block()
    frozen[1].eval()
    hooked = block(norm=torch.nn.BatchNorm1d)
    hooked[1].register_full_backward_hook(lambda *_: None)
    separate += [frozen, hooked]
    for network in separate:
        network(x.to(network[0].weight.dtype)).features.sum().backward()
    with torch.no_grad():
        block()(x)  # in training without gradients
    with torch.autocast("cpu", dtype=torch.bfloat16):
        block()(x).features.sum().backward()
    everywhere = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    block()(x)
    everywhere.remove()
    assert not calls
    block()(x)
    assert len(calls) == 1


def test_statistics_count_as_written():
    network = block()
    versions = [network[1].running_mean._version, network[1].running_var._version]
    network(scene())
    assert network[1].running_mean._version > versions[0] and network[1].running_var._version > versions[1]


def test_gradients_that_nobody_needs():
    network, x = block(), scene()
    network[0].weight.requires_grad_(False)
    features = x.features.clone().requires_grad_()
    network(x.with_features(features)).features.sum().backward()
    assert network[0].weight.grad is None and features.grad is not None
    network[1].weight.requires_grad_(False), network[1].bias.requires_grad_(False)
    assert not network(x).features.requires_grad


def test_bad_input():
    network, x = block(), scene()
    raises("4 channels; in_channels is 5", lambda: network(scene(channels=4)))
    one = vt.SparseTensor(x.coords[:1], x.features[:1])
    raises("Expected more than 1 value per channel", lambda: network(one))
    wrong = vt.Sequential(vt.SubMConv3d(5, 6, bias=False), vt.BatchNorm(7)).train()
    with pytest.raises(RuntimeError, match="running_mean should contain 6 elements"):
        wrong(x)
    loss = network(x).features.sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    with torch.no_grad():
        network[0].weight.add_(1)
    again = network(x).features.sum()
    with torch.no_grad():
        network[0].weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        again.backward()
