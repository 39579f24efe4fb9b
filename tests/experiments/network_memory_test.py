# SPDX-License-Identifier: Apache-2.0
"""experiments/hcnn/network_memory.py: what it counts, and that a count is what a run measures.

    network_memory_test.py VOXCONV
"""

import importlib.util
import json
import pathlib
import sys
import tempfile
import unittest

import support

try:
    import numpy as np
except ImportError:
    print("skipped: python3-numpy is not installed")
    sys.exit(77)

VOXCONV = sys.argv.pop(1)
SCRIPT = pathlib.Path(__file__).parents[2] / "experiments" / "hcnn" / "network_memory.py"
TORUS = "scene:torus?n=20000"


def load_script():
    spec = importlib.util.spec_from_file_location("network_memory", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = load_script()


class StandInTest(unittest.TestCase):
    def test_has_as_many_cells_on_each_level(self):
        random = np.random.default_rng(1)
        cells = np.unique(random.integers(0, 32, (700, 3)), axis=0)
        counts = script.level_counts(cells, 2)
        self.assertEqual(counts[0], len(cells))
        octree = [8 * count for count in counts[1:-1]] + counts[-2:]
        for wanted in (counts, octree):
            made = script.stand_in(wanted)
            self.assertEqual(script.level_counts(made, len(wanted) - 3), wanted)


class PageTest(unittest.TestCase):
    def test_has_the_tables_of_the_lines(self):
        root = SCRIPT.parents[2]
        page = (root / "docs" / "results" / "hcnn_network_memory.md").read_text()
        files = list((root / "experiments" / "results").glob("*/hcnn-network-memory*.jsonl"))
        self.assertEqual(len(files), 4)
        for lines in files:
            result = support.run(sys.executable, SCRIPT, "--from", lines)
            self.assertEqual(result.returncode, 0, result.stderr)
            for table in result.stdout.split("\n\n"):
                self.assertIn(table.strip(), page)


class NetworkMemoryTest(unittest.TestCase):
    def run_script(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "lines.jsonl"
            result = support.run(sys.executable, SCRIPT, "--voxconv", VOXCONV, "--threads", 1, "--jobs", 2, "--out",
                                 out, *arguments, TORUS)
            lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
        return result, lines

    def test_a_run_and_what_is_counted_from_a_coarser_one(self):
        network = ["--networks", "hcnn_segmenter"]
        result, lines = self.run_script("--resolutions", "16,32", "--dense-most", 32, *network)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(lines), 2 * 4)
        psh, lookup, octree, dense = lines[4:]
        self.assertEqual([line["kind"] for line in lines[4:]], list(script.KINDS))
        self.assertEqual(lookup["activations"], psh["activations"])
        self.assertLess(lookup["maps"], psh["maps"])
        self.assertLess(lookup["peak"], psh["peak"])
        for line in lines:
            self.assertGreaterEqual(line["peak"], line["activations"] + line["parameters"])
        self.assertEqual(octree["rows"] % 8, 0)
        self.assertEqual(dense["rows"], 32 ** 3)
        self.assertLess(psh["activations"], octree["activations"])
        self.assertLess(octree["activations"], dense["activations"])
        self.assertIn(f"| `hcnn_segmenter` | 32³ | {psh['rows']:,} |", result.stdout)
        result, lines = self.run_script("--resolutions", "16,32", "--dense-most", 16, *network)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(lines[-1]["counted"])
        for key in ("rows", "activations", "parameters"):
            self.assertEqual(lines[-1][key], dense[key])

    def test_classifiers(self):
        result, lines = self.run_script("--resolutions", 16, "--networks", "hcnn_classifier")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([line["counted"] for line in lines], [False] * 4)

    def test_refuses_by_name(self):
        for arguments, words in ((["--resolutions", 8], "--resolutions 8: at least 16 is needed"),
                                 (["--resolutions", "x"], "--resolutions x: numbers"),
                                 (["--networks", "unet"], "--networks unet: allowed are")):
            result, _ = self.run_script(*arguments)
            self.assertEqual(result.returncode, 2)
            self.assertIn(words, result.stderr)
        result = support.run(sys.executable, SCRIPT, "--voxconv", VOXCONV, "nothing.obj")
        self.assertEqual(result.returncode, 1)
        self.assertIn("nothing.obj", result.stderr)
        self.assertNotIn("Traceback", result.stderr)


if __name__ == "__main__":
    unittest.main()
