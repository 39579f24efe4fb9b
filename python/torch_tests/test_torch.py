# SPDX-License-Identifier: Apache-2.0
"""voxconv.torch on the CPU: values against NumPy, gradients against float64 and differences."""

import copy
import gc
import pathlib
import pickle
import re
import weakref

import cases
import numpy as np
import pytest
import reference
import torch
import voxconv
import voxconv.torch as vt

DATAFLOWS = ["implicit_gemm", "gather_gemm_scatter", "fetch_on_demand", "direct", "hash2col"]


def scene(channels=5, n=200, size=12, stride=1, dtype=torch.float32, grad=False):
    coords, features = reference.scene(n=n, size=size, channels=channels, stride=stride)
    features = torch.tensor(features, dtype=dtype, requires_grad=grad)
    return vt.SparseTensor(torch.tensor(coords), features, stride)


def unet(dataflow="implicit_gemm", mapping="hash"):
    """Down once, up again, and a skip connection."""
    plugins = {"dataflow": dataflow, "mapping": mapping}

    class UNet(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = vt.Sequential(
                vt.SubMConv3d(5, 8, 3, bias=False, **plugins), torch.nn.BatchNorm1d(8), torch.nn.ReLU()
            )
            self.down = vt.SparseConv3d(8, 12, 2, stride=2, key="down", **plugins)
            self.middle = vt.SubMConv3d(12, 12, 3, **plugins)
            self.up = vt.SparseInverseConv3d(12, 8, 2, key="down", dataflow=dataflow)
            self.head = vt.Sequential(vt.SubMConv3d(16, 4, 1, **plugins))

        def forward(self, x):
            skip = self.stem(x)
            y = self.down(skip)
            y = y + self.middle(y)
            return self.head(vt.cat([self.up(y), skip]))

    torch.manual_seed(0)
    return UNet()


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_submanifold_equals_numpy(dataflow):
    x = scene()
    layer = vt.SubMConv3d(5, 7, 3, dataflow=dataflow, mapping="sorted_search")
    y = layer(x)
    coords = x.coords.numpy()
    found = reference.pairs(coords, coords, reference.offsets(3))
    weight = layer.weight.detach().numpy()
    expected = reference.forward(found, len(x), x.features.numpy(), weight)
    reference.close(y.features.detach(), expected + layer.bias.detach().numpy())
    assert y.voxels is x.voxels


def test_strided_and_inverse_equal_numpy():
    x = scene()
    down = vt.SparseConv3d(5, 6, 2, stride=2, bias=False, key="down")
    up = vt.SparseInverseConv3d(6, 4, 2, bias=False, key="down")
    y = down(x)
    z = up(y)
    coords = x.coords.numpy()
    outputs = reference.quantized(coords, 2)
    found = reference.pairs(coords, outputs, reference.offsets(2))
    assert y.stride == (2, 2, 2)
    np.testing.assert_array_equal(y.coords.numpy(), outputs)
    w = down.weight.detach().numpy()
    reference.close(y.features.detach(), reference.forward(found, len(y), x.features.numpy(), w))
    back = [rows[:, ::-1] for rows in found]
    w = up.weight.detach().numpy()
    reference.close(z.features.detach(), reference.forward(back, len(x), y.features.detach().numpy(), w))
    assert z.voxels is x.voxels


def test_transposed_makes_all_voxels_of_the_window():
    x = scene(n=50, stride=2)
    y = vt.TransposedConv3d(5, 3, 2, stride=2)(x)
    assert y.stride == (1, 1, 1)
    assert len(y) == 8 * len(x)


# Of modules in float64: central differences, also of the gradients.
@pytest.mark.parametrize("layer", cases.layers(3, 4), ids=lambda layer: type(layer).__name__)
def test_gradcheck(layer):
    layer = copy.deepcopy(layer).double()
    stride = 2 if isinstance(layer, vt.TransposedConv3d) else 1
    x = scene(channels=3, n=12, size=3, stride=stride, dtype=torch.float64, grad=True)
    parameters = tuple(layer.parameters())

    def run(features, *_):
        return layer(x.with_features(features)).features

    assert torch.autograd.gradcheck(run, (x.features, *parameters))
    assert torch.autograd.gradgradcheck(run, (x.features, *parameters))


@pytest.mark.parametrize("mode", ["max", "sum", "average_present"])
def test_gradcheck_of_global_pooling(mode):
    x = scene(channels=3, n=12, size=4, dtype=torch.float64, grad=True)
    run = lambda features: vt.global_pool(x.with_features(features), mode)  # noqa: E731
    assert torch.autograd.gradcheck(run, (x.features,))


def test_gradcheck_of_inverse_cat_and_dense():
    down = vt.SparseConv3d(3, 4, 2, stride=2, key="a").double()
    up = vt.SparseInverseConv3d(4, 3, 2, key="a").double()
    x = scene(channels=3, n=12, size=4, dtype=torch.float64, grad=True)

    def run(features, *_):
        y = x.with_features(features)
        return vt.to_dense(vt.cat([up(down(y)), y + y]), (4, 4, 4))

    assert torch.autograd.gradcheck(run, (x.features, *down.parameters(), *up.parameters()))


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_gradients_of_a_network_are_those_of_float64(dataflow):
    network = unet(dataflow)
    exact = copy.deepcopy(network).double()
    x, x64 = scene(grad=True), scene(dtype=torch.float64, grad=True)
    y, y64 = network(x), exact(x64)
    dy = torch.randn(y.features.shape, generator=torch.Generator().manual_seed(1))
    y.features.backward(dy)
    y64.features.backward(dy.double())
    reference.close(x.features.grad, x64.features.grad)
    for (name, a), (_, b) in zip(network.named_parameters(), exact.named_parameters()):
        error = torch.linalg.norm(a.grad - b.grad) / torch.linalg.norm(b.grad)
        assert error < 2e-5, name


def test_a_network_learns():
    x = scene()
    labels = torch.arange(len(x)) % 4
    network = unet()
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(x).features, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


def test_maps_are_made_once(monkeypatch):
    made = []
    kernel_map = voxconv.KernelMap

    def count(*args, **kwargs):
        made.append(kwargs)
        return kernel_map(*args, **kwargs)

    monkeypatch.setattr("voxconv.torch.tensor.voxconv.KernelMap", count)
    network, x = unet(), scene()
    network(x)
    assert len(made) == 3  # of the stem, down and the middle; the head's kernel of 1 needs none
    network(x)
    network(x.with_features(x.features * 2))
    assert len(made) == 3


def test_voxels_and_maps_die_with_their_tensors():
    gc.disable()
    try:
        network, x = unet(), scene()
        y = network(x)
        voxels = [weakref.ref(t.voxels) for t in (x, y)]
        del x, y
        assert all(v() is None for v in voxels)
    finally:
        gc.enable()


def test_modules_are_pytorchs():
    network, x = unet(), scene()
    y = network(x).features
    other = unet()
    for parameter in other.parameters():
        torch.nn.init.zeros_(parameter)
    other.load_state_dict(network.state_dict())
    for again in (other, copy.deepcopy(network), pickle.loads(pickle.dumps(network.head))):
        assert "SubMConv3d" in repr(again)
    torch.testing.assert_close(other(x).features, y)
    assert {name for name, _ in network.down.named_parameters()} == {"weight", "bias"}


def test_memory_is_shared():
    coords, features = reference.scene()
    features = torch.tensor(features)
    x = vt.SparseTensor(torch.tensor(coords), features)
    assert x.features.data_ptr() == features.data_ptr()
    assert x.with_features(features).features is features


def test_dense():
    coords = torch.tensor([[0, 2, 4, 6], [1, 0, 2, 0]], dtype=torch.int32)
    x = vt.SparseTensor(coords, torch.tensor([[1.0, 2.0], [3.0, 4.0]]), stride=2)
    grid = vt.to_dense(x, (2, 3, 4))
    assert grid.shape == (2, 2, 2, 3, 4)
    assert grid.sum() == 10
    assert grid[0, :, 1, 2, 3].tolist() == [1, 2]
    assert grid[1, :, 0, 1, 0].tolist() == [3, 4]
    with pytest.raises(ValueError, match=r"does not hold voxel \[0, 2, 4, 6\] in row 0"):
        vt.to_dense(x, (2, 3, 3))


def test_pooling_equals_the_engines():
    x = scene()
    handle = voxconv.SparseTensor(x.coords.numpy(), x.features.numpy())
    for mode in ("max", "sum", "average", "average_present"):
        y = vt.pool(x, mode, kernel=2, stride=2)
        reference.close(y.features, voxconv.pool(handle, mode).features)
    low = x.with_features(x.features - 1)
    handle_of_low = voxconv.SparseTensor(low.coords.numpy(), low.features.numpy())
    modules = {"max": vt.MaxPool3d(convention="spconv"), "average": vt.AvgPool3d(convention="spconv")}
    for mode, module in modules.items():
        engine = voxconv.pool(handle_of_low, mode, convention="spconv").features
        reference.close(module(low).features, engine)
        assert (vt.pool(low, mode, kernel=2, stride=2).features.numpy() != engine).any()
    for mode in ("max", "sum", "average_present"):
        reference.close(vt.global_pool(x, mode), voxconv.global_pool(handle, mode))


def raises(message, call, error=ValueError):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    del caught  # with its traceback, whose frames hold tensors


def test_bad_input():
    x = scene()
    coords, features = x.coords, x.features
    raises("features: shape [200]", lambda: vt.SparseTensor(coords, torch.zeros(200)))
    raises("rows; coords has", lambda: vt.SparseTensor(coords, features[1:]))
    raises("int64", lambda: vt.SparseTensor(coords.long(), features))
    raises("a torch.Tensor is needed", lambda: vt.SparseTensor(coords, [1.0]), TypeError)
    raises("floating-point", lambda: x.with_features(features.long()))
    raises("floating-point", lambda: vt.SparseTensor(coords, features.long()))
    raises("float32; int32 is needed", lambda: vt.SparseTensor(coords.float().requires_grad_(), features))
    raises("duplicates row 0", lambda: vt.SparseTensor(coords[[0, 0]], features[:2]))
    raises("in_channels: 0", lambda: vt.SubMConv3d(0, 4))
    raises("kernel_size: (3, 3)", lambda: vt.SubMConv3d(4, 4, (3, 3)))
    raises("kernel_size: 1.5", lambda: vt.SubMConv3d(4, 4, 1.5))
    raises("padding: x", lambda: vt.SparseConv3d(4, 4, 2, padding="x"))
    raises("stride: 0", lambda: vt.SparseConv3d(4, 4, 2, stride=0))
    raises("5 channels; in_channels is 4", lambda: vt.SubMConv3d(4, 4)(x))
    raises("a SparseTensor is needed", lambda: vt.SubMConv3d(5, 4)(features), TypeError)
    raises("nothing", lambda: vt.SubMConv3d(5, 4, mapping="nothing")(x))
    raises("nothing", lambda: vt.SubMConv3d(5, 4, dataflow="nothing")(x))
    raises("mode: 'min'", lambda: vt.pool(x, "min"))
    raises("mode: 'average'", lambda: vt.global_pool(x, "average"))
    raises("mode: 'sum'; allowed are max, average", lambda: vt.SumPool3d(convention="spconv"))
    raises("present: False", lambda: vt.AvgPool3d(present=False, convention="spconv"))
    raises("convention: 'minkowski'", lambda: vt.MaxPool3d(convention="minkowski"))
    raises("cat: no tensors", lambda: vt.cat([]))
    raises("tensor 1 has", lambda: vt.cat([x, vt.MaxPool3d()(x)]))
    half = vt.SubMConv3d(5, 4).half()
    raises("features: torch.float32; the weights are torch.float16", lambda: half(x))


def test_keys_name_one_map():
    x = scene()
    vt.SubMConv3d(5, 5, 3, key="a")(vt.SubMConv3d(5, 5, 3, key="a")(x))
    raises("key: 'a' names the map", lambda: vt.SubMConv3d(5, 5, 1, key="a")(x))
    up = vt.SparseInverseConv3d(5, 5, 2, key="b")
    raises("key: 'b' names no layer before this one; there are: 'a'", lambda: up(x))
    y = vt.SparseConv3d(5, 5, 2, stride=2, key="b")(x)
    raises("key: 'b' has", lambda: up(x))
    raises("kernel_size: (3, 3, 3)", lambda: vt.SparseInverseConv3d(5, 5, 3, key="b")(y))
    wrong = vt.SparseInverseConv3d(5, 5, 3, key="a")
    raises("only strided ones have one", lambda: wrong(x))


def test_a_pooling_has_padding_and_a_key():
    x = scene()
    down = vt.MaxPool3d(3, 2, rule="dilate", padding=1, key="p")
    y = down(x)
    handle = voxconv.SparseTensor(x.coords.numpy(), x.features.numpy())
    geometry = {"kernel": 3, "stride": 2, "padding": 1, "rule": "dilate"}
    expected = voxconv.pool(handle, "max", **geometry)
    np.testing.assert_array_equal(y.coords.numpy(), expected.coords)
    reference.close(y.features, expected.features)
    up = vt.SparseInverseConv3d(5, 6, 3, bias=False, key="p")  # as SpConv's indice_key has it
    z = up(y)
    assert z.voxels is x.voxels
    by_key = vt.SparseConv3d(5, 6, 3, 2, 1, rule="dilate", key="p")
    assert by_key(x).voxels is y.voxels  # the same map
    strided = voxconv.KernelMap(handle, **geometry)
    back = voxconv.convolve(strided.inverse(), y.features.numpy(), up.weight.detach().numpy())
    reference.close(z.features.detach(), back)
    halves = vt.SparseConv3d(5, 5, 2)(x).voxels  # maps of one geometry are one, however it is written
    assert vt.AvgPool3d()(x).voxels is halves
    assert vt.pool(x, "sum", kernel=[2, 2, 2], stride=np.full(3, 2), padding=None).voxels is halves
    raises("key: 'p' names the map", lambda: vt.AvgPool3d(2, key="p")(x))
    raises("padding: x", lambda: vt.SumPool3d(2, padding="x"))
    assert "padding=(1, 1, 1), key='p'" in repr(down)
    network = vt.Sequential(vt.SubMConv3d(5, 5), down)
    raises("layer '1': padding of a pooling", lambda: vt.compile(network), NotImplementedError)


def test_docstrings():
    import doctest

    for name in vt.__all__:
        thing = getattr(vt, name)
        assert thing.__doc__, name
        for member, value in vars(thing).items() if isinstance(thing, type) else ():
            described = getattr(value, "__doc__", None)
            if not member.startswith("_") and member not in ("forward", "extra_repr", "mode", "takes_sparse"):
                assert described, f"{name}.{member}"

    assert doctest.testmod(vt).attempted > 0
    assert doctest.testmod(vt).failed == 0


def test_pytorch_in_the_document_runs():
    path = pathlib.Path(__file__).parents[2] / "docs" / "python.md"
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.S)
    blocks = [block for block in blocks if "import torch" in block]
    assert blocks
    for block in blocks:
        exec(compile(block, str(path), "exec"), {"np": np, "voxconv": voxconv})


def test_the_package_does_not_need_torch():
    import subprocess
    import sys

    code = "import sys, voxconv; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tensors_are_copied_and_pickled():
    x = scene(stride=2)
    layer, norm = vt.SubMConv3d(5, 4, 3, key="a"), vt.BatchNorm(4)
    y = norm(layer(x)).features
    x.voxels.known["note"] = gc  # what layers note need not be copied, nor be pickled
    other = x.with_features(2 * x.features)
    for copied in (copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))):
        a, b = copied((x, other))
        assert a.voxels is b.voxels and a.voxels is not x.voxels and a.stride == x.stride
        assert torch.equal(a.coords, x.coords) and torch.equal(a.features, x.features)
        assert not a.voxels.known and not a.named
        assert torch.equal(norm(layer(a)).features, y)
        vt.cat([a, b])
    shallow = copy.copy(x)
    assert shallow.voxels is x.voxels and shallow.named is x.named and shallow.features is x.features
