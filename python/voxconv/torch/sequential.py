# SPDX-License-Identifier: Apache-2.0
"""Layers one after the other. In evaluation without gradients, a convolution takes the batch norm, the sum
and the ReLU behind it into its own call of the engine: the host pays for one call instead of three or four,
and values are rounded once."""

from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as nn_module
from voxconv._voxconv import _convolve_norm, _multiply_norm

from voxconv.torch import functional, modules, ops
from voxconv.torch.norm import BatchNorm, SyncBatchNorm
from voxconv.torch.tensor import SparseTensor

_CONVOLUTION = (modules._Conv.forward,)
_NORMS = (nn.BatchNorm1d.forward, BatchNorm.forward, SyncBatchNorm.forward)
_RELU = (nn.ReLU.forward,)


def is_plain(module: nn.Module, forwards: tuple[Any, ...]) -> bool:
    """Whether a call of the module is one of these forward functions, without hooks."""
    return (
        type(module).forward in forwards
        and "forward" not in module.__dict__
        and not module._forward_hooks
        and not module._forward_pre_hooks
    )


def may_join(x: Any) -> bool:
    """Whether layers on x may be joined at all: no gradient is needed, and nobody looks between them."""
    return (
        not torch.is_grad_enabled()
        and isinstance(x, SparseTensor)
        and not ops.is_compiling()
        and not nn_module._global_forward_hooks
        and not nn_module._global_forward_pre_hooks
    )


def joined(
    x: SparseTensor, conv: Any, norm: Any, relu: bool, residual: SparseTensor | None = None
) -> SparseTensor | None:
    """relu(norm(conv(x)) + residual) by one call. None if the layers must run by themselves. Needs
    may_join(x). Errors of the layers."""
    if not is_plain(norm, _NORMS) or norm.training or not is_plain(conv, _CONVOLUTION):
        return None
    weights = conv._parameters.get("weight")  # not there where it is computed of others
    mean, variance = norm._buffers.get("running_mean"), norm._buffers.get("running_var")
    gamma, beta = norm._parameters.get("weight"), norm._parameters.get("bias")
    if conv.bias is not None or any(t is None for t in (weights, mean, variance, gamma, beta)):
        return None
    dtype = ops.autocast_dtype(x.features.device.type) or x.features.dtype
    known = (torch.float32, dtype)
    if dtype == torch.float64 or gamma.dtype not in known or mean.dtype not in known:
        return None
    features, weights = functional.cast(conv._checked(x).features, weights)
    given = ops.as_engine_takes(
        features, weights, mean, variance, gamma, beta, with_gradients=True
    )
    if conv._is_product():
        if residual is not None:
            return None
        voxels, y = x.voxels, _multiply_norm(*given, norm.eps, relu)
    else:
        layer = conv._layer(x)
        voxels = layer.outputs
        if residual is not None:
            # One of another dtype would decide that of the sum.
            if residual.features.dtype != dtype or residual.voxels is not voxels:
                return None
            (added,) = ops.as_engine_takes(residual.features, with_gradients=True)
        y = _convolve_norm(
            layer.kernel_map, *given, norm.eps, None if residual is None else added, relu,
            conv.dataflow or ops.default_dataflow(features.is_cuda),
        )
    return x.on(voxels, y if y.dtype == dtype else y.to(dtype))


class Sequential(nn.Sequential):
    """Modules one after the other. PyTorch's own (BatchNorm1d, ReLU, Linear, Dropout, ...) are given
    the features, [N, C]; modules that take a SparseTensor are told by their base class or by an
    attribute `takes_sparse = True`.

    In evaluation under torch.no_grad(), a convolution without a bias, the batch norm behind it and the ReLU
    behind that are one call of the engine, unless they have hooks.
    """

    takes_sparse = True

    def forward(self, x: Any) -> Any:
        waiting = list(self)[::-1]  # the next one is the last
        while waiting:
            module = waiting.pop()
            if waiting and isinstance(module, modules._Conv) and may_join(x):
                relu = len(waiting) > 1 and is_plain(waiting[-2], _RELU)
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
