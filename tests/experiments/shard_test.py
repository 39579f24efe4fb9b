# SPDX-License-Identifier: Apache-2.0
"""Shards run each cell once, and their results merge without loss or doubles.

    shard_test.py VOXCONV
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import support

VOXCONV = sys.argv.pop(1)
TILES = [1, 2, 3, 4, 5, 6, 7]
CELLS = len(TILES)
SWEEPS = pathlib.Path(__file__).parents[2] / "examples" / "sweeps"

# What examples/sweeps/ray_shards.py uses of Ray: tasks start at once and at the same time.
RAY = """
import concurrent.futures, json, os

class Task:
    def __init__(self, function, needs=None):
        self.function, self.needs = function, needs

    def options(self, **needs):
        return Task(self.function, needs)

    def remote(self, *arguments):
        with open(os.environ["RAY_NEEDS"], "a") as file:
            file.write(json.dumps(self.needs) + "\\n")
        return pool.submit(self.function, *arguments)

def init():
    global pool
    pool = concurrent.futures.ThreadPoolExecutor()

remote = Task

def get(tasks):
    return [task.result() for task in tasks]
"""


class ShardTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        content = support.definition(configurations=[
            {"name": "{tile}", "spec": "hash/implicit_gemm:tile={tile}", "for": {"tile": TILES}},
            {"name": "reference", "spec": "hash/implicit_gemm"}], baseline="reference")
        self.file = support.write(self.path / "small.json", content)

    def command(self, out, *more):
        return [VOXCONV, "experiment", self.file, "--threads", "1", "--quick", "--out",
                self.path / out, *more]

    def run_shard(self, out, shard, *more):
        result = support.run(*self.command(out, "--shard", shard, *more))
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def merge(self, *outs, to="merged"):
        return support.run(VOXCONV, "experiment", "--merge", *[self.path / out for out in outs],
                           "--out", self.path / to)

    def lines(self, out, kind="cell"):
        return [line for line in support.read_lines(self.path / out / "small.jsonl")
                if line["kind"] == kind]

    def titles(self, out):
        return sorted(line["cell"]["configuration"] for line in self.lines(out))

    def test_each_cell_is_in_one_shard(self):
        for count in (1, 2, 3, CELLS, CELLS + 2):
            found = []
            for index in range(count):
                result = support.run(*self.command("list", "--list", "--shard", f"{index + 1}/{count}"))
                found += result.stdout.splitlines()
            self.assertEqual(len(found), CELLS)
            self.assertEqual(len(set(found)), CELLS)

    def checks(self):
        return support.read_lines(self.path / "run" / "checks" / "small.jsonl")

    def test_cells_are_checked_once(self):
        for index in (1, 2):
            said = self.run_shard("run", f"{index}/2", "--check-only")
            self.assertIn("cells checked", said)
        checks = self.checks()
        self.assertEqual(len({line["key"] for line in checks}), CELLS)
        self.assertEqual(self.lines("run"), [])
        for count in (1, 2):
            result = support.run(*self.command("run", "--rounds", "2", "--seed", str(count)))
            self.assertEqual(result.returncode, 0, result.stderr)
            cells = self.lines("run")
            self.assertEqual(len(cells), 2 * CELLS * count)
            # Another seed is other work, which its first round checks.
            self.assertEqual(len(self.checks()), CELLS * count)
            known = [line["verified"] for line in self.checks()]
            self.assertTrue(all(line["verified"] in known for line in cells))
        refused = support.run(*self.command("run", "--rounds", "2", "--check-only"))
        self.assertIn("--check-only: has no meaning together with --rounds", refused.stderr)

    def test_directories_of_shards_merge(self):
        for index in (1, 2, 3):
            self.run_shard(f"shard{index}", f"{index}/3")
        sizes = [len(self.lines(f"shard{index}")) for index in (1, 2, 3)]
        self.assertEqual(sizes, [3, 2, 2])
        result = self.merge("shard1", "shard2", "shard3")
        self.assertIn(f"1 experiments, {CELLS} cells; left out: 0 doubles, 0 lines", result.stdout)
        self.assertEqual(self.titles("merged"), [str(tile) for tile in TILES])
        self.assertEqual(len(self.lines("merged", "experiment")), 1)
        # A run of all cells in the merged directory has nothing left to do.
        whole = support.run(*self.command("merged"))
        self.assertIn(f"0 cells measured, 0 refused, 0 failed, {CELLS} finished", whole.stdout)
        # As a report counts them.
        report = support.run(VOXCONV, "report", self.path / "merged")
        self.assertEqual(report.returncode, 0, report.stderr)

    def test_merging_again_changes_nothing(self):
        for index in (1, 2):
            self.run_shard(f"shard{index}", f"{index}/2")
        self.merge("shard1", "shard2")
        before = (self.path / "merged" / "small.jsonl").read_bytes()
        again = self.merge("shard2", "shard1")
        self.assertIn(f"{CELLS} cells; left out: {CELLS} doubles", again.stdout)
        self.assertEqual((self.path / "merged" / "small.jsonl").read_bytes(), before)

    def test_overlapping_and_resumed_shards(self):
        self.run_shard("half", "1/2")
        self.run_shard("third", "1/3")  # shares cells 1 and 7 with it
        self.run_shard("whole", "1/1")
        # As a killed program leaves its file: a cell less, and a line without an end.
        path = self.path / "half" / "small.jsonl"
        text = path.read_text().splitlines(keepends=True)
        path.write_text("".join(text[:-1]) + text[-1][:40])
        broken = self.merge("half", "third", to="broken")
        self.assertIn("1 lines that cannot be read", broken.stdout)
        self.assertEqual(self.titles("broken"), ["1", "3", "4", "5", "7"])
        self.assertIn("1 cells measured, 0 refused, 0 failed, 3 finished",
                      self.run_shard("half", "1/2"))
        result = self.merge("half", "third", "whole")
        self.assertIn(f"{CELLS} cells; left out: 7 doubles, 1 lines", result.stdout)
        self.assertEqual(self.titles("merged"), [str(tile) for tile in TILES])
        keys = [line["key"] for line in self.lines("merged")]
        self.assertEqual(len(set(keys)), CELLS)
        # What was kept is what a shard wrote, byte by byte.
        written = set()
        for out in ("half", "third", "whole"):
            written.update((self.path / out / "small.jsonl").read_text().splitlines())
        self.assertLessEqual(set((self.path / "merged" / "small.jsonl").read_text().splitlines()), written)

    def test_a_finished_cell_replaces_a_failed_one(self):
        self.run_shard("good", "1/1")
        lines = support.read_lines(self.path / "good" / "small.jsonl")
        for line in lines[1:3]:
            line["status"], line["reason"] = "failed", "on purpose"
            del line["result"]
        (self.path / "bad").mkdir()
        support.write_lines(self.path / "bad" / "small.jsonl", lines)
        self.merge("bad", "good")
        self.assertEqual([line["status"] for line in self.lines("merged")], CELLS * ["measured"])
        self.merge("good", "bad", to="other")
        self.assertEqual([line["status"] for line in self.lines("other")], CELLS * ["measured"])

    def test_shards_may_share_a_directory_at_the_same_time(self):
        running = [subprocess.Popen([str(word) for word in self.command("run", "--shard", f"{i}/3")],
                                    stdout=subprocess.DEVNULL) for i in (1, 2, 3)]
        self.assertEqual([process.wait(timeout=120) for process in running], [0, 0, 0])
        self.assertEqual(self.titles("run"), [str(tile) for tile in TILES])
        self.assertIn(f"{CELLS} finished", self.run_shard("run", "1/1"))

    def test_the_example_for_ray(self):
        (self.path / "ray.py").write_text(RAY)
        environment = {**os.environ, "PYTHONPATH": str(self.path),
                       "RAY_NEEDS": str(self.path / "needs"),
                       "PATH": f"{pathlib.Path(VOXCONV).parent}:{os.environ['PATH']}"}
        command = [sys.executable, SWEEPS / "ray_shards.py", "3", self.path / "results"]
        for _ in range(2):  # the second run has nothing left to do
            subprocess.run([*command, self.file, "--threads", "1", "--quick"], check=True,
                           env=environment, stdout=subprocess.DEVNULL)
            shards = [self.titles(f"results/shard-{index}") for index in (1, 2, 3)]
            self.assertEqual([len(titles) for titles in shards], [3, 2, 2])
            self.assertEqual(sorted(sum(shards, [])), [str(tile) for tile in TILES])
            self.assertEqual(self.titles("results/all"), [str(tile) for tile in TILES])
        # A task has the cores of a node for itself.
        needs = support.read_lines(self.path / "needs")
        self.assertEqual(needs, 6 * [{"num_cpus": os.cpu_count()}])
        wrong = subprocess.run([*command, "nothing", "--quick"], env=environment,
                               capture_output=True, text=True)
        self.assertNotEqual(wrong.returncode, 0)

    def test_the_example_for_slurm(self):
        script = SWEEPS / "slurm.sh"
        for index in (1, 2):
            environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(index),
                           "RESULTS": str(self.path / "results"),
                           "PATH": f"{pathlib.Path(VOXCONV).parent}:{os.environ['PATH']}"}
            subprocess.run(["bash", script, "2", self.file, "--threads", "1", "--quick"], check=True,
                           env=environment, stdout=subprocess.DEVNULL)
        self.merge("results/shard-1", "results/shard-2")
        self.assertEqual(self.titles("merged"), [str(tile) for tile in TILES])

    def test_rounds_of_a_shard(self):
        self.run_shard("rounds", "2/3", "--rounds", "2")
        lines = self.lines("rounds")
        self.assertEqual(sorted((line["cell"]["configuration"], line["round"]) for line in lines),
                         [("2", 1), ("2", 2), ("5", 1), ("5", 2)])
        self.merge("rounds")
        self.assertEqual(len(self.lines("merged")), 4)

    def test_what_is_refused(self):
        (self.path / "empty").mkdir()
        self.run_shard("good", "1/7")
        for words, message in [
            (self.command("run", "--shard", "4/3"), "--shard 4/3: allowed are I/N with 1 <= I <= N"),
            (self.command("run", "--shard", "0/3"), "--shard 0/3: allowed are"),
            (self.command("run", "--shard", "x"), "--shard x: allowed are"),
            ([VOXCONV, "experiment", "--merge", self.path / "empty", "--out", self.path / "m"],
             "has no results of experiments"),
            ([VOXCONV, "experiment", "--merge", self.path / "none", "--out", self.path / "m"],
             "No such file"),
            ([VOXCONV, "experiment", "--merge", self.path / "good", "--out", self.path / "good"],
             "is the directory to merge into"),
            ([VOXCONV, "experiment", "--merge", self.path / "good"], "--out is missing"),
            ([VOXCONV, "experiment", "--merge", self.path / "good", "--out", self.path / "m",
              "--quick"], "--quick: has no meaning together with --merge"),
            ([VOXCONV, "experiment", "own", "--merge", self.path / "good", "--out",
              self.path / "m"], "NAME: has no meaning together with --merge"),
        ]:
            result = support.run(*words)
            self.assertNotEqual(result.returncode, 0, words)
            self.assertIn(message, result.stderr)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)


if __name__ == "__main__":
    unittest.main()
