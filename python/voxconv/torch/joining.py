# SPDX-License-Identifier: Apache-2.0
"""A convolution, the batch norm behind it, a sum and a ReLU as one step. In evaluation without gradients they
are one call of the engine, and values are rounded once. In training they are one function of autograd, whose
kernels for the norm, the sum and the ReLU are the engine's. Hooks and settings that somebody could tell the
difference by keep the layers apart."""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.modules import module as nn_module
from voxconv import _voxconv

from voxconv.torch import functional, modules, ops
from voxconv.torch.norm import BatchNorm, SyncBatchNorm
from voxconv.torch.tensor import SparseTensor

_CONVOLUTION = (modules._Conv.forward,)
_OWN_NORMS = (nn.BatchNorm1d.forward, BatchNorm.forward)  # of this process alone
_NORMS = (*_OWN_NORMS, SyncBatchNorm.forward)
RELU = (nn.ReLU.forward,)


def is_plain(module: nn.Module, forwards: tuple[Any, ...]) -> bool:
    """Whether a call of the module is one of these forward functions, without hooks."""
    return (
        type(module).forward in forwards
        and "forward" not in module.__dict__
        and not module._forward_hooks
        and not module._forward_pre_hooks
        and not module._backward_hooks
        and not module.__dict__.get("_backward_pre_hooks")
    )


def may_join(x: Any) -> bool:
    """Whether layers on x may be joined at all: nobody looks between them."""
    return (
        isinstance(x, SparseTensor)
        and not ops.is_compiling()
        and not nn_module._global_forward_hooks
        and not nn_module._global_forward_pre_hooks
        and not nn_module._global_backward_hooks
        and not getattr(nn_module, "_global_backward_pre_hooks", None)
    )


def joined(
    x: SparseTensor, conv: Any, norm: Any, relu: bool, residual: SparseTensor | None = None
) -> SparseTensor | None:
    """relu(norm(conv(x)) + residual). None if the layers must run by themselves. Needs may_join(x). Errors of
    the layers."""
    arrays = _arrays(conv, norm)
    if arrays is None:
        return None
    given = conv._checked(x), conv, norm, relu, residual, *arrays
    return _step(*given) if norm.training else _evaluate(*given)


def _arrays(conv, norm):
    """The weights, and the columns of the norm. None if the layers must run by themselves."""
    if not is_plain(norm, _NORMS) or not is_plain(conv, _CONVOLUTION):
        return None
    if norm.training != torch.is_grad_enabled():
        return None
    statistics, affine, parameters = norm._buffers, norm._parameters, conv._parameters
    try:  # what is computed of other arrays is not there
        weights, bias = parameters["weight"], parameters["bias"]
        mean, variance = statistics["running_mean"], statistics["running_var"]
        gamma, beta = affine["weight"], affine["bias"]
    except KeyError:
        return None
    if bias is not None or mean is None or gamma is None or beta is None:
        return None
    return weights, (mean, variance, gamma, beta)


Pair = tuple[Any, Any]  # a convolution, and the batch norm behind it


def joined_residual(
    x: SparseTensor, first: Pair, second: Pair, shortcut: Pair | None
) -> SparseTensor | None:
    """relu(second(relu(first(x))) + shortcut(x)), or + x without a shortcut, by one call of the engine. None
    if the layers must run by themselves, which the caller does then. Needs may_join(x)."""
    conv, features = first[0], x.features
    autocast = ops.autocast_dtype(features.is_cuda)
    dtype = features.dtype
    if torch.is_grad_enabled() or autocast not in (None, dtype) or dtype == torch.float64:
        return None
    if ops.is_rounded(features) or features.size(1) != conv.in_channels:
        return None
    known = (torch.float32, dtype)
    layers = []
    for part in (first, second) if shortcut is None else (first, second, shortcut):
        arrays = _arrays(*part)
        if arrays is None:
            return None
        weights, columns = arrays
        if weights.dtype != dtype:
            if autocast is None:
                return None
            weights = weights.to(dtype)
        if columns[0].dtype not in known or columns[2].dtype not in known:
            return None
        layers.append((weights, *columns, part[1].eps))
    other = second[0]
    if conv.key is not None or other.key is not None or conv._place() != other._place():
        return None
    if conv._is_product() or conv.dataflow != other.dataflow:
        return None
    if other.in_channels != conv.out_channels:
        return None
    width = conv.in_channels
    if shortcut is not None:
        if not shortcut[0]._is_product() or shortcut[0].in_channels != width:
            return None
        width = shortcut[0].out_channels
    kernel_map, voxels = conv.sides(x)
    if width != other.out_channels or voxels is not x.voxels:
        return None
    dataflow = conv.dataflow or ops.default_dataflow(features.is_cuda)
    last = None if shortcut is None else layers[2]
    y = _voxconv._residual_norm(kernel_map, features, layers[0], layers[1], last, dataflow)
    return x.made(voxels, y)


def _evaluate(x, conv, norm, relu, residual, weights, columns):
    features, weights = functional.cast(x.features, weights)
    dtype = features.dtype
    known = (torch.float32, dtype)
    if dtype == torch.float64 or columns[0].dtype not in known or columns[2].dtype not in known:
        return None
    is_product = conv._is_product()
    added = None
    if residual is not None:
        added = residual.features
        # One of another dtype would decide that of the sum.
        if added.dtype != dtype or is_product:
            return None
    arrays = [features, weights, *columns]
    rounded = ops.is_rounded(features)
    if rounded:
        arrays = [t.float() for t in arrays]
        added = None if added is None else added.float()
    if is_product:
        voxels, y = x.voxels, _voxconv._multiply_norm(*arrays, norm.eps, relu)
    else:
        kernel_map, voxels = conv.sides(x)
        if residual is not None and residual.voxels is not voxels:
            return None  # which is an error of the sum
        dataflow = conv.dataflow or ops.default_dataflow(features.is_cuda)
        y = _voxconv._convolve_norm(kernel_map, *arrays, norm.eps, added, relu, dataflow)
    return x.made(voxels, y.to(dtype) if rounded else y)


def _step(x, conv, norm, relu, residual, weights, columns):
    features = x.features
    cuda = features.is_cuda
    dtype = ops.autocast_dtype(cuda)
    if dtype is None:
        dtype = features.dtype
        if weights.dtype != dtype:
            return None  # which is an error of the convolution
    if dtype == torch.float64 or torch.float64 in (features.dtype, weights.dtype):
        return None
    if type(norm).forward not in _OWN_NORMS or norm.momentum is None or not norm.track_running_stats:
        return None
    if not cuda and dtype != torch.float32:
        return None
    mean, variance, gamma, beta = columns
    if any(column.dtype != torch.float32 for column in columns) or gamma.size(0) != weights.size(2):
        return None
    if conv._is_product():
        kernel_map, voxels = None, x.voxels
    else:
        kernel_map, voxels = conv.sides(x)
    if voxels.rows < 2 or weights.device != features.device:
        return None  # which are errors of the layers
    added = None
    if residual is not None:
        added = residual.features
        if added.dtype != dtype or residual.voxels is not voxels:
            return None
    y = _Step.apply(
        features if features.dtype == dtype else features.to(dtype), weights, gamma, beta, added,
        kernel_map, conv.dataflow or ops.default_dataflow(cuda),
        (mean, variance, norm.momentum, norm.eps, relu),
    )
    ops.count_writes(mean, variance)
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
    return x.made(voxels, y)


class _Step(torch.autograd.Function):
    """relu(norm(convolution) + added) of a batch. Without a map the convolution is a product."""

    @staticmethod
    def forward(ctx, x, weights, gamma, beta, added, kernel_map, dataflow, norm):  # type: ignore[override]
        mean, variance, momentum, eps, relu = norm
        w = weights.to(x.dtype)
        if kernel_map is None:
            y = torch.mm(x, w.squeeze(0))
        else:
            y = _voxconv._convolve(kernel_map, x, w, None, dataflow)
        z = torch.empty_like(y)
        statistics = torch.empty(2 * y.size(1), dtype=torch.float32, device=y.device)
        _voxconv._training_norm(
            y, gamma, beta, mean, variance, momentum, eps, added, relu, statistics, z
        )
        ctx.save_for_backward(x, w, y, gamma, statistics, z if relu else None)
        ctx.kernel_map, ctx.dataflow, ctx.dtype = kernel_map, dataflow, weights.dtype
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx, dz):  # type: ignore[override]
        x, w, y, gamma, statistics, z = ctx.saved_tensors
        needs, kernel_map, dataflow = ctx.needs_input_grad, ctx.kernel_map, ctx.dataflow
        dy, sums = torch.empty_like(y), torch.empty_like(statistics)
        masked = torch.empty_like(y) if needs[4] and z is not None else None
        _voxconv._training_norm_grad(dz, y, z, gamma, statistics, sums, masked, dy)
        dx = dw = None
        if kernel_map is None:
            if needs[0]:
                dx = torch.mm(dy, w.squeeze(0).t())
            if needs[1]:
                dw = torch.mm(x.t(), dy).unsqueeze(0).to(ctx.dtype)
        else:
            if needs[0]:
                dx = _voxconv._input_grad(kernel_map, dy, w, dataflow)
            if needs[1]:
                dw = _voxconv._weight_grad(kernel_map, x, dy, dataflow).to(ctx.dtype)
        d_beta, d_gamma = sums.chunk(2)
        d_added = (dz if masked is None else masked) if needs[4] else None
        return dx, dw, d_gamma, d_beta, d_added, None, None, None
