# SPDX-License-Identifier: Apache-2.0
"""vt.compile: a compiled module computes what the module computes, and refuses what it cannot."""

import copy
import pickle

import numpy as np
import pytest
import torch
import voxconv
import voxconv.torch as vt
from test_torch import scene, unet
from torch import nn


def randomise(module):
    """Other running statistics and affine parameters than those of a new network."""
    generator = torch.Generator().manual_seed(5)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d):
            for array in (part.weight, part.bias, part.running_mean, part.running_var):
                array.data.copy_(torch.rand(array.shape, generator=generator) + 0.5)
    return module


def close(a, b, bound=2e-6):
    a, b = a.detach().double(), b.detach().double()
    assert float((a - b).norm() / b.norm().clamp(min=1e-30)) < bound


class Deep(nn.Module):
    """All kinds of layers and of what may stand between them."""

    def __init__(self):
        super().__init__()
        self.stem = vt.Sequential(
            vt.SubMConv3d(5, 8, 3, bias=False), vt.BatchNorm(8), nn.ReLU(inplace=True)
        )
        self.wide = vt.SubMConv3d(8, 8, (1, 3, 1), dilation=2)
        self.down = vt.SparseConv3d(8, 12, 3, stride=2, padding=1, rule="dilate", key="down")
        self.pool = vt.AvgPool3d(2, 2)
        self.norm = nn.BatchNorm1d(12)
        self.up = vt.SparseInverseConv3d(12, 8, 3, key="down")
        self.same = nn.Identity()
        self.head = nn.Linear(24, 4)

    def forward(self, x):
        skip = self.stem(x)
        wide = vt.relu(skip + self.wide(skip))
        y = self.down(wide)
        y = y.with_features(torch.relu(self.norm(y.features)) + y.features)
        y = self.same(self.up(y))
        y = vt.cat([y, skip, vt.add(wide, skip)])
        return self.head(y.features)


class Pooled(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.conv, self.layer = vt.SubMConv3d(5, 6, 3), layer

    def forward(self, x):
        return self.layer(self.conv(x))


@pytest.mark.parametrize("make", [unet, Deep, lambda: vt.models.MinkUNet42(5, 3, width=0.25)])
@pytest.mark.parametrize("fold", [True, False])
def test_evaluation_equals_the_modules(make, fold):
    module = randomise(make()).eval()
    compiled = vt.compile(module, fold_batch_norm=fold)
    x = scene()
    y, expected = compiled(x), module(x)
    if isinstance(expected, torch.Tensor):
        close(y, expected)
    else:
        close(y.features, expected.features)
        assert y.voxels is x.voxels and y.stride == expected.stride
    other = scene(n=90)  # other voxels
    same = lambda value: value if isinstance(value, torch.Tensor) else value.features  # noqa: E731
    close(same(compiled(other)), same(module(other)))


@pytest.mark.parametrize(
    "layer",
    [vt.MaxPool3d(), vt.SumPool3d(3, 2), vt.AvgPool3d(), vt.SparseConv3d(6, 4, 2)],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_with_other_outputs(layer):
    module, x = Pooled(layer).eval(), scene()
    y, expected = vt.compile(module)(x), module(x)
    assert torch.equal(y.coords, expected.coords) and y.stride == expected.stride
    close(y.features, expected.features)


def test_weights_are_read_at_each_call():
    module = randomise(unet()).eval()
    compiled, x = vt.compile(module), scene()
    before = compiled(x).features
    with torch.no_grad():
        module.head[0].weight.mul_(2)
    close(compiled(x).features, module(x).features)
    assert not torch.equal(compiled(x).features, before)
    module.load_state_dict(randomise(unet()).state_dict())
    close(compiled(x).features, module(x).features)
    module.stem[1].running_mean.data = module.stem[1].running_mean.data + 1
    close(compiled(x).features, module(x).features)


@pytest.mark.parametrize("make", [unet, Deep])
def test_training_equals_the_modules(make):
    module = randomise(make()).train()
    exact, compiled = copy.deepcopy(module).double(), vt.compile(module)
    features = lambda value: value if isinstance(value, torch.Tensor) else value.features  # noqa: E731
    for step in range(2):
        x = scene(n=200 - step)
        x64 = vt.SparseTensor(x.coords, x.features.double())
        y, y64 = features(compiled(x)), features(exact(x64))
        close(y, y64, 1e-5)
        dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(step))
        y.backward(dy)
        y64.backward(dy.double())
        # Gradients of both steps add up.
        for (name, p), q in zip(module.named_parameters(), exact.parameters()):
            assert p.grad.shape == p.shape
            if float(q.grad.norm()) > 1e-9:  # a bias before a batch norm has none
                close(p.grad, q.grad, 1e-4)
        for p, q in zip(module.buffers(), exact.buffers()):
            close(p, q, 1e-5)


def test_frozen_parameters_get_no_gradient():
    module = unet()
    module.stem[0].weight.requires_grad_(False)
    vt.compile(module)(scene()).features.sum().backward()
    assert module.stem[0].weight.grad is None
    assert module.head[0].weight.grad is not None


def test_a_step_runs_backward_once_and_with_its_own_weights():
    module = unet()
    compiled, x = vt.compile(module), scene()
    y = compiled(x).features
    y.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="has run already"):
        y.sum().backward()
    y = compiled(x).features
    with torch.no_grad():
        module.head[0].weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_two_steps_at_once():
    module = unet()
    compiled, single = vt.compile(module), copy.deepcopy(module)
    a, b = scene(), scene(n=150)
    ya, yb = compiled(a).features, compiled(b).features
    (ya.sum() + 2 * yb.sum()).backward()
    (single(a).features.sum() + 2 * single(b).features.sum()).backward()
    for p, q in zip(module.parameters(), single.parameters()):
        if float(q.grad.norm()) > 1e-3:
            close(p.grad, q.grad, 1e-4)


def test_optimisers_copies_and_pickling():
    module = unet()
    compiled, x = vt.compile(module), scene()
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = compiled(x).features.square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    compiled.eval()
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled.state_dict()))):
        if isinstance(other, dict):
            again = vt.compile(unet())
            again.load_state_dict(other)
            other = again.eval()
        close(other(x).features, compiled(x).features)
        assert other.module is not compiled.module


def test_weights_that_are_changed_are_read_again():
    module, x = unet().eval(), scene()
    compiled = vt.compile(module)
    with torch.no_grad():
        before = compiled(x).features
        module.head[0].weight.mul_(2)
        assert not torch.equal(compiled(x).features, before)
        close(compiled(x).features, module(x).features)
        module.head[0].weight.data.mul_(2)  # which PyTorch does not count
        close(compiled.eval()(x).features, module(x).features)


def test_dropout_is_that_of_the_rate():
    module = vt.Sequential(vt.SubMConv3d(5, 64, 3), nn.Dropout(0.25))
    compiled, x = vt.compile(module), scene()
    y = compiled(x).features
    zeros = float((y == 0).float().mean())
    assert 0.2 < zeros < 0.3
    assert not torch.equal(y, compiled(x).features)  # another step
    compiled.eval()
    close(compiled(x).features, module(x).features)


def test_the_plugins_are_the_layers():
    network = vt.Sequential(
        vt.SubMConv3d(5, 6, 3, mapping="sorted_search", dataflow="gather_gemm_scatter"),
        vt.SubMConv3d(6, 6, 3, dataflow="direct"),
        vt.SubMConv3d(6, 4, 3),
    ).eval()
    compiled = vt.compile(network)
    choices = [(r["mapping"], r["dataflow"]) for r in compiled._plan(False)["plan"]]
    assert choices[0] == ("sorted_search", "gather_gemm_scatter")
    assert choices[1][1] == "direct"
    assert choices[2][1] == voxconv._voxconv._default_plugins(False)[1]
    close(compiled(scene()).features, network(scene()).features)


def test_a_network_of_voxconv_gives_its_weights():
    network = voxconv.networks.minkunet42(width=0.25).initialize(3)
    x = voxconv.load("scene:sphere?n=500", channels=4)
    module = vt.models.MinkUNet42(width=0.25).load_network(network).eval()
    y = module(vt.SparseTensor(torch.tensor(np.array(x.coords)), torch.tensor(x.features)))
    close(y.features, torch.tensor(network(x).features))
    shapes = dict(network.parameter_shapes)
    assert sum(p.numel() for p in module.parameters()) + sum(
        b.numel() for b in module.buffers() if b.dim()
    ) == sum(int(np.prod(shape)) for shape in shapes.values())
    weights = network.state_dict()
    for change, message in [
        ({"head.bias": None}, "'head.bias' is missing"),
        ({"surplus": np.zeros(3, np.float32)}, "'surplus' is no parameter"),
        ({"head.bias": np.zeros(3, np.float32)}, r"'head.bias': shape \[3\]; \[19\] is needed"),
    ]:
        changed = {k: v for k, v in {**weights, **change}.items() if v is not None}
        with pytest.raises(ValueError, match=message):
            module.load_network(changed)
    for bad, message in [({"width": 0.3}, "width: 0.3"), ({"classes": -1}, "classes: -1")]:
        with pytest.raises(ValueError, match=message):
            vt.models.MinkUNet42(**bad)


class Doubled(vt.BatchNorm):
    def forward(self, x):
        return 2 * super().forward(x)


def conv(*more):
    return vt.Sequential(vt.SubMConv3d(5, 6, 3), *more)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = vt.SubMConv3d(5, 5, 3)

    def forward(self, x):
        return self.layer(self.layer(x))


class ByValue(Twice):
    def forward(self, x):
        return self.layer(x) if x.features.sum() > 0 else x


class Strange(Twice):
    def forward(self, x):
        return x.with_features(torch.sigmoid(self.layer(x).features))


class PlusOne(Twice):
    def forward(self, x):
        return self.layer(x).features + 1


class Unused(Twice):
    def forward(self, x):
        return x


def hooked():
    layer = vt.SubMConv3d(5, 6, 3)
    layer.register_forward_hook(lambda module, given, result: result)
    return vt.Sequential(layer)


def parametrized():
    layer = vt.SubMConv3d(5, 6, 3)
    nn.utils.parametrize.register_parametrization(layer, "weight", nn.Identity())
    return vt.Sequential(layer)


class Overwritten(Twice):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.relu = kind, nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.layer(x)
        rows = y.features
        if self.kind == "module":
            self.relu(rows)
        elif self.kind == "argument":
            torch.nn.functional.relu(rows, True)
        elif self.kind == "keyword":
            torch.nn.functional.relu(rows, inplace=True)
        else:
            torch.relu_(rows)
        return y + x


@pytest.mark.parametrize("kind", ["module", "argument", "keyword", "function"])
def test_what_is_overwritten_is_so_by_all_its_names(kind):
    module, x = Overwritten(kind).eval(), scene()
    with torch.no_grad():
        close(vt.compile(module)(x).features, module(x).features)


@pytest.mark.parametrize(
    "module, message",
    [
        (PlusOne(), "'add': argument 1 is not supported"),
        (Unused(), "Unused: runs no convolution"),
        (hooked(), "layer '0': hooks"),
        (parametrized(), "layer '0': parametrizations"),
        (Twice(), "layer 'layer': runs twice"),
        (ByValue(), "ByValue: its forward function cannot be followed"),
        (Strange(), "'sigmoid': is not supported"),
        (conv(nn.BatchNorm1d(6, eps=1e-3)), "layer '1': eps 0.001"),
        (conv(nn.BatchNorm1d(6, affine=False)), "layer '1': affine=True"),
        (conv(vt.SyncBatchNorm(6)), "layer '1': SyncBatchNorm"),
        (conv(nn.Linear(6, 3, bias=False)), "layer '1': a Linear without bias"),
        (conv(nn.SyncBatchNorm(6)), "layer '1': SyncBatchNorm"),
        (conv(Doubled(6)), "layer '1': Doubled has a forward function of its own"),
        (conv(nn.GELU()), "layer '1': GELU is not supported"),
        (conv(vt.GlobalPool()), "layer '1': GlobalPool is not supported"),
        (conv(vt.MaxPool3d(convention="spconv")), "layer '1': MaxPool3d is not supported"),
        (conv(vt.SparseInverseConv3d(6, 3, key="x")), "layer '1': key 'x' names no SparseConv3d"),
        (nn.ReLU(), "ReLU: has no convolution"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(module, message):
    with pytest.raises(NotImplementedError, match=message):
        vt.compile(module)


@pytest.mark.parametrize("convert", [vt.convert_sync_batchnorm, nn.SyncBatchNorm.convert_sync_batchnorm])
def test_a_layer_that_is_replaced_later_is_refused(convert):
    compiled, x = vt.compile(conv(nn.BatchNorm1d(6))), scene()
    compiled(x)
    converted = convert(compiled)
    for run in (converted, converted.eval()):
        with pytest.raises(NotImplementedError, match="layer '1' is another .*, a SyncBatchNorm; compile"):
            run(x)
    with pytest.raises(NotImplementedError, match="layer '1': SyncBatchNorm"):
        copy.deepcopy(converted)


class Wrong(Twice):
    def __init__(self):
        super().__init__()
        self.other = vt.SubMConv3d(5, 6, 3)

    def forward(self, x):
        return self.other(x) + self.layer(x)


def test_layers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="adds .* with 6 channels and .* with 5"):
        vt.compile(Wrong())
    with pytest.raises(ValueError, match="must divide the input's tensor stride 1"):
        vt.compile(Pooled(vt.TransposedConv3d(6, 4, 2, stride=2)))


def test_bad_inputs_are_refused():
    module = unet()
    compiled, x = vt.compile(module), scene()
    with pytest.raises(TypeError, match="compile: Tensor; a SparseTensor"):
        compiled(x.features)
    with pytest.raises(NotImplementedError, match="features: require a gradient"):
        compiled(scene(grad=True))
    with pytest.raises(ValueError, match="features: torch.float64; the weights are torch.float32"):
        compiled(scene(dtype=torch.float64))
    with pytest.raises(ValueError, match="features: shape"):
        compiled(x.with_features(torch.ones(len(x), 3)))
    with pytest.raises(ValueError, match="tensor stride"):
        compiled(scene(stride=2))
    empty = vt.SparseTensor(torch.zeros((0, 4), dtype=torch.int32), torch.zeros((0, 5)))
    with pytest.raises(ValueError, match="0 voxels"):
        compiled(empty)
    module.stem[1].eval()
    with pytest.raises(NotImplementedError, match="some batch norms or dropouts are in training"):
        compiled(x)
    module.train()
    two = vt.Sequential(
        vt.SubMConv3d(5, 6, 3), vt.BatchNorm(6), vt.SubMConv3d(6, 6, 3), nn.BatchNorm1d(6, momentum=0.3)
    )
    with pytest.raises(NotImplementedError, match="momentum"):
        vt.compile(two)(x)


def test_autocast_chooses_the_dtype():
    module = unet().eval()
    compiled, x = vt.compile(module), scene()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = compiled(x).features
    assert y.dtype == torch.bfloat16
    close(y, module(x).features, 1e-2)
