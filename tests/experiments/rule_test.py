# SPDX-License-Identifier: Apache-2.0
"""The rule of verdicts and the decomposition of variance, on figures made up for them."""

import math
import random
import statistics
import sys
import types
import unittest

import support

support.need_matplotlib()

import analysis  # noqa: E402
import results as lines  # noqa: E402
import rounds  # noqa: E402
import rule  # noqa: E402


class RatioTest(unittest.TestCase):
    def check(self, published, ours, verdict):
        self.assertEqual(rule.judge_ratio(published, ours), verdict)

    def test_half_to_twice_the_gain_is_reproduced(self):
        self.check(1.5, (1.5, 1.45, 1.55), rule.REPRODUCED)
        self.check(1.5, (1.26, 1.2, 1.3), rule.REPRODUCED)
        self.check(1.5, (1.9, 1.85, 1.95), rule.REPRODUCED)

    def test_other_sizes_are_reproduced_in_direction(self):
        self.check(1.5, (1.1, 1.05, 1.15), rule.IN_DIRECTION)
        self.check(1.5, (3.0, 2.9, 3.1), rule.IN_DIRECTION)
        self.check(1.5, (4.6, 4.4, 4.8), rule.IN_DIRECTION)  # the interval reaches three times
        self.check(6.0, (2.1, 2.05, 2.15), rule.IN_DIRECTION)

    def test_more_than_three_times_off_is_not_reproduced(self):
        self.check(1.5, (4.7, 4.6, 4.8), rule.NOT_REPRODUCED)
        self.check(6.0, (1.5, 1.4, 1.6), rule.NOT_REPRODUCED)
        self.check(0.5, (0.15, 0.14, 0.16), rule.NOT_REPRODUCED)
        self.check(1.02, (4.0, 3.9, 4.1), rule.NOT_REPRODUCED)

    def test_no_gain_is_not_reproduced(self):
        self.check(1.5, (1.0, 0.97, 1.03), rule.NOT_REPRODUCED)
        self.check(1.5, (1.2, 0.9, 1.6), rule.NOT_REPRODUCED)  # the interval has 1 in it
        self.check(1.5, (0.7, 0.65, 0.75), rule.NOT_REPRODUCED)
        self.check(1.5, (1.005, 1.001, 1.01), rule.NOT_REPRODUCED)  # too small to be claimed

    def test_a_published_slowdown(self):
        self.check(0.5, (0.5, 0.48, 0.52), rule.REPRODUCED)
        self.check(0.5, (0.9, 0.85, 0.95), rule.IN_DIRECTION)
        self.check(0.5, (1.3, 1.2, 1.4), rule.NOT_REPRODUCED)

    def test_published_as_no_difference(self):
        self.check(1.02, (1.0, 0.99, 1.01), rule.REPRODUCED)
        self.check(1.02, (0.98, 0.96, 1.0), rule.REPRODUCED)
        self.check(1.02, (1.5, 1.4, 1.6), rule.IN_DIRECTION)
        self.check(1.02, (0.5, 0.4, 0.6), rule.NOT_REPRODUCED)


class ValueTest(unittest.TestCase):
    def test_values(self):
        figure = {"value": 0.08}
        self.assertEqual(rule.judge_value(figure, 0.09), rule.REPRODUCED)
        self.assertEqual(rule.judge_value(figure, 0.14), rule.IN_DIRECTION)
        self.assertEqual(rule.judge_value(figure, 0.2), rule.NOT_REPRODUCED)

    def test_bounds(self):
        self.assertEqual(rule.judge_value({"at_least": 0.9}, 0.95), rule.REPRODUCED)
        self.assertEqual(rule.judge_value({"at_least": 0.9}, 0.5), rule.IN_DIRECTION)
        self.assertEqual(rule.judge_value({"at_least": 0.9}, 0.2), rule.NOT_REPRODUCED)
        self.assertEqual(rule.judge_value({"at_most": 1.2}, 1.1), rule.REPRODUCED)
        self.assertEqual(rule.judge_value({"at_most": 1.2}, 3.0), rule.NOT_REPRODUCED)


    def test_shares_are_judged_in_percentage_points(self):
        def check(figure, value, verdict):
            self.assertEqual(rule.judge_value({"metric": "l2_hit", **figure}, value), verdict)
        check({"value": 0.9}, 0.86, rule.REPRODUCED)
        check({"value": 0.9}, 0.81, rule.IN_DIRECTION)
        check({"value": 0.9}, 0.75, rule.NOT_REPRODUCED)  # within 25 %
        check({"value": 0.02}, 0.05, rule.REPRODUCED)     # 2.5 times
        check({"value": 0.02}, 0.0, rule.REPRODUCED)
        check({"at_least": 0.9}, 0.99, rule.REPRODUCED)
        check({"at_least": 0.9}, 0.85, rule.IN_DIRECTION)
        check({"at_most": 0.1}, 0.21, rule.NOT_REPRODUCED)
        self.assertEqual(rule.judge_value({"value": 4}, 0), rule.NOT_REPRODUCED)


class HardwareTest(unittest.TestCase):
    @staticmethod
    def cell(metric, a, b):
        stages = {"wall_ms": {"median": 1.0}, "stages_ms": {}, "counters": {}}
        return {"result": {"a": stages, "b": stages}, "hardware": {"a": {metric: a}, "b": {metric: b}}}

    def test_fewer_bytes_and_more_utilisation_are_better(self):
        self.assertEqual(lines.ratio_of(self.cell("dram_bytes", 10, 20), "dram_bytes"), (2, 2, 2))
        self.assertEqual(lines.ratio_of(self.cell("utilisation", 0.5, 0.25), "utilisation"), (2, 2, 2))

    def test_a_side_without_counters_has_no_ratio(self):
        self.assertIsNone(lines.ratio_of(self.cell("utilisation", 0.5, None), "utilisation"))


class ClaimsTest(unittest.TestCase):
    def test_the_weakest_verdict_counts(self):
        def verdict(*verdicts):
            return rule.Claim([({}, rule.Outcome(one)) for one in verdicts]).verdict
        self.assertEqual(verdict(rule.REPRODUCED, rule.NOT_REPRODUCED), rule.NOT_REPRODUCED)
        self.assertEqual(verdict(rule.IN_DIRECTION, rule.REPRODUCED), rule.IN_DIRECTION)
        self.assertEqual(verdict(rule.NOT_REPRODUCED, rule.NOT_MEASURABLE), rule.NOT_MEASURABLE)

    def test_figures_of_the_same_cells(self):
        def count(*figures):
            common = {"what": "w", "source": "s", "gpu": "none"}
            experiment = types.SimpleNamespace(
                definition={"published": [{**common, **figure} for figure in figures]}, cells=[],
                asked=None, backend="cpu")
            return [len(claim.parts) for claim in rule.claims(experiment)]
        mean, most = {"ratio": 2}, {"ratio": 3, "over": "max"}
        self.assertEqual(count(mean, most, {"ratio": 1, "over": "min"}), [3])
        self.assertEqual(count(mean, {**most, "metric": "gather"}), [1, 1])
        self.assertEqual(count(mean, {"faster": True, "over": "max"}), [1, 1])
        self.assertEqual(count(mean, most, mean, most), [2, 2])
        self.assertEqual(count({**mean, "unmeasurable": "why"}, most), [1, 1])


class TransferTest(unittest.TestCase):
    @staticmethod
    def cell(work, configuration, time, ratio, spread=0.02):
        return {"cell": {"input": "i", "work": work, "configuration": configuration},
                "quick": False,
                "result": {"pairs": 20, "a": {"wall_ms": {"median": time}, "stages_ms": {}},
                           "b": {"wall_ms": {"median": time * ratio}, "stages_ms": {}},
                           "speedup": {"ratio": ratio, "low": ratio - spread,
                                       "high": ratio + spread}}}

    def losses(self, *cells):
        experiment = types.SimpleNamespace(measured=lambda: cells)
        return {group[1]: (choice, round(loss[0], 3))
                for group, _, choice, loss in rule.transfer_losses(experiment)}

    def test_noise_of_the_baseline_does_not_choose(self):
        # "x" has the greatest ratio on w, by a slow baseline alone.
        found = self.losses(self.cell("w", "x", 7.2, 1.46), self.cell("w", "y", 7.1, 1.43),
                            self.cell("v", "x", 7.0, 1.50), self.cell("v", "y", 6.0, 1.70))
        self.assertEqual(found, {"w": ("y", 1.0), "v": ("y", 1.0)})

    def test_what_intervals_tell_apart_is_a_loss(self):
        found = self.losses(self.cell("w", "x", 6.0, 1.70), self.cell("w", "y", 7.0, 1.50),
                            self.cell("v", "x", 7.0, 1.50), self.cell("v", "y", 6.0, 1.70))
        self.assertEqual(found, {"w": ("y", 1.133), "v": ("x", 1.133)})

    def test_its_claim_names_the_commits_of_its_cells(self):
        cells = [{**self.cell(work, configuration, time, ratio), "status": "measured",
                  "provenance": {"commit": commit, "dirty": False}}
                 for work, configuration, time, ratio, commit in (
                     ("w", "x", 6.0, 1.70, "1" * 40), ("w", "y", 7.0, 1.50, "1" * 40),
                     ("v", "x", 7.0, 1.50, "1" * 40), ("v", "y", 6.0, 1.70, "2" * 40))]
        experiment = types.SimpleNamespace(definition={}, cells=cells, asked=None, backend="cuda",
                                           measured=lambda: cells)
        found = rule.judge({"what": "w", "ratio": 1.135, "metric": "transfer", "over": "max",
                            "gpu": "g"}, experiment)
        self.assertEqual(found.verdict, rule.REPRODUCED)
        self.assertEqual(len(found.commits), 2)


class OlderLinesTest(unittest.TestCase):
    def reason(self, name, what):
        experiment = types.SimpleNamespace(definition={"name": name}, cells=[], asked=None,
                                           backend="cuda")
        return rule.judge({"what": what, "ratio": 2, "source": "s", "gpu": "g",
                           "unmeasurable": "why"}, experiment).reason

    def test_todays_file_measures_it(self):
        self.assertEqual(self.reason("pcengine/fig12", "GPU utilisation, over separate"),
                         rule.OLDER)

    def test_no_file_of_today_does(self):
        self.assertEqual(self.reason("torchsparse/fig13", "simplified control logic, unrolling"),
                         "why")
        self.assertEqual(self.reason("pcengine/fig12", "no such claim"), "why")
        self.assertEqual(self.reason("../presets/hcnn", "w"), "why")
        self.assertEqual(self.reason("somebody/else", "w"), "why")


class CombineTest(unittest.TestCase):
    def test_geometric_mean_and_extremes(self):
        values = [(1.0, 0.9, 1.1), (4.0, 3.6, 4.4)]
        self.assertAlmostEqual(rule.combine(values, "mean")[0], 2.0)
        self.assertAlmostEqual(rule.combine(values, "mean")[1], 1.8)
        self.assertEqual(rule.combine(values, "max"), values[1])
        self.assertEqual(rule.combine(values, "min"), values[0])


class OrientationTest(unittest.TestCase):
    CELL = {"cell": {"configuration": "one", "against": "other", "input": "scan", "dtype": "f32",
                     "params": {"B": 256}}}

    def test_sides(self):
        def of(**figure):
            return rule.orientation(figure, self.CELL)
        self.assertEqual(of(configuration="one"), "a")
        self.assertEqual(of(configuration="other", against="one"), "b")
        self.assertEqual(of(configuration="other"), "b")
        self.assertIsNone(of(configuration="third"))
        self.assertEqual(of(where={"B": 256}), "a")
        self.assertEqual(of(where={"B": [128, 256], "input": "scan"}), "a")
        self.assertIsNone(of(where={"B": 128}))


class PartsTest(unittest.TestCase):
    def cells(self, **ratios):
        """Cells of one engine on two inputs: three ratios each."""
        return [{"cell": {"input": place, "work": "network", "dtype": "f32",
                          "params": {"engine": "e", "part": part}},
                 "result": {"speedup": {"ratio": ratio, "low": ratio, "high": ratio}}}
                for place, of_place in ratios.items()
                for part, ratio in zip(("mapping", "dataflow", "both"), of_place)]

    def extra(self, **ratios):
        cells = self.cells(**ratios)
        return analysis.parts(types.SimpleNamespace(measured=lambda: cells), None, "")

    def test_which_part_and_on_which_inputs(self):
        extra = self.extra(small=(1.0, 4.0, 8.0), large=(1.0, 4.0, 2.0))
        self.assertEqual(extra.text, [
            "The dataflow carries the gain of e. It alone makes the plain engine 4.00x as fast on small "
            "and 4.00x as fast on large, and the mapping alone 1.00x in the mean."])
        header, (row,) = extra.answer
        self.assertEqual(dict(zip(header, row)), {
            "engine": "e", "times as fast as the plain engine": "4.00 (4.00..4.00)",
            "by its dataflow alone": "4.00 (4.00..4.00)", "by its mapping alone": "1.00 (1.00..1.00)",
            "by its mapping beside its dataflow": "1.00 (1.00..1.00)",  # 2 and a half
            "least": "2.00 (large, network)", "greatest": "8.00 (small, network)"})
        self.assertEqual(extra.tables[1][2],
                         [["e", "large", "network", "f32", "2.00", "4.00", "1.00", "0.50"],
                          ["e", "small", "network", "f32", "8.00", "4.00", "1.00", "2.00"]])

    def test_a_quotient_of_two_ratios_has_the_widest_interval(self):
        self.assertEqual(analysis._over((4.0, 3.0, 6.0), (2.0, 1.0, 4.0)), (2.0, 0.75, 6.0))

    def test_a_mapping_may_carry_the_gain_and_no_gain_is_shared_out(self):
        self.assertEqual(self.extra(small=(4.0, 1.0, 4.0)).text, [
            "The mapping carries the gain of e. It alone makes the plain engine 4.00x as fast on small, and "
            "the dataflow alone 1.00x in the mean."])
        self.assertEqual(self.extra(small=(2.0, 2.0, 4.0)).text, [
            "e: faster than the plain engine, and neither part alone brings more than the other beyond "
            "the intervals."])
        self.assertEqual(self.extra(small=(1.0, 0.5, 0.5), large=(1.0, 1.5, 1.5)).text, [
            "In the mean there is no gain to share out in e (0.50x on small and 1.50x on large)."])


class RoundsTest(unittest.TestCase):
    @staticmethod
    def line(number, ratio, commit="c", hour=1):
        side = {"wall_ms": {"median": 1.0}, "wall_ms_samples": [1.0, 1.0], "stages_ms": {},
                "counters": {}}
        result = {"pairs": 2, "a": side, "b": {**side, "wall_ms": {"median": ratio}},
                  "speedup": {"ratio": ratio, "low": ratio - 0.1, "high": ratio + 0.1},
                  "verdict": "faster"}
        return {"cell": {"configuration": "one"}, "quick": False, "round": number, "result": result,
                "provenance": {"commit": commit, "time_utc": f"2026-01-01T0{hour}:00:00Z"}}

    def test_the_median_and_the_span(self):
        merged, = rounds.merge([self.line(1, 1.5), self.line(2, 1.2), self.line(3, 1.3)])
        result = merged["result"]
        self.assertEqual(result["speedup"]["ratio"], 1.3)
        self.assertAlmostEqual(result["speedup"]["low"], 1.1)
        self.assertAlmostEqual(result["speedup"]["high"], 1.6)
        self.assertEqual(result["verdict"], "faster")
        self.assertEqual((result["pairs"], result["rounds"]), (6, 3))
        self.assertEqual(len(result["a"]["wall_ms_samples"]), 6)

    def test_one_round_has_the_counters(self):
        counted = {**self.line(2, 1.5), "hardware": {"a": {"l2_hit": 0.5}}}
        merged, = rounds.merge([self.line(1, 1.5), counted, self.line(3, 1.5)])
        self.assertEqual(merged["hardware"], counted["hardware"])
        self.assertEqual(merged["result"]["rounds"], 3)
        merged, = rounds.merge([self.line(1, 1.5), self.line(2, 1.5)])
        self.assertNotIn("hardware", merged)

    def test_rounds_that_disagree_claim_nothing(self):
        merged, = rounds.merge([self.line(1, 1.2), self.line(2, 0.9), self.line(3, 1.3)])
        self.assertEqual(merged["result"]["verdict"], "no difference")

    def test_too_few_pairs_stay_too_few(self):
        lines = [self.line(number, 1.5) for number in (1, 2, 3)]
        for line in lines:
            line["result"]["verdict"] = "too few pairs"
        merged, = rounds.merge(lines[:2])
        self.assertEqual(merged["result"]["verdict"], "too few pairs")
        merged, = rounds.merge(lines)  # six together
        self.assertEqual(merged["result"]["verdict"], "faster")

    def test_rounds_of_another_run_do_not_count(self):
        other = self.line(2, 3.0)
        other["seed"] = 2
        merged, = rounds.merge([other, self.line(1, 1.5, hour=2), self.line(3, 1.5, hour=2)])
        self.assertEqual(merged["result"]["speedup"]["ratio"], 1.5)
        self.assertEqual(merged["result"]["rounds"], 2)

    def test_a_refused_round_leaves_the_others(self):
        refused = {**self.line(3, 1.0, hour=3), "status": "refused"}
        del refused["result"]
        merged, = rounds.merge([self.line(1, 1.5), self.line(2, 1.5), refused])
        self.assertEqual(merged["result"]["rounds"], 2)

    def test_one_round_is_left_as_it_is(self):
        line = self.line(1, 1.5)
        self.assertEqual(rounds.merge([line]), [line])

    def test_rounds_of_another_program_do_not_count(self):
        other = self.line(2, 3.0)
        other["provenance"]["program"] = "p"
        merged, = rounds.merge([other, self.line(1, 1.5, hour=2), self.line(3, 1.5, hour=2)])
        self.assertEqual(merged["result"]["speedup"]["ratio"], 1.5)

    def test_the_latest_of_a_cell_counts_whatever_ran(self):
        old, new = self.line(1, 3.0), self.line(1, 1.5, hour=2)
        old["cell"]["specs"] = {"a": "tile=2"}
        new["cell"]["specs"] = {"a": "tile=4"}
        self.assertNotEqual(rounds.identity(old), rounds.identity(new))
        self.assertEqual(rounds.latest([new, old]), ([new], [old]))

    def test_rounds_of_an_older_commit_do_not_count(self):
        old = [self.line(number, 3.0, "old") for number in (1, 2, 3)]
        merged, = rounds.merge(old + [self.line(1, 1.5, "new", hour=2)])
        self.assertEqual(merged["result"]["speedup"]["ratio"], 1.5)
        self.assertNotIn("rounds", merged["result"])


class IdenticalPairsTest(unittest.TestCase):
    """Both sides are the same; each process has a speed of its own for each of them."""

    ROUNDS, PAIRS = 5, 20
    OF_PROCESS, OF_RUN = 0.1, 0.02  # standard deviations of log time

    def cell(self, draw):
        made = []
        for number in range(1, self.ROUNDS + 1):
            speeds = [draw.gauss(0, self.OF_PROCESS) for _ in "ab"]
            a, b = ([math.exp(draw.gauss(speed, self.OF_RUN)) for _ in range(self.PAIRS)]
                    for speed in speeds)
            ratio = statistics.median(b) / statistics.median(a)
            # As of measure/statistics.h: what runs differ by, and not what processes do.
            width = 1.25 * 2 * self.OF_RUN * math.sqrt(2 / self.PAIRS)
            line = RoundsTest.line(number, ratio)
            line["result"]["speedup"].update(low=ratio / math.exp(width), high=ratio * math.exp(width))
            made.append(line)
        return rounds.merge(made)[0]["result"]["speedup"]

    def inside(self, cells=2000):
        draw = random.Random(1)
        made = [self.cell(draw) for _ in range(cells)]
        return sum(cell["low"] <= 1 <= cell["high"] for cell in made) / cells

    def test_the_interval_holds_what_processes_differ_by(self):
        self.assertGreaterEqual(self.inside(), 0.93)

    def test_so_do_rounds_of_few_pairs(self):
        self.PAIRS = 4
        self.assertGreaterEqual(self.inside(), 0.93)

    def test_one_round_would_not(self):
        self.ROUNDS = 1
        self.assertLess(self.inside(), 0.5)


class OutlierPairsTest(IdenticalPairsTest):
    """As measured on a GPU: most processes differ by a few per cent, and one in ten has a side that is
    1.48 times as slow for as long as it lives."""

    OF_PROCESS, OUTLIER, SHARE = 0.02, math.log(1.48), 0.1

    def cell(self, draw):
        gauss = draw.gauss

        def with_outliers(mean, deviation):
            slow = deviation == self.OF_PROCESS and draw.random() < self.SHARE / 2
            return gauss(mean, deviation) + (self.OUTLIER if slow else 0)

        draw = types.SimpleNamespace(gauss=with_outliers, random=draw.random)
        return super().cell(draw)

    def test_an_outlier_widens_the_interval(self):
        made = [RoundsTest.line(number, 1.48 if number == 3 else 1.0) for number in range(1, 6)]
        speedup = rounds.merge(made)[0]["result"]["speedup"]
        self.assertEqual(speedup["ratio"], 1.0)
        self.assertGreaterEqual(speedup["high"], 1.48)

    def test_one_round_would_not(self):
        self.ROUNDS = 1
        self.assertLess(self.inside(), 0.93)


class CapturedTest(unittest.TestCase):
    @staticmethod
    def line(number, ratio):
        line = RoundsTest.line(number, 2.0)
        side = {"wall_ms": {"median": 0.5}}
        line["result"]["captured"] = {
            "pairs": 20, "verdict": "faster", "a": side, "b": {"wall_ms": {"median": 0.5 * ratio}},
            "speedup": {"ratio": ratio, "low": ratio - 0.1, "high": ratio + 0.1},
            "launch_bound": ["a"] if number == 1 else ["b"]}
        return line

    def test_rounds_of_graphs_are_merged_as_the_others(self):
        merged, = rounds.merge([self.line(1, 1.0), self.line(2, 1.3), self.line(3, 1.2)])
        captured = merged["result"]["captured"]
        self.assertEqual(captured["speedup"]["ratio"], 1.2)
        self.assertAlmostEqual(captured["speedup"]["low"], 0.9)
        self.assertEqual(captured["verdict"], "no difference")
        self.assertEqual((captured["pairs"], captured["launch_bound"]), (60, ["a", "b"]))
        self.assertEqual(merged["result"]["speedup"]["ratio"], 2.0)

    def test_what_is_not_captured_says_why(self):
        lines = [self.line(1, 1.0), self.line(2, 1.3)]
        lines[1]["result"]["captured"] = {"why": "side a: waits"}
        lines[0]["result"]["captured"] = None
        merged, = rounds.merge(lines)
        self.assertEqual(merged["result"]["captured"], {"why": "side a: waits"})

    def test_clocks_of_any_round_are_told(self):
        lines = [RoundsTest.line(number, 1.5) for number in (1, 2)]
        lines[1]["result"]["clocks"] = "the SM clock fell"
        merged, = rounds.merge(lines)
        self.assertEqual(merged["result"]["clocks"], "the SM clock fell")
        self.assertIsNone(merged["result"]["busy"])


class IdenticalExperimentTest(unittest.TestCase):
    @staticmethod
    def said(*spans, count=5):
        cells = []
        for low, high in spans:
            line = RoundsTest.line(1, 1.0)
            line.update(status="measured")
            line["result"].update(rounds=count, speedup={"ratio": 1.0, "low": low, "high": high})
            cells.append(line)
        experiment = types.SimpleNamespace(measured=lambda: cells)
        return analysis.identical(experiment, None, None).text

    def test_counts_how_often_1_is_inside(self):
        self.assertEqual(self.said((0.9, 1.1), (1.0, 1.2), (1.01, 1.2), (0.5, 0.99)),
                         ["Sides that are equal, as they run: the interval holds 1 in 2 of 4 cells "
                          "(50 %)."])

    def test_fewer_rounds_are_told(self):
        self.assertIn("2 rounds only", self.said((0.9, 1.1), count=2)[1])
        self.assertEqual(self.said(), [])


class EffectsTest(unittest.TestCase):
    @staticmethod
    def design(value):
        return [({"mapping": m, "dataflow": d, "input": i}, value(m, d, i))
                for m in range(3) for d in range(2) for i in range(4)]

    def test_additive_effects_are_found_and_nothing_else(self):
        shares, main = analysis.effects(self.design(lambda m, d, i: 2.0 * m + 0.5 * i),
                                        ["mapping", "dataflow", "input"])
        self.assertAlmostEqual(shares["mapping"] + shares["input"], 1)
        self.assertAlmostEqual(shares["dataflow"], 0)
        self.assertAlmostEqual(shares["mapping × input"], 0)
        self.assertAlmostEqual(shares["rest"], 0)
        self.assertAlmostEqual(main["mapping"][2] - main["mapping"][0], 4.0)
        self.assertAlmostEqual(sum(main["mapping"].values()), 0)

    def test_an_interaction_is_told_from_main_effects(self):
        shares, _ = analysis.effects(self.design(lambda m, d, i: (m - 1) * (2 * d - 1)),
                                     ["mapping", "dataflow", "input"])
        self.assertAlmostEqual(shares["mapping × dataflow"], 1)
        self.assertAlmostEqual(shares["mapping"], 0)

    def test_says_what_is_left_without_the_farthest_level(self):
        factors = ["mapping", "dataflow", "input"]
        rows = self.design(lambda m, d, i: (10.0 if m == 2 else 0.0) + d + i)
        named = [(dict(levels, mapping="abc"[levels["mapping"]]), value) for levels, value in rows]
        shares, main = analysis.effects(named, factors)
        self.assertIn("the choice of the mapping carries 99 %", analysis._in_words(shares, main)[0])
        sentence, = analysis._without_farthest(named, factors, main)
        self.assertIn("without c 0 %, 100 % and 0 %", sentence)

    def test_incomplete_levels_are_dropped(self):
        rows = [row for row in self.design(lambda m, d, i: m + d)
                if not (row[0]["mapping"] == 2 and row[0]["input"] == 1)]
        kept = analysis.balanced(rows, ["mapping", "dataflow", "input"])
        levels = {name: {row[0][name] for row in kept} for name in kept[0][0]}
        self.assertEqual(len(kept), math.prod(len(values) for values in levels.values()))
        self.assertGreaterEqual(len(kept), 16)


if __name__ == "__main__":
    sys.exit(unittest.main())
