# SPDX-License-Identifier: Apache-2.0
"""A claim that the result lines do not bear out is flagged, from the lines of a real run.

    claims_test.py VOXCONV
"""

import copy
import pathlib
import sys
import tempfile
import unittest

import support

VOXCONV = sys.argv.pop(1)
CLAIM = {"what": "three times faster", "ratio": 3, "source": "Table 1", "gpu": "none",
         "configuration": "one"}


class ClaimsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Both sides are the same configuration, so no difference is the truth.
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        file = support.write(cls.path / "small.json", support.definition(published=[CLAIM]))
        result = support.run(VOXCONV, "experiment", file, "--threads", 1, "--rounds", 1,
                             "--out", cls.path / "run")
        assert result.returncode == 0, result.stderr
        cls.lines = support.read_lines(cls.path / "run" / "small.jsonl")
        # Two equal sides differ by some percent on a busy machine. These lines have no difference.
        result = cls.lines[-1]["result"]
        result["a"]["wall_ms_samples"] = list(result["b"]["wall_ms_samples"])
        result["speedup"].update(ratio=1.0, low=1.0, high=1.0)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def report(self, lines):
        folder = self.path / self.id()
        folder.mkdir(exist_ok=True)
        support.write_lines(folder / "small.jsonl", lines)
        result = support.run(VOXCONV, "report", folder)
        page = support.markdown_of(folder)
        return result, page

    def doctored(self, factor, consistent):
        """The lines with A claimed `factor` times as fast; consistently with its samples or not."""
        lines = copy.deepcopy(self.lines)
        result = lines[-1]["result"]
        if consistent:
            result["a"]["wall_ms_samples"] = [t / factor for t in result["a"]["wall_ms_samples"]]
        for key in ("ratio", "low", "high"):
            result["speedup"][key] *= factor
        return lines

    def test_a_second_run_is_held_against_the_first(self):
        first, same, second = (self.path / name for name in ("first", "same", "second"))
        for folder, lines in ((first, self.lines), (same, self.lines), (second, self.doctored(3, consistent=True))):
            folder.mkdir(exist_ok=True)
            support.write_lines(folder / "small.jsonl", lines)
        for repeat, row in ((same, "| 1 | 1 | 0 | 1 | 1.00x | 1 | 1 |"),
                            (second, "| 1 | 1 | 0 | 0 | 3.00x | 1 | 0 |")):
            result = support.run(VOXCONV, "report", first, "--again", repeat)
            self.assertEqual(result.returncode, 0, result.stderr)
            page = (first / "report.md").read_text()
            self.assertIn("## Measured again", page)
            self.assertIn(row, page)
            self.assertIn("Measured again</h2>", (first / "report.html").read_text())
        result = support.run(VOXCONV, "report", first, "--again", first)
        self.assertIn("allowed are results of another run", result.stderr)
        empty = self.path / "empty"
        empty.mkdir(exist_ok=True)
        result = support.run(VOXCONV, "report", first, "--again", empty)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("has no cell that", result.stderr)
        result = support.run(VOXCONV, "report", first, "--again", self.path / "nowhere")
        self.assertIn("is not a directory", result.stderr)

    def test_verdicts_before_stand_beside_those_of_now(self):
        earlier, now = (self.path / name for name in ("earlier", "now"))
        for folder, lines in ((earlier, self.lines), (now, self.doctored(3, consistent=True))):
            folder.mkdir()
            support.write_lines(folder / "small.jsonl", lines)

        def page():
            result = support.run(VOXCONV, "report", now, "--before", earlier)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("Verdicts before and now</h2>", (now / "report.html").read_text())
            self.assertIn("[Each verdict before and now](experiments/changes.md)",
                          (now / "report.md").read_text())
            return (now / "experiments" / "changes.md").read_text()

        self.assertRegex(page(), r"\| three times faster \| 3x \| .* \| not reproduced \| .* \| "
                                 r"reproduced \| not explained \|")
        (now / "changes.json").write_text('{"small: three times faster": "another baseline"}')
        self.assertIn("| reproduced | another baseline |", page())
        self.assertIn("1 have another one, 0 of these without an explanation.", page())
        (now / "changes.json").write_text("[]")
        result = support.run(VOXCONV, "report", now, "--before", earlier)
        self.assertIn("changes.json cannot be read: it is no object of texts", result.stderr)
        result = support.run(VOXCONV, "report", now, "--before", now)
        self.assertIn("--before", result.stderr)
        self.assertIn("allowed are results of another run", result.stderr)

    def test_a_claim_without_a_difference_is_not_reproduced(self):
        result, page = self.report(self.lines)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("| not reproduced |", page)
        self.assertIn("1 not reproduced", result.stdout)

    def test_a_ratio_that_its_samples_do_not_give_is_flagged_and_left_out(self):
        result, page = self.report(self.doctored(3, consistent=False))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("line 2 is left out, for it contradicts itself: speedup", result.stderr)
        self.assertIn("contradicts itself", page)
        self.assertIn("1 not measurable here", result.stdout)
        self.assertIn("0 reproduced,", result.stdout)

    def test_the_same_ratio_with_such_samples_is_reproduced(self):
        result, page = self.report(self.doctored(3, consistent=True))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("| reproduced |", page)

    def test_the_wrong_direction_is_not_reproduced(self):
        result, _ = self.report(self.doctored(1 / 3, consistent=True))
        self.assertIn("1 not reproduced", result.stdout)

    def test_another_size_is_reproduced_in_direction(self):
        result, _ = self.report(self.doctored(8, consistent=True))
        self.assertIn("1 reproduced in direction", result.stdout)

    def test_a_size_beyond_three_times_is_not_reproduced(self):
        result, _ = self.report(self.doctored(30, consistent=True))
        self.assertIn("1 not reproduced", result.stdout)

    def test_a_mean_and_a_maximum_of_the_same_cells_are_one_claim(self):
        lines = self.doctored(3, consistent=True)
        claims = lines[0]["definition"]["published"]
        claims.append({**CLAIM, "what": "three times faster, at most", "ratio": 8, "over": "max"})
        result, page = self.report(lines)
        self.assertIn("0 reproduced, 1 reproduced in direction, 0 not reproduced", result.stdout)
        self.assertIn("| three times faster | mean 3x, at most 8x | mean ", page)
        claims[1]["where"] = {"work": lines[1]["cell"]["work"]}  # of other cells
        result, _ = self.report(lines)
        self.assertIn("1 reproduced, 1 reproduced in direction, 0 not reproduced", result.stdout)

    def test_cells_of_several_commits_are_marked(self):
        lines = self.doctored(3, consistent=True)
        _, page = self.report(lines)
        self.assertNotIn("| commit |", page)
        second = copy.deepcopy(lines[1])
        second["cell"]["input"] = "another"
        second["provenance"].update(commit="0123456789", dirty=True)
        lines[0]["asked"]["cells"].append({**lines[0]["asked"]["cells"][0], "input": "another"})
        _, page = self.report([*lines, second])
        self.assertIn("| commit |", page)
        self.assertIn("| 0123456+ |", page)
        self.assertRegex(page, r"\| reproduced \(cells of several commits: 0123456\+, \w+\+?\) \|")

    def test_experiments_of_several_commits_are_marked_on_the_front_page(self):
        lines = self.doctored(3, consistent=True)
        other = copy.deepcopy(lines)
        other[0]["definition"]["name"] = "other"
        folder = self.path / self.id()
        folder.mkdir()
        support.write_lines(folder / "small.jsonl", lines)
        support.write_lines(folder / "other.jsonl", other)
        support.run(VOXCONV, "report", folder)
        self.assertNotIn("| commit |", (folder / "report.md").read_text())
        other[1]["provenance"].update(commit="0123456789", dirty=False)
        support.write_lines(folder / "other.jsonl", other)
        support.run(VOXCONV, "report", folder)
        page = (folder / "report.md").read_text()
        self.assertIn("| verdict | commit |", page)
        self.assertIn("| reproduced | 0123456 |", page)

    def test_what_stands_in_for_a_data_set_is_called_so(self):
        lines = self.doctored(3, consistent=True)
        lines[0]["definition"]["published"][0]["data"] = "S3DIS"
        _, page = self.report(lines)
        self.assertIn(f"| reproduced ({lines[1]['cell']['input']} in place of S3DIS) |", page)
        lines[0]["asked"]["cells"][0]["data"] = lines[1]["cell"]["data"] = "S3DIS"
        _, page = self.report(lines)
        self.assertIn("| reproduced |", page)

    def test_a_stand_in_that_contradicts_the_claim_is_no_measurement(self):
        lines = self.doctored(3, consistent=True)
        lines[0]["definition"]["published"][0].update(
            fewer_voxels_than="outdoor-64", where={"like": "outdoor-32"})
        large = copy.deepcopy(lines[1])
        for cell, like in ((lines[1]["cell"], "outdoor-32"), (large["cell"], "outdoor-64")):
            cell["like"] = like
        lines[0].pop("asked")
        large["cell"].update(input="large", voxels=lines[1]["cell"]["voxels"] + 1)
        result, _ = self.report([*lines, large])
        self.assertIn("1 reproduced,", result.stdout)
        large["cell"]["voxels"] -= 1
        result, page = self.report([*lines, large])
        self.assertIn("1 not measurable here", result.stdout)
        self.assertIn("the claim is about inputs smaller than large (300 voxels)", page)

    def test_a_claim_about_a_gpu_is_not_judged_by_a_cpu(self):
        lines = self.doctored(3, consistent=True)
        lines[0]["definition"]["published"][0]["gpu"] = "RTX 3090"
        result, page = self.report(lines)
        self.assertIn("1 not measurable here", result.stdout)
        self.assertIn("the claim is about a GPU (RTX 3090); these cells were measured on cpu", page)
        for line in (lines[0]["asked"], lines[1]["provenance"]):
            line["backend"] = "cuda"
        result, _ = self.report(lines)
        self.assertIn("1 reproduced,", result.stdout)

    def test_a_claim_needs_all_of_its_cells(self):
        lines = self.doctored(3, consistent=True)
        missing = copy.deepcopy(lines[0]["asked"]["cells"][0])
        missing["input"] = "another"
        lines[0]["asked"]["cells"].append(missing)
        result, page = self.report(lines)
        self.assertIn("1 not measurable here", result.stdout)
        self.assertIn("not measurable here: 1 of 2 cells", page)
        second = copy.deepcopy(lines[1])
        second["cell"]["input"] = "another"
        result, _ = self.report([*lines, second])
        self.assertIn("1 reproduced,", result.stdout)
        refused = copy.deepcopy(second)
        refused.update(status="refused", reason="no memory")
        del refused["result"]
        result, page = self.report([*lines, refused])
        self.assertIn("not measurable here: 1 of 2 cells; refused: no memory", page)

    def test_an_interrupted_run_judges_nothing(self):
        result, _ = self.report(self.doctored(3, consistent=True)[:1])
        self.assertIn("1 not measurable here", result.stdout)

    def test_what_disturbed_a_measurement_is_told(self):
        for key, what, label in (
                ("clocks", "the SM clock fell from 1980 to 1410 MHz (power cap)", "clocks"),
                ("busy", "other processes took 61 % of the cores' time", "busy machine")):
            lines = copy.deepcopy(self.lines)
            lines[-1]["result"][key] = what
            _, page = self.report(lines)
            self.assertIn(f"({label}: {what})", page)

    def test_both_ratios_are_shown_where_sides_were_captured(self):
        lines = self.doctored(3, consistent=True)
        self.assertIsNone(lines[-1]["result"]["captured"])  # of the CPU
        _, page = self.report(lines)
        self.assertNotIn("captured", page)
        lines[-1]["result"]["captured"] = {
            "pairs": 20, "verdict": "no difference", "launch_bound": ["b"],
            "speedup": {"ratio": 1.01, "low": 0.97, "high": 1.04},
            "a": {"wall_ms": {"median": 0.0214}}, "b": {"wall_ms": {"median": 0.0216}}}
        _, page = self.report(lines)
        self.assertIn("\\[as graphs 1.01x (0.97..1.04)\\]", page)
        self.assertIn("| 0.0214 | 0.0216 | 1.010 | 0.970..1.040 | B |", page)
        lines[-1]["result"]["captured"] = {"why": "side a: the plugin waits"}
        _, page = self.report(lines)
        self.assertIn("not captured: side a: the plugin waits", page)

    def test_other_caches_are_marked(self):
        lines = copy.deepcopy(self.lines)
        lines[-1]["cell"].update(cache="cold", l2_mib=30)
        lines[-1]["factors"].update(cache="cold", l2_mib=30.5)
        lines[0]["asked"]["cells"] = []
        lines[0].pop("asked")
        _, page = self.report(lines)
        self.assertIn("| cache |", page)
        self.assertIn("| cold, 30.5 MiB |", page)

    def test_pairs_that_are_not_there_are_flagged(self):
        lines = copy.deepcopy(self.lines)
        lines[-1]["result"]["pairs"] = 40
        result, _ = self.report(lines)
        self.assertIn("40 pairs are stated and there are 20 samples", result.stderr)

    def test_a_doctored_stage_is_flagged(self):
        lines = copy.deepcopy(self.lines)
        lines[-1]["result"]["stage_speedups"]["fused"]["ratio"] *= 2
        result, _ = self.report(lines)
        self.assertIn("fused", result.stderr)

    def test_a_verdict_needs_twenty_pairs(self):
        lines = self.doctored(3, consistent=True)
        for side in "ab":
            del lines[-1]["result"][side]["wall_ms_samples"][19:]
        lines[-1]["result"]["pairs"] = 19
        # The medians of 19 samples are others.
        import statistics
        medians = [statistics.median(lines[-1]["result"][side]["wall_ms_samples"]) for side in "ba"]
        lines[-1]["result"]["speedup"].update(ratio=medians[0] / medians[1], low=1.5)
        result, _ = self.report(lines)
        self.assertIn("1 not measurable here", result.stdout)

    def test_lines_that_are_no_json_are_flagged(self):
        folder = self.path / "broken"
        folder.mkdir()
        support.write_lines(folder / "small.jsonl", self.lines)
        with open(folder / "small.jsonl", "a", encoding="utf-8") as file:
            file.write('{"kind": "cell", "sta')
        result = support.run(VOXCONV, "report", folder)
        self.assertIn("line 3 is left out, for it cannot be read: ", result.stderr)

    def test_lines_without_what_they_must_hold_are_left_out_and_named(self):
        cell = self.lines[-1]
        broken = {
            "result.verdict": lambda line: line["result"].pop("verdict"),
            "result.a.counters.true_pairs":
                lambda line: line["result"]["a"]["counters"].update(true_pairs="many"),
            "cell": lambda line: line.pop("cell"),
            "cell.maps": lambda line: line["cell"].pop("maps"),
            "provenance.commit": lambda line: line["provenance"].update(commit=None),
            "result.speedup.low": lambda line: line["result"]["speedup"].pop("low"),
            "status": lambda line: line.update(status="odd"),
        }
        for key, harm in broken.items():
            lines = copy.deepcopy(self.lines)
            harm(lines[-1])
            result, page = self.report(lines + [cell])
            with self.subTest(key):
                self.assertEqual(result.returncode, 1)
                self.assertIn("line 2 is left out, for it cannot be read: key '" + key,
                              result.stderr)
                self.assertNotIn("Traceback", result.stderr)
                self.assertIn("is left out", page)

    def test_a_definition_that_is_none_is_named(self):
        lines = copy.deepcopy(self.lines)
        lines[0]["definition"] = 3
        result, _ = self.report(lines + self.lines)
        self.assertIn("line 1 is left out, for it cannot be read: key 'definition'", result.stderr)

    def test_a_place_that_cannot_be_written_is_one_line(self):
        folder = self.path / "sound"
        folder.mkdir()
        support.write_lines(folder / "small.jsonl", self.lines)
        result = support.run(VOXCONV, "report", folder, "--out", folder / "small.jsonl")
        self.assertEqual(result.returncode, 1)
        self.assertIn("small.jsonl: is no directory", result.stderr)
        result = support.run(VOXCONV, "report", folder, "--out", folder / "small.jsonl" / "in")
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot be read or written", result.stderr)
        self.assertNotIn("Traceback", result.stderr)


if __name__ == "__main__":
    support.need_matplotlib()
    unittest.main()
