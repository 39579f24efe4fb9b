# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import voxconv

POINTS = np.random.default_rng(3).uniform(-4, 4, (500, 3))
RANGE = (-1.0, -2.0, -3.0, 1.5, 2.5, 3.5)


def inside(rows, low, high):
    return np.all((rows >= low) & (rows < high), axis=1)


def test_voxelize_cuts_to_the_range():
    features = np.arange(500, dtype=np.float64)[:, None]
    kept = inside(POINTS, RANGE[:3], RANGE[3:])
    assert 0 < kept.sum() < len(POINTS)
    cut = voxconv.voxelize(POINTS, features, voxel_size=0.1, range=RANGE)
    own = voxconv.voxelize(POINTS[kept], features[kept], voxel_size=0.1)
    np.testing.assert_array_equal(cut.coords, own.coords)
    np.testing.assert_array_equal(cut.features, own.features)


def test_load_cuts_points_in_their_unit(tmp_path):
    np.save(tmp_path / "points.npy", POINTS)
    cut = voxconv.load(tmp_path / "points.npy", voxel_size=0.1, range=list(RANGE))
    own = voxconv.voxelize(POINTS, voxel_size=0.1, range=np.array(RANGE))
    np.testing.assert_array_equal(cut.coords, own.coords)


def test_load_cuts_voxels_in_voxels():
    scene = "scene:uniform?n=500&box=20"
    whole = voxconv.load(scene).coords
    kept = inside(whole[:, 1:], (2, 3, 4), (10, 12, 14))
    assert 0 < kept.sum() < len(whole)
    cut = voxconv.load(scene, range=(2, 3, 4, 10, 12, 14))
    np.testing.assert_array_equal(cut.coords, whole[kept])


@pytest.mark.parametrize("bad", [3, "0,0,0,1,1,1", (0, 0, 0, 1, 1), (0, 0, 0, 1, 0, 1),
                                 (0, 0, 0, 1, float("nan"), 1), (0, 0, 0, 1, 1, "x")])
def test_what_is_no_range_is_refused(bad):
    for call in (lambda: voxconv.load("scene:sphere", range=bad),
                 lambda: voxconv.voxelize(POINTS, range=bad)):
        with pytest.raises(ValueError, match="^range .*: six numbers .* are needed") as error:
            call()
        assert "\n" not in str(error.value)


def test_a_range_without_points_is_refused():
    far = (100, 100, 100, 101, 101, 101)
    with pytest.raises(ValueError, match="scene:sphere: none of its 100000 points lies in the range"):
        voxconv.load("scene:sphere", range=far)
    with pytest.raises(ValueError, match="^points: none of its 500 points lies in the range"):
        voxconv.voxelize(POINTS, range=far)


def test_a_range_does_not_hide_nan():
    points = POINTS.copy()
    points[7, 1] = np.nan
    with pytest.raises(ValueError, match="NaN|nan"):
        voxconv.voxelize(points, range=RANGE)


def first_rows(points, size):
    """The voxels of points in the order of their first points."""
    rows = {}
    for point in np.floor(points / size).astype(int).tolist():
        rows.setdefault((0, *point), len(rows))
    return np.array(list(rows))


def z_curve(coords):
    """A key that interleaves the bits of x, y and z, which count from the least coordinate."""
    keys = []
    for b, *position in coords.tolist():
        bits = [format(value + 131072, "018b") for value in position]
        keys.append((b, "".join(x + y + z for x, y, z in zip(*bits))))
    return keys


def test_rows_come_in_the_order_of_the_scan():
    x = voxconv.voxelize(POINTS, voxel_size=1.0)
    np.testing.assert_array_equal(x.coords, first_rows(POINTS, 1.0))


def test_features_follow_their_voxels_in_every_order(tmp_path):
    np.save(tmp_path / "points.npy", POINTS)
    scan = voxconv.voxelize(POINTS, voxel_size=1.0)
    features = {tuple(c): f.tolist() for c, f in zip(scan.coords.tolist(), scan.features)}
    for order in ("scan", "sorted", "shuffled", "morton"):
        x = voxconv.voxelize(POINTS, voxel_size=1.0, order=order)
        assert {tuple(c): f.tolist() for c, f in zip(x.coords.tolist(), x.features)} == features
        loaded = voxconv.load(tmp_path / "points.npy", voxel_size=1.0, order=order)
        np.testing.assert_array_equal(loaded.coords, x.coords)
        rows = x.coords.tolist()
        assert (rows == sorted(rows)) == (order == "sorted")
        assert (z_curve(x.coords) == sorted(z_curve(x.coords))) == (order == "morton")


def test_a_seed_fixes_the_shuffled_rows():
    rows = [voxconv.voxelize(POINTS, voxel_size=1.0, order="shuffled", seed=seed).coords.tolist()
            for seed in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2]
    scene = "scene:uniform?n=50&box=9"
    rows = [voxconv.load(scene, order="shuffled", seed=seed).coords.tolist() for seed in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2]


def test_what_is_no_order_is_refused():
    for call in (lambda: voxconv.load("scene:sphere", order="zorder"),
                 lambda: voxconv.voxelize(POINTS, order="zorder"),
                 lambda: voxconv.ab("hash/direct", "hash/direct", "scene:sphere", order="zorder")):
        with pytest.raises(ValueError, match="^order 'zorder': allowed are scan, sorted, shuffled and morton$"):
            call()
    x = voxconv.voxelize(POINTS, voxel_size=1.0)
    with pytest.raises(ValueError, match="^order 'sorted': has no meaning for a SparseTensor"):
        voxconv.ab("hash/direct", "hash/direct", x, order="sorted")
