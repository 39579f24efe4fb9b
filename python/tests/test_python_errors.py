# SPDX-License-Identifier: Apache-2.0
"""What plugins in Python raise and return by mistake, and classes that are registered again."""

import json
import traceback

import numpy as np
import pytest
import reference
import voxconv


@pytest.fixture(scope="module")
def x():
    return voxconv.SparseTensor(*reference.scene(n=20))


@pytest.fixture(scope="module")
def w():
    return reference.weights(27, 5, 2)


class Right:
    """The convolution, in whatever class it stands."""

    def forward(self, map, x, w, y):
        in_rows, out_rows, offset_ptr = map
        y[:] = 0
        for k in range(len(w)):
            pairs = slice(offset_ptr[k], offset_ptr[k + 1])
            y[out_rows[pairs]] += x[in_rows[pairs]] @ w[k]


def dataflow(name, forward, **members):
    return voxconv.register_dataflow(type(name, (), {"name": name, "forward": forward, **members}))


def raising(name, error):
    def forward(self, map, x, w, y):
        raise error

    return dataflow(name, forward).name


@pytest.mark.parametrize("given", [np.zeros(3), True, "y"], ids=lambda given: type(given).__name__)
def test_forward_returns_nothing(x, w, given):
    name = dataflow("returns", lambda self, map, x, w, y: given).name
    message = rf"forward: returned (numpy\.)?{type(given).__name__}; it must fill y and return nothing"
    with pytest.raises(RuntimeError, match=message):
        voxconv.conv(x, w, dataflow=name)


@pytest.mark.parametrize("answer", [True, False, 3, ["no"]])
def test_supports_returns_a_reason_or_none(x, answer):
    members = {"name": "says_more", "build_index": lambda self, coords: coords,
               "query": lambda *arguments: None, "supports": lambda self, geometry: answer}
    voxconv.register_mapping(type("SaysMore", (), members))
    with pytest.raises(RuntimeError, match=f"supports: TypeError: returned {type(answer).__name__}"):
        voxconv.KernelMap(x, mapping="says_more")


@pytest.mark.parametrize("error", [NotImplementedError, MemoryError])
def test_exceptions_with_a_meaning_keep_it(x, w, error):
    name = raising("raises_its_own", error("rows of 7"))
    with pytest.raises(error, match=f"dataflow raises_its_own: forward: {error.__name__}: rows of 7"):
        voxconv.conv(x, w, dataflow=name)


def test_the_exception_is_the_cause_with_its_lines(x, w):
    def query(self, index, outputs, offsets):
        empty = {}
        return empty["a key"]

    members = {"name": "fails_deep", "build_index": lambda self, coords: coords, "query": query}
    voxconv.register_mapping(type("FailsDeep", (), members))
    network = voxconv.networks.minkunet42(in_channels=5, width=0.25).initialize()
    for call in (lambda: voxconv.KernelMap(x, mapping="fails_deep"),
                 lambda: network(x, mapping="fails_deep")):  # builds maps in a thread of its own
        with pytest.raises(RuntimeError, match="query: KeyError: 'a key'") as caught:
            call()
        cause = caught.value.__cause__
        assert type(cause) is KeyError
        last = traceback.extract_tb(cause.__traceback__)[-1]
        assert last.filename == __file__ and last.name == "query" and 'empty["a key"]' in last.line
    # Variables of its frames may be arrays that were lent for one call.
    name = raising("fails_with_arrays", ValueError("no"))
    with pytest.raises(RuntimeError) as caught:
        voxconv.conv(x, w, dataflow=name)
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__cause__.__traceback__)]
    assert frames and not any("y" in frame.f_locals for frame in frames)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_is_no_exception_ends_the_call(x, w, tmp_path, error):
    original = error("now")
    calls = []

    def forward(self, map, x, w, y):
        calls.append(0)
        raise original

    name = dataflow("ends_all", forward).name
    network = voxconv.networks.minkunet42(width=0.25)
    points = voxconv.load("scene:sphere?n=300", channels=4)
    file = tmp_path / "ends.json"
    file.write_text(json.dumps({
        "name": "ends", "title": "it ends", "about": "A test.", "kind": "layer", "maps": ["rebuilt"],
        "inputs": [{"input": "scene:sphere?n=300", "voxel_size": 1}],
        "layers": [{"kind": "submanifold", "kernel": 3, "channels": [[8, 8], [4, 4]]}],
        "configurations": [{"name": "ends", "spec": f"hash/{name}", "against": ["other"]},
                           {"name": "other", "spec": "hash/implicit_gemm", "against": []}],
        "baseline": "other",
    }))
    for call in (
        lambda: voxconv.conv(x, w, dataflow=name),
        lambda: voxconv.verify(dataflow=name, filter="conv/", quick=True),
        lambda: voxconv.ab(f"hash/{name}", "hash/implicit_gemm", points, channels=(4, 4)),
        lambda: voxconv.tune(network, points, mapping="hash:", dataflow=name, repeats=1),
        lambda: voxconv.experiment(str(file), tmp_path / "out", quick=True),
    ):
        calls.clear()
        with pytest.raises(error) as caught:
            call()
        assert caught.value is original
        assert len(calls) < 5
    results = (tmp_path / "out" / "ends.jsonl").read_text()
    assert '"kind":"cell"' not in results.replace(" ", "")  # no cell failed by it
    voxconv.conv(x, w)  # it is not raised twice
    dataflow("ends_all", Right.forward)  # for tests that run all plugins


def test_a_class_replaces_an_earlier_one_of_its_name(x, w):
    expected = voxconv.conv(x, w).features
    m = voxconv.KernelMap(x, kernel=3)

    def cell(factor, form):
        class OfACell(Right):
            name = "of_a_cell"

            def forward(self, map, x, w, y):
                if form == "neighbour_table":
                    padded = np.concatenate([x, np.zeros((1, x.shape[1]), np.float32)])
                    y[:] = np.einsum("qkc,kcd->qd", padded[map], w)
                else:
                    super().forward(map, x, w, y)
                y *= factor

        OfACell.form = form
        return voxconv.register_dataflow(OfACell)

    cell(1, "pairs")
    reference.close(voxconv.convolve(m, x.features, w, dataflow="of_a_cell"), expected)
    before = voxconv._voxconv._replacements()
    cell(2, "neighbour_table")
    assert voxconv._voxconv._replacements() == before + 1
    # Nothing that the earlier one has made of the map is used.
    reference.close(voxconv.convolve(m, x.features, w, dataflow="of_a_cell"), 2 * expected)
    assert sum(r["name"] == "of_a_cell" for r in voxconv.list_plugins()) == 1
    with pytest.raises(ValueError, match="'of_a_cell' is registered already"):
        voxconv.register_dataflow(type("Another", (Right,), {"name": "of_a_cell"}))
    with pytest.raises(ValueError, match="'implicit_gemm' is registered already"):
        voxconv.register_dataflow(type("Another", (Right,), {"name": "implicit_gemm"}))


def test_a_class_that_is_replaced_while_it_runs(x, w):
    def make(value, replaces):
        class Replaced:
            name = "replaced_in_use"

            def forward(self, map, x, w, y):
                if replaces:
                    make(2, False)
                y[:] = value

        return voxconv.register_dataflow(Replaced)

    make(1, True)
    assert (voxconv.conv(x, w, dataflow="replaced_in_use").features == 1).all()
    assert (voxconv.conv(x, w, dataflow="replaced_in_use").features == 2).all()
