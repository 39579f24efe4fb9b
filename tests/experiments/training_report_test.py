# SPDX-License-Identifier: Apache-2.0
"""The report of a training run: curves, confusion matrix, and lines that cannot be read.

    training_report_test.py VOXCONV
"""

import json
import pathlib
import sys
import tempfile
import unittest

import browser
import support

VOXCONV = sys.argv.pop(1)
CLASSES = ["car", "<i>$\\frac{$", "road | path"]
EPOCHS = [
    {"step": 2, "epoch": 1, "loss": 1.5, "test_rows": 8, "test_accuracy": 0.5, "test_miou": 0.25,
     "test_classes": CLASSES, "test_confusion": [[2, 1, 1], [0, 0, 0], [2, 0, 2]]},
    {"step": 4, "epoch": 2, "loss": 0.75, "test_rows": 8, "test_accuracy": 0.75, "test_miou": None,
     "test_classes": CLASSES, "test_confusion": [[3, 0, 1], [0, 0, 0], [1, 0, 3]]}]
STEPS = [{"step": i + 1, "epoch": 1 + i // 2, "loss": 2.0 / (i + 1), "rate": 0.1, "ms": 1.0}
         for i in range(4)]


class TrainingReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_folder = pathlib.Path(folder.name) / "first run"
        self.run_folder.mkdir()

    def write(self, name, lines):
        support.write_lines(self.run_folder / name, lines)

    def report(self, status=0):
        result = support.run(VOXCONV, "report", self.run_folder)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        pages = [(self.run_folder / name).read_text(encoding="utf-8")
                 for name in ("report.html", "report.md")]
        return result, *pages

    def pictures(self):
        return sorted(path.name for path in (self.run_folder / "plots").iterdir())

    def test_curves_and_confusion(self):
        self.write("epochs.jsonl", EPOCHS)
        self.write("steps.jsonl", STEPS)
        result, page, markdown = self.report()
        self.assertIn("training run first run: 2 epochs, 4 steps.", result.stdout)
        self.assertEqual(self.pictures(), ["training-accuracy.png", "training-confusion.png",
                                           "training-loss.png"])
        self.assertIn("<td>car</td><td class=\"n\">4</td><td class=\"n\">3</td>"
                      "<td class=\"n\">60.0 %</td>", page)
        self.assertIn("&lt;i&gt;$\\frac{$", page)
        self.assertIn("| 2 | 4 | 0.7500 | 75.00 % |  |", markdown)
        self.assertIn("&lt;i>\\$\\\\frac{\\$", markdown)
        self.assertIn("road \\| path", markdown)
        for name in self.pictures():
            self.assertIn(f"](plots/{name})", markdown)
        seen, messages = browser.open_page(self, self.run_folder / "report.html")
        self.assertEqual(messages, [])
        self.assertEqual(seen.count('<img alt='), 3)

    def test_lines_that_cannot_be_read(self):
        lines = [json.dumps(line) for line in EPOCHS]
        (self.run_folder / "epochs.jsonl").write_text("\n".join(
            [lines[0], "[" * 100000, '{"epoch": "x"}', lines[1][:40]]))
        result, page, _ = self.report(status=1)
        self.assertEqual(result.stderr.count("is left out"), 2)
        self.assertIn("epochs.jsonl: line 3 is left out", page)
        self.assertIn("training-confusion.png", self.pictures())

    def test_a_confusion_that_is_none(self):
        for matrix in ([[1, 2], [3]], [], [[-1]], "x", [[1, None], [0, 1]]):
            with self.subTest(matrix):
                self.write("epochs.jsonl", [dict(EPOCHS[0], test_confusion=matrix)])
                result, _, _ = self.report(status=1)
                self.assertIn("is no square of counts", result.stderr)

    def test_a_run_that_has_only_begun(self):
        self.write("epochs.jsonl", [])
        self.write("steps.jsonl", STEPS[:1])
        result, _, _ = self.report()
        self.assertIn("0 epochs, 1 steps", result.stdout)
        self.assertEqual(self.pictures(), ["training-loss.png"])

    def test_a_folder_without_a_run(self):
        result = support.run(VOXCONV, "report", self.run_folder)
        self.assertEqual(result.returncode, 1)
        self.assertIn("is not the folder of a training run (epochs.jsonl)", result.stderr)


if __name__ == "__main__":
    support.need_matplotlib()
    unittest.main()
