# SPDX-License-Identifier: Apache-2.0
"""Results are kept under what ran, and wrong plugins are refused whatever they are held against.

    identity_test.py VOXCONV STRANGER_0.so ... STRANGER_4.so
"""

import copy
import pathlib
import shutil
import sys
import tempfile
import unittest

import support

VOXCONV = sys.argv[1]
RIGHT, REBUILT, PAST_END, NEGATIVE, LOSSY = sys.argv[2:7]
del sys.argv[1:7]

LARGE = "scene:uniform?n=4000&box=24"


class IdentityTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        self.out = self.path / "run"

    def define(self, name="small", **changes):
        file = self.path / f"{name.replace('/', '_')}.json"
        return support.write(file, support.definition(name=name, **changes))

    def experiment(self, file, *more):
        return support.run(VOXCONV, "experiment", file, "--threads", 1, "--rounds", 1,
                           "--out", self.out, *more)

    def cells(self, name="small"):
        return [line for line in support.read_lines(self.out / f"{name}.jsonl")
                if line["kind"] == "cell"]

    def report(self, folder=None):
        result = support.run(VOXCONV, "report", folder or self.out)
        return result, support.markdown_of(folder or self.out)


class KeyTest(IdentityTest):
    def test_layers_that_differ_in_one_axis_are_cells_of_their_own(self):
        layers = [{"kernel": [3, 1, 1]}, {"kernel": [3, 3, 3]}, {"kernel": [3, 1, 1], "dilation": 2},
                  {"kind": "strided", "kernel": 2, "stride": [2, 1, 1]},
                  {"kind": "strided", "kernel": 2, "stride": [2, 2, 1]},
                  {"kind": "strided", "kernel": 3, "stride": 2, "rule": "dilate"},
                  {"kind": "strided", "kernel": 3, "stride": 2, "rule": "dilate", "padding": 1},
                  {"kind": "strided", "kernel": 3, "stride": 2}]
        file = self.define(layers=[{**layer, "channels": [[4, 4]]} for layer in layers])
        result = self.experiment(file)
        self.assertIn(f"{len(layers)} cells measured, 0 refused, 0 failed, 0 finished",
                      result.stdout)
        cells = self.cells()
        self.assertEqual(len({cell["key"] for cell in cells}), len(layers))
        self.assertEqual(len({cell["cell"]["work"] for cell in cells}), len(layers))
        _, page = self.report()
        self.assertIn("submanifold k3x1x1 4->4", page)
        self.assertIn("| submanifold k3 4->4", page)

    def test_rows_in_another_order_are_another_cell(self):
        def ordered(order):
            return self.define(inputs=[{"input": LARGE, "order": order}], kind="map",
                               layers=[{"kernel": 3}], configurations=[
                                   {"name": "one", "spec": "sorted_search"},
                                   {"name": "same", "spec": "hash"}])
        self.assertIn("1 cells measured", self.experiment(ordered("scan")).stdout)
        self.assertIn("0 cells measured, 0 refused, 0 failed, 1 finished",
                      self.experiment(ordered("scan")).stdout)
        self.assertIn("1 cells measured, 0 refused, 0 failed, 0 finished",
                      self.experiment(ordered("sorted")).stdout)
        scan, row_sorted = self.cells()
        self.assertEqual((scan["cell"]["order"], row_sorted["cell"]["order"]), ("scan", "sorted"))
        self.assertEqual(scan["input"]["order"], "scan")
        self.assertNotEqual(scan["cell"]["input_hash"], row_sorted["cell"]["input_hash"])
        self.assertEqual(row_sorted["cell"]["input"], LARGE + " sorted")
        _, page = self.report()
        self.assertIn("order of rows sorted: 1 cells", page)

    def test_a_line_of_before_there_were_orders_gives_way(self):
        file = self.define()
        self.experiment(file)
        path = self.out / "small.jsonl"
        old = support.read_lines(path)
        for cell in (old[0]["asked"]["cells"][0], old[1]["cell"]):
            del cell["order"]
        old[1]["key"] = "0" * 16
        old[1]["provenance"]["time_utc"] = "2020-01-01T00:00:00Z"
        support.write_lines(path, old)
        _, page = self.report()
        self.assertIn("order of rows sorted: 1 cells", page)
        self.assertIn("1 cells measured, 0 refused, 0 failed, 0 finished",
                      self.experiment(file).stdout)
        _, page = self.report()
        self.assertIn("order of rows scan: 1 cells", page)
        self.assertNotIn("order of rows sorted", page)
        self.assertIn("Cells that were measured again later", page)

    def test_the_cell_says_what_ran(self):
        self.experiment(self.define())
        line, = self.cells()
        self.assertEqual(line["format"], 2)
        about = line["cell"]
        self.assertEqual(about["geometry"]["kernel"], [3, 3, 3])
        self.assertIn("fusion=segmented", about["specs"]["a"]["dataflow"])
        self.assertRegex(about["program"], "^[0-9a-f]{16}$")
        self.assertEqual(about["limits"], {"memory_mib": 0})
        self.assertEqual(line["provenance"]["program"], about["program"])
        self.assertEqual(line["provenance"]["plugins"], [])
        self.assertEqual(len(line["provenance"]["load"]["load_average"]), 3)
        self.assertIn("steal", line["provenance"]["load"])

    def test_a_plugin_that_is_built_anew_is_another_one(self):
        library = self.path / "stranger.so"
        shutil.copy(RIGHT, library)
        file = self.define(configurations=[
            {"name": "one", "spec": "stranger/fetch_on_demand"},
            {"name": "same", "spec": "hash/fetch_on_demand"}])
        first = self.experiment(file, "--plugin", library)
        self.assertIn("1 cells measured", first.stdout)
        again = self.experiment(file, "--plugin", library)
        self.assertIn("0 cells measured, 0 refused, 0 failed, 1 finished", again.stdout)
        library.unlink()
        shutil.copy(REBUILT, library)
        rebuilt = self.experiment(file, "--plugin", library)
        self.assertIn("1 cells measured, 0 refused, 0 failed, 0 finished", rebuilt.stdout)
        cells = self.cells()
        self.assertEqual(len({tuple(cell["cell"]["plugins"]) for cell in cells}), 2)
        self.assertEqual([(plugin["name"], plugin["path"])
                          for plugin in cells[0]["provenance"]["plugins"]],
                         [("stranger", str(library))])
        # Both are in the report, and only the later one counts.
        _, page = self.report()
        self.assertIn("Cells that were measured again later", page)
        for cell in cells:
            self.assertEqual(page.count(cell["cell"]["plugins"][0]), int(cell is cells[0]))

    def test_every_round_verifies(self):
        library = self.path / "stranger.so"
        shutil.copy(RIGHT, library)
        file = self.define(configurations=[
            {"name": "one", "spec": "stranger/fetch_on_demand"},
            {"name": "same", "spec": "hash/fetch_on_demand"}])
        self.experiment(file, "--plugin", library)
        library.unlink()
        shutil.copy(PAST_END, library)
        second = self.experiment(file, "--plugin", library, "--round", 2)
        self.assertEqual(second.returncode, 1)
        self.assertIn("1 failed", second.stdout)
        failed = self.cells()[-1]
        self.assertEqual(failed["status"], "failed")
        self.assertNotIn("verified", failed)

    def test_a_refusal_for_memory_holds_for_its_limit(self):
        file = self.define(inputs=["scene:uniform?n=60000&box=60"],
                           layers=[{"kernel": 3, "channels": [[64, 64]]}])
        refused = self.experiment(file, "--memory-limit-mib", 1)
        self.assertIn("0 cells measured, 1 refused", refused.stdout)
        again = self.experiment(file, "--memory-limit-mib", 1)
        self.assertIn("0 cells measured, 0 refused, 0 failed, 1 finished", again.stdout)
        more = self.experiment(file, "--memory-limit-mib", 4000)
        self.assertIn("1 cells measured", more.stdout)

    def test_lines_of_another_format_are_not_reused(self):
        file = self.define()
        self.experiment(file)
        path = self.out / "small.jsonl"
        lines = support.read_lines(path)
        for strange in (1, 3, None, "2"):
            changed = copy.deepcopy(lines)
            changed[-1]["format"] = strange
            support.write_lines(path, changed)
            with self.subTest(strange):
                self.assertIn("1 cells measured", self.experiment(file).stdout)
        changed = copy.deepcopy(lines)
        changed[-1]["format"] = 3
        support.write_lines(path, changed)
        result, _ = self.report()
        self.assertEqual(result.returncode, 1)
        self.assertIn("line 2 is left out, for it cannot be read: key 'format' is 3", result.stderr)

    def test_names_that_differ_in_a_dash_have_files_of_their_own(self):
        for name in ("a/b", "a-b"):
            self.experiment(self.define(name))
        files = sorted(path.name for path in self.out.glob("*.jsonl"))
        self.assertEqual(files, ["a%2Db.jsonl", "a-b.jsonl"])
        _, page = self.report()
        for name in ("# a/b: ", "# a-b: "):
            self.assertIn(name, page)

    def test_a_changed_spec_under_one_name_is_another_row(self):
        one = {"name": "one", "spec": "hash/fetch_on_demand"}
        same = {"name": "same", "spec": "hash/fetch_on_demand"}
        self.experiment(self.define(configurations=[one, same]))
        one["spec"] = "hash/direct"
        changed = self.experiment(self.define(configurations=[one, same]))
        self.assertIn("1 cells measured", changed.stdout)
        _, page = self.report()
        row, = [line for line in page.splitlines() if "fetch\\_on\\_demand" in line
                or "fetch_on_demand" in line]
        self.assertIn("hash:variant=", row)
        self.assertIn("| 1 |", page)  # one cell counts

    def test_two_devices_of_one_slug_have_plots_of_their_own(self):
        self.experiment(self.define(plots=[{"x": "input"}]))
        path = self.out / "small.jsonl"
        lines = support.read_lines(path)
        other = copy.deepcopy(lines)
        device = lines[-1]["provenance"]["device"]
        for line, name in ((lines[-1], device + " one"), (other[-1], device + "-one")):
            line["provenance"]["device"] = name
        for line, name in ((lines[0], device + " one"), (other[0], device + "-one")):
            line["asked"]["device"] = name
        support.write_lines(path, lines + other)
        result, page = self.report()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(list((self.out / "plots").glob("*.png"))), 2)
        images = [line for line in page.splitlines() if line.startswith("![")]
        self.assertEqual(len(set(images)), 2)

    def test_inputs_of_one_name_are_told_apart_or_refused(self):
        for folder in ("a", "b"):
            (self.path / folder).mkdir()
        scan = bytes(range(1, 65)) * 4
        for folder, content in (("a", scan), ("b", scan * 2)):
            (self.path / folder / "scan.bin").write_bytes(content)
        inputs = [str(self.path / folder / "scan.bin") for folder in "ab"]
        listed = support.run(VOXCONV, "experiment", "--list", self.define(),
                             "--input", inputs[0], "--input", inputs[1])
        self.assertIn("a/scan.bin", listed.stdout)
        self.assertIn("b/scan.bin", listed.stdout)
        twice = self.define(inputs=[{"input": support.SMALL, "name": "x"},
                                    {"input": LARGE, "name": "x"}])
        refused = self.experiment(twice)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("names that differ", refused.stderr)


class StrangerTest(IdentityTest):
    """A library's maps, with the same fault on both sides."""

    def check(self, plugin, *arguments, says="the kernel map is wrong"):
        result = support.run(VOXCONV, *arguments, "--threads", 1, "--plugin", plugin)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(says, result.stdout + result.stderr)
        self.assertNotIn("verified", result.stdout)

    def wrong(self):
        return [(PAST_END, "rows 0 .. "), (NEGATIVE, "row -"), (LOSSY, "has no pair")]

    def test_ab_of_a_layer(self):
        for plugin, says in self.wrong():
            self.check(plugin, "ab", "--a", "stranger/fetch_on_demand", "--b",
                       "stranger/implicit_gemm", "--input", LARGE, "--channels", "4,4", says=says)

    def test_ab_of_a_network(self):
        for plugin, says in self.wrong():
            self.check(plugin, "ab", "--a", "stranger/fetch_on_demand", "--b",
                       "stranger/implicit_gemm", "--input", LARGE, "--network", "sparseresnet21",
                       "--width", "0.25", says=says)

    def test_run(self):
        for plugin, says in self.wrong():
            self.check(plugin, "run", "--mapping", "stranger", "--input", LARGE, "--network",
                       "sparseresnet21", "--width", "0.25", says=says)
        right = support.run(VOXCONV, "run", "--plugin", RIGHT, "--mapping", "stranger", "--input",
                            LARGE, "--network", "sparseresnet21", "--width", "0.25")
        self.assertEqual(right.returncode, 0, right.stderr)

    def test_experiments(self):
        sides = [{"name": "one", "spec": "stranger"}, {"name": "same", "spec": "stranger"}]
        maps = self.define("maps", kind="map", inputs=[LARGE], layers=[{"kernel": 3}],
                           configurations=sides)
        for side in sides:
            side["spec"] = "stranger/fetch_on_demand"
        layers = self.define("layers", inputs=[LARGE], configurations=sides)
        info = {"name": "look", "title": "a look", "kind": "info", "inputs": [LARGE],
                "networks": [{"network": "sparseresnet21", "width": 0.25}],
                "configurations": sides[:1]}
        look = support.write(self.path / "look.json", info)
        for file in (maps, layers, look):
            for plugin, says in self.wrong():
                self.check(plugin, "experiment", file, "--rounds", 1, "--out", self.out, says=says)

    def test_conv_and_saved_maps(self):
        try:
            import numpy as np
        except ImportError:
            self.skipTest("no NumPy here")
        rng = np.random.default_rng(0)
        xyz = np.unique(rng.integers(0, 24, (5000, 3)), axis=0)
        source, target, saved = (self.path / name for name in ("in.npz", "out.npz", "map.npz"))
        np.savez(source, coords=np.c_[np.zeros(len(xyz)), xyz].astype(np.int32),
                 features=rng.standard_normal((len(xyz), 4)).astype(np.float32),
                 weights=rng.standard_normal((27, 4, 4)).astype(np.float32))
        for plugin, says in self.wrong():
            self.check(plugin, "conv", source, target, "--mapping", "stranger", says=says)
        np.savez(source, **{**np.load(source),
                            "weights": rng.standard_normal((8, 4, 4)).astype(np.float32)})
        right = support.run(VOXCONV, "conv", source, target, "--kind", "strided", "--kernel", 2,
                            "--stride", 2, "--save-map", saved)
        self.assertEqual(right.returncode, 0, right.stderr)
        self.assertEqual(support.run(VOXCONV, "info", saved).returncode, 0)
        arrays = dict(np.load(saved))
        pointer = arrays["map_offset_ptr"]
        arrays["map_offset_ptr"] = np.minimum(pointer, pointer[-1] - 1)
        for name in ("map_in", "map_out"):
            arrays[name] = arrays[name][:-1]
        np.savez(saved, **arrays)
        lossy = support.run(VOXCONV, "info", saved)
        self.assertEqual(lossy.returncode, 1)
        self.assertIn("has no pair; by the definition it meets input", lossy.stderr)


if __name__ == "__main__":
    support.need_matplotlib()
    unittest.main()
