# SPDX-License-Identifier: Apache-2.0
"""voxconv.tune, voxconv.experiment and voxconv.report."""

import importlib.util

import numpy as np
import pytest
import voxconv

def raises(message, call, error=ValueError):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def x():
    return voxconv.load("scene:sphere?n=300", channels=4)


def network():
    return voxconv.networks.minkunet42(width=0.25)


def test_a_plan_is_found_and_runs(x):
    plan = voxconv.tune(
        network(), x, mapping=["hash:", "sorted_search:"], dataflow=["implicit_gemm:"], repeats=1
    )
    layers = {record["layer"]: record for record in network().initialize().profile(x)}
    assert len(plan) > 20
    for record in plan:
        assert record["layer"] in layers
        assert record["mapping"].split(":")[0] in ("hash", "sorted_search")
        assert record["dataflow"].startswith("implicit_gemm")
        assert record["ms"] > 0
    other = [dict(record, dataflow="gather_gemm_scatter") for record in plan]
    model = network().initialize()
    ran = {record["layer"]: record for record in model.profile(x, plan=other)}
    for record in other:
        assert ran[record["layer"]]["dataflow"].startswith("gather_gemm_scatter")
    y = model(x).features.copy()
    error = np.abs(model(x, plan=plan).features - y).max()
    assert error <= 1e-3 * np.abs(y).max()
    np.testing.assert_array_equal(model(x).features, y)  # a runner of other settings


def test_what_tune_refuses(x):
    raises("mapping", lambda: voxconv.tune(network(), x, mapping="nothing"))
    raises("repeats 0", lambda: voxconv.tune(network(), x, repeats=0))
    raises("mapping: is an empty list", lambda: voxconv.tune(network(), x, mapping=[]))
    raises("a SparseTensor is needed", lambda: voxconv.tune(network(), 3), TypeError)
    raises("a Network is needed", lambda: voxconv.tune(3, x), TypeError)
    raises("dataflow: a spec is a string", lambda: voxconv.tune(network(), x, dataflow=[3]), TypeError)
    raises("mapping: a spec or a list", lambda: voxconv.tune(network(), x, mapping=3), TypeError)
    model = network().initialize()
    raises("plan: a list of dicts", lambda: model(x, plan=[]), TypeError)
    raises("plan: 'layer' is missing", lambda: model(x, plan=[{}]), TypeError)
    plan = [{"layer": "a", "c_in": 1, "c_out": 1, "mapping": "", "dataflow": "", "output_coords": ""}]
    raises("plan: has the plugins of all layers", lambda: model(x, plan=plan, mapping="hash"))
    with pytest.raises(ValueError):
        model(x, plan=plan)  # does not list the network's layers


def test_shards_of_an_experiment_merge(tmp_path):
    name, out = "minuet/fig16", tmp_path / "merged"
    shards = [tmp_path / f"shard-{i + 1}" for i in range(3)]
    parts = [voxconv.experiment(name, shard, quick=True, shard=f"{i + 1}/3")
             for i, shard in enumerate(shards)]
    keys = [cell["key"] for cells in parts for cell in cells]
    assert len(set(keys)) == len(keys) > 3
    assert voxconv.merge_results(shards, out) == {
        "files": 1, "cells": len(keys), "doubles": 0, "unreadable": 0}
    assert voxconv.merge_results(shards, out)["doubles"] == len(keys)
    whole = voxconv.experiment(name, out, quick=True)  # nothing is left to run
    assert {cell["key"] for cell in whole} == set(keys) and len(whole) == len(keys)
    raises("shard 4/3: allowed are I/N",
           lambda: voxconv.experiment(name, out, quick=True, shard="4/3"))
    raises("No such file", lambda: voxconv.merge_results([tmp_path / "none"], out))
    raises("is the directory to merge into", lambda: voxconv.merge_results([out], out))


def test_an_experiment_and_its_report(tmp_path):
    assert "minuet/fig16" in voxconv.experiments()
    name = "neighbours"
    cells = voxconv.experiment(name, tmp_path / "out", quick=True)
    assert cells and all(cell["kind"] == "cell" for cell in cells)
    assert {cell["status"] for cell in cells} <= {"measured", "refused"}
    again = voxconv.experiment(name, tmp_path / "out", quick=True)
    assert [cell["key"] for cell in again] == [cell["key"] for cell in cells]  # nothing ran again
    raises("pairs", lambda: voxconv.experiment(name, tmp_path / "out", pairs=3))
    raises("nothing", lambda: voxconv.experiment("nothing", tmp_path / "out", quick=True))
    raises("backend", lambda: voxconv.experiment(name, tmp_path / "out", backend="nothing"))
    raises("cell 'nothing': no cell has such a title",
           lambda: voxconv.experiment(name, tmp_path / "out", quick=True, cell="nothing"))
    raises("out '': is empty", lambda: voxconv.experiment(name, "", quick=True))
    raises("is not a directory", lambda: voxconv.report(tmp_path / "nothing"))
    raises("another run", lambda: voxconv.report(tmp_path / "out", again=tmp_path / "out"))
    if importlib.util.find_spec("matplotlib") is None:
        raises("needs matplotlib", lambda: voxconv.report(tmp_path / "out"), ImportError)
        return
    page = voxconv.report(tmp_path / "out", tmp_path / "pages", title="Mine")
    assert "Mine" in page.read_text(encoding="utf-8")
    (tmp_path / "empty").mkdir()
    raises("has no results", lambda: voxconv.report(tmp_path / "empty"))
