# SPDX-License-Identifier: Apache-2.0
"""voxconv.interop with modules of PyTorch: layers of the other engines, computed from what they
publish, against voxconv.torch with the converted weights."""

import itertools
import pathlib
import pickle

import numpy as np
import pytest
import torch
import voxconv.torch as vt
from voxconv import interop

C_IN, C_OUT = 4, 6


def cloud(size=9, n=120, seed=0):
    rows = np.random.default_rng(seed).integers(0, size, (n, 4)).astype(np.int32)
    rows[:, 0] %= 2
    rows = np.unique(rows, axis=0)
    features = np.random.default_rng(seed + 1).standard_normal((len(rows), C_IN))
    return rows, features.astype(np.float32)


def tensor(coords, features):
    return vt.SparseTensor(torch.tensor(coords), torch.tensor(features))


def random(*shape):
    return torch.tensor(np.random.default_rng(3).standard_normal(shape).astype(np.float32))


def equal(y, expected, scale=1):
    """Against {(b, x, y, z): values}, with positions in units of `scale`."""
    rows = y.coords.numpy().copy()
    rows[:, 1:] //= scale
    values = y.features.detach().numpy()
    assert {tuple(row) for row in rows.tolist()} == set(expected)
    for row, value in zip(rows.tolist(), values):
        np.testing.assert_allclose(value, expected[tuple(row)], atol=1e-4)


def spconv_pairs(coords, kernel, stride, padding, dilation=1):
    """(row of p, (b, x, y, z) of u, (ix, iy, iz)) with p = u s - padding + i dilation."""
    for row, (b, *p) in enumerate(coords.tolist()):
        for i in itertools.product(*map(range, kernel)):
            v = [p[a] + padding[a] - i[a] * dilation for a in range(3)]
            if all(v[a] % stride[a] == 0 for a in range(3)):
                yield row, (b, *(v[a] // stride[a] for a in range(3))), i


def add(sums, place, value):
    sums[place] = sums.get(place, 0) + value


def test_a_strided_layer_of_spconv():
    coords, features = cloud()
    kernel, stride, padding = (3, 3, 3), (2, 2, 2), (1, 1, 1)
    theirs = random(C_OUT, 3, 3, 3, C_IN)  # [C_out, kz, ky, kx, C_in]
    expected = {}
    for row, u, (ix, iy, iz) in spconv_pairs(coords, kernel, stride, padding):
        add(expected, u, theirs[:, iz, iy, ix].numpy() @ features[row])
    layer = vt.SparseConv3d(
        C_IN, C_OUT, kernel, stride, interop.padding_from_spconv(padding, kernel),
        bias=False, rule="dilate",
    )
    layer.load_state_dict(interop.from_spconv({"weight": theirs}, into=layer))
    equal(layer(tensor(coords, features)), expected, scale=2)


def test_a_submanifold_and_an_inverse_layer_of_spconv():
    coords, features = cloud()
    network = torch.nn.Sequential(
        vt.SubMConv3d(C_IN, C_OUT, (5, 1, 3), bias=True),
        vt.SparseConv3d(C_OUT, C_OUT, 2, 2, bias=False, key="down"),
        vt.SparseInverseConv3d(C_OUT, C_OUT, 2, bias=False, key="down"),
    )
    theirs = {
        "0.weight": random(C_OUT, 3, 1, 5, C_IN),
        "0.bias": random(C_OUT),
        "1.weight": random(C_OUT, 2, 2, 2, C_OUT),
        "2.weight": random(C_OUT, 2, 2, 2, C_OUT).flip(0),
    }
    places = {tuple(row) for row in coords.tolist()}
    first = {place: theirs["0.bias"].numpy().copy() for place in places}
    for row, u, (ix, iy, iz) in spconv_pairs(coords, (5, 1, 3), (1, 1, 1), (2, 0, 1)):
        if u in places:
            add(first, u, theirs["0.weight"][:, iz, iy, ix].numpy() @ features[row])
    down, expected = {}, {}
    pairs = list(spconv_pairs(coords, (2, 2, 2), (2, 2, 2), (0, 0, 0)))
    for row, u, (ix, iy, iz) in pairs:
        add(down, u, theirs["1.weight"][:, iz, iy, ix].numpy() @ first[tuple(coords[row].tolist())])
    for row, u, (ix, iy, iz) in pairs:  # the same pairs, the other way round
        add(expected, tuple(coords[row].tolist()), theirs["2.weight"][:, iz, iy, ix].numpy() @ down[u])
    network.load_state_dict(interop.from_spconv(theirs, into=network))
    equal(network(tensor(coords, features)), expected)


def test_kernels_of_one_of_spconv():
    coords, features = cloud()
    theirs = random(C_OUT, 1, 1, 1, C_IN)
    layer = vt.SubMConv3d(C_IN, C_OUT, 1, bias=False)
    layer.load_state_dict(interop.from_spconv({"weight": theirs}, into=layer))
    y = layer(tensor(coords, features)).features.detach()
    # What SpConv computes: the features by a view of the memory.
    torch.testing.assert_close(y, torch.tensor(features) @ theirs.view(C_IN, C_OUT))
    strided = vt.SparseConv3d(C_IN, C_OUT, 1, 2, bias=False)
    made = interop.from_spconv({"weight": theirs}, into=strided)["weight"]
    torch.testing.assert_close(made[0], theirs.view(C_OUT, C_IN).T)
    inverse = vt.SparseInverseConv3d(C_IN, C_OUT, 1, bias=False, key="a")
    raises("give strides={'': 1}", lambda: interop.from_spconv({"weight": theirs}, into=inverse))
    assert interop.from_spconv({"weight": theirs}, into=inverse, strides={"": 2})


def neighbours(coords, kernel, z_slowest):
    """(row of p, row of q, j): offsets centred for odd kernels, in the order of the engine."""
    row_of = {tuple(row): i for i, row in enumerate(coords.tolist())}
    axes = [[i - (k // 2 if k % 2 else 0) for i in range(k)] for k in kernel]
    if z_slowest:
        offsets = [(x, y, z) for z, y, x in itertools.product(*axes[::-1])]
    else:
        offsets = list(itertools.product(*axes))
    for q, (b, *place) in enumerate(coords.tolist()):
        for j, offset in enumerate(offsets):
            p = row_of.get((b, *(place[a] + offset[a] for a in range(3))))
            if p is not None:
                yield p, q, j


@pytest.mark.parametrize("kernel", [(3, 3, 3), (3, 1, 5), (2, 2, 2)])
@pytest.mark.parametrize("engine", ["torchsparse", "minkowski"])
def test_submanifold_layers_of_torchsparse_and_minkowski(engine, kernel):
    coords, features = cloud()
    volume = int(np.prod(kernel))
    theirs = {"conv.kernel": random(volume, C_IN, C_OUT), "conv.bias": random(1, C_OUT)}
    if engine == "torchsparse":
        theirs["conv.bias"] = theirs["conv.bias"][0]
    all_odd = all(k % 2 for k in kernel)
    expected = np.tile(theirs["conv.bias"].numpy().reshape(-1), (len(coords), 1))
    for p, q, j in neighbours(coords, kernel, engine == "minkowski" or all_odd):
        expected[q] += features[p] @ theirs["conv.kernel"][j].numpy()
    network = torch.nn.Sequential()
    network.add_module("conv", vt.SubMConv3d(C_IN, C_OUT, kernel))
    convert = interop.from_torchsparse if engine == "torchsparse" else interop.from_minkowski
    network.load_state_dict(convert(theirs, into=network))
    y = network(tensor(coords, features)).features.detach().numpy()
    np.testing.assert_allclose(y, expected, atol=1e-4)


def test_a_transposed_layer_of_torchsparse_takes_the_strided_layers_map():
    coords, features = cloud()
    network = torch.nn.Sequential(
        vt.SparseConv3d(C_IN, C_OUT, 2, 2, bias=False, key="a"),
        vt.SparseInverseConv3d(C_OUT, C_IN, 2, bias=False, key="a"),
    )
    theirs = {"0.kernel": random(8, C_IN, C_OUT), "1.kernel": random(8, C_OUT, C_IN)}
    down, expected = {}, {}
    index = {i: j for j, i in enumerate(itertools.product(range(2), repeat=3))}  # x slowest
    pairs = list(spconv_pairs(coords, (2, 2, 2), (2, 2, 2), (0, 0, 0)))
    for row, u, i in pairs:
        add(down, u, features[row] @ theirs["0.kernel"][index[i]].numpy())
    for row, u, i in pairs:
        add(expected, tuple(coords[row].tolist()), down[u] @ theirs["1.kernel"][index[i]].numpy())
    network.load_state_dict(interop.from_torchsparse(theirs, into=network))
    equal(network(tensor(coords, features)), expected)


class UNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = vt.Sequential(vt.SubMConv3d(C_IN, 8, 3), torch.nn.BatchNorm1d(8), torch.nn.ReLU())
        self.head = torch.nn.Linear(8, 3)


def minkowskis():
    """The state dict of such a network in MinkowskiEngine."""
    return {
        "stem.0.kernel": random(27, C_IN, 8),
        "stem.0.bias": random(1, 8),
        "stem.1.bn.weight": random(8),
        "stem.1.bn.bias": random(8),
        "stem.1.bn.running_mean": random(8),
        "stem.1.bn.running_var": random(8),
        "stem.1.bn.num_batches_tracked": torch.tensor(4),
        "head.linear.weight": random(3, 8),
        "head.linear.bias": random(3),
    }


def raises(message, call, error=ValueError):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrapped_layers_of_minkowski_meet_pytorchs():
    theirs, network = minkowskis(), UNet()
    made = interop.from_minkowski(theirs, into=network)
    assert list(made) == list(network.state_dict())
    network.load_state_dict(made)
    assert network.stem[1].num_batches_tracked == 4
    torch.testing.assert_close(network.head.weight.data, theirs["head.linear.weight"])
    both = {**theirs, "head.weight": random(3, 8)}
    raises(
        "'head.weight': the source has 'head.weight', 'head.linear.weight'; give names=",
        lambda: interop.from_minkowski(both, into=network),
    )
    raises("left over: 'head.weight [3, 8]'", lambda: interop.from_minkowski(
        both, into=network, names={"head.weight": "head.linear.weight"}))


def test_names_must_all_meet():
    network = UNet()
    convert = lambda theirs, **named: interop.from_minkowski(theirs, into=network, **named)  # noqa: E731
    theirs = minkowskis()
    theirs["first.0.kernel"] = theirs.pop("stem.0.kernel")
    raises(
        "source: does not fit UNet; missing: 'stem.0.weight [27, 4, 8]'; left over: "
        "'first.0.kernel [27, 4, 8]'",
        lambda: convert(theirs),
    )
    assert convert(theirs, names={"stem.0.weight": "first.0.kernel"})
    moved = {name.replace("stem.1", "norm"): array for name, array in minkowskis().items()}
    assert convert(moved, names={"stem.1": "norm"})  # of a whole layer
    for wrong in ("nowhere", "", "stem.0.kernel"):
        raises(f"names: '{wrong}': UNet has no such layer or array",
               lambda: convert(minkowskis(), names={wrong: "q"}))
    raises("ignore: 'q*'", lambda: convert(minkowskis(), ignore="q*"))
    theirs = minkowskis()
    theirs["head.linear.weight"] = random(4, 8)
    raises(
        "wrong shape: 'head.linear.weight gives [4, 8]; [3, 8] is needed'", lambda: convert(theirs)
    )
    theirs = minkowskis()
    theirs["stem.0.kernel"] = random(8, C_IN, 8)
    raises("'stem.0.kernel' of MinkowskiEngine: weights: shape [8, 4, 8]; [27,", lambda: convert(theirs))
    theirs = minkowskis()
    del theirs["stem.1.bn.num_batches_tracked"]  # files of old versions have none
    assert convert(theirs)["stem.1.num_batches_tracked"] == 0
    raises("into: int", lambda: interop.from_minkowski(theirs, into=3), TypeError)
    raises("strides['x']", lambda: convert(theirs, strides={"x": 1}))


def test_layers_that_an_engine_does_not_have_are_refused():
    even = vt.SubMConv3d(C_IN, C_OUT, (3, 2, 3), bias=False)
    raises(
        "kernel 3x2x3: TorchSparse does not centre",
        lambda: interop.from_torchsparse({"kernel": random(18, C_IN, C_OUT)}, into=even),
    )
    raises(
        "SpConv has submanifold kernels of odd size only",
        lambda: interop.from_spconv({"weight": random(C_OUT, 3, 2, 3, C_IN)}, into=even),
    )
    dilated = vt.SubMConv3d(C_IN, C_OUT, 3, dilation=2, bias=False)
    raises("dilation 2", lambda: interop.from_torchsparse({"kernel": random(27, 4, 6)}, into=dilated))
    made = vt.TransposedConv3d(C_IN, C_OUT, 2, 2, bias=False)
    raises(
        "generative layers are not covered",
        lambda: interop.from_torchsparse({"kernel": random(8, 4, 6)}, into=made),
        NotImplementedError,
    )


def test_files_and_modules(tmp_path):
    network, theirs = UNet(), minkowskis()
    expected = interop.from_minkowski(theirs, into=network)
    torch.save(theirs, tmp_path / "a.pth")
    np.savez(tmp_path / "a.npz", **{name: array.numpy() for name, array in theirs.items()})
    for name in ("a.pth", "a.npz"):
        made = interop.from_minkowski(tmp_path / name, into=network)
        for key, array in expected.items():
            torch.testing.assert_close(made[key], array)
    torch.save({"epoch": 3, "model": theirs}, tmp_path / "b.pth")
    raises("'epoch', 'model' are no arrays", lambda: interop.from_minkowski(tmp_path / "b.pth"))

    missing, bad = tmp_path / "none.pth", tmp_path / "bad.pth"
    bad.write_bytes((tmp_path / "a.pth").read_bytes()[:200])
    raises(f"{missing}: there is no such file", lambda: interop.read_weights(missing), FileNotFoundError)
    for content in (bad.read_bytes(), b"", b"PK", pickle.dumps(pathlib.Path("x"))):
        bad.write_bytes(content)
        raises(f"{bad}: torch.load(weights_only=True)", lambda: interop.read_weights(bad))

    class Theirs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = torch.nn.Module()
            self.stem.kernel_size, self.stem.stride = (3, 3, 3), (1, 1, 1)
            self.stem.kernel = torch.nn.Parameter(random(27, C_IN, C_OUT))

    made = interop.from_torchsparse(Theirs())
    assert isinstance(made["stem.weight"], torch.Tensor)
    assert not made["stem.weight"].requires_grad
    layer = vt.SubMConv3d(C_IN, C_OUT, 3, bias=False).half()
    converted = interop.from_torchsparse({"kernel": random(27, C_IN, C_OUT).half()}, into=layer)
    layer.load_state_dict(converted)
    assert layer.weight.dtype == torch.float16


def test_the_example_of_the_document_is_all_that_is_needed():
    import doctest

    assert doctest.testmod(interop).failed == 0
