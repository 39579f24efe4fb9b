# SPDX-License-Identifier: Apache-2.0
"""The three passes of a dataflow for autograd, and as operators that torch.compile knows."""

import ctypes
import functools
import itertools
import weakref
from typing import Any

import numpy as np
import torch
import voxconv
from voxconv import _voxconv
from torch.autograd.function import once_differentiable

# On the CPU the engine computes in float32 alone.
ROUNDED = (torch.float16, torch.bfloat16)

# Operators take tensors, so a map goes into them as a tensor with its number. The number's memory
# keeps the map: a graph that saves the tensor for its backward pass keeps the map as well.
_maps: dict[int, voxconv.KernelMap] = {}
_numbers = itertools.count(1)


def token(kernel_map: voxconv.KernelMap) -> torch.Tensor:
    """An int64 [1] on the CPU that stands for the map, which lives as long as the tensor's memory."""
    number = next(_numbers)
    memory = (ctypes.c_int64 * 1)(number)
    _maps[number] = kernel_map
    weakref.finalize(memory, _maps.pop, number, None).atexit = False
    return torch.from_numpy(np.frombuffer(memory, np.int64))


def default_dataflow(cuda: bool) -> str:
    """The dataflow of layers that name none."""
    if not _DATAFLOWS:
        _DATAFLOWS.update({on: _voxconv._default_plugins(on)[1] for on in (False, True)})
    return _DATAFLOWS[cuda]


_DATAFLOWS: dict[bool, str] = {}


def is_rounded(features: torch.Tensor) -> bool:
    """Whether the engine computes in float32 what has a shorter dtype."""
    return features.dtype in ROUNDED and not features.is_cuda


# From PyTorch 2.1 on.
_increment_version = getattr(torch.autograd.graph, "increment_version", None)


def count_writes(*tensors: torch.Tensor) -> None:
    """Tells PyTorch that the engine has written to the tensors."""
    for tensor in tensors:
        if tensor.is_inference():
            continue  # has no counter
        if _increment_version is not None:
            _increment_version(tensor)
        else:
            tensor[:0].zero_()  # a write of nothing


def _forward(kernel_map, features, weights, bias, dataflow):
    if is_rounded(features):
        given = features.float(), weights.float(), None if bias is None else bias.float()
        return _voxconv._convolve(kernel_map, *given, dataflow).to(features.dtype)
    if bias is not None and bias.dtype not in (torch.float32, features.dtype):
        bias = bias.float()
    return _voxconv._convolve(kernel_map, features, weights, bias, dataflow)


def _input_grad(kernel_map, output_grad, weights, dataflow):
    if is_rounded(output_grad):
        given = output_grad.float(), weights.float()
        return _voxconv._input_grad(kernel_map, *given, dataflow).to(weights.dtype)
    return _voxconv._input_grad(kernel_map, output_grad, weights, dataflow)


def _weight_grad(kernel_map, features, output_grad, dataflow):
    if is_rounded(features):
        given = features.float(), output_grad.float()
        return _voxconv._weight_grad(kernel_map, *given, dataflow).to(features.dtype)
    return _voxconv._weight_grad(kernel_map, features, output_grad, dataflow)


def _bias_grad(output_grad, dtype):
    """Summed in float32 where the dtype is a shorter one."""
    return output_grad.sum(0, dtype=torch.float32).to(dtype)


class Convolve(torch.autograd.Function):
    """The passes without an operator, which costs the host less."""

    @staticmethod
    def forward(ctx, features, weights, bias, kernel_map, dataflow):  # type: ignore[override]
        ctx.save_for_backward(features, weights)
        ctx.kernel_map, ctx.dataflow = kernel_map, dataflow
        ctx.bias_dtype = None if bias is None else bias.dtype
        return _forward(kernel_map, features, weights, bias, dataflow)

    @staticmethod
    @once_differentiable
    def backward(ctx, output_grad):  # type: ignore[override]
        features, weights = ctx.saved_tensors
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            dx = _input_grad(ctx.kernel_map, output_grad, weights, ctx.dataflow)
        if ctx.needs_input_grad[1]:
            dw = _weight_grad(ctx.kernel_map, features, output_grad, ctx.dataflow)
        if ctx.needs_input_grad[2]:
            db = _bias_grad(output_grad, ctx.bias_dtype)
        return dx, dw, db, None, None


# torch.library.custom_op is there from PyTorch 2.4 on.
HAS_OPERATORS = hasattr(torch.library, "custom_op")

if HAS_OPERATORS:
    disable_compile = torch.compiler.disable
    is_compiling = torch.compiler.is_compiling

    @torch.library.custom_op("voxconv::convolve", mutates_args=())
    def convolve_op(
        features: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None, map: torch.Tensor,
        outputs: int, dataflow: str,
    ) -> torch.Tensor:
        return _forward(_maps[map.item()], features, weights, bias, dataflow)

    @torch.library.custom_op("voxconv::input_grad", mutates_args=())
    def input_grad_op(
        output_grad: torch.Tensor, weights: torch.Tensor, map: torch.Tensor, inputs: int, dataflow: str
    ) -> torch.Tensor:
        return _input_grad(_maps[map.item()], output_grad, weights, dataflow)

    @torch.library.custom_op("voxconv::weight_grad", mutates_args=())
    def weight_grad_op(
        features: torch.Tensor, output_grad: torch.Tensor, map: torch.Tensor, offsets: int,
        dataflow: str,
    ) -> torch.Tensor:
        return _weight_grad(_maps[map.item()], features, output_grad, dataflow)

    @convolve_op.register_fake
    def _(features, weights, bias, map, outputs, dataflow):
        return features.new_empty((outputs, weights.shape[2]))

    @input_grad_op.register_fake
    def _(output_grad, weights, map, inputs, dataflow):
        return weights.new_empty((inputs, weights.shape[1]))

    @weight_grad_op.register_fake
    def _(features, output_grad, map, offsets, dataflow):
        return features.new_empty((offsets, features.shape[1], output_grad.shape[1]))

    def _setup(ctx, inputs, output):
        features, weights, bias, map, _, ctx.dataflow = inputs
        ctx.save_for_backward(features, weights, map)
        ctx.bias_dtype = None if bias is None else bias.dtype

    def _backward(ctx, output_grad):
        features, weights, map = ctx.saved_tensors
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            dx = input_grad_op(output_grad, weights, map, features.shape[0], ctx.dataflow)
        if ctx.needs_input_grad[1]:
            dw = weight_grad_op(features, output_grad, map, weights.shape[0], ctx.dataflow)
        if ctx.needs_input_grad[2]:
            db = _bias_grad(output_grad, ctx.bias_dtype)
        return dx, dw, db, None, None, None

    convolve_op.register_autograd(_backward, setup_context=_setup)
else:
    def disable_compile(function: Any) -> Any:
        return function

    def is_compiling() -> bool:
        return False


_NO_EXPORT = (
    "torch.export is not supported by voxconv.torch, nor is fullgraph=True: kernel maps depend on the "
    "values of coordinates"
)


def outside_of_graphs(function: Any) -> Any:
    """Calls `function` as it is, and lets torch.compile end its graph before it and begin another.
    torch.export, whose graph must be whole, is refused."""

    @functools.wraps(function)
    def outside(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    # PyTorch's message about a graph that cannot be whole shows this name.
    outside.__qualname__ = f"{function.__qualname__} ({_NO_EXPORT})"
    disabled = disable_compile(outside)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return disabled(*args, **kwargs) if is_compiling() else function(*args, **kwargs)

    return call


def refuse_export(tensor: torch.Tensor) -> None:
    """Refuses tensors without values, such as torch.export runs a network with."""
    if type(tensor).__module__.startswith("torch._subclasses"):
        raise NotImplementedError(_NO_EXPORT)


# From PyTorch 2.4 on.
_get_autocast_dtype = getattr(torch, "get_autocast_dtype", None)


def autocast_dtype(cuda: bool) -> torch.dtype | None:
    """The dtype of autocast on CUDA or on the CPU; None where it is off."""
    if _get_autocast_dtype is not None:
        device = "cuda" if cuda else "cpu"
        return _get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    if cuda:
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
    return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
