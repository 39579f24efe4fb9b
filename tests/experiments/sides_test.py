# SPDX-License-Identifier: Apache-2.0
"""Sides that are tuned plans, and inputs that are batches.

    sides_test.py VOXCONV
"""

import json
import pathlib
import sys
import tempfile
import unittest

import support

VOXCONV = sys.argv.pop(1)
NETWORK = {"network": "sparseresnet21", "width": 0.125}
CHOICE = "hash/fetch_on_demand"


class Test(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)

    def experiment(self, **changes):
        file = support.write(self.path / "small.json", support.definition(**changes))
        result = support.run(VOXCONV, "experiment", file, "--threads", 1, "--rounds", 1, "--out",
                             self.path / "run")
        lines = self.path / "run" / "small.jsonl"
        return result, support.read_lines(lines) if lines.exists() else []


class PlanTest(Test):
    def run_plan(self, plan):
        content = support.definition(
            kind="network", networks=[NETWORK], baseline="untuned",
            configurations=[{"name": "tuned", "spec": f"plan:{plan}"},
                            {"name": "untuned", "spec": CHOICE}])
        del content["layers"]
        file = support.write(self.path / "small.json", content)
        result = support.run(VOXCONV, "experiment", file, "--threads", 1, "--rounds", 1, "--out",
                             self.path / "run")
        return result, support.read_lines(self.path / "run" / "small.jsonl")

    def test_a_side_is_a_plan_and_says_what_was_tuned(self):
        plan = self.path / "plan.json"
        space = self.path / "space.json"
        space.write_text(json.dumps({"mappings": ["hash"], "grids": [],
                                     "dataflows": ["fetch_on_demand", "direct"]}))
        tuned = support.run(VOXCONV, "tune", "--network", NETWORK["network"], "--width",
                            NETWORK["width"], "--input", support.SMALL, "--threads", 1, "--repeats", 1,
                            "--candidates", space, "--out", plan)
        self.assertEqual(tuned.returncode, 0, tuned.stderr)
        result, lines = self.run_plan(plan)
        self.assertEqual(result.returncode, 0, result.stderr)
        line = lines[-1]
        self.assertEqual(line["status"], "measured")
        side = line["configurations"]["a"]["tuned"]
        self.assertEqual(side["plan"], str(plan))
        self.assertIn("each layer's mapping of 1 and dataflow of 2, on scene:uniform", side["what"])
        self.assertEqual(len(side["search"]["space"]["dataflows"]), 2)
        self.assertNotIn("tuned", line["configurations"]["b"])
        self.assertTrue(line["factors"]["autotuned"])
        self.assertGreater(len(line["cell"]["specs"]["a"]["plan"]), 10)
        report = support.run(VOXCONV, "report", self.path / "run")
        self.assertEqual(report.returncode, 0, report.stderr)
        page = support.markdown_of(self.path / "run")
        self.assertIn("| tuned |", page)
        self.assertIn("| A: each layer's mapping of 1 and dataflow of 2", page)

    def test_a_plan_holds_none_but_the_candidates_that_were_named(self):
        plan = self.path / "plan.json"
        space = self.path / "space.json"
        space.write_text(json.dumps({"mappings": ["hash:variant=std"], "grids": [],
                                     "dataflows": ["direct:weights=naive"]}))
        for named in (["--candidates", space], ["--dataflow", "direct:weights=naive"]):
            tuned = support.run(VOXCONV, "tune", "--network", NETWORK["network"], "--width",
                                NETWORK["width"], "--input", support.SMALL, "--threads", 1,
                                "--repeats", 1, *named, "--quick", "--out", plan)
            self.assertEqual(tuned.returncode, 0, tuned.stderr)
            self.assertNotIn("the default,", tuned.stdout)
            layers = json.loads(plan.read_text())["plans"][0]["layers"]
            self.assertEqual({layer["dataflow"] for layer in layers}, {"direct:weights=naive"})

    def test_a_cell_without_its_plan_is_refused(self):
        result, lines = self.run_plan(self.path / "nowhere.json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(lines[-1]["status"], "refused")
        self.assertIn("nowhere.json", lines[-1]["reason"])

    def test_layers_have_no_plans(self):
        result, lines = self.experiment(configurations=[{"name": "one", "spec": "plan:p.json"},
                                                        {"name": "same", "spec": CHOICE}])
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("plan:p.json", result.stderr)
        self.assertIn("no plans", result.stderr)
        self.assertEqual(lines, [])


class BatchTest(Test):
    def scene(self, seed):
        return f"scene:uniform?n=300&box=10&seed={seed}"

    def test_samples_follow_each_other(self):
        result, lines = self.experiment(inputs=[
            {"input": self.scene(1), "name": "one"},
            {"input": self.scene(1), "name": "three", "batch": [self.scene(2), self.scene(1)]}])
        self.assertEqual(result.returncode, 0, result.stderr)
        one, three = lines[-2:]
        self.assertEqual(three["cell"]["batch"], [self.scene(2), self.scene(1)])
        self.assertNotIn("batch", one["cell"])
        self.assertEqual(three["cell"]["voxels"], 3 * one["cell"]["voxels"])
        self.assertNotEqual(one["cell"]["input_hash"], three["cell"]["input_hash"])
        # Samples are no neighbours of each other: about as many pairs a voxel.
        self.assertLess(abs(three["cell"]["neighbours"] / one["cell"]["neighbours"] - 1), 0.2)

    def test_a_sample_that_is_not_there_is_named(self):
        result, _ = self.experiment(inputs=[{"input": self.scene(1), "batch": ["nowhere.bin"]}])
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("nowhere.bin", result.stderr)
        result, _ = self.experiment(inputs=[{"input": self.scene(1), "batch": []}])
        self.assertIn("batch", result.stderr)


if __name__ == "__main__":
    support.need_matplotlib()
    unittest.main()
