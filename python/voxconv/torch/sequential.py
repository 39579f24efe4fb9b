# SPDX-License-Identifier: Apache-2.0
"""Layers one after the other."""

from typing import Any

from torch import nn

from voxconv.torch import modules
from voxconv.torch.joining import RELU, is_plain, joined, may_join
from voxconv.torch.tensor import SparseTensor


class Sequential(nn.Sequential):
    """Modules one after the other. PyTorch's own (BatchNorm1d, ReLU, Linear, Dropout, ...) are given
    the features, [N, C]; modules that take a SparseTensor are told by their base class or by an
    attribute `takes_sparse = True`.

    A convolution without a bias, the batch norm behind it and the ReLU behind that are joined, unless they have
    hooks: in training, and in evaluation under torch.no_grad().
    """

    takes_sparse = True

    def forward(self, x: Any) -> Any:
        waiting = list(self)[::-1]  # the next one is the last
        while waiting:
            module = waiting.pop()
            if waiting and isinstance(module, modules._Conv) and may_join(x):
                relu = len(waiting) > 1 and is_plain(waiting[-2], RELU)
                y = joined(x, module, waiting[-1], relu)
                if y is not None:
                    x = y
                    del waiting[-2 if relu else -1 :]
                    continue
            sparse = isinstance(module, modules.SPARSE) or getattr(module, "takes_sparse", False)
            if isinstance(x, SparseTensor) and not sparse:
                x = x.with_features(module(x.features))
            else:
                x = module(x)
        return x
