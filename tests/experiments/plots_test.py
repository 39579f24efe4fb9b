# SPDX-License-Identifier: Apache-2.0
"""What the plots show and say: published values, means, and the heat map of mappings and dataflows."""

import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import support

support.need_matplotlib()

import matplotlib.colors  # noqa: E402

import analysis  # noqa: E402
import notes  # noqa: E402
import plots  # noqa: E402
import results  # noqa: E402


def cell(configuration, against, ratio, work="one", source="in", params=None):
    side = {"wall_ms": {"median": 1.0}, "stages_ms": {}, "wall_ms_samples": [1.0], "counters": {}}
    return {"status": "measured", "quick": False,
            "cell": {"configuration": configuration, "against": against, "input": source,
                     "work": work, "dtype": "f32", "maps": "rebuilt", "voxels": 10,
                     "input_class": "small", "params": params or {}},
            "result": {"pairs": 20, "a": side, "b": {**side, "wall_ms": {"median": ratio}},
                       "speedup": {"ratio": ratio, "low": ratio, "high": ratio}}}


def experiment(cells, published=()):
    definition = {"name": "e", "title": "an experiment", "published": list(published)}
    return results.Results(pathlib.Path("e.jsonl"), definition, "cpu: x", cells, [])


def figure(**changes):
    return {"what": "over b", "ratio": 3, "configuration": "a", "against": "b", "source": "Table 1",
            "gpu": "none", **changes}


class PlotsTest(unittest.TestCase):
    def drawn(self, plot, what):
        """The axes of the plot as it would be saved."""
        saved = []
        with mock.patch.object(plots, "save", lambda picture, _: saved.append(picture)):
            self.assertTrue(plots.draw(plot, what, "unused.png"))
        self.addCleanup(plots.close_all)
        return saved[0].axes[0]

    def dashed(self, axes):
        return {line.get_label(): line for line in axes.get_lines() if line.get_linestyle() == "--"}

    def test_a_published_ratio_is_a_line_in_the_colour_of_its_series(self):
        cells = [cell("a", "b", 2.0), cell("c", "b", 1.5), cell("a", "b", 2.5, work="two"),
                 cell("c", "b", 1.1, work="two")]
        axes = self.drawn({"x": "work"}, experiment(cells, [figure()]))
        (label, line), = self.dashed(axes).items()
        self.assertEqual(label, "published: 3x (over b)")
        self.assertEqual(set(line.get_ydata()), {3})
        self.assertEqual(matplotlib.colors.to_hex(line.get_color()), "#1f77b4")
        texts = [text.get_text() for text in axes.get_legend().get_texts()]
        self.assertIn(label, texts)

    def test_a_line_stands_where_its_cells_are(self):
        cells = [cell("a", "b", 2.0), cell("a", "b", 2.5, work="two")]
        axes = self.drawn({"x": "work"}, experiment(cells, [figure(where={"work": "two"})]))
        (_, line), = self.dashed(axes).items()
        self.assertEqual([round(x, 2) for x in line.get_xdata()], [0.52, 1.48])

    def test_a_claim_about_the_other_side_is_turned_round(self):
        axes = self.drawn({"x": "work"}, experiment([cell("b", "a", 0.5)], [figure()]))
        (_, line), = self.dashed(axes).items()
        self.assertAlmostEqual(line.get_ydata()[0], 1 / 3)

    def test_what_the_plot_does_not_show_has_no_line(self):
        for other in (figure(metric="map_query"), figure(faster=True, ratio=None),
                      figure(configuration="z"), figure(unmeasurable="no counters"),
                      figure(where={"work": "two"})):
            axes = self.drawn({"x": "work"}, experiment([cell("a", "b", 2.0)], [other]))
            self.assertEqual(self.dashed(axes), {})

    def test_a_published_value_is_a_line_of_its_own_quantity(self):
        claim = {"what": "a takes", "value": 0.5, "configuration": "a", "source": "s", "gpu": "none"}
        plot = {"x": "voxels", "of": "value", "type": "lines"}
        axes = self.drawn(plot, experiment([cell("a", "b", 2.0)], [claim]))
        self.assertEqual(list(self.dashed(axes)), ["published: 0.5 (a takes)"])

    def test_hostile_labels_of_published_values(self):
        cells = [cell("a", "b", 2.0)]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "plot.png"
            for what in ("$\\frac{$", "_hidden", "\u2028", "\udce9", "x" * 1000):
                self.assertTrue(plots.draw({"x": "work"}, experiment(cells, [figure(what=what)]), path))

    def test_a_mean_says_that_it_is_one(self):
        cells = [cell("a", "b", 2.0), cell("a", "b", 8.0, source="other")]
        title = self.drawn({"x": "work"}, experiment(cells)).get_title()
        self.assertEqual(title, "an experiment\neach point is the geometric mean of 2 cells")
        title = self.drawn({"x": "input"}, experiment(cells)).get_title()
        self.assertEqual(title, "an experiment")


class HeatMapTest(unittest.TestCase):
    def test_every_mapping_with_every_dataflow(self):
        cells = []
        for source, scale in (("in", 1), ("other", 2)):
            for mapping, slow in (("hash", 1), ("grid", 2)):
                for dataflow, slower in (("direct", 1), ("<b>$x$", 4)):
                    cells.append(cell(f"{mapping} {dataflow}", "base", 1 / (scale * slow * slower),
                                      source=source,
                                      params={"mapping": mapping, "dataflow": dataflow}))
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(plots, "heat_map") as drawn:
            extra = analysis.variance(experiment(cells), pathlib.Path(folder), "stem")
        path, title, rows, columns, values = drawn.call_args[0][:5]
        self.assertEqual(path.name, "stem-heat.png")
        self.assertIn("geometric mean of 2", title)
        self.assertEqual((rows, columns), (["hash", "grid"], ["direct", "<b>$x$"]))
        self.assertEqual([[round(value, 6) for value in row] for row in values], [[1, 4], [2, 8]])
        self.assertIn("geometric mean of 4 cells each", extra.tables[1][0])

    def test_a_missing_combination_is_a_gap(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "heat.png"
            plots.heat_map(path, "$\\frac{$", ["a", "$b$"], ["c"], [[1.0], [None]], "times",
                           notes=[["1 of 2"], [""]])
            self.assertTrue(path.exists())


class NotesTest(unittest.TestCase):
    def test_tags_are_text_in_markdown(self):
        for note, wanted in (
                ("a <b> c", "a &lt;b> c"), ("`a <b>`", "`a <b>`"), ("1 < 2", "1 < 2"),
                ("<!-- x", "&lt;!-- x"), ("`a\n<script>`", "`a\n&lt;script>`"),
                ("\\` <i> `", "\\` &lt;i> `"), ("```\n<b>", "```\n<b>\n```"),
                ("~~~~\n```\n~~~~\n<b>", "~~~~\n```\n~~~~\n&lt;b>")):
            with self.subTest(note):
                self.assertEqual(notes.markdown(note), wanted)

    def test_a_note_that_cannot_be_rendered_is_shown(self):
        if notes.MarkdownIt is None:
            self.skipTest("python3-markdown-it is not installed")
        for note in ("> " * 3000 + "x", "[" * 5000, "*" * 5000, "<" * 100, "\x00\u2028"):
            self.assertTrue(notes.html(note))
        with mock.patch.object(notes, "MarkdownIt", side_effect=ValueError):
            self.assertEqual(notes.html("<b>"), "<pre>&lt;b&gt;</pre>")


if __name__ == "__main__":
    unittest.main()
