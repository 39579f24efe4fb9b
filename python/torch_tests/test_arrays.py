# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch as arrays of voxconv's own functions."""

import pytest
import torch
import voxconv
from test_torch import scene


def test_autograd_learns_of_writes_to_out():
    x = scene()
    m = voxconv.KernelMap(voxconv.SparseTensor(x.coords, x.features), kernel=3)
    w, y = torch.ones(27, x.channels, 8), torch.zeros(len(x), 8)
    factor = torch.ones(8, 8, requires_grad=True)
    product = y @ factor  # its backward pass needs y
    voxconv.convolve(m, x.features, w, out=y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    before = y._version
    voxconv.weight_grad(m, x.features, torch.ones(len(x), 8), out=w)
    assert y._version == before and w._version == 1
    with torch.inference_mode():  # its tensors have no counter
        given = torch.zeros(len(x), 8)
        assert voxconv.convolve(m, x.features, w, out=given) is given
