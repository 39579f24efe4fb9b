# SPDX-License-Identifier: Apache-2.0
"""A compiled module whose module changes afterwards: it follows the change, or refuses it."""

import pytest
import torch
import voxconv
import voxconv.torch as vt
from test_torch import scene
from torch import nn


def network():
    torch.manual_seed(0)
    inner = vt.Sequential(vt.SubMConv3d(6, 6, 3), vt.BatchNorm(6))
    return vt.Sequential(vt.SubMConv3d(5, 6, 3), nn.ReLU(), nn.Dropout(0.5), inner, vt.MaxPool3d())


def replace_a_layer(module):
    module[0] = vt.SubMConv3d(5, 6, 3).eval()


def replace_a_container(module):
    module[3] = network()[3].eval()


def add_a_layer(module):
    module.append(nn.ReLU())


def remove_a_layer(module):
    del module[4]


def hook(module):
    module[1].register_forward_hook(lambda part, given, result: result)


def hook_a_container(module):
    module[3].register_forward_pre_hook(lambda part, given: None)


def hook_all(module):
    module.register_forward_hook(lambda part, given, result: None)


def set_dataflow(module):
    module[0].dataflow = "direct"


def set_mapping(module):
    module[3][0].mapping = "sorted_search"


def set_stride(module):
    module[4].stride = (3, 3, 3)


def set_eps(module):
    module[3][1].eps = 1e-3


def set_rate(module):
    module[2].p = 0.25


def normalise(module):
    nn.utils.parametrizations.spectral_norm(module[0])


@pytest.mark.parametrize(
    "change, message",
    [
        (replace_a_layer, "layer '0' is another module than before, a SubMConv3d; compile"),
        (replace_a_container, "layer '3' is another module than before, a Sequential; compile"),
        (add_a_layer, "layer '5' is another module than before, a ReLU"),
        (remove_a_layer, "layer '4' is another module than before, a NoneType"),
        (hook, "layer '1': hooks are not supported"),
        (hook_a_container, "layer '3': hooks are not supported"),
        (hook_all, "Sequential: hooks are not supported"),
        (set_dataflow, "layer '0': dataflow is 'direct' and was None; compile the module anew"),
        (set_mapping, "layer '3.0': mapping is 'sorted_search' and was 'hash'"),
        (set_stride, r"layer '4': stride is \(3, 3, 3\) and was \(2, 2, 2\)"),
        (set_eps, "layer '3.1': eps is 0.001 and was 1e-05"),
        (set_rate, "layer '2': p is 0.25 and was 0.5"),
        (normalise, "layer '0.parametrizations' is another module than before"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_changes_are_refused(change, message):
    module = network().eval()
    compiled, x = vt.compile(module), scene()
    compiled(x)
    vt.SubMConv3d(5, 6, 3).dataflow = "direct"  # of another module
    compiled(x)
    change(module)
    with pytest.raises(NotImplementedError, match=message) as caught:
        compiled(x)
    assert "\n" not in str(caught.value)
    if "hooks" in message:
        with pytest.raises(NotImplementedError, match=message):
            vt.compile(module)


def test_dropouts_have_the_modules_mode():
    module = network()
    compiled, x = vt.compile(module), scene()
    compiled(x)
    module[2].eval()
    with pytest.raises(NotImplementedError, match="batch norms or dropouts are in training"):
        compiled(x)
    compiled.eval()
    assert torch.allclose(compiled(x).features, module(x).features, atol=1e-5)


def test_whole_parameters_may_change():
    module = network().eval()
    compiled, x = vt.compile(module), scene()
    before = compiled(x).features
    module[0].weight = nn.Parameter(2 * module[0].weight.detach())
    after = compiled(x).features
    assert torch.allclose(after, module(x).features, atol=1e-5)
    assert not torch.allclose(after, before, atol=1e-3)


class ByMode(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = vt.SubMConv3d(5, 6, 3), vt.SubMConv3d(6, 6, 3)

    def forward(self, x):
        y = self.a(x)
        return self.b(y) if self.training else y


@pytest.mark.parametrize("first", [True, False])
def test_a_forward_function_that_follows_the_mode(first):
    module, x = ByMode().train(first), scene()
    compiled = vt.compile(module)
    assert torch.allclose(compiled(x).features, module(x).features, atol=1e-5)
    compiled.train(not first)
    with pytest.raises(NotImplementedError, match="ByMode: its forward function runs other layers in"):
        compiled(x)
    assert torch.allclose(vt.compile(module)(x).features, module(x).features, atol=1e-5)


def test_modules_of_inference_mode_run():
    with torch.inference_mode():
        module = network().eval()
        compiled, x = vt.compile(module), scene()
        assert torch.allclose(compiled(x).features, module(x).features, atol=1e-5)
        module[0].weight.mul_(2)  # which nothing counts
        assert torch.allclose(compiled(x).features, module(x).features, atol=1e-5)


class Other(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.a, self.b, self.function = vt.SubMConv3d(5, 6, 3), vt.SubMConv3d(5, 6, 3), function

    def forward(self, x):
        return self.function(self, x)


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: torch.cat(tensors=[m.a(x).features, m.b(x).features], dim=1),
        lambda m, x: x.with_features(features=m.a(x).features),
        lambda m, x: m.a(x=x),
    ],
)
def test_keyword_arguments_are_followed(function):
    module, x = Other(function).eval(), scene()
    compiled = vt.compile(module)(x)
    if isinstance(compiled, torch.Tensor):
        assert torch.allclose(compiled, module(x), atol=1e-5)
    else:
        assert torch.allclose(compiled.features, module(x).features, atol=1e-5)


def test_what_is_no_module():
    with pytest.raises(TypeError, match="module: int; a torch.nn.Module is needed"):
        vt.compile(3)


def test_plugins_that_are_replaced():
    def register(factor):
        class Scaled:
            name = "scaled_by_a_number"

            def forward(self, map, x, w, y):
                in_rows, out_rows, offset_ptr = map
                y[:] = 0
                for k in range(len(w)):
                    pairs = slice(offset_ptr[k], offset_ptr[k + 1])
                    y[out_rows[pairs]] += factor * (x[in_rows[pairs]] @ w[k])

        return voxconv.register_dataflow(Scaled)

    register(1)
    layer = vt.SubMConv3d(5, 6, 3, bias=False, key="k", dataflow="scaled_by_a_number")
    module = vt.Sequential(layer)
    compiled, x = vt.compile(module), scene()
    before = module(x).features.detach()
    assert torch.allclose(compiled(x).features, before, atol=1e-5)
    register(2)
    for run in (module, compiled, compiled.eval()):  # the same voxels, and what was kept of them
        assert torch.allclose(run(x).features, 2 * before, atol=1e-5)
