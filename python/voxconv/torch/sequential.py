# SPDX-License-Identifier: Apache-2.0
"""Layers one after the other. In evaluation without gradients, a convolution takes the batch norm, the sum
and the ReLU behind it into its own call of the engine: the sum is rounded once, and the host pays for one
call instead of three or four."""

from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as nn_module
from voxconv._voxconv import _convolve_norm

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


def joins(x: SparseTensor, conv: nn.Module, norm: nn.Module) -> bool:
    """Whether the engine takes the batch norm with the convolution of x. Needs may_join(x)."""
    if not is_plain(norm, _NORMS) or not is_plain(conv, _CONVOLUTION):
        return False
    if norm.training or norm.running_mean is None or norm.weight is None:
        return False
    if conv.bias is not None or conv._is_product():
        return False
    dtype = ops.autocast_dtype(x.device.type) or x.dtype
    known = (torch.float32, dtype)
    return dtype != torch.float64 and norm.weight.dtype in known and norm.running_mean.dtype in known


def convolve_norm(
    x: SparseTensor, conv: Any, norm: Any, relu: bool, residual: SparseTensor | None = None
) -> SparseTensor:
    """relu(norm(conv(x)) + residual). Needs joins(x, conv, norm). Errors of the layers."""
    layer = conv._layer(conv._checked(x))
    features, weights = functional.cast(x.features, conv.weight)
    dtype = features.dtype
    given = [features, weights, norm.running_mean, norm.running_var, norm.weight, norm.bias]
    # An input of another dtype would decide that of the sum.
    added = residual is not None and residual.dtype == dtype and residual.voxels is layer.outputs
    if added:
        given.append(residual.features)
    given = ops.as_engine_takes(*given)
    last = residual is None or added
    y = _convolve_norm(
        layer.kernel_map, *given[:6], norm.eps, given[6] if added else None, relu and last,
        conv.dataflow or ops.default_dataflow(features.is_cuda),
    )
    z = x.on(layer.outputs, y if y.dtype == dtype else y.to(dtype))
    if last:
        return z
    z = functional.add(z, residual)
    return functional.relu(z) if relu else z


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
            if waiting and isinstance(module, modules._Conv) and may_join(x) and joins(x, module, waiting[-1]):
                norm = waiting.pop()
                relu = bool(waiting) and is_plain(waiting[-1], _RELU)
                if relu:
                    waiting.pop()
                x = convolve_norm(x, module, norm, relu)
                continue
            sparse = isinstance(module, modules.SPARSE) or getattr(module, "takes_sparse", False)
            if isinstance(x, SparseTensor) and not sparse:
                x = x.with_features(module(x.features))
            else:
                x = module(x)
        return x
