# SPDX-License-Identifier: Apache-2.0
"""The conventions of the command line, the same in every command.

    command_line_test.py VOXCONV
"""

import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

VOXCONV = sys.argv.pop(1)
SCENE = "scene:uniform?n=400&box=16"
SMALL = ["--network", "sparseresnet21", "--width", "0.25", "--input", SCENE]
LAYER = ["ab", "--a", "minuet", "--b", "torchsparse", "--input", SCENE, "--channels", "4x4"]


def run(*arguments, **options):
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.run([VOXCONV, *arguments], capture_output=True, text=True, check=False,
                          env=environment, **options)


def commands():
    """The names that --help lists."""
    rest = run("--help").stdout.split("\n\n", 1)[1]
    return re.findall(r"^  ([a-z]+) ", rest, re.MULTILINE)


def options_of(command):
    """The options that --help of the command names."""
    return set(re.findall(r"^ +(?:-h \[ )?(--[a-z][a-z0-9-]*)", run(command, "--help").stdout,
                          re.MULTILINE))


def on_terminal(arguments, **environment):
    """What the program prints to a terminal of 100 columns, both streams together."""
    parent, child = pty.openpty()
    variables = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen([VOXCONV, *arguments], stdin=child, stdout=child, stderr=child,
                               env={**variables, **environment})
    os.close(child)
    printed = b""
    while True:
        try:
            chunk = os.read(parent, 65536)
        except OSError:  # the terminal has no other end any more
            break
        if not chunk:
            break
        printed += chunk
    process.wait()
    os.close(parent)
    return printed.decode(errors="replace")


class CommandLineTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_help_and_version(self):
        self.assertEqual(run("-v").stdout, run("--version").stdout)
        self.assertEqual(run("help").stdout, run("--help").stdout)
        for command in commands():
            with self.subTest(command):
                shown = run(command, "--help")
                self.assertEqual(shown.returncode, 0)
                self.assertEqual(run("help", command).stdout, shown.stdout)
                self.assertTrue(shown.stdout.startswith(f"usage: voxconv {command} "),
                                shown.stdout[:80])
        self.assertEqual(run("help", "nothing").returncode, 2)
        self.assertEqual(run("help", "run", "ab").returncode, 2)

    def test_every_help_has_examples_with_its_own_options(self):
        for command in commands():
            with self.subTest(command):
                shown = run(command, "--help").stdout
                examples = re.findall(r"^  voxconv (.*)$", shown.split("Examples:")[-1],
                                      re.MULTILINE)
                self.assertGreaterEqual(len(examples), 2)
                for example in examples:
                    self.assertEqual(example.split()[0], command)
                    for option in re.findall(r"(--[a-z][a-z0-9-]*)", example):
                        if not option.startswith("--benchmark"):
                            self.assertIn(option, options_of(command), example)

    def test_internal_options_are_hidden(self):
        self.assertNotIn("--round", options_of("ab"))
        self.assertNotIn("--round", options_of("experiment"))
        self.assertNotIn("--profiled-side", options_of("experiment"))
        self.assertIn("--rounds", options_of("ab"))

    def test_what_is_nearly_right_is_named(self):
        self.assertIn("(did you mean 'verify'?)", run("verfiy").stderr)
        self.assertIn("(did you mean '--input'?)", run("run", "--inptu", "x").stderr)
        self.assertNotIn("did you mean", run("frobnicate").stderr)

    def test_values_that_cannot_be_read_say_what_is_allowed(self):
        whole = "allowed are whole numbers of at most"
        for options, message in (
                (["--frames", "abc"], f"--frames abc: {whole} 2147483647"),
                (["--classes=99999999999999999999"],
                 f"--classes 99999999999999999999: {whole} 9223372036854775807"),
                (["--seed", "x"], f"--seed x: {whole} 18446744073709551615"),
                (["--width", "wide"], "--width wide: allowed are numbers, such as 0.5"),
                (["--mapping="], "--mapping '': is empty; allowed is a value of one character or more"),
                (["--dtype", "bf16"], "--dtype bf16: allowed for networks with --backend cpu is f32")):
            with self.subTest(options):
                result = run("run", "--input", SCENE, *options)
                self.assertEqual(result.returncode, 1)
                self.assertEqual(result.stderr, f"voxconv run: {message}\n")
        for options, message in (
                (["--rebuild-maps", "maybe"], "--rebuild-maps maybe: allowed are true and false"),
                (["--dtype", "f16"],
                 "--dtype f16: allowed for a layer with --backend cpu are f32 and bf16")):
            with self.subTest(options):
                self.assertEqual(run(*LAYER, *options).stderr, f"voxconv ab: {message}\n")
        self.assertEqual(run("verify", "--mapping", "hash", "--filter", "no_such").stderr,
                         "voxconv verify: no case matches --mapping hash and --filter no_such; "
                         "--list prints the cases\n")

    def test_json_is_one_line(self):
        for arguments in (["info", SCENE], ["run", *SMALL], LAYER, [*LAYER, "--rounds", "1"]):
            with self.subTest(arguments):
                result = run(*arguments, "--json")
                self.assertEqual(result.returncode, 0, result.stderr)
                lines = result.stdout.splitlines()
                self.assertEqual(len(lines), 1)
                self.assertEqual(json.loads(lines[0])["kind"], arguments[0])
        self.assertEqual(json.loads(run("info", SCENE, "--json").stdout)["voxels"], 400)
        verified = json.loads(run("verify", "--filter", "map/hash:", "--quick", "--json").stdout)
        self.assertEqual(verified["kind"], "verify")
        self.assertGreater(verified["passed"], 0)
        self.assertEqual((verified["failed"], verified["failures"]), (0, []))
        self.assertIn("--json", run("verify", "--list", "--json").stderr)
        rounds = run(*LAYER, "--rounds", "2", "--json").stdout.splitlines()
        self.assertEqual([json.loads(line)["round"] for line in rounds], [1, 2])

    def test_support_of_selected_plugins(self):
        whole = run("verify", "--support").stdout.splitlines()
        for option, name in (("--mapping", "hash"), ("--dataflow", "direct")):
            with self.subTest(option):
                expected = [line for line in whole if re.match(f"{option[2:]} {name}[: ]", line)]
                self.assertGreater(len(expected), 0)
                self.assertEqual(run("verify", "--support", option, name).stdout.splitlines(), expected)
        one = run("verify", "--support", "--dataflow", "direct:").stdout.splitlines()
        self.assertEqual(one, [line for line in whole if line.startswith("dataflow direct | ")])
        self.assertIn("hassh", run("verify", "--support", "--mapping", "hassh").stderr)

    def test_a_dash_is_standard_output(self):
        for arguments in (["run", *SMALL], LAYER):
            result = run(*arguments, "--out", "-")
            self.assertEqual(len(result.stdout.splitlines()), 1, result.stdout)
            self.assertEqual(json.loads(result.stdout)["kind"], arguments[0])
            self.assertIn("ms", result.stderr)  # the table
        both = run("run", *SMALL, "--json", "--out", str(self.folder / "line.jsonl"))
        self.assertEqual(both.stdout, (self.folder / "line.jsonl").read_text())
        plan = run("tune", *SMALL, "--quick", "--repeats", "1", "--mapping", "hash", "--dataflow",
                   "fetch_on_demand", "--out", "-")
        self.assertEqual(len(json.loads(plan.stdout)["plans"]), 1, plan.stderr)
        for arguments in (["experiment", "luo_lai/inverse", "--quick"], ["report", "."]):
            result = run(*arguments, "--out", "-")
            self.assertEqual(result.returncode, 1)
            self.assertIn("--out -: several files are written", result.stderr)
        with open("/dev/full", "w") as full:
            result = subprocess.run([VOXCONV, "run", *SMALL, "--json"], stdout=full,
                                    stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("standard output cannot be written", result.stderr)

    def test_channels_are_written_either_way(self):
        for text in ("4,8", "4x8"):
            ab = run(*LAYER[:-1], text, "--json")
            self.assertIn("4->8", json.loads(ab.stdout)["title"].replace(" ", ""))
            bench = run("bench", "--channels", text, "--input", SCENE, "--benchmark_list_tests")
            self.assertIn("/4x8/", bench.stdout)
            self.assertNotIn("64x64", bench.stdout)

    def test_a_grid_is_taken_wherever_a_network_runs(self):
        scene = "scene:uniform?n=300&box=40"
        network = ["--network", "centerpoint", "--input", scene]
        narrow = [*network, "--width", "0.25"]
        good, other = "0,0,0,39,39,39", "0,0,0,31,31,31"
        plan = str(self.folder / "plan.json")
        sides = ["--a", "hash/direct", "--b", "hash/implicit_gemm"]
        once = ["--mapping", "hash:", "--dataflow", "direct:"]
        commands = {
            "run": ["run", *narrow],
            "view": ["view", scene, "--out", str(self.folder / "page.html"), "--network",
                     "centerpoint"],
            "ab": ["ab", *sides, *narrow],
            "verify": ["verify", *once, *narrow],
            "tune": ["tune", *once, *narrow, "--quick", "--out", plan],
            "bench": ["bench", *once, *network, "--config", "hash/direct"],
        }
        for name, command in commands.items():
            with self.subTest(name):
                for grid, words in (("0,0,0,9", "six integers are needed"),
                                    ("0,0,0,3,3,3", "grid: after strides"),
                                    ("1,0,0,39,39,39", "grid")):
                    refused = run(*command, "--grid", grid)
                    self.assertEqual(refused.returncode, 1, refused.stdout)
                    self.assertIn(words, refused.stderr)
                    self.assertEqual(refused.stderr.count("\n"), 1, refused.stderr)
                command = [word.replace("centerpoint", "minkunet42") for word in command]
                self.assertIn("grid: network 'minkunet42' has none",
                              run(*command, "--grid", good).stderr)
        for command in (LAYER, ["verify"], ["bench", "--input", scene]):
            self.assertIn("--grid", run(*command, "--grid", good).stderr)

        def rows(*grid):
            result = json.loads(run("run", *narrow, "--json", *grid).stdout)
            return result["grid"], result["layers"][-1]["n_out"]

        self.assertIsNone(rows()[0])
        self.assertEqual(rows("--grid", good)[0], good)
        self.assertLess(rows("--grid", other)[1], rows("--grid", good)[1])
        ab = json.loads(run(*commands["ab"], "--grid", good, "--json").stdout)
        self.assertIn(good, ab["title"])
        verified = run(*commands["verify"], "--grid", good)
        self.assertIn("1 passed, 0 failed, 0 skipped", verified.stdout)
        listed = run(*commands["bench"], "--training", "--grid", good, "--benchmark_list_tests")
        for kind in ("network", "training"):
            self.assertIn(f"{kind}/centerpoint/grid={good}/", listed.stdout)
        # A plan is for the grid that it was tuned with.
        tuned = run(*commands["tune"], "--grid", good)
        self.assertEqual(tuned.returncode, 0, tuned.stderr)
        self.assertEqual(run("run", *narrow, "--grid", good, "--plan", plan).returncode, 0)
        for grid in ([], ["--grid", other]):
            self.assertIn(f"there is one for '{good}'",
                          run("run", *narrow, *grid, "--plan", plan).stderr)

    def test_what_is_left_out_on_a_backend_is_named(self):
        result = run("run", *SMALL, "--preset", "minuet")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("left out on cpu: cuda.streams=4, cuda.table=offset_major\n", result.stdout)
        self.assertNotIn("left out", run("run", *SMALL, "--preset", "spconv2").stdout)
        refused = run("run", *SMALL, "--dataflow", "gather_gemm_scatter:cuda.streams=9")
        self.assertIn("on cuda: option streams='9': allowed are 1..4", refused.stderr)

    def test_tables_fit_80_columns(self):
        for arguments in (["experiment", "--list"], ["list"], ["--help"], ["info", SCENE], LAYER):
            for line in run(*arguments).stdout.splitlines():
                # A word may be longer, and a sentence is no table.
                if len(line) > 80 and not line.startswith(("verified:", "busy machine:")):
                    self.assertNotIn(" ", line.strip()[:-1].rsplit("  ", 1)[-1][:40], line)
        table = run("run", *SMALL).stdout
        for line in table.splitlines():
            if re.match(r"(layer|stage\d|sum) ?", line):
                self.assertLessEqual(len(line), 80, line)
        self.assertGreater(table.count("\nlayer "), 1)  # the columns go on below

    def test_colours_are_for_terminals(self):
        self.assertNotIn("\033", run("list").stdout)
        self.assertNotIn("\033", run("nothing").stderr)
        self.assertIn("\033[1mmapping\033[0m", on_terminal(["list"]))
        self.assertIn("\033[31mvoxconv run:\033[0m", on_terminal(["run"]))
        self.assertNotIn("\033", on_terminal(["list"], NO_COLOR="1"))

    def test_progress_tells_the_time_left_on_a_terminal(self):
        printed = on_terminal(["verify", "--quick"])  # some seconds; a line is drawn each second
        self.assertRegex(printed, r"verify \d+ % \(\d+ of \d+\), \d+ (s|min) (left|so far)")
        self.assertNotIn("left", run("verify", "--filter", "large", "--mapping", "hash:").stderr)

    def test_cells_are_chosen_by_title(self):
        base = ["experiment", "luo_lai/inverse", "--quick"]
        titles = run(*base, "--list").stdout.splitlines()
        self.assertGreater(len(titles), 0)
        word = titles[0].split(": ", 1)[1].split(" | ")[0]
        chosen = run(*base, "--list", "--cell", word).stdout.splitlines()
        self.assertEqual(chosen, [title for title in titles if word in title])
        self.assertEqual(run(*base, "--list", "--cell", f"*{word}*").stdout.splitlines(), chosen)
        result = run(*base, "--out", str(self.folder), "--cell", word)
        self.assertIn(f"{len(chosen)} cells measured", result.stdout)
        line = next((self.folder).glob("*.jsonl")).read_text().splitlines()[0]
        # The report must know that others are missing.
        self.assertEqual(len(json.loads(line)["asked"]["cells"]), len(titles))
        nothing = run(*base, "--list", "--cell", "no such cell")
        self.assertEqual(nothing.returncode, 1)
        self.assertIn("--cell 'no such cell'", nothing.stderr)

    def test_surplus_columns_are_named(self):
        cloud = self.folder / "a.xyzrgb"
        cloud.write_text("".join(f"{i % 9} {i // 9} 0 {i} {i} {i}\n" for i in range(81)))
        file = self.folder / "e.json"
        file.write_text(json.dumps({
            "name": "e", "title": "t", "kind": "network", "inputs": [str(cloud)],
            "networks": [{"network": "sparseresnet21", "width": 0.25}], "baseline": "same",
            "configurations": [{"name": "one", "spec": "hash/fetch_on_demand"},
                               {"name": "same", "spec": "hash/fetch_on_demand"}]}))
        said = "left out"
        result = run("experiment", str(file), "--out", str(self.folder), "--input", str(cloud),
                     "--voxel-size", "1", "--rounds", "1")
        self.assertEqual(result.stdout.count(said), 1, result.stdout + result.stderr)
        bench = run("bench", "--network", "sparseresnet21", "--input", str(cloud), "--voxel-size",
                    "1", "--benchmark_filter=^network/", "--benchmark_min_time=0.001")
        self.assertIn(said, bench.stdout, bench.stderr)

    def test_what_a_machine_cannot_hold_is_refused_before_the_work(self):
        result = run("run", "--width", "100", "--input", SCENE)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"width 100: .* this machine's memory has")
        self.assertEqual(result.stdout, "")

    def test_bash_completes_what_help_names(self):
        script = self.folder / "voxconv"
        script.write_text(run("completion", "bash").stdout)

        def complete(*words):
            quoted = " ".join(f"'{word}'" for word in words)
            return set(subprocess.run(
                ["bash", "-c", f"source '{script}'; COMP_WORDS=({quoted}); "
                 f"COMP_CWORD={len(words) - 1}; _voxconv; printf '%s\\n' \"${{COMPREPLY[@]}}\""],
                capture_output=True, text=True, check=True).stdout.split())

        self.assertEqual(complete("voxconv", ""),
                         {*commands(), "help", "--help", "--version"})
        self.assertEqual(complete("voxconv", "ve"), {"verify"})
        self.assertEqual(complete("voxconv", "help", "tu"), {"tune"})
        for command in commands():
            self.assertEqual(complete("voxconv", command, "--"), options_of(command), command)
        self.assertEqual(complete("voxconv", "run", "scan"), set())  # files: the shell's own

    def test_zsh_completes_what_help_names(self):
        text = run("completion", "zsh").stdout
        self.assertTrue(text.startswith("#compdef voxconv\n"))
        for command in commands():
            block = re.search(rf"^    {command}\) options=\((.*?)^    \) ;;", text,
                              re.MULTILINE | re.DOTALL).group(1)
            self.assertEqual(set(re.findall(r"^      '(--[a-z0-9-]+):", block, re.MULTILINE)),
                             options_of(command), command)
        if shutil.which("zsh"):
            script = self.folder / "_voxconv"
            script.write_text(text)
            check = ("compdef() { }; _files() { print FILES }; "
                     "_describe() { [[ $1 == -o ]] && shift; print -l -- ${(P)2%%:*} }; "
                     f"source {script}; words=(voxconv run --in); CURRENT=3; _voxconv")
            shown = subprocess.run(["zsh", "-f", "-c", check], capture_output=True, text=True,
                                   check=False)
            self.assertEqual(set(shown.stdout.split()), options_of("run"), shown.stderr)


if __name__ == "__main__":
    unittest.main()
