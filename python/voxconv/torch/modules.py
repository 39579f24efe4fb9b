# SPDX-License-Identifier: Apache-2.0
"""Layers. Parameters are PyTorch's, so that optimisers, state_dict, DistributedDataParallel, copies
and pickling work as with its own modules."""

import math
import numbers
from typing import Any

import torch
from torch import nn

from voxconv._voxconv import KernelMap, _check_plugin

from voxconv.torch import functional, ops
from voxconv.torch.functional import triple
from voxconv.torch.tensor import Layer, SparseTensor, Voxels, place_of

Triple = tuple[int, int, int]
_RULES = ("quantize", "dilate")


def _channels(name: str, value: Any) -> int:
    if not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{name}: {value}; a whole number of at least 1 is needed")
    return int(value)


def _check_plugins(mapping: str | None, dataflow: str | None = None) -> None:
    """ValueError for a spec that is unknown. None has no meaning, or stands for a default."""
    for family, spec in (("mapping", mapping), ("dataflow", dataflow)):
        if spec is not None:
            _check_plugin(family, spec)


def _check_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name}: {value!r}; True or False is needed")
    return value


def _check_rule(rule: str) -> str:
    if rule not in _RULES:
        raise ValueError(f"rule: '{rule}'; allowed are {', '.join(_RULES)}")
    return rule


def own(module: nn.Module, name: str) -> Any:
    """The parameter of this name, or what stands in its place, as a parametrization does. PyTorch's
    look-up of parameters costs the host more."""
    parameters = module._parameters
    return parameters[name] if name in parameters else getattr(module, name)


def _check_tensor(module: nn.Module, x: Any) -> SparseTensor:
    if isinstance(x, SparseTensor):
        return x
    raise TypeError(f"{type(module).__name__}: {type(x).__name__}; a SparseTensor is needed")


# What decides a layer's maps and passes.
SETTINGS = (
    "kernel_size", "stride", "padding", "dilation", "rule", "key", "mapping", "dataflow", "mode",
    "convention",
)


class Counted(nn.Module):
    """Counts changes of settings, over all layers, so that compiled networks see them for little."""

    changes = 0

    def __setattr__(self, name: str, value: Any) -> None:
        if name in SETTINGS and name in self.__dict__:
            Counted.changes += 1
            self.__dict__["_noted"] = None
        super().__setattr__(name, value)


class _Conv(Counted):
    """Weights [K, C_in, C_out], offsets in voxconv's order: x slowest, z fastest."""

    _noted: tuple[Any, ...] | None = None  # what _place gives, until a setting changes

    def __init__(self, in_channels, out_channels, kernel_size, bias, key, mapping, dataflow):
        super().__init__()
        self.in_channels = _channels("in_channels", in_channels)
        self.out_channels = _channels("out_channels", out_channels)
        self.kernel_size = triple("kernel_size", kernel_size, 1)
        _check_plugins(mapping, dataflow)
        self.key, self.mapping, self.dataflow = key, mapping, dataflow
        bias = _check_flag("bias", bias)
        volume = math.prod(self.kernel_size)
        self.weight = nn.Parameter(torch.empty(volume, self.in_channels, self.out_channels))
        if bias:
            self.bias = nn.Parameter(torch.empty(self.out_channels))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As nn.Conv3d: uniform in +-1 / sqrt(K C_in)."""
        bound = 1 / math.sqrt(self.weight.shape[0] * self.in_channels)
        for parameter in (self.weight, self.bias):
            if parameter is not None:
                nn.init.uniform_(parameter, -bound, bound)

    def _geometry(self) -> dict[str, Any]:
        return {"kernel": self.kernel_size}

    def _layer(self, x: SparseTensor) -> Layer:
        """The kernel map of the layer, with the voxels on its two sides. ValueError for another key."""
        layer = x.voxels.layer_at(self._place(), self.mapping, self._geometry())
        return x._name(self.key, layer, self.mapping)

    def _place(self) -> tuple[Any, ...]:
        """What tells this layer's map from others of the same voxels."""
        if self._noted is None:
            self._noted = place_of(self.mapping, self._geometry())
        return self._noted

    def sides(self, x: SparseTensor) -> tuple[KernelMap, Voxels]:
        """The kernel map of the layer, and its output voxels. Errors of _layer."""
        if self.key is None:
            made = x.voxels.find(self._place())
            if made is not None:
                return made.kernel_map, x.voxels if made.outputs is None else made.outputs
        layer = self._layer(x)
        return layer.kernel_map, layer.outputs

    def forward(self, x: SparseTensor) -> SparseTensor:
        x = self._checked(x)
        weight, bias = own(self, "weight"), own(self, "bias")
        if self._is_product():
            return x.made(x.voxels, functional.multiply(x.features, weight, bias))
        if ops.is_compiling():
            layer = self._layer_for_graph(x)
            y = functional.convolve_in_graph(layer, x.features, weight, self.dataflow, bias)
            return x.on(layer.outputs, y)
        kernel_map, outputs = self.sides(x)
        y = functional.convolve(kernel_map, x.features, weight, self.dataflow, bias)
        return x.made(outputs, y)

    @ops.outside_of_graphs
    def _layer_for_graph(self, x: SparseTensor) -> Layer:
        return self._layer(x).for_graph()

    def _is_product(self) -> bool:
        """Whether this is a product of each voxel's features by the weights, which needs no map."""
        return False

    def _checked(self, x: Any) -> SparseTensor:
        """x. TypeError or ValueError for another input than the layer takes."""
        x = _check_tensor(self, x)
        if x.features.size(1) != self.in_channels:
            raise ValueError(
                f"{type(self).__name__}: {x.channels} channels; in_channels is {self.in_channels}"
            )
        return x

    def extra_repr(self) -> str:
        words = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"]
        for name in ("stride", "padding", "dilation", "key", "mapping", "dataflow"):
            if getattr(self, name, None) is not None:
                words.append(f"{name}={getattr(self, name)!r}")
        if self.bias is None:
            words.append("bias=False")
        return ", ".join(words)


class SubMConv3d(_Conv):
    """A submanifold convolution: its outputs are the voxels of its input.

    Args:
        in_channels, out_channels: features of an input and of an output voxel.
        kernel_size, dilation: one whole number or three for x, y, z.
        bias: whether a bias [out_channels] is added.
        key: a name for the kernel map. Layers of one geometry share their map without it; a layer
            that names a map of another geometry is refused.
        mapping, dataflow: specs of plugins (voxconv.list_plugins). Without a dataflow, it is the
            default of the input's device (experiments/presets/defaults.json).

    A kernel of 1 without a key is PyTorch's matrix product, as in voxconv.networks: its map would be the
    identity, and its plugins are not asked.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Triple = 3,
        dilation: int | Triple = 1,
        bias: bool = True,
        key: str | None = None,
        mapping: str = "hash",
        dataflow: str | None = None,
    ):
        super().__init__(in_channels, out_channels, kernel_size, bias, key, mapping, dataflow)
        self.dilation = triple("dilation", dilation, 1)

    def _is_product(self) -> bool:
        return self.kernel_size == (1, 1, 1) and self.key is None

    def _geometry(self) -> dict[str, Any]:
        return {"kernel": self.kernel_size, "dilation": self.dilation, "kind": "submanifold"}


class SparseConv3d(_Conv):
    """A strided convolution.

    Args:
        in_channels, out_channels, kernel_size, dilation, bias, key, mapping, dataflow: as for
            SubMConv3d. A SparseInverseConv3d with the same key goes back to the input's voxels.
        stride, padding: one whole number or three for x, y, z. Padding needs the rule "dilate".
        rule: how the outputs are found: "quantize" or "dilate".
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Triple = 2,
        stride: int | Triple = 2,
        padding: int | Triple = 0,
        dilation: int | Triple = 1,
        bias: bool = True,
        rule: str = "quantize",
        key: str | None = None,
        mapping: str = "hash",
        dataflow: str | None = None,
    ):
        super().__init__(in_channels, out_channels, kernel_size, bias, key, mapping, dataflow)
        self.stride = triple("stride", stride, 1)
        self.padding = triple("padding", padding)
        self.dilation = triple("dilation", dilation, 1)
        self.rule = _check_rule(rule)

    def _geometry(self) -> dict[str, Any]:
        geometry = {
            "kernel": self.kernel_size,
            "stride": self.stride,
            "dilation": self.dilation,
            "kind": "strided",
            "rule": self.rule,
        }
        if any(self.padding):
            geometry["padding"] = self.padding
        return geometry


class TransposedConv3d(_Conv):
    """A transposed convolution: its outputs are all voxels of the windows of its inputs.

    Args:
        in_channels, out_channels, kernel_size, stride, bias, key, mapping, dataflow: as for
            SparseConv3d.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Triple = 2,
        stride: int | Triple = 2,
        bias: bool = True,
        key: str | None = None,
        mapping: str = "hash",
        dataflow: str | None = None,
    ):
        super().__init__(in_channels, out_channels, kernel_size, bias, key, mapping, dataflow)
        self.stride = triple("stride", stride, 1)

    def _geometry(self) -> dict[str, Any]:
        return {"kernel": self.kernel_size, "stride": self.stride, "kind": "transposed"}


class SparseInverseConv3d(_Conv):
    """The inverse of a SparseConv3d: its outputs are the voxels that the other one had as inputs.

    Args:
        in_channels, out_channels, bias, dataflow: as for SubMConv3d.
        kernel_size: that of the SparseConv3d.
        key: that of the SparseConv3d, whose kernel map it takes the other way round.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Triple = 2,
        bias: bool = True,
        *,
        key: str,
        dataflow: str | None = None,
    ):
        super().__init__(in_channels, out_channels, kernel_size, bias, key, None, dataflow)

    def _layer(self, x: SparseTensor) -> Layer:
        """That of the layer of the key, the other way round."""
        layer = x.named.get(self.key)
        if layer is None:
            names = ", ".join(f"'{name}'" for name in x.named) or "none"
            raise ValueError(f"key: '{self.key}' names no layer before this one; there are: {names}")
        if layer.outputs is not x.voxels:
            raise ValueError(
                f"key: '{self.key}' has {len(layer.outputs.handle)} outputs of stride "
                f"{layer.outputs.handle.stride}; this input has {len(x)} voxels of stride {x.stride}"
            )
        if layer.kernel_map.kernel != self.kernel_size:
            raise ValueError(
                f"kernel_size: {self.kernel_size}; the layer '{self.key}' has "
                f"{layer.kernel_map.kernel}"
            )
        return layer.inverse()


class _Pool(Counted):
    mode = ""

    def __init__(
        self,
        kernel_size: int | Triple = 2,
        stride: int | Triple = 2,
        rule: str = "quantize",
        mapping: str = "hash",
        convention: str = "voxconv",
        padding: int | Triple = 0,
        key: str | None = None,
    ):
        super().__init__()
        functional.check_pool(self.mode, convention)
        self.kernel_size = triple("kernel_size", kernel_size, 1)
        self.stride = triple("stride", stride, 1)
        _check_plugins(mapping)
        self.rule, self.mapping, self.convention = _check_rule(rule), mapping, convention
        self.padding, self.key = triple("padding", padding), key

    def forward(self, x: SparseTensor) -> SparseTensor:
        padding = {"padding": self.padding} if any(self.padding) else {}
        return functional.pool(
            _check_tensor(self, x),
            self.mode,
            self.mapping,
            self.convention,
            self.key,
            kernel=self.kernel_size,
            stride=self.stride,
            kind="strided",
            rule=self.rule,
            **padding,
        )

    def extra_repr(self) -> str:
        key = "" if self.key is None else f", key={self.key!r}"
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}{key}"


class MaxPool3d(_Pool):
    """The maximum over the voxels of a window. See voxconv.torch.pool, which also has a kind.

    Args:
        kernel_size, stride, padding, rule, key, mapping: as for SparseConv3d.
        convention: "spconv" for a maximum that is 0 where all are negative, as SpConv's is.
    """

    mode = "max"


class SumPool3d(_Pool):
    """The sum over the voxels of a window. SpConv has none.

    Its arguments are those of MaxPool3d but `convention`.
    """

    mode = "sum"


class AvgPool3d(_Pool):
    """The mean over a window.

    Args:
        kernel_size, stride, padding, rule, key, mapping: as for SparseConv3d.
        present: divide by the voxels that are there, instead of by the window's volume.
        convention: "spconv" refuses the window's volume, which SpConv does not divide by.
    """

    def __init__(
        self,
        kernel_size: int | Triple = 2,
        stride: int | Triple = 2,
        rule: str = "quantize",
        mapping: str = "hash",
        present: bool = True,
        convention: str = "voxconv",
        padding: int | Triple = 0,
        key: str | None = None,
    ):
        _check_flag("present", present)
        if convention == "spconv" and not present:
            raise ValueError("present: False; allowed is True with the convention spconv")
        spconv = convention == "spconv"
        self.mode = "average" if spconv or not present else "average_present"
        super().__init__(kernel_size, stride, rule, mapping, convention, padding, key)


class GlobalPool(nn.Module):
    """A row for each batch sample, as voxconv.torch.global_pool."""

    def __init__(self, mode: str = "average_present"):
        super().__init__()
        functional.check_global_pool(mode)
        self.mode = mode

    def forward(self, x: SparseTensor) -> torch.Tensor:
        return functional.global_pool(_check_tensor(self, x), self.mode)

    def extra_repr(self) -> str:
        return f"mode={self.mode!r}"


SPARSE = (_Conv, _Pool, GlobalPool)
