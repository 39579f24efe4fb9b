# SPDX-License-Identifier: Apache-2.0
"""The layers of a module as a list that the engine makes a network of."""

import operator
from typing import Any

import torch
from torch import fx, nn

from voxconv.torch import modules
from voxconv.torch.norm import SyncBatchNorm
from voxconv.torch.watch import refuse_hooks

_LEAVES = (modules._Conv, modules._Pool, modules.GlobalPool, nn.BatchNorm1d)
_RELUS = (torch.relu, torch.relu_, nn.functional.relu, nn.functional.relu_)
_ADDS = (operator.add, torch.add)
_EPSILON = 1e-5  # networks/graph.h


class _Tracer(fx.Tracer):
    """Layers are leaves; vt.Sequential and a user's modules are looked into."""

    def is_leaf_module(self, m: nn.Module, name: str) -> bool:
        return isinstance(m, _LEAVES) or super().is_leaf_module(m, name)


class Layers:
    """What a module computes.

    records: a dict for each layer, in their order (bindings/traced_network.cc).
    arrays: the parameters and buffers in the order of the network's parameters, as pairs of a tensor's
        name in the module and whether the network has it transposed.
    modules: names of all layers that are modules.
    norms: names of the batch norms.
    gives_rows: whether the module returns features instead of a SparseTensor.
    plugins: the mapping and dataflow of each convolution, by name.
    """

    def __init__(self, module: nn.Module):
        self.records: list[dict[str, Any]] = []
        self.arrays: list[tuple[str, bool]] = []
        self.modules: list[str] = []
        self.norms: list[str] = []
        self.plugins: dict[str, tuple[str | None, str | None]] = {}
        self.gives_rows = False
        self._module = module
        self._names: set[str] = set()
        self._keys: dict[str, int] = {}
        refuse_hooks(module)
        self._trace()
        if not self.plugins:
            raise NotImplementedError(f"{type(module).__name__}: runs no convolution")
        _join_relus(self)

    def same_as(self, other: "Layers") -> bool:
        """Whether both are the same layers with the same settings."""
        private = ("_module", "_names", "_keys")
        mine, theirs = vars(self), vars(other)
        return all(mine[key] == theirs[key] for key in mine if key not in private)

    def _trace(self) -> None:
        try:
            graph = _Tracer().trace(self._module)
        except (fx.proxy.TraceError, TypeError, ValueError) as error:
            raise NotImplementedError(
                f"{type(self._module).__name__}: its forward function cannot be followed: "
                f"{str(error).splitlines()[0]}"
            ) from error
        # By node: the place in `records`, and whether it stands for a SparseTensor.
        values: dict[fx.Node, tuple[int, bool]] = {}
        for node in graph.nodes:
            if node.op == "placeholder":
                if values:
                    raise NotImplementedError(f"input '{node.name}': one input is supported")
                values[node] = (self._add("input", "input", [], channels=self._channels()), True)
            elif node.op == "output":
                self._end(node, values)
            else:
                values[node] = self._value(node, values)

    def _channels(self) -> int:
        for module in self._module.modules():
            if isinstance(module, modules._Conv):
                return module.in_channels
        raise NotImplementedError(f"{type(self._module).__name__}: has no convolution")

    def _end(self, node: fx.Node, values: dict[fx.Node, tuple[int, bool]]) -> None:
        result = node.args[0]
        if not isinstance(result, fx.Node) or result not in values:
            raise NotImplementedError("output: one SparseTensor or its features are supported")
        place, sparse = values[result]
        if place != len(self.records) - 1:
            raise NotImplementedError(
                f"output: layer '{self.records[-1]['name']}' comes after it; remove it"
            )
        self.gives_rows = not sparse

    def _add(self, op: str, name: str, inputs: list[int], **settings: Any) -> int:
        if name in self._names:
            raise NotImplementedError(f"layer '{name}': runs twice; each layer may run once")
        self._names.add(name)
        self.records.append({"op": op, "name": name, "inputs": inputs, **settings})
        return len(self.records) - 1

    def _value(self, node: fx.Node, values: dict[fx.Node, tuple[int, bool]]) -> tuple[int, bool]:
        """The value of a node, of those before it."""
        target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "?")

        def found(argument: Any) -> tuple[int, bool]:
            if isinstance(argument, fx.Node) and argument in values:
                return values[argument]
            raise NotImplementedError(
                f"'{target}': argument {argument} is not supported; SparseTensors and features are"
            )

        name = f"fx.{node.name}"  # no submodule's name
        if node.op == "call_module" and len(node.args) + len(node.kwargs) == 1:
            place, sparse = found([*node.args, *node.kwargs.values()][0])
            module = self._module.get_submodule(str(node.target))
            self.modules.append(str(node.target))
            value = self._layer(str(node.target), module, place), sparse
            if getattr(module, "inplace", False):
                _overwrite(values, place, value[0])
            return value
        if node.op == "call_function" and node.target is getattr and node.args[1] == "features":
            return found(node.args[0])[0], False
        if node.op == "call_method" and node.target == "with_features":
            return found([*node.args[1:], *node.kwargs.values()][0])[0], True
        if node.op == "call_function" and node.target in _ADDS and not _extra(node, 2):
            (a, sparse), (b, _) = found(node.args[0]), found(node.args[1])
            return self._add("add", name, [a, b]), sparse
        if node.target in _RELUS or (node.op == "call_method" and node.target in ("relu", "relu_")):
            place, sparse = found(node.args[0] if node.args else node.kwargs["input"])
            value = self._add("relu", name, [place]), sparse
            if target.endswith("_") or node.kwargs.get("inplace", True in node.args):
                _overwrite(values, place, value[0])
            return value
        if node.op == "call_function" and node.target in (torch.cat, torch.concat):
            dim = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else 0)
            parts = node.args[0] if node.args else node.kwargs["tensors"]
            if dim in (1, -1) and "out" not in node.kwargs:
                return self._concat(node, [found(part)[0] for part in parts]), False
        raise NotImplementedError(
            f"'{target}': is not supported; allowed are layers of voxconv.torch, BatchNorm1d, ReLU, "
            "Linear, Dropout, sums, and concatenations of channels"
        )

    def _concat(self, node: fx.Node, parts: list[int]) -> int:
        place = parts[0]
        for k, other in enumerate(parts[1:]):
            place = self._add("concat", f"fx.{node.name}.{k}", [place, other])
        return place

    def _layer(self, name: str, module: nn.Module, x: int) -> int:
        if hasattr(module, "parametrizations"):
            raise NotImplementedError(f"layer '{name}': parametrizations are not supported")
        if not type(module).forward.__module__.startswith(("torch.", "voxconv.torch.")):
            raise NotImplementedError(
                f"layer '{name}': {type(module).__name__} has a forward function of its own"
            )
        if isinstance(module, modules._Conv):
            return self._conv(name, module, x)
        if isinstance(module, SyncBatchNorm):
            raise NotImplementedError(f"layer '{name}': SyncBatchNorm is not supported")
        if isinstance(module, nn.BatchNorm1d):
            return self._norm(name, module, x)
        if isinstance(module, nn.Linear):
            if module.bias is None:
                raise NotImplementedError(f"layer '{name}': a Linear without bias is not supported")
            self.arrays += [(f"{name}.weight", True), (f"{name}.bias", False)]
            return self._add("linear", name, [x], channels=module.out_features)
        if isinstance(module, nn.ReLU):
            return self._add("relu", name, [x])
        if isinstance(module, nn.Dropout):
            return self._add("dropout", name, [x], rate=module.p) if module.p > 0 else x
        if isinstance(module, nn.Identity):
            return x
        if isinstance(module, modules._Pool) and any(module.padding):
            raise NotImplementedError(f"layer '{name}': padding of a pooling is not supported")
        if isinstance(module, modules._Pool) and module.convention == "voxconv":
            return self._add(
                "pool", name, [x], mode=module.mode, kernel=module.kernel_size,
                stride=module.stride, rule=module.rule,
            )
        raise NotImplementedError(f"layer '{name}': {type(module).__name__} is not supported")

    def _conv(self, name: str, module: Any, x: int) -> int:
        settings = {"channels": module.out_channels, "bias": module.bias is not None}
        mapping = module.mapping
        if isinstance(module, modules.SparseInverseConv3d):
            if module.key not in self._keys:
                raise NotImplementedError(
                    f"layer '{name}': key '{module.key}' names no SparseConv3d before it"
                )
            strided = self.records[self._keys[module.key]]
            if strided["kernel"] != module.kernel_size:
                raise NotImplementedError(
                    f"layer '{name}': kernel_size {module.kernel_size}; the layer "
                    f"'{strided['name']}' has {strided['kernel']}"
                )
            mapping = self.plugins[strided["name"]][0]
            settings |= {"kind": "inverse", "counterpart": self._keys[module.key]}
        else:
            settings |= module._geometry()
        self.arrays.append((f"{name}.weight", False))
        if module.bias is not None:
            self.arrays.append((f"{name}.bias", False))
        place = self._add("conv", name, [x], **settings)
        if isinstance(module, modules.SparseConv3d) and module.key is not None:
            self._keys[module.key] = place
        self.plugins[name] = (mapping, module.dataflow)
        self.records[place]["c_in"] = module.in_channels
        return place

    def _norm(self, name: str, module: nn.BatchNorm1d, x: int) -> int:
        if module.eps != _EPSILON:
            raise NotImplementedError(f"layer '{name}': eps {module.eps}; {_EPSILON} is supported")
        if not module.affine or not module.track_running_stats or module.momentum is None:
            raise NotImplementedError(
                f"layer '{name}': affine=True, track_running_stats=True and a momentum are needed"
            )
        self.norms.append(name)
        self.arrays += [
            (f"{name}.{array}", False) for array in ("weight", "bias", "running_mean", "running_var")
        ]
        return self._add("batch_norm", name, [x])


def _overwrite(values: dict[fx.Node, tuple[int, bool]], place: int, result: int) -> None:
    """After an operation in place, what reads its input later reads the result, by whatever name."""
    for node, (other, sparse) in values.items():
        if other == place:
            values[node] = result, sparse


def _extra(node: fx.Node, arguments: int) -> bool:
    return len(node.args) > arguments or bool(node.kwargs)


def _join_relus(layers: Layers) -> None:
    """A ReLU that alone reads a batch norm, sum or linear layer becomes a part of it."""
    records = layers.records
    readers = [0] * len(records)
    for record in records:
        for place in record["inputs"]:
            readers[place] += 1
    # By old place: the new one.
    moved: list[int] = []
    kept: list[dict[str, Any]] = []
    for place, record in enumerate(records):
        inputs = [moved[i] for i in record["inputs"]]
        before = records[record["inputs"][0]] if record["inputs"] else None
        if (
            record["op"] == "relu"
            and before is not None
            and before["op"] in ("batch_norm", "add", "linear")
            and readers[record["inputs"][0]] == 1
        ):
            kept[inputs[0]]["relu"] = True
            moved.append(inputs[0])
            continue
        made = {**record, "inputs": inputs}
        if "counterpart" in record:
            made["counterpart"] = moved[record["counterpart"]]
        moved.append(len(kept))
        kept.append(made)
    layers.records = kept
