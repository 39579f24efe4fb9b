# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import reference
import voxconv

DATAFLOWS = ["implicit_gemm", "gather_gemm_scatter", "fetch_on_demand", "direct", "hash2col"]


@pytest.mark.parametrize("mapping", ["hash", "sorted_search", "octree", "hash:variant=cuckoo"])
@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_submanifold_equals_numpy(mapping, dataflow):
    coords, features = reference.scene()
    w = reference.weights(27, 5, 7)
    x = voxconv.SparseTensor(coords, features)
    y = voxconv.conv(x, w, kernel=3, mapping=mapping, dataflow=dataflow)
    found = reference.pairs(coords, coords, reference.offsets(3))
    np.testing.assert_array_equal(y.coords, coords)
    reference.close(y.features, reference.forward(found, len(coords), features, w))


def test_strided_and_inverse_equal_numpy():
    coords, features = reference.scene()
    w = reference.weights(8, 5, 6)
    x = voxconv.SparseTensor(coords, features)
    y = voxconv.conv(x, w, kernel=2, stride=2)
    outputs = reference.quantized(coords, 2)
    found = reference.pairs(coords, outputs, reference.offsets(2))
    assert y.stride == (2, 2, 2)
    np.testing.assert_array_equal(y.coords, outputs)
    reference.close(y.features, reference.forward(found, len(outputs), features, w))

    back = reference.weights(8, 6, 4, seed=2)
    z = voxconv.conv(y, back, kernel=2, stride=2, kind="inverse", outputs=x)
    exchanged = [rows[:, ::-1] for rows in found]
    assert z.stride == (1, 1, 1)
    np.testing.assert_array_equal(z.coords, coords)
    reference.close(z.features, reference.forward(exchanged, len(coords), y.features, back))


def test_transposed_makes_all_voxels_of_the_window():
    coords, features = reference.scene(n=50, stride=2)
    x = voxconv.SparseTensor(coords, features, stride=2)
    y = voxconv.conv(x, reference.weights(8, 5, 3), kernel=2, stride=2, kind="transposed")
    assert y.stride == (1, 1, 1)
    assert len(y) == 8 * len(x)


@pytest.mark.parametrize("dataflow", DATAFLOWS)
@pytest.mark.parametrize("kernel, stride", [(3, 1), (2, 2), (3, 2)])
def test_passes_equal_numpy(dataflow, kernel, stride):
    coords, features = reference.scene()
    x = voxconv.SparseTensor(coords, features)
    w = reference.weights(kernel**3, 5, 6)
    m = voxconv.KernelMap(x, kernel=kernel, stride=stride)
    outputs = np.asarray(m.out_coords)
    found = reference.pairs(coords, outputs, reference.offsets(kernel))
    dy = np.random.default_rng(3).standard_normal((len(outputs), 6)).astype(np.float32)

    reference.close(
        voxconv.convolve(m, features, w, dataflow=dataflow),
        reference.forward(found, len(outputs), features, w),
    )
    reference.close(
        voxconv.input_grad(m, dy, w, dataflow=dataflow),
        reference.input_grad(found, len(coords), dy, w),
    )
    reference.close(
        voxconv.weight_grad(m, features, dy, dataflow=dataflow),
        reference.weight_grad(found, features, dy),
    )


def test_bias_and_a_map_that_is_kept():
    coords, features = reference.scene()
    x = voxconv.SparseTensor(coords, features)
    w, bias = reference.weights(27, 5, 7), np.arange(7, dtype=np.float32)
    plain = voxconv.conv(x, w, kernel=3)
    m = voxconv.KernelMap(x, kernel=3, mapping="sorted_search")
    with_bias = voxconv.conv(x, w, map=m, bias=bias)
    reference.close(with_bias.features, plain.features + bias)
    for dataflow in ("implicit_gemm", "gather_gemm_scatter", "fetch_on_demand", "direct", "hash2col"):
        out = np.full((m.num_outputs, 7), np.nan, np.float32)
        y = voxconv.convolve(m, x.features, w, bias=bias, dataflow=dataflow, out=out)
        assert y is out
        reference.close(y, plain.features + bias)
    assert voxconv.conv(x.with_features(2 * features), w, map=m).features.shape == (len(x), 7)


def test_a_map_serves_equal_voxels_alone():
    coords, features = reference.scene()
    w = reference.weights(27, 5, 7)
    m = voxconv.KernelMap(voxconv.SparseTensor(coords, features), kernel=3)
    equal = voxconv.SparseTensor(coords.copy(), features)
    np.testing.assert_array_equal(
        voxconv.conv(equal, w, map=m).features, voxconv.conv(equal, w).features)
    other = coords.copy()
    other[7] = [0, 99, 99, 99]
    for rows, row in ((other, 7), (coords[::-1].copy(), 0)):
        with pytest.raises(ValueError, match=f"map: made for other voxels than x has: row {row}"):
            voxconv.conv(voxconv.SparseTensor(rows, features), w, map=m)


def test_empty_tensors_pass():
    x = voxconv.SparseTensor(np.zeros((0, 4), np.int32), np.zeros((0, 3), np.float32))
    y = voxconv.conv(x, np.ones((27, 3, 2), np.float32), kernel=3)
    assert len(y) == 0
    assert y.features.shape == (0, 2)


@pytest.mark.parametrize("mode", ["max", "sum", "average", "average_present"])
def test_pooling_equals_numpy(mode):
    coords, features = reference.scene()
    y = voxconv.pool(voxconv.SparseTensor(coords, features), mode)
    outputs = reference.quantized(coords, 2)
    np.testing.assert_array_equal(y.coords, outputs)
    parents = coords.copy()
    parents[:, 1:] = parents[:, 1:] // 2 * 2
    for row, output in zip(y.features, outputs):
        window = features[(parents == output).all(axis=1)].astype(np.float64)
        expected = {
            "max": window.max(axis=0),
            "sum": window.sum(axis=0),
            "average": window.sum(axis=0) / 8,
            "average_present": window.mean(axis=0),
        }[mode]
        np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["max", "average"])
def test_pooling_as_spconv_does(mode):
    coords, features = reference.scene()
    features = features - 1  # so that windows without a positive value come up
    x = voxconv.SparseTensor(coords, features)
    y = voxconv.pool(x, mode, convention="spconv")
    parents = coords.copy()
    parents[:, 1:] = parents[:, 1:] // 2 * 2
    clamped = 0
    for row, output in zip(y.features, y.coords):
        window = features[(parents == output).all(axis=1)].astype(np.float64)
        expected = np.maximum(window.max(axis=0), 0) if mode == "max" else window.mean(axis=0)
        clamped += int((window.max(axis=0) < 0).sum())
        np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-6)
    assert clamped > 0
    own = voxconv.pool(x, mode).features
    assert np.abs(own - y.features).max() > 0.1  # which nobody gets without asking


def test_global_pooling_equals_numpy():
    coords, features = reference.scene(batches=3)
    y = voxconv.global_pool(voxconv.SparseTensor(coords, features), "average_present")
    expected = [features[coords[:, 0] == b].mean(axis=0) for b in range(3)]
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
