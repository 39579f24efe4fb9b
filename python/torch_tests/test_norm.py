# SPDX-License-Identifier: Apache-2.0
"""Batch norm over voxels."""

import copy

import pytest
import torch
import voxconv.torch as vt
from test_torch import scene
from torch import distributed


def network():
    torch.manual_seed(0)
    return vt.Sequential(
        vt.SubMConv3d(5, 8, 3, bias=False), vt.BatchNorm(8), torch.nn.ReLU(),
        vt.SubMConv3d(8, 4, 3), torch.nn.BatchNorm1d(4), vt.BatchNorm(4, affine=False),
    )


def test_batch_norm_is_pytorchs_over_rows():
    x, ours, theirs = scene(), vt.BatchNorm(5, momentum=0.3), torch.nn.BatchNorm1d(5, momentum=0.3)
    y = ours(x)
    assert y.voxels is x.voxels
    torch.testing.assert_close(y.features, theirs(x.features))
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    theirs.load_state_dict(ours.state_dict())
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours(x).features, theirs(x.features))
    torch.testing.assert_close(ours(x.features), theirs(x.features))


@pytest.mark.parametrize("make", [vt.BatchNorm, vt.SyncBatchNorm])
def test_no_voxels_change_nothing(make):
    norm = make(5)
    empty = vt.SparseTensor(torch.zeros((0, 4), dtype=torch.int32), torch.zeros((0, 5)))
    y = norm(empty)
    assert len(y) == 0
    assert norm.running_mean.tolist() == [0] * 5 and norm.running_var.tolist() == [1] * 5
    y.features.sum().backward()
    assert norm.weight.grad is not None  # DistributedDataParallel waits for all gradients


def test_conversion_keeps_parameters_and_values():
    first, x = network(), scene()
    first(x)  # statistics
    second = vt.convert_sync_batchnorm(copy.deepcopy(first))
    kinds = [type(module).__name__ for module in second]
    assert kinds == ["SubMConv3d", "SyncBatchNorm", "ReLU", "SubMConv3d"] + 2 * ["SyncBatchNorm"]
    for a, b in zip(first.state_dict().items(), second.state_dict().items()):
        assert a[0] == b[0]
        torch.testing.assert_close(a[1], b[1])
    torch.testing.assert_close(second(x).features, first(x).features)  # one process
    assert second[1].training and not vt.convert_sync_batchnorm(network().eval())[1].training
    dense = vt.convert_sync_batchnorm(torch.nn.Sequential(torch.nn.BatchNorm3d(4)))
    assert type(dense[0]) is torch.nn.SyncBatchNorm
    parameters = list(first.parameters())
    converted = list(vt.convert_sync_batchnorm(first).parameters())
    assert all(a is b for a, b in zip(parameters, converted))  # an optimiser keeps its own


def test_bad_input():
    with pytest.raises(ValueError):
        vt.SyncBatchNorm(4)(torch.zeros(2, 4, 4, 5))
    with pytest.raises((ValueError, RuntimeError)):
        vt.BatchNorm(4)(scene(channels=5))


class OneProcess(vt.SyncBatchNorm):
    """The path of several processes on the CPU, which one process does not take by itself."""

    def forward(self, x):
        return x.with_features(self._normalise(x.features, {}))


@pytest.mark.parametrize("affine", [True, False])
def test_gradcheck_of_sync_batch_norm(affine):
    norm, plain = (make(5, affine=affine).double() for make in (OneProcess, vt.BatchNorm))
    x = scene(n=12, dtype=torch.float64, grad=True)
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        torch.testing.assert_close(norm(x).features, plain(x).features)
        torch.testing.assert_close(norm.running_var, plain.running_var)
        run = lambda features, *_: norm(x.with_features(features)).features  # noqa: E731
        given = x.features, *norm.parameters()
        assert torch.autograd.gradcheck(run, given)
        assert torch.autograd.gradgradcheck(run, given)
    finally:
        distributed.destroy_process_group()
