# SPDX-License-Identifier: Apache-2.0
"""vt.SparseTensor as users of PyTorch know tensors, and what functions and constructors refuse."""

import numpy as np
import pytest
import torch
import voxconv.torch as vt
from test_torch import raises, scene


def test_a_sparse_tensor_is_moved_as_tensors_are():
    x = scene(grad=True)
    assert x.dtype == torch.float32 and x.half().dtype == torch.float16
    assert x.to("cpu") is x and x.cpu() is x and x.to(torch.float32) is x
    half = x.to(torch.float16)
    assert half.voxels is x.voxels and half.dtype == torch.float16
    half.float().features.sum().backward()  # gradients go through
    assert x.features.grad is not None
    still = x.detach()
    assert not still.features.requires_grad and still.voxels is x.voxels
    assert still.features.data_ptr() == x.features.data_ptr()
    double = x.to("cpu", torch.float64)
    assert double.dtype == torch.float64
    raises("coords: on the device meta", lambda: x.to("meta"))
    raises("features: torch.int32; a floating", lambda: x.to(torch.int32))


def test_functions_refuse_by_one_line():
    x = scene()
    raises("cat: tensor 1 is a Tensor; SparseTensors are needed", lambda: vt.cat([x, x.features]), TypeError)
    raises("add: tensor 1 is a Tensor", lambda: x + x.features, TypeError)
    raises("add: tensor 1 is a int", lambda: x + 1, TypeError)
    assert vt.cat(y for y in (x, x)).channels == 2 * x.channels
    raises("shape: (64, 64); one whole number or three", lambda: vt.to_dense(x, (64, 64)))
    raises("shape: (-1, 4, 4); one", lambda: vt.to_dense(x, (-1, 4, 4)))
    raises("origin: (0, 0); one", lambda: vt.to_dense(x, 64, (0, 0)))
    assert torch.equal(vt.to_dense(x, 64), vt.to_dense(x, (64, 64, 64)))
    raises("features: on the device meta", lambda: vt.SparseTensor(x.coords, x.features.to("meta")))
    raises("features: layout torch.sparse_coo", lambda: vt.SparseTensor(x.coords, x.features.to_sparse()))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: vt.SubMConv3d(4, 8, mapping="nope"), "mapping 'nope' is unknown"),
        (lambda: vt.SubMConv3d(4, 8, dataflow="nope"), "dataflow 'nope' is unknown"),
        (lambda: vt.SubMConv3d(4, 8, dataflow="direct:a=1"), "option 'a' is unknown"),
        (lambda: vt.SparseInverseConv3d(4, 8, key="a", dataflow="nope"), "dataflow 'nope' is unknown"),
        (lambda: vt.MaxPool3d(mapping="nope"), "mapping 'nope' is unknown"),
        (lambda: vt.MaxPool3d(rule="nope"), "rule: 'nope'; allowed are quantize, dilate"),
        (lambda: vt.SparseConv3d(4, 8, rule="nope"), "rule: 'nope'; allowed are quantize, dilate"),
        (lambda: vt.SubMConv3d(4, 8, 3, 1, 0), "bias: 0; True or False is needed"),  # SpConv's order
        (lambda: vt.SparseConv3d(4, 8, bias="subm0"), "bias: 'subm0'; True or False is needed"),
        (lambda: vt.AvgPool3d(present=1), "present: 1; True or False is needed"),
        (lambda: vt.GlobalPool("zz"), "mode: 'zz'; allowed are max, sum, average_present"),
        (lambda: vt.models.MinkUNet42(width="a"), "width: 'a'; a number is needed"),
        (lambda: vt.models.MinkUNet42(width=None), "width: None; a number is needed"),
    ],
)
def test_constructors_refuse_by_one_line(make, message):
    raises(message, make)


def test_a_key_tells_mappings_apart():
    x = scene()
    vt.SubMConv3d(5, 5, 3, key="a")(x)
    raises("with the mapping 'octree'", lambda: vt.SubMConv3d(5, 5, 3, key="a", mapping="octree")(x))
    assert vt.SubMConv3d(5, 5, np.int64(3), key="a")(x).channels == 5


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_pytorchs_default_dtype_does_not_matter(dtype):
    torch.set_default_dtype(dtype)
    try:
        x = scene()
        y = vt.SparseConv3d(5, 6, 2).float()(x)
    finally:
        torch.set_default_dtype(torch.float32)
    assert y.dtype == torch.float32
