# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import reference
import voxconv


@pytest.fixture
def x():
    return voxconv.SparseTensor(*reference.scene())


@pytest.mark.parametrize("mapping", ["hash", "sorted_search", "grid", "perfect_hash"])
def test_pairs_and_table_equal_numpy(x, mapping):
    m = voxconv.KernelMap(x, kernel=3, mapping=mapping)
    expected = reference.pairs(x.coords, x.coords, reference.offsets(3))
    in_rows, out_rows, offset_ptr = m.pairs()
    np.testing.assert_array_equal(np.diff(offset_ptr), [len(rows) for rows in expected])
    np.testing.assert_array_equal(np.stack([in_rows, out_rows], 1), np.concatenate(expected))
    assert m.num_pairs == len(in_rows)

    table = np.full((len(x), 27), -1)
    for k, rows in enumerate(expected):
        table[rows[:, 1], k] = rows[:, 0]
    np.testing.assert_array_equal(m.table(), table)
    assert m.table().dtype == np.int32


def test_both_forms_are_the_same_map(x):
    m = voxconv.KernelMap(x, kernel=3)
    for form in ("pairs", "neighbour_table"):
        same = m.to(form)
        assert same.form == form
        for a, b in zip(same.pairs(), m.pairs()):
            np.testing.assert_array_equal(a, b)


def test_save_and_load(x, tmp_path):
    m = voxconv.KernelMap(x, kernel=2, stride=2)
    m.save(tmp_path / "map.npz")
    same = voxconv.KernelMap.load(tmp_path / "map.npz")
    assert same.geometry == m.geometry == "strided/quantize k2 s2"
    assert (same.input_stride, same.output_stride) == ((1, 1, 1), (2, 2, 2))
    for a, b in zip(same.pairs(), m.pairs()):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(same.out_coords, m.out_coords)
    w = reference.weights(8, 5, 3)
    np.testing.assert_array_equal(
        voxconv.conv(x, w, map=same).features, voxconv.conv(x, w, map=m).features
    )


def test_arrays_cannot_be_written(x):
    m = voxconv.KernelMap(x, kernel=3)
    for array in (*m.pairs(), m.table(), m.in_coords, x.coords):
        with pytest.raises(ValueError):
            array[0] = 0
