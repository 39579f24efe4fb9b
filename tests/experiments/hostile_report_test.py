# SPDX-License-Identifier: Apache-2.0
"""No name, title or note costs the report, and all come out as they are.

    hostile_report_test.py VOXCONV
"""

import copy
import html
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import support

VOXCONV = sys.argv.pop(1)
NAMES = ["<script>alert(1)</script>", "$\\frac{$", "$x_1$ and $y", "a | b", "*bold* `code`",
         "[link](http://x)", "_hidden", "line\u2028break", "&lt;", "# heading"]
PUBLISHED = [{"what": "$\\frac{$ <b>faster</b>", "ratio": 1.5, "source": "| a", "gpu": "none",
              "configuration": NAMES[1], "against": "same"}]
PLOTS = [{"x": "input", "title": "$\\bad{$"}, {"x": "tile", "type": "lines", "log": ["y"]},
         {"x": "configuration", "y": "time", "of": "value"}]


class HostileReportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        names = [{"name": name, "spec": "hash/fetch_on_demand"} for name in NAMES]
        content = support.definition(
            title="$\\frac{ <b>title</b>", about="# about *this*", source="<i>", plots=PLOTS,
            published=PUBLISHED, baseline="same",
            quick_inputs=[{"input": support.SMALL, "name": "in\u2028put <u>"}],
            configurations=[*names, {"name": "{tile}", "spec": "hash/implicit_gemm:tile={tile}",
                                     "for": {"tile": [2, 4]}}, {"name": "same",
                                                                "spec": "hash/fetch_on_demand"}])
        file = support.write(cls.path / "small.json", content)
        cls.ran = support.run(VOXCONV, "experiment", file, "--quick", "--threads", 1,
                              "--out", cls.path / "run")
        assert cls.ran.returncode == 0, cls.ran.stderr
        cls.results = cls.path / "run" / "small.jsonl"

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def report(self, *more):
        out = self.path / self.id()
        result = support.run(VOXCONV, "report", self.path / "run", "--out", out, *more)
        self.assertNotIn("Traceback", result.stderr)
        pages = [(out / "report.html").read_text(encoding="utf-8"), support.markdown_of(out)]
        return result, *pages

    def test_all_names_come_out_as_they_are(self):
        result, page, markdown = self.report()
        self.assertEqual(result.returncode, 0, result.stderr)
        for name in NAMES:
            with self.subTest(name):
                self.assertIn(f"<td>{html.escape(name)}</td>", page)
        self.assertNotIn("<script>alert", page)
        self.assertIn("&lt;b&gt;title&lt;/b&gt;", page)
        for escaped in ("&lt;script>alert(1)", "\\$\\\\frac{\\$", "a \\| b", "\\*bold\\* \\`code\\`",
                        "\\[link\\](http://x)", "\\_hidden", "line break", "&amp;lt;",
                        "\n\\# about \\*this\\*", "&lt;b>title", "&lt;b>faster&lt;/b>", "| \\| a |"):
            self.assertIn(escaped, markdown)
        self.assertNotIn("<script", markdown)
        self.assertEqual(len(list((self.path / self.id() / "plots").glob("*.png"))), len(PLOTS))

    def test_a_name_with_a_line_separator_keeps_its_cell(self):
        lines = [line for line in support.read_json_lines(self.results) if line["kind"] == "cell"]
        self.assertEqual(len(lines), len(NAMES) + 2)
        _, page, _ = self.report()
        self.assertIn("line\u2028break", page)

    def test_titles_and_notes_that_are_no_utf_8(self):
        notes = self.results.with_suffix(".notes.md")
        notes.write_bytes(b"caf\xe9 $\\frac{$ <script>alert(1)</script>\n```")
        self.addCleanup(notes.unlink)
        result, page, markdown = self.report("--title", b"caf\xe9 <i>".decode(errors="surrogateescape"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("caf\ufffd $\\frac{$", page)
        self.assertIn("caf\ufffd $\\frac{$ &lt;script>alert(1)&lt;/script>\n```\n```\n", markdown)
        self.assertNotIn("<script>alert", page)
        self.assertIn("&lt;i&gt;", page)

    def test_a_pipe_in_place_of_results_is_not_waited_for(self):
        for name in ("piped.jsonl", "small.notes.md", "epochs.jsonl"):
            with self.subTest(name):
                pipe = self.path / "run" / name
                os.mkfifo(pipe)
                self.addCleanup(pipe.unlink)
                out = self.path / self.id()
                result = subprocess.run([VOXCONV, "report", str(self.path / "run"), "--out", str(out)],
                                        capture_output=True, text=True, check=False, timeout=100)
                self.assertEqual(result.returncode, 1)
                self.assertIn(f"{name} cannot be read or written (it is no regular file)",
                              result.stderr)
                self.doCleanups()

    def test_a_plot_that_cannot_be_drawn_does_not_cost_the_report(self):
        lines = support.read_json_lines(self.results)
        broken = copy.deepcopy(lines)
        broken[0]["definition"]["plots"].append({"title": "without x"})
        self.addCleanup(support.write_lines, self.results, lines)
        support.write_lines(self.results, broken)
        result, page, _ = self.report()
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot be drawn", result.stderr)
        self.assertIn("cannot be drawn", page)


if __name__ == "__main__":
    support.need_matplotlib()
    unittest.main()
