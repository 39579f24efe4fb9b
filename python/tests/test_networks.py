# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import reference
import voxconv


@pytest.fixture(scope="module")
def x():
    return voxconv.load("scene:sphere?n=1000", channels=4)


@pytest.fixture(scope="module")
def network():
    return voxconv.networks.minkunet42(width=0.25).initialize(seed=3)


def test_all_networks_run():
    five = voxconv.load("scene:sphere?n=1000", channels=5)
    four = voxconv.load("scene:sphere?n=1000", channels=4)
    networks = voxconv.networks
    assert networks.minkunet42(classes=7, width=0.25).initialize()(four).channels == 7
    assert networks.sparseresnet21(width=0.25).initialize()(four).stride == (8, 16, 8)
    assert networks.centerpoint(width=0.25).initialize()(five).stride == (8, 8, 16)


def test_centerpoint_drops_what_is_outside_its_grid():
    # Strided layers with padding give outputs past the voxels' own box.
    x = voxconv.load("scene:uniform?n=3000&box=48", channels=5)
    low, high = x.coords[:, 1:].min(axis=0), x.coords[:, 1:].max(axis=0)
    assert low.min() >= 0
    grid = (0, 0, 0, *(int(value) for value in high))
    networks = [voxconv.networks.centerpoint(width=0.25, grid=g).initialize()
                for g in (None, grid, np.array(grid))]
    everything, cut, same = (set(map(tuple, n(x).coords.tolist())) for n in networks)
    assert cut == same
    assert cut < everything


@pytest.mark.parametrize("grid, words", [
    ((0, 0, 0, 9, 9), "grid .*: six whole numbers are needed"),
    ((0, 0, 0, 9, -1, 9), "grid .*: six whole numbers are needed"),
    ((0, 0, 0.5, 9, 9, 9), "grid .*: six whole numbers are needed"),
    ((3, 0, 0, 900, 900, 99), "grid"),
])
def test_what_is_no_grid_is_refused(grid, words):
    with pytest.raises(ValueError, match=words):
        voxconv.networks.centerpoint(grid=grid)


def test_a_grid_is_centerpoints_alone():
    with pytest.raises(ValueError, match="grid: network 'minkunet42' has none"):
        voxconv.networks.Network("minkunet42", grid=(0, 0, 0, 63, 63, 63))


def test_weights_go_out_and_in(x, network, tmp_path):
    y = network(x)
    state = network.state_dict()
    assert {name: array.shape for name, array in state.items()} == network.parameter_shapes
    np.savez(tmp_path / "weights.npz", **state)
    for weights in (state, tmp_path / "weights.npz", str(tmp_path / "weights.npz")):
        other = voxconv.networks.minkunet42(width=0.25).load(weights)
        np.testing.assert_array_equal(other(x).features, y.features)


def test_load_replaces_what_was_there(x, network):
    other = voxconv.networks.minkunet42(width=0.25).initialize(seed=4)
    before = other(x).features.copy()
    other.load(network.state_dict())
    assert np.abs(other(x).features - before).max() > 0
    np.testing.assert_array_equal(other(x).features, network(x).features)


def test_first_layer_equals_numpy(x, network):
    # The one layer that plain NumPy can follow: stem, batch norm, ReLU.
    state = network.state_dict()
    first = next(iter(state))
    w = state[first]
    assert w.shape[:2] == (27, 4)
    found = reference.pairs(x.coords, x.coords, reference.offsets(3))
    reference.close(
        voxconv.conv(x, w).features, reference.forward(found, len(x), x.features, w)
    )


def test_wrong_weights_are_refused_whole(x, network):
    state = network.state_dict()
    y = network(x).features.copy()
    name = next(iter(state))
    for wrong, message in [
        ({k: v for k, v in state.items() if k != name}, f"^weights: '{name}' is missing$"),
        ({**state, "more": np.ones(1, np.float32)}, "^weights 'more': minkunet42 has no parameter"),
        ({**state, name: state[name][:-1]}, f"^weights '{name}': shape "),
        ({**state, name: state[name].astype(np.float64)}, f"^weights '{name}': float64 on cpu; "),
    ]:
        with pytest.raises(ValueError, match=message):
            network.load(wrong)
    np.testing.assert_array_equal(network(x).features, y)


def test_plugins_agree(x, network):
    y = network(x).features
    for spec in (
        {"mapping": "hash", "dataflow": "gather_gemm_scatter"},
        {"mapping": "octree", "dataflow": "implicit_gemm", "output_coords": "staged"},
        {"fold_batch_norm": True},
    ):
        np.testing.assert_allclose(network(x, **spec).features, y, rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="mapping 'hassh' is unknown"):
        network(x, mapping="hassh")


def test_profile_gives_records(x, network):
    records = network.profile(x)
    convolutions = [r for r in records if r["op"] == "conv"]
    assert len(convolutions) == 42 + 7
    assert all(set(r) == set(records[0]) for r in records)
    assert sum(r["total_ms"] for r in records) > 0


@pytest.mark.unsanitized
def test_many_frames_take_no_memory(x, network):
    from test_memory import resident_bytes

    for _ in range(20):
        network(x)
    before = resident_bytes()
    for _ in range(100):
        network(x)
    assert resident_bytes() - before < 8 << 20
