# SPDX-License-Identifier: Apache-2.0
"""Voxels with features that autograd follows, and the kernel maps between voxels."""

import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import voxconv

from voxconv._voxconv import _default_plugins, _replacements

from voxconv.torch import ops


class _Map:
    """A kernel map, the voxels that it makes if it makes any, and what stands for it in graphs."""

    def __init__(self, kernel_map: voxconv.KernelMap, outputs: "Voxels | None" = None):
        self.kernel_map, self.outputs = kernel_map, outputs
        self.replacements = _replacements()  # a plugin that is replaced later makes another map
        self.token: torch.Tensor | None = None  # Layer.for_graph makes it
        self._inverse: _Map | None = None

    def inverse(self) -> "_Map":
        if self._inverse is None:
            self._inverse = _Map(self.kernel_map.inverse())
        return self._inverse


class Layer:
    """A kernel map with the voxels on its two sides."""

    def __init__(self, made: _Map, inputs: "Voxels", outputs: "Voxels"):
        self._map, self.inputs, self.outputs = made, inputs, outputs
        self.kernel_map, self.replacements = made.kernel_map, made.replacements

    def inverse(self) -> "Layer":
        """The map from the outputs back to the inputs. Made once."""
        return Layer(self._map.inverse(), self.outputs, self.inputs)

    def for_graph(self) -> "Layer":
        """Itself, with the token that an operator takes in place of the map."""
        if self._map.token is None:
            self._map.token = ops.token(self.kernel_map)
        return self

    @property
    def token(self) -> torch.Tensor | None:
        """What for_graph makes."""
        return self._map.token


class Voxels:
    """A set of voxels. Its maps are made once, however many layers and tensors use them."""

    def __init__(self, handle: voxconv.SparseTensor):
        self.handle = handle  # its one feature is not read
        self.rows = len(handle)
        self.device: torch.device = handle.features.device
        self.stride, self.batch_size = handle.stride, handle.batch_size
        # Without these voxels themselves: a set that kept itself would outlive its last tensor.
        self._made: dict[tuple[Any, ...], _Map] = {}
        self.known: dict[Any, Any] = {}  # what layers note about these voxels for each other
        self._defaults: dict[str, Any] = {}
        if self.device.type == "cuda":
            self._defaults["output_coords"] = _default_plugins(True)[2]

    def layer(self, mapping: str, **geometry: Any) -> Layer:
        """The map of a layer on these voxels. Geometry and errors are those of voxconv.KernelMap."""
        return self.layer_at(place_of(mapping, geometry), mapping, geometry)

    def layer_at(self, place: tuple[Any, ...], mapping: str, geometry: dict[str, Any]) -> Layer:
        """The same for who knows place_of(mapping, geometry), which costs the host less."""
        made = self.find(place)
        if made is None:
            kernel_map = voxconv.KernelMap(
                self.handle, mapping=mapping, **self._defaults, **geometry
            )
            outputs = None
            if not kernel_map.keeps_coordinates:
                outputs = Voxels(kernel_map.out_tensor(_column(kernel_map.num_outputs, self.device)))
            made = self._made[place] = _Map(kernel_map, outputs)
        return Layer(made, self, self if made.outputs is None else made.outputs)

    def find(self, place: tuple[Any, ...]) -> _Map | None:
        """The map of layer_at, if it is there."""
        made = self._made.get(place)
        return made if made is not None and made.replacements == _replacements() else None

    @ops.outside_of_graphs
    def coords(self) -> torch.Tensor:
        """int32 [N, 4], which must not be written to."""
        return to_torch(self.handle.coords)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles have the coordinates, and make maps and notes anew."""
        coords = self.coords().clone()
        return _voxels, (coords, coords, self.stride)


_USUAL = {"stride": (1, 1, 1), "dilation": (1, 1, 1), "padding": (0, 0, 0), "rule": "quantize"}


def place_of(mapping: str, geometry: dict[str, Any]) -> tuple[Any, ...]:
    """The same for the same map of some voxels, however its geometry is written."""
    written = {}
    for name, value in geometry.items():
        if isinstance(value, numbers.Integral):
            value = (int(value),) * 3
        elif isinstance(value, Iterable) and not isinstance(value, str):
            value = tuple(value)
        if value is not None and value != _USUAL.get(name):
            written[name] = value
    written.setdefault("kind", "strided" if "stride" in written else "submanifold")
    return (mapping, *sorted(written.items()))


@ops.outside_of_graphs
def _voxels(coords: torch.Tensor, features: torch.Tensor, stride: Any) -> Voxels:
    column = _column(features.shape[0], features.device)
    return Voxels(voxconv.SparseTensor(coords.detach(), column, stride))


def _column(rows: int, device: torch.device) -> torch.Tensor:
    """A feature that is not read, whatever PyTorch's default dtype is."""
    return torch.empty((rows, 1), dtype=torch.float32, device=device)


class SparseTensor:
    """Voxels and their features, for the modules of voxconv.torch.

    Row i of `features` belongs to row i of `coords`. Tensors that a network makes of one input share
    its voxels and maps. Deep copies and pickles have coordinates and features; maps and their keys are
    made anew. Tensors that are copied together share their voxels again.
    """

    def __init__(
        self,
        coords: torch.Tensor,
        features: torch.Tensor,
        stride: int | tuple[int, int, int] = 1,
    ):
        """Makes a tensor of two arrays.

        Args:
            coords: int32 [N, 4]: batch, x, y and z in units of the finest voxel. Rows are unique,
                and positions are multiples of `stride`. They are checked and copied. Those on CUDA are
                checked there; the host waits once, for their bounds.
            features: [N, C]; float32, on CUDA also float16 and bfloat16. float64 takes a slow path
                in PyTorch, for gradient checks. Not copied. Gradients flow into it.
            stride: the tensor stride, one whole number or three for x, y, z.

        Raises:
            ValueError: a coordinate, a shape or a dtype does not fit, or a row occurs twice.
            NotImplementedError: torch.export runs the network.
        """
        for name, value in (("coords", coords), ("features", features)):
            if not isinstance(value, torch.Tensor):
                raise TypeError(f"{name}: {type(value).__name__}; a torch.Tensor is needed")
            ops.refuse_export(value)
            if value.is_meta:
                raise ValueError(f"{name}: on the device meta, which has no values")
            if value.layout is not torch.strided:
                raise ValueError(f"{name}: layout {value.layout}; torch.strided is needed")
        if features.dim() != 2:
            raise ValueError(f"features: shape {list(features.shape)}; [N, C] is needed")
        if coords.dim() == 2 and coords.shape[0] != features.shape[0]:
            raise ValueError(
                f"features: {features.shape[0]} rows; coords has {coords.shape[0]}"
            )
        self.voxels = _voxels(coords, features, stride)
        self.features = _check(features, self.voxels)
        self.named: dict[str, Layer] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"voxels": self.voxels, "features": self.features, "named": {}}

    def __copy__(self) -> "SparseTensor":
        return self.on(self.voxels, self.features)

    def with_features(self, features: torch.Tensor) -> "SparseTensor":
        """Other features [N, C] on the same voxels. Nothing is copied. ValueError for other rows, another
        device or integers."""
        return self.on(self.voxels, features)

    def _name(self, key: str | None, layer: Layer, mapping: str) -> Layer:
        """Lets `key` name the layer, which was made by `mapping`. ValueError if it names another one."""
        if key is None:
            return layer
        known = self.named.setdefault(key, layer)
        if known.kernel_map is layer.kernel_map:
            return known
        if known.replacements != layer.replacements:  # of plugins that were replaced
            self.named[key] = layer
            return layer
        raise ValueError(
            f"key: '{key}' names the map {known.kernel_map.geometry} of other voxels, another geometry or "
            f"another mapping; this layer has {layer.kernel_map.geometry} with the mapping '{mapping}'"
        )

    def on(self, voxels: Voxels, features: torch.Tensor) -> "SparseTensor":
        """A tensor with features [N, C] on other voxels of the same network. Errors of with_features."""
        return self.made(voxels, _check(features, voxels))

    def made(self, voxels: Voxels, features: torch.Tensor) -> "SparseTensor":
        """`on` for features that the engine has made for these voxels, which need no check."""
        tensor = SparseTensor.__new__(SparseTensor)
        tensor.voxels = voxels
        tensor.features = features
        tensor.named = self.named
        return tensor

    def to(self, *args: Any, **kwargs: Any) -> "SparseTensor":
        """The tensor with the features that torch.Tensor.to gives for these arguments: another device, another
        floating-point dtype, or both. Itself if nothing changes. On another device, maps are made anew."""
        features = self.features.to(*args, **kwargs)
        if features is self.features:
            return self
        if features.device == self.device:
            return self.with_features(features)
        return SparseTensor(self.voxels.coords().to(features.device), features, self.stride)

    def cuda(self, device: Any = None) -> "SparseTensor":
        """On a GPU: `device`, or the current one."""
        if device is None:
            return self.to("cuda")
        return self.to(f"cuda:{device}" if isinstance(device, int) else device)

    def cpu(self) -> "SparseTensor":
        """In host memory."""
        return self.to("cpu")

    def float(self) -> "SparseTensor":
        """With features of float32."""
        return self.to(torch.float32)

    def half(self) -> "SparseTensor":
        """With features of float16."""
        return self.to(torch.float16)

    def bfloat16(self) -> "SparseTensor":
        """With features of bfloat16."""
        return self.to(torch.bfloat16)

    def detach(self) -> "SparseTensor":
        """On the same voxels, with features that autograd does not follow back."""
        return self.with_features(self.features.detach())

    @property
    def dtype(self) -> torch.dtype:
        """The features' dtype."""
        return self.features.dtype

    @property
    def coords(self) -> torch.Tensor:
        """int32 [N, 4]: batch, x, y, z, on the features' device. A copy."""
        return self.voxels.coords().clone()

    @property
    def stride(self) -> tuple[int, int, int]:
        """The tensor stride along x, y and z."""
        return self.voxels.stride

    @property
    def batch_size(self) -> int:
        """A number greater than every batch index."""
        return self.voxels.batch_size

    @property
    def channels(self) -> int:
        """The number of features of a voxel."""
        return self.features.shape[1]

    @property
    def device(self) -> torch.device:
        """Where features and coordinates lie."""
        return self.features.device

    def __len__(self) -> int:
        return self.features.shape[0]

    def __add__(self, other: "SparseTensor") -> "SparseTensor":
        from voxconv.torch.functional import add

        return add(self, other)

    def __repr__(self) -> str:
        return (
            f"SparseTensor({len(self)} voxels, {self.channels} channels, {self.features.dtype}, "
            f"stride {self.stride}, {self.device})"
        )


def to_torch(array: Any) -> torch.Tensor:
    """A read-only array of voxconv as a tensor, which must not be written to."""
    if isinstance(array, np.ndarray):  # NumPy exports no read-only memory by DLPack
        return torch.from_numpy(array.view() if array.flags.writeable else array.copy())
    return torch.from_dlpack(array)


def _check(features: torch.Tensor, voxels: Voxels) -> torch.Tensor:
    rows = voxels.rows
    if features.dim() != 2 or features.shape[0] != rows:
        raise ValueError(
            f"features: shape {list(features.shape)}; {rows} rows are needed, one for each voxel"
        )
    if features.device != voxels.device:
        raise ValueError(f"features: on {features.device}; the voxels are on {voxels.device}")
    if not features.is_floating_point():
        raise ValueError(f"features: {features.dtype}; a floating-point dtype is needed")
    return features
