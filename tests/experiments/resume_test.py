# SPDX-License-Identifier: Apache-2.0
"""A run that is interrupted or killed goes on where it stopped.

    resume_test.py VOXCONV
"""

import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import support

VOXCONV = sys.argv.pop(1)
TILES = [1, 2, 3, 4, 5, 6, 7, 8]


class ResumeTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        path = pathlib.Path(self.folder.name)
        # Slow enough to be interrupted: hundreds of pairs a cell.
        content = support.definition(configurations=[
            {"name": "{tile}", "spec": "hash/implicit_gemm:tile={tile}", "for": {"tile": TILES}},
            {"name": "reference", "spec": "hash/implicit_gemm"}], baseline="reference")
        self.file = support.write(path / "small.json", content)
        self.out = path / "run"
        self.results = self.out / "small.jsonl"

    def command(self, pairs=400, rounds=1):
        command = [VOXCONV, "experiment", self.file, "--threads", "1", "--pairs", str(pairs), "--out",
                   str(self.out)]
        return command if rounds is None else [*command, "--rounds", str(rounds)]

    def keys(self):
        lines = support.read_lines(self.results)
        return [line["key"] for line in lines if line["kind"] == "cell"]

    def stop_after(self, cells, how, rounds=1):
        process = subprocess.Popen(self.command(rounds=rounds), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            if self.results.exists() and len(self.results.read_text().splitlines()) > cells:
                break
            time.sleep(0.002)
        process.send_signal(how)
        _, error = process.communicate(timeout=60)
        return process.returncode, error

    def finish(self):
        result = support.run(*self.command())
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def check_all_once(self):
        keys = self.keys()
        self.assertEqual(len(keys), len(TILES))
        self.assertEqual(len(set(keys)), len(TILES))

    def test_interrupted(self):
        status, error = self.stop_after(2, signal.SIGINT)
        before = self.keys()
        self.assertLess(len(before), len(TILES), "it was done before it could be interrupted")
        self.assertEqual(status, 1)
        self.assertIn("interrupted", error)
        output = self.finish()
        self.assertIn(f"{len(before)} finished before", output)
        self.assertIn(f"{len(TILES) - len(before)} cells measured", output)
        self.check_all_once()
        self.assertEqual(self.keys()[:len(before)], before)

    def test_an_interrupt_of_several_rounds_ends_the_round_that_runs(self):
        status, error = self.stop_after(1, signal.SIGINT, rounds=2)
        self.assertLess(len(self.keys()), 2 * len(TILES), "it was done before the interrupt")
        self.assertEqual(status, 1)
        self.assertIn("interrupted", error)
        before = len(self.keys())
        time.sleep(1)
        self.assertEqual(len(self.keys()), before)

    def test_killed_in_the_middle_of_a_line(self):
        self.stop_after(1, signal.SIGKILL)
        whole = len(self.keys())
        with open(self.results, "a", encoding="utf-8") as file:
            file.write('{"format": 1, "kind": "cell", "key": "')
        self.finish()
        lines = self.results.read_text().splitlines()
        readable = []
        for text in lines:
            try:
                readable.append(json.loads(text))
            except ValueError:
                pass
        self.assertEqual(len(lines), len(readable) + 1)
        self.assertGreaterEqual(whole, 1)
        keys = [line["key"] for line in readable if line["kind"] == "cell"]
        self.assertEqual(len(keys), len(TILES))
        self.assertEqual(len(set(keys)), len(TILES))

    def test_finished_runs_are_not_repeated_but_other_settings_are_new(self):
        first = support.run(*self.command(pairs=20))
        self.assertIn(f"{len(TILES)} cells measured", first.stdout)
        again = support.run(*self.command(pairs=20))
        self.assertIn(f"0 cells measured, 0 refused, 0 failed, {len(TILES)} finished", again.stdout)
        more = support.run(*self.command(pairs=21))
        self.assertIn(f"{len(TILES)} cells measured", more.stdout)

    def test_rounds_are_lines_of_their_own_and_one_cell_to_the_report(self):
        output = support.run(*self.command(pairs=20, rounds=2))
        self.assertEqual(output.returncode, 0, output.stderr)
        self.assertIn("round 2 of 2", output.stdout)
        cells = [line for line in support.read_lines(self.results) if line["kind"] == "cell"]
        self.assertEqual([cell["round"] for cell in cells], [1] * len(TILES) + [2] * len(TILES))
        self.assertEqual(len(set(self.keys())), 2 * len(TILES))
        again = support.run(*self.command(pairs=20, rounds=2))
        self.assertEqual(again.stdout.count(f"0 failed, {len(TILES)} finished"), 2)
        self.assertEqual(len(self.keys()), 2 * len(TILES))

    def test_five_rounds_unless_told_otherwise(self):
        output = support.run(*self.command(pairs=20, rounds=None))
        self.assertEqual(output.returncode, 0, output.stderr)
        self.assertIn("round 5 of 5", output.stdout)
        self.assertEqual(len(self.keys()), 5 * len(TILES))

    def test_a_round_that_fails_is_the_last(self):
        support.write(self.file, support.definition(inputs=["nowhere.bin"]))
        output = support.run(*self.command(pairs=20, rounds=None))
        self.assertEqual(output.returncode, 1)
        self.assertEqual(len(output.stderr.splitlines()), 1, output.stderr)
        self.assertNotIn("round 2", output.stdout)

    def test_a_number_of_rounds_that_is_none(self):
        for option in ("--rounds", "--round"):
            refused = support.run(*self.command(pairs=20, rounds=None), option, "0")
            self.assertEqual(refused.returncode, 1)
            self.assertIn(f"{option[2:]} 0: allowed are 1 and more", refused.stderr)

    def test_rounds_and_a_round_of_them_exclude_each_other(self):
        refused = support.run(*self.command(pairs=20, rounds=2), "--round", "1")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("--rounds 2: has no meaning together with --round", refused.stderr)

    def test_fewer_pairs_only_with_quick_and_said_so(self):
        refused = support.run(*self.command(pairs=5))
        self.assertEqual(refused.returncode, 1)
        self.assertIn("pairs 5: allowed are 20 .. 1000000", refused.stderr)
        quick = support.run(*self.command(pairs=5, rounds=None), "--quick")
        self.assertNotIn("round 1 of", quick.stdout)
        self.assertEqual(quick.returncode, 0, quick.stderr)
        cells = [line for line in support.read_lines(self.results) if line["kind"] == "cell"]
        self.assertTrue(all(cell["quick"] and cell["result"]["pairs"] == 5 for cell in cells))
        self.assertTrue(all(cell["result"]["verdict"] == "too few pairs" for cell in cells))


if __name__ == "__main__":
    unittest.main()
