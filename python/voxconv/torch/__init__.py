# SPDX-License-Identifier: Apache-2.0
"""Sparse convolution as modules of PyTorch, with gradients.

Every module takes and gives a SparseTensor. `mapping=` and `dataflow=` choose voxconv's plugins for
a layer; any of them trains. Kernel maps are made once for the voxels that they belong to, and serve
all layers of the same geometry and both directions.

>>> import numpy as np, torch, voxconv
>>> import voxconv.torch as vt
>>> points = voxconv.load("scene:sphere?n=1000", channels=4)
>>> x = vt.SparseTensor(torch.tensor(np.array(points.coords)), torch.tensor(points.features))
>>> network = vt.Sequential(
...     vt.SubMConv3d(4, 16, 3, bias=False), vt.BatchNorm(16), torch.nn.ReLU(),
...     vt.SparseConv3d(16, 32, 2, stride=2, key="down"),
...     vt.SparseInverseConv3d(32, 8, key="down"))
>>> network(x).features.sum().backward()
>>> network[0].weight.grad.shape
torch.Size([27, 4, 16])
"""

from voxconv.torch import models
from voxconv.torch.compiled import Compiled, compile
from voxconv.torch.functional import add, cat, convolve, global_pool, pool, relu, to_dense
from voxconv.torch.modules import (
    AvgPool3d,
    GlobalPool,
    MaxPool3d,
    SparseConv3d,
    SparseInverseConv3d,
    SubMConv3d,
    SumPool3d,
    TransposedConv3d,
)
from voxconv.torch.norm import BatchNorm, SyncBatchNorm, convert_sync_batchnorm
from voxconv.torch.sequential import Sequential
from voxconv.torch.tensor import SparseTensor

__all__ = [
    "AvgPool3d",
    "BatchNorm",
    "Compiled",
    "GlobalPool",
    "MaxPool3d",
    "Sequential",
    "SparseConv3d",
    "SparseInverseConv3d",
    "SparseTensor",
    "SubMConv3d",
    "SumPool3d",
    "SyncBatchNorm",
    "TransposedConv3d",
    "add",
    "cat",
    "compile",
    "convert_sync_batchnorm",
    "convolve",
    "global_pool",
    "models",
    "pool",
    "relu",
    "to_dense",
]
