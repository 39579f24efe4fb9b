# SPDX-License-Identifier: Apache-2.0
"""Voxels with features that autograd follows, and the kernel maps between voxels."""

import dataclasses
from typing import Any

import numpy as np
import torch
import voxconv


@dataclasses.dataclass
class Layer:
    """A kernel map with the voxels on its two sides."""

    kernel_map: voxconv.KernelMap
    inputs: "Voxels"
    outputs: "Voxels"
    _inverse: voxconv.KernelMap | None = None

    def inverse(self) -> voxconv.KernelMap:
        """The map from the outputs back to the inputs. Made once."""
        if self._inverse is None:
            self._inverse = self.kernel_map.inverse()
        return self._inverse


class Voxels:
    """A set of voxels. Its maps are made once, however many layers and tensors use them."""

    def __init__(self, handle: voxconv.SparseTensor):
        self.handle = handle  # its one feature is not read
        # Without these voxels themselves: a set that kept itself would outlive its last tensor.
        self._made: dict[tuple[Any, ...], tuple[voxconv.KernelMap, Voxels | None]] = {}

    def layer(self, mapping: str, **geometry: Any) -> Layer:
        """The map of a layer on these voxels. Geometry and errors are those of voxconv.KernelMap."""
        place = (mapping, *sorted(geometry.items()))
        if place not in self._made:
            kernel_map = voxconv.KernelMap(self.handle, mapping=mapping, **geometry)
            outputs = None
            if not kernel_map.keeps_coordinates:
                column = torch.zeros((kernel_map.num_outputs, 1), device=self.device)
                outputs = Voxels(kernel_map.out_tensor(column))
            self._made[place] = (kernel_map, outputs)
        kernel_map, outputs = self._made[place]
        return Layer(kernel_map, self, self if outputs is None else outputs)

    @property
    def device(self) -> torch.device:
        return self.handle.features.device


class SparseTensor:
    """Voxels and their features, for the modules of voxconv.torch.

    Row i of `features` belongs to row i of `coords`. Tensors that a network makes of one input share
    its voxels and maps.
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
                and positions are multiples of `stride`. They are checked and copied. Coordinates on
                CUDA are copied to the host, which waits for the device.
            features: [N, C]; float32, on CUDA also float16 and bfloat16. float64 takes a slow path
                in PyTorch, for gradient checks. Not copied. Gradients flow into it.
            stride: the tensor stride, one whole number or three for x, y, z.

        Raises:
            ValueError: a coordinate, a shape or a dtype does not fit, or a row occurs twice.
        """
        for name, value in (("coords", coords), ("features", features)):
            if not isinstance(value, torch.Tensor):
                raise TypeError(f"{name}: {type(value).__name__}; a torch.Tensor is needed")
        if features.dim() != 2:
            raise ValueError(f"features: shape {list(features.shape)}; [N, C] is needed")
        if coords.dim() == 2 and coords.shape[0] != features.shape[0]:
            raise ValueError(
                f"features: {features.shape[0]} rows; coords has {coords.shape[0]}"
            )
        column = torch.zeros((features.shape[0], 1), device=features.device)
        self.voxels = Voxels(voxconv.SparseTensor(coords.detach(), column, stride))
        self.features = _check(features, self.voxels)
        self.named: dict[str, Layer] = {}

    def with_features(self, features: torch.Tensor) -> "SparseTensor":
        """Other features [N, C] on the same voxels. Nothing is copied."""
        return self.on(self.voxels, features)

    def on(self, voxels: Voxels, features: torch.Tensor) -> "SparseTensor":
        """A tensor on other voxels of the same network."""
        made = SparseTensor.__new__(SparseTensor)
        made.voxels = voxels
        made.features = _check(features, voxels)
        made.named = self.named
        return made

    @property
    def coords(self) -> torch.Tensor:
        """int32 [N, 4]: batch, x, y, z, on the features' device. A copy."""
        return to_torch(self.voxels.handle.coords).clone()

    @property
    def stride(self) -> tuple[int, int, int]:
        """The tensor stride along x, y and z."""
        return self.voxels.handle.stride

    @property
    def batch_size(self) -> int:
        """A number greater than every batch index."""
        return self.voxels.handle.batch_size

    @property
    def channels(self) -> int:
        return self.features.shape[1]

    @property
    def device(self) -> torch.device:
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
    rows = len(voxels.handle)
    if features.dim() != 2 or features.shape[0] != rows:
        raise ValueError(
            f"features: shape {list(features.shape)}; {rows} rows are needed, one for each voxel"
        )
    if features.device != voxels.device:
        raise ValueError(f"features: on {features.device}; the voxels are on {voxels.device}")
    if not features.is_floating_point():
        raise ValueError(f"features: {features.dtype}; a floating-point dtype is needed")
    return features
