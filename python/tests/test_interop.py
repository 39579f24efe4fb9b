# SPDX-License-Identifier: Apache-2.0
"""voxconv.interop without PyTorch: the conventions, files, and networks of voxconv.networks."""

import json
import struct

import numpy as np
import pytest
import voxconv
from voxconv import interop


def spconv_layout(weights, kernel):
    """[K, C_in, C_out] as SpConv has it: [C_out, kz, ky, kx, C_in]."""
    x, y, z = kernel
    return np.ascontiguousarray(
        weights.reshape(x, y, z, *weights.shape[1:]).transpose(4, 2, 1, 0, 3)
    )


def z_slowest(weights, kernel):
    """[K, C_in, C_out] with x fastest."""
    x, y, z = kernel
    shape = weights.shape
    return np.ascontiguousarray(
        weights.reshape(x, y, z, *shape[1:]).transpose(2, 1, 0, 3, 4).reshape(shape)
    )


def weights(kernel, c_in=4, c_out=6):
    shape = (int(np.prod(kernel)), c_in, c_out)
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def raises(message, call, error=ValueError):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kernel", [(3, 3, 3), (3, 1, 5), (5, 3, 1)])
def test_every_convention_gives_voxconvs_weights(kernel):
    ours = weights(kernel)
    kernels, norm = {"a.0": kernel}, np.ones(6, np.float32)
    for source, convert in (
        ({"a.0.weight": spconv_layout(ours, kernel), "b.weight": norm}, interop.from_spconv),
        ({"a.0.kernel": z_slowest(ours, kernel), "b.weight": norm}, interop.from_torchsparse),
        ({"a.0.kernel": z_slowest(ours, kernel), "b.weight": norm}, interop.from_minkowski),
    ):
        made = convert(source, kernels=kernels)
        assert list(made) == ["a.0.weight", "b.weight"]
        np.testing.assert_array_equal(made["a.0.weight"], ours)
        assert made["b.weight"] is norm


def test_even_kernels_of_torchsparse_have_x_slowest():
    ours = weights((2, 2, 2))
    made = interop.from_torchsparse({"a.kernel": ours}, kernels={"a": 2})
    np.testing.assert_array_equal(made["a.weight"], ours)
    made = interop.from_minkowski({"a.kernel": z_slowest(ours, (2, 2, 2))}, kernels={"a": 2})
    np.testing.assert_array_equal(made["a.weight"], ours)
    raises(
        "kernel 3x2x3: TorchSparse does not centre the odd axes",
        lambda: interop.weights_from("torchsparse", weights((3, 2, 3)), (3, 2, 3)),
    )


def test_a_kernel_of_one():
    ours = weights((1, 1, 1))
    for convert in (interop.from_torchsparse, interop.from_minkowski):
        made = convert({"a.kernel": ours[0]}, kernels={"a": 1})
        np.testing.assert_array_equal(made["a.weight"], ours)
    # SpConv multiplies by a view of the memory as [C_in, C_out] if the stride is 1.
    theirs = ours.reshape(6, 1, 1, 1, 4)
    made = interop.from_spconv({"a.weight": theirs}, kernels={"a": 1}, strides={"a": 1})
    np.testing.assert_array_equal(made["a.weight"], ours)
    made = interop.from_spconv({"a.weight": theirs}, kernels={"a": 1}, strides={"a": 2})
    np.testing.assert_array_equal(made["a.weight"][0], theirs.reshape(6, 4).T)
    raises(
        "'a.weight': SpConv reads a kernel of 1 with stride 1 as a view [C_in, C_out], and one with "
        "another stride as [C_out, C_in]; give strides={'a': 1} or its stride",
        lambda: interop.from_spconv({"a.weight": theirs}, kernels={"a": 1}),
    )


def test_what_the_arrays_do_not_tell_is_asked_for():
    raises(
        "'a.kernel': shape [27, 4, 6] does not tell the layer: 27 offsets may be a kernel of 3x3x3 or "
        "27x1x1 and others; give kernels={'a': 3} or into=; None copies the array",
        lambda: interop.from_torchsparse({"a.kernel": weights((3, 3, 3))}),
    )
    raises(
        "'a.kernel': shape [4, 6] does not tell the layer: 1 offsets",
        lambda: interop.from_minkowski({"a.kernel": np.ones((4, 6), np.float32)}),
    )
    dense = np.ones((6, 4, 3, 3, 3), np.float32)
    raises("or a dense convolution's", lambda: interop.from_spconv({"a.weight": dense}))
    assert interop.from_spconv({"a.weight": dense}, kernels={"a": None})["a.weight"] is dense
    raises(
        "'a.weight' of SpConv: weights: shape [6, 4, 3, 3, 3]; [C_out, 3, 3, 3, C_in] is needed",
        lambda: interop.from_spconv({"a.weight": dense}, kernels={"a": 3}),
    )


def test_arguments_that_do_not_fit():
    source = {"a.kernel": weights((3, 3, 3))}
    convert = interop.from_minkowski
    raises("kernels: the source has no 'b.kernel'", lambda: convert(source, kernels={"a": 3, "b": 3}))
    raises("kernels['a']: 0", lambda: convert(source, kernels={"a": 0}))
    raises("strides['b']", lambda: convert(source, kernels={"a": 3}, strides={"b": 2}))
    raises("names: have no meaning", lambda: convert(source, kernels={"a": 3}, names={"a": "b"}))
    raises("a path is needed", lambda: convert(3), TypeError)
    raises("'epoch', 'model' are no arrays", lambda: convert({"epoch": 3, "model": source}))
    raises("is no array of numbers", lambda: interop.weights_from("spconv", "x", 3), TypeError)
    raises("convention 'x'", lambda: interop.weights_from("x", weights((1, 1, 1)), 1))
    raises("convention 'x'", lambda: interop.offset_order("x", 3))
    raises("kernel 0", lambda: interop.offset_order("spconv", 0))
    raises("kernel 'x'", lambda: interop.offset_order("spconv", "x"))
    raises("padding 'x'", lambda: interop.padding_from_spconv("x", 3))
    assert convert({"a.kernel": 1.0 * weights((3, 3, 3)), "n": np.ones(3)}, kernels={"a": 3}, ignore="n")
    assert list(convert({**source, "x.n": np.ones(3)}, kernels={"a": 3}, ignore=["*.n"])) == ["a.weight"]


def test_offset_order():
    for convention in ("spconv", "minkowski", "torchsparse"):
        order = np.array(interop.offset_order(convention, (3, 1, 5)))
        np.testing.assert_array_equal(order, np.arange(15).reshape(3, 1, 5).transpose(2, 1, 0).ravel())
    assert interop.offset_order("torchsparse", 2) == list(range(8))
    assert interop.padding_from_spconv((1, 0, 2), (3, 3, 5), (1, 1, 2)) == (0, -1, -2)
    assert interop.padding_from_spconv(0, 2) == (0, 0, 0)


def network():
    return voxconv.networks.minkunet42(width=0.25)


def as_spconv(state):
    """The parameters of network() as SpConv and PyTorch write them."""
    theirs = {}
    for name, array in state.items():
        if array.ndim == 3:
            edge = round(len(array) ** (1 / 3))
            if len(array) > 1:
                array = spconv_layout(array, (edge,) * 3)
            else:  # the view of stride 1
                array = array.reshape(array.shape[2], 1, 1, 1, array.shape[1])
        elif array.ndim == 2:
            array = array.T.copy()
        theirs[name] = array
        if name.endswith("running_mean"):
            theirs[name.replace("running_mean", "num_batches_tracked")] = np.array(5)
    return theirs


def test_into_a_network():
    state = network().initialize(seed=2).state_dict()
    made = interop.from_spconv(as_spconv(state), into=network())
    assert list(made) == list(state)
    for name, array in state.items():
        np.testing.assert_array_equal(made[name], array, err_msg=name)
    x = voxconv.load("scene:sphere?n=500", channels=4)
    y = network().load(made)(x)
    np.testing.assert_array_equal(y.features, network().load(state)(x).features)


def test_names_that_do_not_fit_a_network():
    theirs = as_spconv(network().initialize(seed=2).state_dict())
    first = next(iter(theirs))
    theirs["other.weight"] = theirs.pop(first)
    convert = lambda **named: interop.from_spconv(theirs, into=network(), **named)  # noqa: E731
    raises(f"missing: '{first} [", convert)
    raises("left over: 'other.weight [", convert)
    assert first in convert(names={first: "other.weight"})
    raises("kernels: have no meaning", lambda: convert(kernels={}))
    raises("strides: have no meaning", lambda: convert(strides={first: 1}))
    raises("strings are needed", lambda: convert(names={first: 1}), TypeError)
    layer = first.rpartition(".")[0]
    for wrong in ("nowhere", layer):  # a network takes names of arrays alone
        raises(f"names: '{wrong}': minkunet42 has no", lambda: convert(names={wrong: "other.weight"}))
    raises("ignore: 'nothing*': the source has no", lambda: convert(ignore=["other*", "nothing*"]))
    theirs["other.weight"] = theirs["other.weight"][:, :2]
    raises("wrong shape: 'other.weight is [", lambda: convert(names={first: "other.weight"}))


def safetensors(path, arrays):
    """The format by its description."""
    header, data = {}, b""
    for name, (dtype, array) in arrays.items():
        begin, data = len(data), data + array.tobytes()
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_files(tmp_path):
    ours = weights((3, 3, 3)).astype(np.float16).astype(np.float32)
    theirs = z_slowest(ours, (3, 3, 3))
    np.savez(tmp_path / "a.npz", **{"a.kernel": theirs})
    brain = np.array([1.5, -2.0], np.float32)
    count = np.array([7], np.int64)
    safetensors(
        tmp_path / "a.safetensors",
        {
            "a.kernel": ("F16", theirs.astype(np.float16)),
            "b.bias": ("BF16", (brain.view(np.uint32) >> 16).astype(np.uint16)),
            "n": ("I64", count),
        },
    )
    for name in ("a.npz", "a.safetensors"):
        made = interop.from_minkowski(tmp_path / name, kernels={"a": 3})
        np.testing.assert_array_equal(made["a.weight"], ours)
    np.testing.assert_array_equal(made["b.bias"], brain)
    np.testing.assert_array_equal(made["n"], count)
    raises("unknown ending", lambda: interop.from_minkowski("weights.h5"))
    raises("nothing.npz", lambda: interop.from_minkowski("nothing.npz"))


def test_modules_of_the_engine_know_their_kernels():
    class Module:
        def __init__(self, **values):
            self.__dict__.update(values)

    class Network:
        def __init__(self, state, modules):
            self.state_dict, self.named_modules = lambda: state, lambda: modules.items()

    ours = weights((3, 1, 5))
    theirs = {"a.weight": spconv_layout(ours, (3, 1, 5))}
    layer = Module(kernel_size=[5, 1, 3], stride=[1, 1, 1], subm=True, weight=0)
    made = interop.from_spconv(Network(theirs, {"": Module(), "a": layer}))
    np.testing.assert_array_equal(made["a.weight"], ours)
    theirs = {"a.kernel": z_slowest(ours, (3, 1, 5)), "a.bias": np.ones((1, 6), np.float32)}
    layer = Module(kernel_generator=Module(kernel_size=[3, 1, 5], kernel_stride=[1, 1, 1]), kernel=0)
    made = interop.from_minkowski(Network(theirs, {"a": layer}))
    np.testing.assert_array_equal(made["a.weight"], ours)
    assert made["a.bias"].shape == (6,)
    layer = Module(kernel_size=(3, 1, 5), stride=(1, 1, 1), kernel=0)
    made = interop.from_torchsparse(Network({"a.kernel": theirs["a.kernel"]}, {"a": layer}))
    np.testing.assert_array_equal(made["a.weight"], ours)
