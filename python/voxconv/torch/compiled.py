# SPDX-License-Identifier: Apache-2.0
"""A module's layers as one call of the engine, which runs them as voxconv.networks are run."""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from voxconv._voxconv import Network, _default_plugins, _replacements, _TrainedNetwork

from voxconv.torch import ops
from voxconv.torch.tensor import SparseTensor, Voxels
from voxconv.torch.trace import Layers
from voxconv.torch.watch import Watch

_PRECISIONS = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}

# What a copy makes anew.
_MADE = (
    "_layers", "_network", "_versions", "_training", "_slots", "_norms", "_watch", "_modes", "_plans"
)


class Compiled(nn.Module):
    """What voxconv.torch.compile returns. `module` is the module that was given to it."""

    takes_sparse = True

    def __init__(self, module: nn.Module, fold_batch_norm: bool):
        super().__init__()
        self.module, self.fold_batch_norm = module, fold_batch_norm
        self._layers = Layers(module)
        # What is checked without an input: the layers fit together.
        self._network = Network._of_layers(type(module).__name__, self._layers.records)
        self._forget()

    def _forget(self) -> None:
        """Drops what is made when it is needed first."""
        self._versions: list[tuple[int, int]] | None = None  # of the arrays in _network
        self._training: dict[str, _Training] = {}  # by precision
        # Of each array: the dict of its module and its name there.
        self._slots = []
        for name, _ in self._layers.arrays:
            path, _, last = name.rpartition(".")
            owner = self.module.get_submodule(path)
            self._slots.append((owner._parameters if last in owner._parameters else owner._buffers, last))
        self._norms = [self.module.get_submodule(name) for name in self._layers.norms]
        self._watch = Watch(self.module, self._layers.modules)
        self._modes = {self.module.training}  # in which the forward function was followed
        self._plans: dict[bool, dict[str, Any]] = {}  # by whether it is CUDA's

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in _MADE:
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._layers = Layers(self.module)
        self._network = Network._of_layers(type(self.module).__name__, self._layers.records)
        self._forget()

    def train(self, mode: bool = True) -> "Compiled":
        """As torch.nn.Module.train. The next evaluation reads all weights: PyTorch does not count changes
        by Parameter.data."""
        self._versions = None
        return super().train(mode)

    def _arrays(self) -> list[torch.Tensor]:
        return [owner[name] for owner, name in self._slots]

    def _first(self) -> torch.Tensor:
        owner, name = self._slots[0]
        return owner[name]

    @ops.outside_of_graphs
    def forward(self, x: SparseTensor) -> SparseTensor | torch.Tensor:
        if not isinstance(x, SparseTensor):
            raise TypeError(f"compile: {type(x).__name__}; a SparseTensor is needed")
        if x.features.requires_grad and torch.is_grad_enabled():
            raise NotImplementedError(
                "features: require a gradient, which a compiled network does not pass on; run its "
                "`module`"
            )
        self._check_module()
        dtype = self._dtype(x)
        features = x.features if x.features.is_cuda else x.features.float()
        given = x.voxels.handle.with_features(features.detach().contiguous())
        if self.module.training:
            y, features = self._train(given, dtype)
        else:
            self._upload()
            y = self._network(given, **self._settings(dtype))
            features = y.features
        if features.dtype != dtype:
            features = features.to(dtype)
        if self._layers.gives_rows:
            return features
        return x.on(x.voxels if y._shares_voxels(given) else Voxels(y), features)

    def _check_module(self) -> None:
        self._watch.check()
        if self._watch.modes_differ():
            raise NotImplementedError(
                "compile: some batch norms or dropouts are in training and others in evaluation; run the "
                "`module`"
            )
        if self.module.training not in self._modes:
            if not Layers(self.module).same_as(self._layers):
                raise NotImplementedError(
                    f"{type(self.module).__name__}: its forward function runs other layers in training "
                    "than in evaluation; compile it for each"
                )
            self._modes.add(self.module.training)

    def _dtype(self, x: SparseTensor) -> torch.dtype:
        """Of the result, as the module's layers would give it."""
        dtype = ops.autocast_dtype(x.features.is_cuda)
        weights = self._first()
        if dtype is None:
            dtype = x.features.dtype
            if dtype != weights.dtype:
                raise ValueError(
                    f"features: {dtype}; the weights are {weights.dtype}, and both must be the same"
                )
        if dtype not in _PRECISIONS:
            raise NotImplementedError(f"features: {dtype}; allowed are float32, float16, bfloat16")
        if weights.device != x.device:
            raise ValueError(f"features: on {x.device}; the weights are on {weights.device}")
        return dtype

    def _settings(self, dtype: torch.dtype) -> dict[str, Any]:
        cuda = self._first().is_cuda
        precision = _PRECISIONS[dtype] if cuda else "f32"
        settings = {"precision": precision, "fold_batch_norm": self.fold_batch_norm}
        return settings | self._plan(cuda)

    def _plan(self, cuda: bool) -> dict[str, Any]:
        """The plugins of the layers, as arguments of Network."""
        if cuda not in self._plans:
            self._plans[cuda] = self._make_plan(cuda)
        return self._plans[cuda]

    def _make_plan(self, cuda: bool) -> dict[str, Any]:
        """One choice where all are alike, which costs the host less."""
        mapping, dataflow, output_coords = _default_plugins(cuda)
        chosen = {
            name: (m or mapping, d or dataflow) for name, (m, d) in self._layers.plugins.items()
        }
        if len(set(chosen.values())) == 1:
            mapping, dataflow = next(iter(chosen.values()))
            return {"mapping": mapping, "dataflow": dataflow, "output_coords": output_coords}
        plan = []
        for record in self._layers.records:
            if record["op"] == "conv":
                mapping, dataflow = chosen[record["name"]]
                plan.append({
                    "layer": record["name"], "c_in": record["c_in"], "c_out": record["channels"],
                    "mapping": mapping, "dataflow": dataflow, "output_coords": output_coords,
                })
        return {"plan": plan}

    def _upload(self) -> None:
        """Gives the engine the weights, if they are others than before."""
        arrays = self._arrays()
        try:
            versions = [(array._version, array.data_ptr()) for array in arrays]
        except RuntimeError:  # arrays of inference_mode have no version
            versions = None
        if versions is not None and versions == self._versions:
            return
        names = list(self._network.parameter_shapes)
        values = {}
        for name, array, (_, transposed) in zip(names, arrays, self._layers.arrays):
            host = array.detach().float().cpu()
            values[name] = (host.t() if transposed else host).contiguous().numpy()
        self._network.load(values)
        self._versions = versions

    def _train(self, given: Any, dtype: torch.dtype) -> tuple[Any, torch.Tensor]:
        momenta = {norm.momentum for norm in self._norms}
        if len(momenta) > 1:
            raise NotImplementedError(f"momentum: {sorted(momenta)}; one for all batch norms is needed")
        arrays = self._arrays()
        precision = _PRECISIONS[dtype] if arrays[0].is_cuda else "f32"
        training = self._training.get(precision)
        if training is None or not training.serves(given):
            plan = self._plan(arrays[0].is_cuda)
            made = _Training(self._network, self._layers, given, plan, precision, arrays)
            if training is not None:
                made.steps = training.steps  # which the next dropouts follow from
            training = self._training[precision] = made
        results: list[Any] = []
        momentum = momenta.pop() if momenta else 0.0
        features = _Step.apply(training, given, momentum, results, *arrays)
        tracked = [norm.num_batches_tracked for norm in self._norms]
        if tracked:
            torch._foreach_add_(tracked, 1)
        return results[0], features


def _copy_all(to: list[torch.Tensor], values: list[torch.Tensor]) -> None:
    """One launch for all of them from PyTorch 2.1 on."""
    if hasattr(torch, "_foreach_copy_"):
        torch._foreach_copy_(to, values)
        return
    for target, value in zip(to, values):
        target.copy_(value)


class _Training:
    """The engine's copy of the parameters, on one device and stream."""

    def __init__(self, network, layers, given, plan, precision, arrays):
        records = plan.get("plan")
        if records is None:
            records = [
                {"layer": r["name"], "c_in": r["c_in"], "c_out": r["channels"], **plan}
                for r in layers.records if r["op"] == "conv"
            ]
        self.network = _TrainedNetwork(network, given, records, precision)
        self.steps = 0
        self.replacements = _replacements()
        self.places: list[int] = self.network.places()
        self.transposed = [transposed for _, transposed in layers.arrays]
        self.values = [
            torch.from_dlpack(value) if not isinstance(value, torch.Tensor) else value
            for value in self.network.values(arrays[0])
        ]
        # The gradients lie in one array, with gaps.
        self.trained = sorted((i for i, p in enumerate(self.places) if p >= 0), key=self.places.__getitem__)

    def serves(self, given: Any) -> bool:
        return self.replacements == _replacements() and self.network.serves(given)

    def read(self, arrays: list[torch.Tensor]) -> None:
        """The module's values become the engine's."""
        plain = [i for i, transposed in enumerate(self.transposed) if not transposed]
        _copy_all([self.values[i] for i in plain], [arrays[i].detach() for i in plain])
        for i, transposed in enumerate(self.transposed):
            if transposed:
                self.values[i].copy_(arrays[i].detach().t())

    def write_statistics(self, arrays: list[torch.Tensor]) -> None:
        """The engine's running statistics become the module's."""
        buffers = [i for i, place in enumerate(self.places) if place < 0]
        if buffers:
            _copy_all([arrays[i] for i in buffers], [self.values[i] for i in buffers])

    def split(self, flat: torch.Tensor, needed: list[bool]) -> list[torch.Tensor | None]:
        """The gradients by parameter; None for those that are not needed."""
        sizes = []
        for i, after in zip(self.trained, [*self.trained[1:], None]):
            end = flat.numel() if after is None else self.places[after]
            sizes.append(end - self.places[i])
        gradients: list[torch.Tensor | None] = [None] * len(self.places)
        for i, part in zip(self.trained, flat.view(-1).split(sizes)):
            if needed[i]:
                value = self.values[i]
                shaped = part[: value.numel()].view(value.shape)
                gradients[i] = shaped.t() if self.transposed[i] else shaped
        return gradients


class _Step(torch.autograd.Function):
    """Forward and backward of a training step. `results` receives the voxels of the output."""

    @staticmethod
    def forward(ctx, training, given, momentum, results, *arrays):  # type: ignore[override]
        training.read(list(arrays))
        step = training.network.forward(
            given, momentum, torch.initial_seed() & (2**63 - 1), training.steps
        )
        training.steps += 1
        training.write_statistics(list(arrays))
        y = step.output()
        results.append(y)
        ctx.training, ctx.step = training, step
        # A parameter that is changed before the backward pass is an error, as elsewhere in PyTorch.
        ctx.save_for_backward(*(a for a in arrays if a.requires_grad))
        ctx.dtypes = [a.dtype for a in arrays]
        return y.features

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):  # type: ignore[override]
        _ = ctx.saved_tensors
        step, ctx.step = ctx.step, None
        if step is None:
            raise RuntimeError("compile: the backward pass of this step has run already")
        flat = step.backward(gradient.contiguous())
        parts = ctx.training.split(flat, list(ctx.needs_input_grad[4:]))
        grads = [p if p is None or p.dtype == t else p.to(t) for p, t in zip(parts, ctx.dtypes)]
        return None, None, None, None, *grads


def compile(module: nn.Module, fold_batch_norm: bool = True) -> Compiled:
    """Makes one call of the engine of a module's layers, which costs the host far less than a call a layer.

    The engine runs them as it runs voxconv.networks: it builds kernel maps beside the layers, joins
    batch norms, sums and ReLUs with the convolutions before them in evaluation, and computes all
    gradients of a training step in one call.

    Args:
        module: takes one SparseTensor of stride 1 and gives a SparseTensor or features. Its layers may be
            convolutions of voxconv.torch, its pooling layers but GlobalPool, BatchNorm, and PyTorch's
            BatchNorm1d, ReLU, Linear, Dropout and Identity; sums, torch.cat of channels, and the
            functions of voxconv.torch between them. torch.fx follows its forward function, once: what
            depends on values of tensors is refused. Each layer may run once. Batch norms have eps 1e-5.
        fold_batch_norm: whether evaluation multiplies batch norms into the weights.

    Returns:
        A module of the same result. Layers that are replaced later, such as by convert_sync_batchnorm, are
        refused when it is called. Its parameters are the module's own, whose values it reads at each
        call. In training (module.train()), parameters get gradients, and features must not need one. In
        evaluation the result has no gradient; the first call and calls after a change of weights copy
        them through the host, which waits for the device. A change by Parameter.data is seen after the
        next eval() or train() of the result; weights made under inference_mode are copied at each call. autocast chooses the precision. The
        plugins are the layers'; where a layer names none, those of defaults.json for the device. Kernel
        maps are made anew in each call, for which the host waits on CUDA where it must learn a size.

    Raises:
        NotImplementedError: a layer or function is not supported; the message names it.
        ValueError: layers do not fit together.
        TypeError: it is no module.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module: {type(module).__name__}; a torch.nn.Module is needed")
    return Compiled(module, fold_batch_norm)
