# SPDX-License-Identifier: Apache-2.0
"""What the modules compute, as functions of tensors."""

import numbers
import warnings
from collections.abc import Iterable
from typing import Any

import torch
import voxconv

from voxconv.torch import ops
from voxconv.torch.tensor import Layer, SparseTensor, to_torch

POOL_MODES = {
    "voxconv": ("max", "sum", "average", "average_present"),
    "spconv": ("max", "average"),
}


def triple(name: str, value: Any, least: int | None = None) -> tuple[int, int, int]:
    """One whole number or three for x, y, z, as three. ValueError for something else."""
    try:
        values = (value,) * 3 if isinstance(value, numbers.Integral) else tuple(value)
    except TypeError:
        values = ()
    whole = len(values) == 3 and all(isinstance(v, numbers.Integral) for v in values)
    if not whole or (least is not None and min(values) < least):
        each = "" if least is None else f", each at least {least}"
        raise ValueError(f"{name}: {value}; one whole number or three are needed{each}")
    x, y, z = values
    return int(x), int(y), int(z)


def _convolve_by_torch(
    features: torch.Tensor, weights: torch.Tensor, kernel_map: voxconv.KernelMap
) -> torch.Tensor:
    """The definition, in float64 and with PyTorch's own gradients of any order. Slow."""
    in_rows, out_rows, ends = kernel_map.pairs()
    inputs, outputs = to_torch(in_rows).long(), to_torch(out_rows).long()
    y = features.new_zeros((kernel_map.num_outputs, weights.shape[2]))
    for k in range(kernel_map.num_offsets):
        pairs = slice(int(ends[k]), int(ends[k + 1]))
        y = y.index_add(0, outputs[pairs], features[inputs[pairs]] @ weights[k])
    return y


def convolve(
    kernel_map: voxconv.KernelMap,
    features: torch.Tensor,
    weights: torch.Tensor,
    dataflow: str | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """The convolution on a map, differentiable by features, weights and bias.

    Args:
        kernel_map: the map.
        features: [N_in, C_in]; float32, float16 or bfloat16. The engine of the CPU computes in
            float32: it reads the two others' values, and its sums are rounded to them. float64
            takes a slow path in PyTorch. Under autocast, features and weights but those of float64
            are cast to its dtype, and gradients come in the dtypes that were given.
        weights: [K, C_in, C_out], of the same dtype and device. Offsets are in voxconv's order: x
            slowest, z fastest.
        dataflow: the spec of a dataflow (voxconv.list_plugins). All passes are its passes. Without
            it, the default of the device (experiments/presets/defaults.json).
        bias: [C_out] of any floating-point dtype, on the same device. Dataflows that join it with
            the products add it before the sum is rounded.

    Returns:
        [N_out, C_out]. Does not wait for the device, unless the dataflow must count pairs.

    Raises:
        ValueError: features and weights differ in dtype.
        ValueError, NotImplementedError, MemoryError: as voxconv.convolve.
    """
    features, weights = cast(features, weights)
    if features.dtype == torch.float64:
        y = _convolve_by_torch(features, weights, kernel_map)
        return y if bias is None else y + bias.to(y.dtype)
    dataflow = dataflow or ops.default_dataflow(features.is_cuda)
    if torch.is_grad_enabled() and (
        features.requires_grad or weights.requires_grad or (bias is not None and bias.requires_grad)
    ):
        return ops.Convolve.apply(features, weights, bias, kernel_map, dataflow)
    return ops._forward(kernel_map, features, weights, bias, dataflow)


def convolve_in_graph(
    layer: Layer, features: torch.Tensor, weights: torch.Tensor, dataflow: str | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """The same as an operator of torch.compile, on the map of a layer that Layer.for_graph has seen."""
    features, weights = cast(features, weights)
    dataflow = dataflow or ops.default_dataflow(features.is_cuda)
    return ops.convolve_op(features, weights, bias, layer.token, layer.outputs.rows, dataflow)


def multiply(
    features: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """The convolution of a kernel of 1 and stride 1, whose map would be the identity: a product by
    weights [1, C_in, C_out]. Dtypes are those of convolve."""
    features, weights = cast(features, weights)
    if features.device != weights.device:
        raise ValueError(f"weights: on {weights.device}; the features are on {features.device}")
    dtype = features.dtype
    if dtype in ops.ROUNDED and not features.is_cuda:
        features, weights = features.float(), weights.float()
    if bias is None:
        return torch.mm(features, weights.squeeze(0)).to(dtype)
    return torch.addmm(bias.to(features.dtype), features, weights.squeeze(0)).to(dtype)


def cast(features: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As autocast says, which leaves float64 alone. Autograd casts gradients back."""
    dtype = ops.autocast_dtype(features.is_cuda)
    own = features.dtype
    if dtype is not None and own != torch.float64 and weights.dtype != torch.float64:
        return features.to(dtype), weights.to(dtype)
    if own != weights.dtype:
        raise ValueError(
            f"features: {own}; the weights are {weights.dtype}, and both must be the same"
        )
    return features, weights


@ops.outside_of_graphs
def _window(
    x: SparseTensor, mapping: str, key: str | None, geometry: dict[str, Any]
) -> tuple[Layer, torch.Tensor]:
    """The map of a pooling, and its table [N_out, K]; -1: there is no voxel."""
    layer = x._name(key, x.voxels.layer(mapping, **geometry), mapping)
    return layer, to_torch(layer.kernel_map.table()).long()


def check_pool(mode: str, convention: str) -> None:
    """ValueError for a convention that is unknown, and for a mode that it does not have."""
    if convention not in POOL_MODES:
        raise ValueError(f"convention: '{convention}'; allowed are {', '.join(POOL_MODES)}")
    modes = POOL_MODES[convention]
    if mode not in modes:
        raise ValueError(
            f"mode: '{mode}'; allowed are {', '.join(modes)} with the convention {convention}"
        )


def pool(
    x: SparseTensor,
    mode: str = "max",
    mapping: str = "hash",
    convention: str = "voxconv",
    key: str | None = None,
    **geometry: Any,
) -> SparseTensor:
    """Pools the voxels in a window.

    Args:
        x: the input.
        mode: "max", "sum", "average" (divides by the kernel's volume) or "average_present" (divides
            by the number of voxels in the window).
        mapping: the spec of a mapping.
        convention: how a window's voxels become one, as for voxconv.pool. With "spconv", "max" is 0
            where all are negative, and "average" divides by the number of voxels in the window.
        key: a name for the kernel map, as for SparseConv3d.
        geometry: kernel, stride, padding, kind and rule, as for voxconv.KernelMap.

    Of equal maxima, the one of the lowest kernel offset gets the gradient. The host may wait for the
    device.

    Raises:
        ValueError, NotImplementedError: as voxconv.KernelMap; another mode.
    """
    check_pool(mode, convention)
    if convention == "spconv" and mode == "average":
        mode = "average_present"
    layer, table = _window(x, mapping, key, geometry)
    empty = float("-inf") if mode == "max" else 0.0
    rows = torch.cat([x.features, x.features.new_full((1, x.channels), empty)])
    window = rows[table]  # -1 is the last row
    if mode == "max":
        best = window.detach().argmax(dim=1, keepdim=True)
        y = window.gather(1, best).squeeze(1)
        if convention == "spconv":
            y = torch.relu(y)
    else:
        y = window.sum(dim=1)
        if mode == "average":
            y = y / table.shape[1]
        elif mode == "average_present":
            y = y / (table >= 0).sum(dim=1, keepdim=True).clamp(min=1).to(y.dtype)
    return x.on(layer.outputs, y)


def check_global_pool(mode: str) -> None:
    """ValueError for a mode that global_pool does not have."""
    if mode not in ("max", "sum", "average_present"):
        raise ValueError(f"mode: '{mode}'; allowed are max, sum, average_present")


def global_pool(x: SparseTensor, mode: str = "average_present") -> torch.Tensor:
    """Pools all voxels of each batch sample.

    Args:
        x: the input, [N, C].
        mode: "max", "sum" or "average_present".

    Returns:
        [x.batch_size, C]; 0 for a sample without voxels. Equal maxima share the gradient. Sums of
        float16 and bfloat16 are added in float32 and rounded once.

    Raises:
        ValueError: another mode.
    """
    check_global_pool(mode)
    sample = x.voxels.coords()[:, 0].long()
    zeros = x.features.new_zeros((x.batch_size, x.channels))
    if mode == "max":
        index = sample[:, None].expand_as(x.features)
        with warnings.catch_warnings():  # older versions of PyTorch call scatter_reduce a beta
            warnings.simplefilter("ignore", UserWarning)
            return zeros.scatter_reduce(0, index, x.features, "amax", include_self=False)
    features = x.features.float() if x.features.dtype in ops.ROUNDED else x.features
    total = zeros.to(features.dtype).index_add(0, sample, features)
    if mode == "average_present":
        count = torch.bincount(sample, minlength=x.batch_size).clamp(min=1)
        total = total / count[:, None].to(total.dtype)
    return total.to(x.features.dtype)


def _on_same_voxels(name: str, tensors: list[SparseTensor]) -> None:
    if not tensors:
        raise ValueError(f"{name}: no tensors; at least 1 is needed")
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, (SparseTensor, torch.fx.Proxy)):
            raise TypeError(f"{name}: tensor {i} is a {type(tensor).__name__}; SparseTensors are needed")
    first = tensors[0]
    if any(isinstance(tensor, torch.fx.Proxy) for tensor in tensors):
        return  # voxconv.torch.compile: the engine's graph checks it
    for i, other in enumerate(tensors):
        if other.voxels is first.voxels:
            continue
        raise ValueError(
            f"{name}: tensor {i} has {len(other)} voxels of stride {other.stride} and tensor 0 has "
            f"{len(first)} of stride {first.stride}; all must come from the same voxels of one network"
        )


def add(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """The sum of two tensors on the same voxels. ValueError for others."""
    _on_same_voxels("add", [a, b])
    return a.with_features(a.features + b.features)


def relu(x: SparseTensor) -> SparseTensor:
    """max(x, 0) of each feature, on the same voxels."""
    return x.with_features(torch.relu(x.features))


def cat(tensors: Iterable[SparseTensor]) -> SparseTensor:
    """The channels of tensors on the same voxels, one after the other. ValueError for others."""
    tensors = list(tensors)
    _on_same_voxels("cat", tensors)
    return tensors[0].with_features(torch.cat([t.features for t in tensors], dim=1))


def to_dense(
    x: SparseTensor,
    shape: int | tuple[int, int, int],
    origin: int | tuple[int, int, int] = 0,
) -> torch.Tensor:
    """A dense grid with 0 where there is no voxel.

    Args:
        x: the tensor.
        shape: cells along x, y and z, in units of x.stride; one number or three.
        origin: the position of cell (0, 0, 0), in units of the finest voxel; one number or three.

    Returns:
        [x.batch_size, C, *shape]. The host waits for the device, to check the positions.

    Raises:
        ValueError: a voxel lies outside of the grid, or `shape` or `origin` is something else.
    """
    shape, origin = triple("shape", shape, 1), triple("origin", origin)
    coords = x.voxels.coords().long()
    stride = torch.tensor(x.stride, device=coords.device)
    cells = (coords[:, 1:] - torch.tensor(origin, device=coords.device)).div(
        stride, rounding_mode="floor"
    )
    outside = ((cells < 0) | (cells >= torch.tensor(shape, device=coords.device))).any(dim=1)
    if bool(outside.any()):
        row = int(outside.nonzero()[0, 0])
        raise ValueError(
            f"shape: {shape} with origin {origin} does not hold voxel "
            f"{coords[row].tolist()} in row {row}"
        )
    grid = x.features.new_zeros((x.batch_size, *shape, x.channels))
    grid = grid.index_put((coords[:, 0], *cells.unbind(1)), x.features)
    return grid.permute(0, 4, 1, 2, 3)
