# SPDX-License-Identifier: Apache-2.0
"""All experiments by one command, and two such runs against each other.

    run_experiments_test.py VOXCONV
"""

import copy
import gzip
import json
import pathlib
import sys
import tempfile
import unittest

import support

VOXCONV = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/run_experiments"
CLAIM = {"what": "one is faster", "faster": True, "source": "Table 1", "gpu": "none",
         "configuration": "one"}


class RunTest(unittest.TestCase):
    def test_every_experiment_of_a_gpu_is_in_a_part(self):
        listed = support.run(SCRIPT, "list").stdout
        for path in sorted((ROOT / "experiments").glob("**/*.json")):
            name = str(path.relative_to(ROOT / "experiments").with_suffix(""))
            if name.split("/")[0] in ("inputs", "presets", "results", "spaces"):
                continue
            # `own` is of CPUs.
            self.assertEqual(name != "own", f" {name} " in listed, name)

    def test_parts_are_checked_and_then_timed(self):
        with tempfile.TemporaryDirectory() as folder:
            names = [one["name"] for one in json.loads(
                (ROOT / "experiments/inputs/day.json").read_text(encoding="utf-8"))]
            inputs = support.write(f"{folder}/inputs.json",
                                   [{"input": support.SMALL, "name": name} for name in names])
            command = (SCRIPT, "run", f"{folder}/out", "--program", VOXCONV, "--backend", "cpu",
                       "--quick", "--jobs", 2, "--inputs", inputs, "--data", folder,
                       "--only", "sweep", "looks", "counters_of_maps")
            result = support.run(*command)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            lines = support.read_lines(f"{folder}/out/torchsparse-table2.jsonl")
            # Checks that begin at the same time may each write the experiment's line.
            cells = [line for line in lines if line["kind"] == "cell"]
            self.assertEqual({line["status"] for line in cells}, {"measured"})
            self.assertEqual({line["round"] for line in cells}, {1})
            self.assertTrue(pathlib.Path(f"{folder}/out/checks/torchsparse-table2.jsonl").exists())
            # The same command goes on.
            self.assertEqual(support.run(*command).returncode, 0)
            self.assertEqual(support.read_lines(f"{folder}/out/torchsparse-table2.jsonl"), lines)
            # A second run takes the first one's checks over.
            again = (*command[:2], f"{folder}/again", *command[3:], "--from", f"{folder}/out", "--gpus", 2)
            result = support.run(*again)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            for part in ("sweep", "looks", "counters_of_maps"):
                self.assertIn(f"{part}: ", result.stdout)
            log = pathlib.Path(f"{folder}/again/log.txt").read_text(encoding="utf-8")
            self.assertIn(": checked before", log)
            self.assertNotRegex(log, ": checked(?! before)")

    def test_an_unknown_part_is_refused(self):
        self.assertIn("has no such part",
                      support.run(SCRIPT, "run", "/nowhere", "--only", "nothing").stderr)


class CompareTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        file = support.write(cls.path / "small.json", support.definition(published=[CLAIM]))
        result = support.run(VOXCONV, "experiment", file, "--threads", 1, "--rounds", 1, "--out",
                             cls.path / "run")
        assert result.returncode == 0, result.stderr
        cls.lines = support.read_lines(cls.path / "run" / "small.jsonl")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def write(self, name, factor):
        """The lines with A as fast as B, times `factor`."""
        lines = copy.deepcopy(self.lines)
        result = lines[-1]["result"]
        result["a"]["wall_ms_samples"] = [1 / factor] * result["pairs"]
        result["b"]["wall_ms_samples"] = [1.0] * result["pairs"]
        result["speedup"].update(ratio=factor, low=factor, high=factor)
        result["verdict"] = "faster" if factor > 1 else "slower"
        (self.path / name).mkdir(exist_ok=True)
        support.write_lines(self.path / name / "small.jsonl", lines)
        return self.path / name

    def test_equal_verdicts_pass_and_opposite_ones_do_not(self):
        faster, much_faster, slower = (self.write(str(factor), factor) for factor in (2, 4, 0.5))
        result = support.run(SCRIPT, "compare", faster, much_faster)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("claims: 1 of 1 verdicts are equal (100.0 %), 0 are opposite", result.stdout)
        self.assertIn("cells: 1 of 1 verdicts are equal (100.0 %), 0 are opposite", result.stdout)
        result = support.run(SCRIPT, "compare", faster, slower)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn("claims: 0 of 1 verdicts are equal (0.0 %), 1 are opposite", result.stdout)
        self.assertIn("one is faster: reproduced, then not reproduced", result.stdout)
        self.assertIn("faster, then slower", result.stdout)

    def test_experiments_without_times_have_claims(self):
        out = self.path / "looks"
        result = support.run(VOXCONV, "experiment", "pcengine/eq2", "--quick", "--out", out)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        result = support.run(SCRIPT, "compare", out, out)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("claims: 2 of 2 verdicts are equal", result.stdout)

    def test_packed_lines_count_as_plain_ones(self):
        faster, slower = self.write("3", 3), self.write("0.25", 0.25)
        plain = support.run(SCRIPT, "compare", faster, slower).stdout
        lines = slower / "small.jsonl"
        packed = slower / "small.jsonl.gz"
        packed.write_bytes(gzip.compress(lines.read_bytes()))
        lines.unlink()
        self.assertEqual(support.run(SCRIPT, "compare", faster, slower).stdout, plain)
        # Lines beside them are newer.
        lines.write_bytes((faster / "small.jsonl").read_bytes())
        self.assertEqual(support.run(SCRIPT, "compare", faster, slower).returncode, 0)
        lines.unlink()
        packed.write_bytes(b"no gzip")
        result = support.run(VOXCONV, "report", slower)
        self.assertEqual(result.returncode, 1)
        self.assertIn("small.jsonl.gz cannot be read or written (it is no gzip file", result.stderr)

    def test_nothing_in_common_is_an_error(self):
        empty = self.path / "empty"
        empty.mkdir()
        result = support.run(SCRIPT, "compare", self.write("2", 2), empty)
        self.assertEqual(result.returncode, 1)
        self.assertIn("no cell", result.stderr)


if __name__ == "__main__":
    unittest.main()
