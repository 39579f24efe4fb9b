# SPDX-License-Identifier: Apache-2.0
"""Nothing is copied, nothing leaks, and memory lives as long as an array needs it."""

import copy
import gc
import importlib.util
import os
import pickle
import threading

import numpy as np
import pytest
import reference
import voxconv


def address(array):
    return array.__array_interface__["data"][0]


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Exporter:
    """An array of some other framework: nothing but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_features_are_the_callers_memory():
    coords, features = reference.scene()
    before = address(features)
    x = voxconv.SparseTensor(coords, features)
    assert x.features is features
    assert address(x.features) == before
    m = voxconv.KernelMap(x, kernel=3)
    w = reference.weights(27, 5, 7)
    features *= 2  # the tensor sees it
    reference.close(
        voxconv.conv(x, w, map=m).features, voxconv.convolve(m, features.copy(), w)
    )


def test_copies_and_pickles_of_tensors():
    coords, features = reference.scene(stride=2)
    x = voxconv.SparseTensor(coords, features, stride=2)
    for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        np.testing.assert_array_equal(y.coords, coords)
        np.testing.assert_array_equal(y.features, features)
        assert y.stride == x.stride
    assert copy.copy(x).features is features and copy.deepcopy(x).features is not features


def test_out_is_the_callers_memory():
    coords, features = reference.scene()
    x = voxconv.SparseTensor(coords, features)
    m, w = voxconv.KernelMap(x, kernel=3), reference.weights(27, 5, 7)
    out = np.empty((len(x), 7), np.float32)
    before = address(out)
    assert voxconv.convolve(m, features, w, out=out) is out
    assert address(out) == before
    np.testing.assert_array_equal(out, voxconv.convolve(m, features, w))


def test_coordinates_are_views():
    x = voxconv.SparseTensor(*reference.scene())
    assert address(x.coords) == address(x.coords)
    y = voxconv.conv(x, reference.weights(27, 5, 7), kernel=3)
    assert address(y.coords) == address(x.coords)


def test_dlpack_alone_is_enough():
    coords, features = reference.scene()
    w = reference.weights(27, 5, 7)
    x = voxconv.SparseTensor(Exporter(coords), Exporter(features))
    assert isinstance(x.features, Exporter)
    y = voxconv.conv(x, Exporter(w), kernel=3)
    expected = voxconv.conv(voxconv.SparseTensor(coords, features), w, kernel=3)
    np.testing.assert_array_equal(y.features, expected.features)
    again = np.from_dlpack(y.features)
    assert address(again) == address(y.features)


def test_results_outlive_all_else():
    coords, features = reference.scene()
    y = voxconv.conv(voxconv.SparseTensor(coords, features), reference.weights(27, 5, 7), kernel=3)
    array, rows = y.features, y.coords
    expected, expected_rows = array.copy(), rows.copy()
    voxconv.set_num_threads(1)  # the engine that made them is no one else's now
    del y
    gc.collect()
    for _ in range(20):
        voxconv.load("scene:sphere?n=1000")
    np.testing.assert_array_equal(array, expected)
    np.testing.assert_array_equal(rows, expected_rows)
    voxconv.set_num_threads(0)


@pytest.mark.unsanitized
def test_ten_thousand_calls_take_no_memory():
    coords, features = reference.scene()
    w = reference.weights(27, 5, 7)

    def call():
        x = voxconv.SparseTensor(coords, features)
        m = voxconv.KernelMap(x, kernel=3)
        y = voxconv.conv(x, w, map=m)
        voxconv.input_grad(m, y.features, w)
        m.pairs()

    for _ in range(500):
        call()
    gc.collect()
    before = resident_bytes()
    for _ in range(10_000):
        call()
    gc.collect()
    # One leaked array of any call above would be 10,000 x 3 kB or more.
    assert resident_bytes() - before < 8 << 20


def test_threads_at_once():
    inputs = [reference.scene(seed=seed) for seed in range(4)]
    w = reference.weights(27, 5, 7)

    def work(coords, features):
        return voxconv.conv(voxconv.SparseTensor(coords, features), w, kernel=3).features

    expected = [work(*scene) for scene in inputs]
    failures = []

    def repeat(index):
        try:
            for _ in range(50):
                np.testing.assert_array_equal(work(*inputs[index]), expected[index])
        except BaseException as error:  # pytest sees only the main thread's
            failures.append(error)

    threads = [threading.Thread(target=repeat, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_the_interpreter_runs_while_a_call_does():
    x = voxconv.load("scene:lidar64?azimuths=300", channels=16)
    w = np.ones((27, 16, 64), np.float32)
    done = threading.Event()
    ticks = 0

    def work():
        for _ in range(5):
            voxconv.conv(x, w, kernel=3)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.wait(0.0005):
        ticks += 1
    thread.join()
    assert ticks >= 5  # with the GIL held, the loop would wait for each call


# Torch is not needed, and is tested where it is there.
if importlib.util.find_spec("torch"):

    def test_torch_tensors_share_memory():
        import torch

        coords, features = reference.scene()
        tensor = torch.from_numpy(features)
        x = voxconv.SparseTensor(torch.from_numpy(coords), tensor)
        assert x.features is tensor
        y = voxconv.conv(x, torch.ones((27, 5, 7)), kernel=3)
        assert isinstance(y.features, torch.Tensor)
        expected = voxconv.conv(
            voxconv.SparseTensor(coords, features), np.ones((27, 5, 7), np.float32), kernel=3
        )
        np.testing.assert_array_equal(y.features.numpy(), expected.features)
        with pytest.raises(ValueError, match="^weights: requires a gradient"):
            voxconv.conv(x, torch.ones((27, 5, 7), requires_grad=True), kernel=3)
