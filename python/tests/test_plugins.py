# SPDX-License-Identifier: Apache-2.0
import importlib.util
import os
import pathlib

import numpy as np
import pytest
import reference
import voxconv

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def load_example():
    path = EXAMPLES / "python" / "plugins.py"
    spec = importlib.util.spec_from_file_location("example_plugins", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXAMPLE = load_example()


def verdicts(records):
    return {r["verdict"] for r in records}


def test_list_names_all_families():
    records = voxconv.list_plugins()
    assert {r["family"] for r in records} == {"mapping", "dataflow", "output_coords"}
    hash_mapping = next(r for r in records if r["family"] == "mapping" and r["name"] == "hash")
    assert "cpu" in hash_mapping["backends"]
    assert any(option["name"] == "variant" for option in hash_mapping["options"])


def test_a_shared_library():
    library = os.environ["VOXCONV_TEST_PLUGIN"]
    voxconv.load_plugin(pathlib.Path(library))
    x = voxconv.SparseTensor(*reference.scene())
    for a, b in zip(
        voxconv.KernelMap(x, mapping="binary_tree").pairs(), voxconv.KernelMap(x).pairs()
    ):
        np.testing.assert_array_equal(a, b)
    records = voxconv.verify(mapping="binary_tree", filter="map/binary_tree")
    assert verdicts(records) == {"passed"}
    with pytest.raises(ValueError, match="binary_tree"):
        voxconv.load_plugin(library)  # the name is taken


def test_verify_gives_records():
    records = voxconv.verify(mapping="hash:", filter="conv/hash/implicit_gemm", quick=True)
    assert verdicts(records) == {"passed"}
    assert set(records[0]) == {"case", "verdict", "detail"}


def test_ab_gives_records():
    x = voxconv.load("scene:sphere?n=500")
    records = voxconv.ab("hash/implicit_gemm", "sorted_search/fetch_on_demand", x, channels=(8, 8))
    assert records[-1]["stage"] == "wall"
    assert records[-1]["pairs"] == 20
    for record in records:
        assert record["a_ms"] >= 0 and record["b_ms"] >= 0
        assert set(record) == set(records[0])
        assert record["order"] is None  # of a SparseTensor nobody knows
    of_scene = voxconv.ab("hash/implicit_gemm", "sorted_search/fetch_on_demand",
                          "scene:sphere?n=500", channels=(8, 8), order="morton")
    assert of_scene[-1]["order"] == "morton"


@pytest.mark.unsanitized
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of values that overflow on purpose
@pytest.mark.parametrize("family", ["mapping", "dataflow"])
def test_the_example_passes_verify(family):
    plugin = {"mapping": EXAMPLE.SortedKeys, "dataflow": EXAMPLE.GatherMatmulScatter}[family]
    records = voxconv.verify(**{family: plugin.name})
    failed = [r for r in records if r["verdict"] == "failed"]
    assert not failed
    assert "passed" in verdicts(records)


def test_the_example_runs_in_a_layer_and_a_network():
    x = voxconv.load("scene:sphere?n=500", channels=4)
    w = reference.weights(27, 4, 6)
    spec = {"mapping": EXAMPLE.SortedKeys.name, "dataflow": EXAMPLE.GatherMatmulScatter.name}
    reference.close(voxconv.conv(x, w, **spec).features, voxconv.conv(x, w).features)
    network = voxconv.networks.minkunet42(width=0.25).initialize()
    np.testing.assert_allclose(
        network(x, **spec).features, network(x).features, rtol=1e-3, atol=1e-4
    )


def mapping(query):
    """Registers a mapping with this query under a new name."""
    number = len(voxconv.list_plugins())
    members = {"name": f"test_{number}", "build_index": lambda self, coords: coords, "query": query}
    return voxconv.register_mapping(type("Test", (), members)).name


def dataflow(forward):
    number = len(voxconv.list_plugins())
    members = {"name": f"test_{number}", "forward": forward}
    return voxconv.register_dataflow(type("Test", (), members)).name


def zero(value):
    return lambda self, index, outputs, offsets: value(len(outputs), len(offsets))


@pytest.mark.parametrize(
    "query, message",
    [
        (lambda self, index, outputs, offsets: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda self, index, outputs, offsets: None, "table: NoneType is no array"),
        (zero(lambda n, k: np.zeros((n, k - 1), np.int32)), "table: "),
        (zero(lambda n, k: np.zeros((n, k))), "table: dtype float64; int32 or int64 is needed"),
        (zero(lambda n, k: np.full((n, k), n, np.int32)), ""),  # rows out of range
        (zero(lambda n, k: np.full((n, k), -7, np.int32)), ""),
        (zero(lambda n, k: (np.zeros(3, np.int32),) * 2), "must be returned"),
        (zero(lambda n, k: (np.zeros(3, np.int32), np.zeros(3, np.int32),
                            np.zeros(k + 1, np.int64))),
         "in_rows: 3 elements; 0 are needed"),
        (zero(lambda n, k: (np.zeros(0, np.int32), np.zeros(0, np.int32),
                            np.r_[np.zeros(k, np.int64), -5])), ""),
        (zero(lambda n, k: (np.full(k, n, np.int64), np.zeros(k, np.int64), np.arange(k + 1))), ""),
        (zero(lambda n, k: (np.full(k, 2**40, np.int64), np.zeros(k, np.int64), np.arange(k + 1))),
         ""),
    ],
)
def test_a_wrong_mapping_is_one_line(query, message):
    x = voxconv.SparseTensor(*reference.scene(n=20))
    with pytest.raises((RuntimeError, ValueError)) as caught:
        voxconv.KernelMap(x, mapping=mapping(query))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_dataflow_is_one_line():
    x = voxconv.SparseTensor(*reference.scene(n=20))
    w = reference.weights(27, 5, 2)

    def fails(self, map, x, w, y):
        raise KeyError("two\nlines")

    kept = []

    def keeps(self, map, x, w, y):
        kept.append(x[1:])
        y[:] = 0

    def writes(self, map, x, w, y):
        x[:] = 0

    for forward, message in [
        (fails, "KeyError"), (keeps, "keeps an array"), (writes, "read-only"),
    ]:
        with pytest.raises(RuntimeError, match=message) as caught:
            voxconv.conv(x, w, dataflow=dataflow(forward))
        assert "\n" not in str(caught.value)


def test_a_wrong_dataflow_fails_verify():
    def nearly(self, map, x, w, y):
        in_rows, out_rows, offset_ptr = map
        y[:] = 0
        for k in range(1, len(w)):  # the first offset is forgotten
            pairs = slice(offset_ptr[k], offset_ptr[k + 1])
            y[out_rows[pairs]] += x[in_rows[pairs]] @ w[k]

    records = voxconv.verify(dataflow=dataflow(nearly), filter="conv/", quick=True)
    assert "failed" in verdicts(records)


def test_a_plugin_may_call_voxconv():
    def forward(self, map, x, w, y):
        voxconv.load("scene:sphere?n=100")
        y[:] = 1

    x = voxconv.SparseTensor(*reference.scene(n=20))
    y = voxconv.conv(x, reference.weights(27, 5, 2), dataflow=dataflow(forward))
    assert (y.features == 1).all()


@pytest.mark.parametrize(
    "members, error, message",
    [
        ({"name": "hash"}, ValueError, "hash"),
        ({"name": "Not A Word"}, ValueError, "Not A Word"),
        ({}, ValueError, "name ''"),
        ({"name": 3}, TypeError, "name: must be a string"),
        ({"name": "no_query", "query": None}, TypeError, "the class has no method query"),
    ],
)
def test_what_cannot_be_registered(members, error, message):
    methods = {"build_index": lambda self, coords: None, "query": lambda *arguments: None}
    methods.update(members)
    if methods["query"] is None:
        del methods["query"]
    with pytest.raises(error, match=message):
        voxconv.register_mapping(type("Test", (), methods))
    with pytest.raises(TypeError, match="plugin: a class is needed"):
        voxconv.register_mapping(3)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_options_and_variants():
    made = []

    class WithOptions:
        """scales twice"""

        name = "test_with_options"
        options = {
            "half": {"default": False, "help": "by halves"},
            "order": {"default": "up", "choices": ["up", "down"]},
            "block": {"default": 16, "min": 1, "max": 64, "help": "rows"},
            "share": {"default": 0.5, "min": 0, "max": 1},
        }
        extra_variants = ["block=3,share=0.25"]

        def __init__(self, **options):
            made.append(options)
            self.options_given = options

        def forward(self, map, x, w, y):
            EXAMPLE.GatherMatmulScatter.forward(self, map, x, w, y)

    voxconv.register_dataflow(WithOptions)
    record = next(r for r in voxconv.list_plugins() if r["name"] == WithOptions.name)
    assert record["backends"] == ["cpu"]
    assert [(o["name"], o["type"], o["default"], o["allowed"]) for o in record["options"]] == [
        ("half", "bool", "false", "true|false"), ("order", "enum", "up", "up|down"),
        ("block", "int", "16", "1..64"), ("share", "float", "0.5", "0..1"),
    ]
    x = voxconv.SparseTensor(*reference.scene())
    w = reference.weights(27, 5, 2)
    spec = "test_with_options:order=down,block=64"
    reference.close(voxconv.conv(x, w, dataflow=spec).features, voxconv.conv(x, w).features)
    assert made[-1] == {"half": False, "order": "down", "block": 64, "share": 0.5}
    assert [type(value) for value in made[-1].values()] == [bool, str, int, float]
    for wrong, message in [("block=65", "1..64"), ("order=left", "up|down"), ("more=1", "more")]:
        with pytest.raises(ValueError, match=message.replace("|", r"\|")):
            voxconv.conv(x, w, dataflow=f"test_with_options:{wrong}")
    records = voxconv.verify(dataflow=WithOptions.name, filter="conv/reference/*submanifold_k3")
    assert verdicts(records) <= {"passed", "skipped"}
    voxconv.verify(dataflow=WithOptions.name, filter="block=3")  # the extra variant has cases


@pytest.mark.parametrize(
    "members, error, message",
    [
        ({"options": 3}, TypeError, "options: must be a dict"),
        ({"options": {3: {}}}, TypeError, "options: a name: must be a string"),
        ({"options": {"a": 3}}, TypeError, r"options\['a'\]: must be a dict"),
        ({"options": {"a": {}}}, ValueError, "'default' is missing"),
        ({"options": {"a": {"default": None, "min": 1}}}, ValueError, "'default' is missing"),
        ({"options": {"a": {"default": []}}}, TypeError, "list; a bool, an int, a float or a str"),
        ({"options": {"a": {"default": 1}}}, ValueError, "'min' must be a number"),
        ({"options": {"a": {"default": 1, "min": 2, "max": 3}}}, ValueError, "a"),
        ({"options": {"a": {"default": 1, "min": 0, "max": 2**70}}}, ValueError, "'max' must be"),
        ({"options": {"a": {"default": "x", "choices": "xyz"}}}, TypeError, "a list or a tuple"),
        ({"options": {"a": {"default": "x", "choices": ["y"]}}}, ValueError, "a"),
        ({"options": {"a": {"default": True, "min": 0}}}, ValueError, "'min' has no meaning"),
        ({"options": {"a b": {"default": True}}}, ValueError, "a b"),
        ({"backends": "cpu"}, TypeError, "backends: must be a list or a tuple"),
        ({"backends": ("tpu",)}, ValueError, "backend 'tpu' is unknown"),
        ({"backends": ()}, ValueError, "backends: none"),
        ({"dtypes": ("tf32",)}, ValueError, "dtypes: 'tf32'; allowed are f32, f16 and bf16"),
        ({"deterministic": 1}, TypeError, "deterministic: must be a bool"),
    ],
)
def test_descriptions_that_cannot_be(members, error, message):
    methods = {"name": "test_wrong", "forward": lambda *arguments: None, **members}
    with pytest.raises(error, match=message) as caught:
        voxconv.register_dataflow(type("Test", (), methods))
    assert "\n" not in str(caught.value)
    assert "test_wrong" not in [r["name"] for r in voxconv.list_plugins()]


def test_a_constructor_that_refuses_is_one_line():
    class Refuses:
        name = "test_refuses"
        options = {"rows": {"default": 4, "min": 1, "max": 9}}

        def __init__(self, rows):
            if rows % 2:
                raise ValueError(f"rows: {rows}; an even number is needed")

        def forward(self, map, x, w, y):
            y[:] = 0

    voxconv.register_dataflow(Refuses)
    x = voxconv.SparseTensor(*reference.scene(n=20))
    with pytest.raises(RuntimeError, match="test_refuses: ValueError: rows: 3; an even number"):
        voxconv.conv(x, reference.weights(27, 5, 2), dataflow="test_refuses:rows=3")


def test_maps_are_checked_unless_a_mapping_says_no():
    def outside(self, index, outputs, offsets):
        return np.full((len(outputs), len(offsets)), len(outputs), np.int32)

    x = voxconv.SparseTensor(*reference.scene(n=20))
    members = {"name": "test_unchecked", "checked": False, "query": outside,
               "build_index": lambda self, coords: None}
    voxconv.register_mapping(type("Test", (), members))
    assert voxconv.KernelMap(x, mapping="test_unchecked").num_outputs == len(x)
    records = voxconv.verify(mapping="test_unchecked", filter="map/", quick=True)
    assert "passed" not in {r["verdict"] for r in records if "/empty" not in r["case"]}
