# SPDX-License-Identifier: Apache-2.0
"""Weights of networks from SpConv, TorchSparse and MinkowskiEngine.

`from_spconv`, `from_torchsparse` and `from_minkowski` give a state dict in voxconv's layout. The
convention is the one that the function is called by (docs/formats.md). Nothing is guessed: what the
arrays do not tell, such as the kernel behind 27 offsets, comes from the network that they are for
(`into=`), from the other engine's own modules, or from the user (`kernels=`, `strides=`).

>>> import numpy as np
>>> from voxconv import interop
>>> theirs = {"stem.kernel": np.ones((27, 4, 16), np.float32), "norm.weight": np.ones(16, np.float32)}
>>> ours = interop.from_torchsparse(theirs, kernels={"stem": 3})
>>> {name: array.shape for name, array in ours.items()}
{'stem.weight': (27, 4, 16), 'norm.weight': (16,)}
"""

import fnmatch
import numbers
import os
from collections.abc import Iterable, Mapping
from typing import Any

from voxconv._voxconv import (
    Network,
    _read_weights,
    offset_order,
    padding_from_spconv,
    weights_from,
)

__all__ = [
    "from_minkowski",
    "from_spconv",
    "from_torchsparse",
    "offset_order",
    "padding_from_spconv",
    "read_weights",
    "weights_from",
]

Triple = tuple[int, int, int]
_ENGINES = {"spconv": "SpConv", "torchsparse": "TorchSparse", "minkowski": "MinkowskiEngine"}
# What the engines call the weights of a convolution.
_WEIGHT = {"spconv": "weight", "torchsparse": "kernel", "minkowski": "kernel"}
# MinkowskiEngine's layers of these kinds keep PyTorch's layer as a module of this name.
_WRAPPED = {"minkowski": ("bn", "linear")}


class _Layer:
    """What must be known of a convolution: its sizes along x, y, z and its kind."""

    def __init__(self, kernel, stride=None, dilation=(1, 1, 1), kind="strided"):
        self.kernel, self.stride, self.dilation, self.kind = kernel, stride, dilation, kind


def from_spconv(
    source: Any,
    *,
    into: Any = None,
    kernels: Mapping[str, Any] | None = None,
    strides: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
    ignore: Iterable[str] = (),
) -> dict[str, Any]:
    """Weights of a network of SpConv 2.x in voxconv's layout.

    Weights of convolutions are `NAME.weight` [C_out, kz, ky, kx, C_in]. SpConv reads a kernel of 1
    with stride 1 as a view [C_in, C_out], which is followed.

    Args:
        source: the network (a torch.nn.Module), its state dict (torch tensors or NumPy arrays by
            name), or the path of a file: .safetensors, .npz, or .pth, .pt and .bin through
            torch.load(weights_only=True).
        into: the network that the result is for: a module with layers of voxconv.torch, or one of
            voxconv.networks. Kernels and strides are its layers'. All of its names must be met, and
            no name may be left over.
        kernels: without `into`: the kernel size by the name of each sparse convolution ("encoder.0");
            one whole number, or three for x, y, z. None marks an array that is no sparse
            convolution's and is copied. The modules of a network of the engine have their own.
        strides: the stride by name, where it decides: SpConv's kernels of 1.
        names: the source's name of each name of the result that is called otherwise there. Names of
            arrays; of a module with layers of voxconv.torch also those of whole layers.
        ignore: patterns of names in the source that are left out ("*.running_count"). Each must
            match one.

    Returns:
        Arrays by name. Of `into`'s names in its order: torch tensors on the CPU for a module, float32
        NumPy arrays for one of voxconv.networks. Else the source's names (with `.weight` for
        `.kernel`) and its kind of arrays. Weights of sparse convolutions are float32 [K, C_in, C_out],
        offsets with x slowest. Other arrays are given on as they are.

    Raises:
        ValueError: names are missing or left over, `names` or `ignore` has one that is nowhere, a
            shape is not the convention's, or the arrays do not tell the layer; the message names the
            choice.
        NotImplementedError: voxconv does not cover a layer of the engine.
        ImportError: a .pth file is given and PyTorch is missing.
    """
    return _convert("spconv", source, into, kernels, strides, names, ignore)


def from_torchsparse(
    source: Any,
    *,
    into: Any = None,
    kernels: Mapping[str, Any] | None = None,
    strides: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
    ignore: Iterable[str] = (),
) -> dict[str, Any]:
    """Weights of a network of TorchSparse 2.1 in voxconv's layout.

    Weights of convolutions are `NAME.kernel` [K, C_in, C_out], or [C_in, C_out] for a kernel of 1.
    Offsets are in the order z, y, x if all axes of the kernel are odd, else in x, y, z. A layer with
    `transposed=True` takes the map of its strided layer the other way round, with the same offsets:
    voxconv's SparseInverseConv3d.

    The arguments, the result and the errors are those of from_spconv.
    """
    return _convert("torchsparse", source, into, kernels, strides, names, ignore)


def from_minkowski(
    source: Any,
    *,
    into: Any = None,
    kernels: Mapping[str, Any] | None = None,
    strides: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
    ignore: Iterable[str] = (),
) -> dict[str, Any]:
    """Weights of a network of MinkowskiEngine in voxconv's layout.

    Weights of convolutions are `NAME.kernel` [K, C_in, C_out], or [C_in, C_out] for a kernel of 1;
    offsets in the order z, y, x. A bias is [1, C_out] there and [C_out] here. With `into`, the
    parameters of MinkowskiBatchNorm (`NAME.bn.weight`) and MinkowskiLinear (`NAME.linear.weight`)
    meet those of PyTorch's layers (`NAME.weight`).

    The arguments, the result and the errors are those of from_spconv.
    """
    return _convert("minkowski", source, into, kernels, strides, names, ignore)


def _convert(convention, source, into, kernels, strides, names, ignore):
    described = {} if isinstance(source, (str, os.PathLike)) else _layers_of_engine(source)
    arrays = _arrays(source, ignore)
    names = _checked_names(names)
    strides = {name: _triple(f"strides['{name}']", size) for name, size in (strides or {}).items()}
    if into is not None and kernels is not None:
        raise ValueError("kernels: have no meaning with into=, whose layers have their own")
    if isinstance(into, Network):
        if strides:
            raise ValueError("strides: have no meaning with into=, whose layers have their own")
        return _into_network(convention, arrays, into, names)
    if into is not None:
        return _into_module(convention, arrays, into, strides, names)
    if names:
        raise ValueError("names: have no meaning without into=")
    return _by_kernels(convention, arrays, described, kernels, strides)


# What comes in.


def _arrays(source: Any, ignore: Iterable[str]) -> dict[str, Any]:
    if isinstance(source, (str, os.PathLike)):
        source = read_weights(source)
    elif callable(getattr(source, "state_dict", None)):
        source = source.state_dict()
    if not isinstance(source, Mapping):
        raise TypeError(
            f"source: {type(source).__name__}; a torch.nn.Module, arrays by name, or a path is needed"
        )
    nested = [str(name) for name, array in source.items() if not hasattr(array, "shape")]
    if nested:
        raise ValueError(
            f"source: {_list(nested)} are no arrays; give the state dict inside, such as "
            f"torch.load(path, weights_only=True)[{nested[0]!r}]"
        )
    patterns = [ignore] if isinstance(ignore, str) else list(ignore)
    idle = [p for p in patterns if not any(fnmatch.fnmatchcase(name, p) for name in source)]
    if idle:
        raise ValueError(f"ignore: {_list(idle)}: the source has no such array")
    return {
        name: array
        for name, array in source.items()
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }


def read_weights(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The arrays of a file by name, as they are.

    Args:
        path: a .safetensors or .npz file, such as checkpoint.safetensors of `voxconv train`; or .pth,
            .pt or .bin through torch.load(weights_only=True).

    Returns:
        NumPy arrays (bfloat16 as float32), or what a .pth file holds.

    Raises:
        ValueError: another ending, or a file that is missing or damaged.
        FileNotFoundError: a .pth file that is missing.
        ImportError: a .pth file is given and PyTorch is missing.
    """
    path = os.fspath(path)
    if path.endswith((".pth", ".pt", ".bin")):
        return _read_pth(path)
    import numpy as np

    types = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2"}
    types |= {"I8": "i1", "U8": "u1", "BOOL": "?", "BF16": "<u2"}
    arrays = {}
    for name, (dtype, shape, data) in _read_weights(path).items():
        if dtype not in types:
            raise ValueError(f"{path}: array '{name}' is {dtype}; allowed are {', '.join(types)}")
        array = np.frombuffer(data, types[dtype]).reshape(shape)
        if dtype == "BF16":  # NumPy has no such type; float32 holds its values
            array = (array.astype(np.uint32) << 16).view(np.float32)
        arrays[name] = array
    return arrays


def _read_pth(path: str) -> Any:
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: there is no such file") from None
    except MemoryError:
        raise
    except Exception as error:  # of pickle, zipfile and others, often of many lines
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"{path}: torch.load(weights_only=True) does not read it: {reason}"
        ) from error


def _floats(array: Any) -> Any:
    """A float32 array of NumPy of a tensor or an array."""
    import numpy as np

    if hasattr(array, "detach"):
        array = array.detach().cpu().float().numpy()
    return np.ascontiguousarray(array, np.float32)


def _layers_of_engine(source: Any) -> dict[str, _Layer]:
    """The layers by name of a network of the other engine, whose modules know their kernels."""
    layers = {}
    if not callable(getattr(source, "named_modules", None)):
        return layers
    for name, module in source.named_modules():
        sizes = getattr(module, "kernel_generator", module)  # MinkowskiEngine
        kernel = getattr(sizes, "kernel_size", None)
        if kernel is None or not (hasattr(module, "weight") or hasattr(module, "kernel")):
            continue
        stride = getattr(sizes, "kernel_stride", getattr(sizes, "stride", 1))
        order = slice(None, None, -1) if hasattr(module, "subm") else slice(None)  # SpConv: z, y, x
        layers[name] = _Layer(_triple(name, kernel)[order], _triple(name, stride)[order])
    return layers


# What goes out.


def _by_kernels(convention, arrays, described, kernels, strides):
    known = dict(described)
    copied = set()
    for name, kernel in (kernels or {}).items():
        if kernel is None:
            copied.add(name)
        else:
            known[name] = _Layer(_triple(f"kernels['{name}']", kernel))
    for name, stride in strides.items():
        if name not in known:
            raise ValueError(f"strides['{name}']: kernels= has no such layer")
        known[name].stride = stride
    ending = "." + _WEIGHT[convention]
    result, met = {}, set()
    for name, array in arrays.items():
        layer, is_weight = name[: -len(ending)], name.endswith(ending)
        met.add(layer)
        if is_weight and layer in known:
            result[layer + ".weight"] = _weights(convention, name, layer, array, known[layer])
        elif is_weight and layer not in copied and _may_be_sparse(convention, array):
            raise ValueError(_which_kernel(convention, name, layer, array))
        elif convention == "minkowski" and name.endswith(".bias") and name[:-5] in known:
            result[name] = array.reshape(-1)
        else:
            result[name] = array
    missing = [f"{name}{ending}" for name in known if name not in met and name in (kernels or {})]
    if missing:
        raise ValueError(f"kernels: the source has no {_list(missing)}")
    return result


def _may_be_sparse(convention: str, array: Any) -> bool:
    axes = len(array.shape)
    return axes == 5 if convention == "spconv" else axes in (2, 3)


def _which_kernel(convention, name, layer, array) -> str:
    shape = list(array.shape)
    begin = f"'{name}': shape {shape} does not tell the layer: "
    if convention == "spconv":
        return (
            f"{begin}it may be SpConv's [C_out, kz, ky, kx, C_in] or a dense convolution's; give "
            f"kernels={{'{layer}': ({shape[3]}, {shape[2]}, {shape[1]})}} or None, or into="
        )
    volume = shape[0] if len(shape) == 3 else 1
    edge = round(volume ** (1 / 3))
    cube = f"{edge}x{edge}x{edge} or " if edge**3 == volume and edge > 1 else ""
    example = edge if edge**3 == volume else (volume, 1, 1)
    return (
        f"{begin}{volume} offsets may be a kernel of {cube}{volume}x1x1 and others; give "
        f"kernels={{'{layer}': {example}}} or into=; None copies the array"
    )


def _weights(convention, name, layer, array, known):
    """One convolution's weights, as the kind of array that they were."""
    stride = known.stride
    channels = (array.shape[0], array.shape[-1])
    if stride is None and (
        convention == "spconv" and known.kernel == (1, 1, 1) and min(channels) > 1
    ):
        raise ValueError(
            f"'{name}': SpConv reads a kernel of 1 with stride 1 as a view [C_in, C_out], and one with "
            f"another stride as [C_out, C_in]; give strides={{'{layer}': 1}} or its stride"
        )
    try:
        made = weights_from(
            convention,
            _floats(array),
            known.kernel,
            stride=stride or (1, 1, 1),
            dilation=known.dilation,
            kind=known.kind,
        )
    except (ValueError, NotImplementedError) as error:
        raise type(error)(f"'{name}' of {_ENGINES[convention]}: {error}") from None
    if not hasattr(array, "detach"):
        return made
    import torch

    return torch.from_numpy(made)


def _into_network(convention, arrays, network, names):
    # Counts of batches are no parameters of a network that runs.
    floats = {
        name: _floats(array)
        for name, array in arrays.items()
        if not name.endswith("num_batches_tracked")
    }
    _check_known(names, set(network.parameter_shapes), network.name)
    fit = network._convert(convention, floats, names)
    _check_fit(network.name, fit["missing"], fit["surplus"], fit["wrong"])
    return fit["arrays"]


def _into_module(convention, arrays, module, strides, names):
    import torch

    if not isinstance(module, torch.nn.Module):
        raise TypeError(
            f"into: {type(module).__name__}; a torch.nn.Module or one of voxconv.networks is needed"
        )
    layers = _layers_of_voxconv(module)
    for name, stride in strides.items():
        if name not in layers:
            raise ValueError(f"strides['{name}']: into= has no such layer")
        layers[name].stride = stride
    state = module.state_dict()
    known = set(state)
    for name in state:
        while name := name.rpartition(".")[0]:
            known.add(name)
    _check_known(names, known, type(module).__name__)
    result, used, missing, wrong = {}, set(), [], []
    for name, target in state.items():
        layer, _, leaf = name.rpartition(".")
        found = _find(convention, arrays, names, layer, leaf, layer in layers)
        if found is None:
            if leaf == "num_batches_tracked":  # older files have none
                result[name] = target
            else:
                missing.append(f"{name} {list(target.shape)}")
            continue
        used.add(found)
        array = arrays[found]
        if layer in layers and leaf == "weight":
            array = _weights(convention, found, layer, array, layers[layer])
        elif layer in layers and convention == "minkowski":
            array = array.reshape(-1)
        if tuple(array.shape) != tuple(target.shape):
            wrong.append(f"{found} gives {list(array.shape)}; {list(target.shape)} is needed")
            continue
        result[name] = torch.as_tensor(array).detach().cpu()
    surplus = [f"{name} {list(array.shape)}" for name, array in arrays.items() if name not in used]
    _check_fit(type(module).__name__, missing, surplus, wrong)
    return result


def _layers_of_voxconv(module: Any) -> dict[str, _Layer]:
    import voxconv.torch as vt

    kinds: tuple[tuple[Any, str], ...] = (
        (vt.SubMConv3d, "submanifold"),
        (vt.SparseConv3d, "strided"),
        (vt.SparseInverseConv3d, "inverse"),
        (vt.TransposedConv3d, "transposed"),
    )
    layers = {}
    for name, part in module.named_modules():
        for kind, text in kinds:
            if not isinstance(part, kind):
                continue
            # An inverse layer does not know the stride of its strided layer.
            stride = (1, 1, 1) if text == "submanifold" else getattr(part, "stride", None)
            dilation = getattr(part, "dilation", (1, 1, 1))
            layers[name] = _Layer(part.kernel_size, stride, dilation, text)
    return layers


def _find(convention, arrays, names, layer, leaf, is_conv) -> str | None:
    """The source's name of LAYER.LEAF, or None. Two candidates are an error."""
    dot = "." if layer else ""
    name = f"{layer}{dot}{leaf}"
    if name in names:
        return names[name] if names[name] in arrays else None
    # A name of the longest outer module that is called otherwise.
    prefix = layer
    while prefix and prefix not in names:
        prefix = prefix.rpartition(".")[0]
    theirs = names[prefix] + layer[len(prefix) :] if prefix else layer
    dot = "." if theirs else ""
    if is_conv:
        candidates = [f"{theirs}{dot}{_WEIGHT[convention] if leaf == 'weight' else leaf}"]
    else:
        candidates = [f"{theirs}{dot}{leaf}"]
        candidates += [f"{theirs}{dot}{inner}.{leaf}" for inner in _WRAPPED.get(convention, ())]
    found = [candidate for candidate in candidates if candidate in arrays]
    if len(found) > 1:
        raise ValueError(
            f"'{name}': the source has {_list(found)}; give names={{'{name}': '{found[0]}'}} or another"
        )
    return found[0] if found else None


# Small parts.


def _checked_names(names: Mapping[str, str] | None) -> dict[str, str]:
    for ours, theirs in (names or {}).items():
        if not isinstance(ours, str) or not isinstance(theirs, str):
            raise TypeError(f"names: {ours!r}: {theirs!r}; strings are needed")
    return dict(names or {})


def _check_known(names: dict[str, str], known: set[str], target: str) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"names: {_list(unknown)}: {target} has no such layer or array")


def _check_fit(target: str, missing: list, surplus: list, wrong: list) -> None:
    parts = [
        f"{what} {_list(lines)}"
        for what, lines in (("missing:", missing), ("wrong shape:", wrong), ("left over:", surplus))
        if lines
    ]
    if parts:
        raise ValueError(f"source: does not fit {target}; {'; '.join(parts)}")


def _list(texts: list[str], shown: int = 10) -> str:
    more = f" and {len(texts) - shown} more" if len(texts) > shown else ""
    return ", ".join(f"'{text}'" for text in texts[:shown]) + more


def _triple(name: str, value: Any) -> Triple:
    try:
        values = (value,) * 3 if isinstance(value, numbers.Integral) else tuple(value)
    except TypeError:
        values = ()
    if len(values) == 3 and all(isinstance(v, numbers.Integral) and v > 0 for v in values):
        x, y, z = (int(v) for v in values)
        return x, y, z
    raise ValueError(f"{name}: {value}; a whole number from 1 is needed, or three for x, y, z")
