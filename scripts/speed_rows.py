# SPDX-License-Identifier: Apache-2.0
"""The rows that scripts/speed_table measures: what is run, and the floors of it."""

import array
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile

MAPPING = "hash:variant=bricks"  # what networks take by default
MAPPING_BEFORE = "hash"  # which every program knows
DATAFLOW = "implicit_gemm:mask_sort=rarest,mma=3xtf32"
CHANNELS = (64, 96, 128, 256)
DTYPES = ("f16", "tf32", "f32")
NETWORK_DTYPES = ("f16", "bf16", "tf32", "f32")
# name: (input, edge of a voxel, what it is)
CLOUDS = {
    "office": ("pcl_office1.pcd", "0.01", "an indoor cloud, 180,936 voxels, 6.9 pairs each"),
    "fragment": ("open3d_fragment.pcd", "0.005", "a fragment of an indoor scan"),
    "L": ("semkitti_spvnas_000000.bin", "0.05", "a SemanticKITTI frame, 94,444 voxels"),
    "N": ("nuscenes_10sweep_ff9eff_f16.bin", "0.1", "ten sweeps of nuScenes, 121,962 voxels"),
    "U": ("scene:uniform?n=1000000&box=400", "0.05", "10⁶ uniform voxels in 400³"),
}
# What the commands need to know of the columns of N's file, which `bench` does not ask for.
COLUMNS = {"N": ["--fields", "x,y,z,intensity,dt", "--dtype-in", "f16"]}
# Layers of U take long to check.
FEW = {"U": ((64, 128), ("f16", "tf32"))}
NETWORKS = ("minkunet42", "sparseresnet21")
ORDERS = ("scan", "sorted", "morton", "shuffled")
SIZES = {1_000_000: 400, 10_000_000: 862}  # voxels: edge of their box, with equal density
FRAMES = ("semkitti_spvnas_000000.bin", "kitti_odom_000000.bin", "semantickitti_00_000000.npz",
          "semantickitti_00_000001.npz", "semantickitti_00_000002.npz",
          "semantickitti_08_000000.npz")
SLOWER = 1.02  # A row that is slower than this is timed again, to tell a change from a disturbance.
LONGEST_S = 90  # of one command


class Program:
    def __init__(self, path, data):
        self.path, self.data = path, data

    def run(self, arguments):
        return subprocess.run([self.path, *arguments], check=True, capture_output=True, text=True,
                              cwd=self.data, timeout=LONGEST_S)

    def commit(self):
        said = self.run(["--version", "--verbose"]).stdout
        return re.search(r"commit: (\w+)", said)[1]

    def bench(self, arguments):
        """{name: benchmark} of `voxconv bench`, whose results are gated before they are timed."""
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.json")
            self.run(["bench", "--backend", "cuda", *arguments, f"--benchmark_out={out}",
                      "--benchmark_out_format=json"])
            with open(out, encoding="utf-8") as file:
                return {name_of(entry): entry for entry in json.load(file)["benchmarks"]
                        if "aggregate_name" not in entry}

    def frames(self, arguments):
        """The line of `voxconv run --out`."""
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "run.jsonl")
            self.run(["run", "--backend", "cuda", *arguments, "--out", out])
            with open(out, encoding="utf-8") as file:
                return json.loads(file.readline())


def read_npz(path):
    """{name: (shape, array)} of an uncompressed or compressed .npz; numpy need not be there."""
    codes = {"<f4": "f", "<i4": "i", "<f8": "d", "<i8": "q"}
    found = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            length = int.from_bytes(data[8:10], "little") if data[6] == 1 else int.from_bytes(
                data[8:12], "little")
            start = (10 if data[6] == 1 else 12) + length
            header = ast.literal_eval(data[start - length:start].decode())
            values = array.array(codes[header["descr"]])
            values.frombytes(data[start:])
            found[name.removesuffix(".npy")] = (header["shape"], values)
    return found


def write_npy(archive, name, shape, values):
    descr = {"f": "<f4", "i": "<i4"}[values.typecode]
    header = repr({"descr": descr, "fortran_order": False, "shape": shape})
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    archive.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") +
                     header.encode() + values.tobytes())


def write_batch(program, count, path):
    """Voxels of `count` frames as one batch; from the seventh on frames are mirrored in x."""
    coords = array.array("i")
    with tempfile.TemporaryDirectory() as folder:
        for index in range(count):
            voxels = os.path.join(folder, "voxels.npz")
            program.run(["voxelize", FRAMES[index % len(FRAMES)], voxels, "--voxel-size", "0.05"])
            _, rows = read_npz(voxels)["coords"]
            rows[0::4] = array.array("i", [index]) * (len(rows) // 4)
            if index >= len(FRAMES):
                rows[1::4] = array.array("i", [-x for x in rows[1::4]])
            coords += rows
    with zipfile.ZipFile(path, "w") as archive:
        write_npy(archive, "coords", (len(coords) // 4, 4), coords)


def name_of(entry):
    """Without what Google Benchmark appends."""
    return re.sub(r"/(iterations:\d+|manual_time|repeats:\d+)", "", entry["run_name"])


def time_ms(entry):
    scale = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}[entry["time_unit"]]
    return entry["median_ms"] if "median_ms" in entry else entry["real_time"] * scale


def dtype_options(dtypes):
    return [word for dtype in dtypes for word in ("--dtype", dtype)]


def stages_of(run):
    """{stage: ms} over all layers of a profiled run."""
    total = {}
    for layer in run["layers"]:
        for stage, ms in layer["stages_ms"].items():
            total[stage] = total.get(stage, 0) + ms
    return total


class Measurement:
    """Times every row with one program, or with two in turn."""

    def __init__(self, program, before, device, frames, out):
        self.program, self.before, self.out = program, before, out
        self.frames = str(frames)
        self.lines, self.failures, self.left_out = [], [], []
        self.inputs = {}
        self.folder = tempfile.TemporaryDirectory()
        self.context = {"device": device, "commit": program.commit(),
                        "before": before.commit() if before else None}

    def add(self, row, **values):
        line = {"row": row, **values, **self.context}
        self.lines.append(line)
        print(json.dumps(line, ensure_ascii=False), file=self.out, flush=True)

    def input_of(self, cloud):
        """Options. Clouds with columns of their own are turned into voxels once."""
        source, edge, _ = CLOUDS[cloud]
        if cloud not in COLUMNS:
            return ["--input", source, "--voxel-size", edge]
        if cloud not in self.inputs:
            voxels = os.path.join(self.folder.name, f"{cloud}.npz")
            self.program.run(["voxelize", source, voxels, "--voxel-size", edge, *COLUMNS[cloud]])
            _, coords = read_npz(voxels)["coords"]
            self.inputs[cloud] = os.path.join(self.folder.name, f"{cloud}_coords.npz")
            with zipfile.ZipFile(self.inputs[cloud], "w") as archive:
                write_npy(archive, "coords", (len(coords) // 4, 4), coords)
        return ["--input", self.inputs[cloud]]

    def least(self, measure, turns):
        """{name: (ms, ms before or None)}: the least of all turns of `measure(program)`, which
        gives {name: ms}. There are as many turns more while a row seems slower than before."""
        least = {"now": {}, "then": {}}
        before = self.before is not None

        def turn():
            for which, program in (("then", self.before), ("now", self.program)):
                if which == "then" and not before:
                    continue
                for name, ms in measure(program).items():
                    least[which][name] = min(ms, least[which].get(name, ms))

        def slower():
            return any(ms > SLOWER * least["then"].get(name, ms)
                       for name, ms in least["now"].items())

        for _ in range(turns if before else 1):
            turn()
        for _ in range(turns):
            if slower():
                turn()
        return {name: (ms, least["then"].get(name)) for name, ms in least["now"].items()}

    def ceilings(self):
        found = self.program.bench([*self.input_of("L"), *dtype_options(NETWORK_DTYPES),
                                    "--benchmark_filter=^(copy|gemm)/"])
        self.copy = found["copy/device"]["GB/s"] * 1e9
        self.dense = {dtype: found[f"gemm/{dtype}/device"]["TFLOP/s"] * 1e12
                      for dtype in NETWORK_DTYPES}
        self.dense["3xtf32"] = self.dense["tf32"] / 3
        self.add("ceilings", copy_TBs=self.copy / 1e12,
                 dense_TFLOPs={name: rate / 1e12 for name, rate in self.dense.items()})

    def rate(self, dtype):
        return self.dense["3xtf32" if dtype == "f32" else dtype]

    def layer_rows(self, cloud):
        channels, dtypes = FEW.get(cloud, (CHANNELS, DTYPES))
        seen = {}

        def measure(program):
            found = program.bench(
                [*self.input_of(cloud), "--dataflow", DATAFLOW, *dtype_options(dtypes),
                 *[word for c in channels for word in ("--channels", f"{c}x{c}")],
                 "--benchmark_filter=^conv/"])
            if program is self.program:
                seen.update(found)
            return {name: time_ms(entry) for name, entry in found.items()}

        for name, (ms, before) in self.least(measure, 1).items():
            c = int(re.search(r"/(\d+)x\d+/", name)[1])
            dtype = name.rsplit("/", 1)[1]
            entry = seen[name]
            flops = entry["TFLOP/s"] * 1e12 * time_ms(entry) / 1e3
            floor = max(entry["MB"] * 1e6 / self.copy, flops / self.rate(dtype))
            self.add("layer", cloud=cloud, dtype=dtype, channels=c, ms=ms, floor_ms=floor * 1e3,
                     before_ms=before)

    def network_floor_ms(self, run, dtype):
        element = 2 if dtype in ("f16", "bf16") else 4
        seconds = 0.0
        for layer in run["layers"]:
            if layer["op"] == "add":  # part of the convolution before it
                continue
            kernel = re.search(r" k(\d+(?:x\d+)*)", layer["geometry"])
            offsets = 0
            if kernel:
                edges = [int(edge) for edge in kernel[1].split("x")]
                offsets = edges[0] ** 3 if len(edges) == 1 else edges[0] * edges[1] * edges[2]
            moved = element * (layer["n_in"] * layer["c_in"] + layer["n_out"] * layer["c_out"])
            moved += 4 * offsets * layer["n_out"]
            work = 2 * layer["pairs"] * layer["c_in"] * layer["c_out"]
            seconds += max(moved / self.copy, work / self.rate(dtype))
        return seconds * 1e3

    def network_rows(self, network, cloud, dtype):
        arguments = [*self.input_of(cloud), "--network", network, "--dtype", dtype,
                     "--fold-batch-norm", "--dataflow", DATAFLOW, "--frames", self.frames]
        seen = {}

        def measure(program):
            mapping = MAPPING if program is self.program else MAPPING_BEFORE
            run = program.frames([*arguments, "--mapping", mapping])
            if program is self.program:
                seen.setdefault("first", run)
            return {"rebuilt": run["wall_ms"]}

        (ms, before), = self.least(measure, turns=2).values()
        run = seen["first"]
        values = {"network": network, "cloud": cloud, "dtype": dtype,
                  "floor_ms": self.network_floor_ms(run, dtype)}
        self.add("network", **values, maps="rebuilt", ms=ms, before_ms=before,
                 queued_ms=run["queued_ms"], stages_ms=stages_of(run), start=run.get("start"))
        kept = self.program.frames([*arguments, "--mapping", MAPPING, "--keep-maps", "--graph"])
        self.add("network", **values, maps="kept", ms=kept["wall_ms"])
        self.add("network", **values, maps="graph", ms=kept["replayed_ms"])

    def order_rows(self, network):
        arguments = [*self.input_of("L"), "--network", network, "--dtype", "f16", "--fold-batch-norm",
                     "--dataflow", DATAFLOW, "--frames", self.frames]
        for order in ORDERS:
            for mapping in ("hash", "sorted_search"):
                for reorder in ([], ["--reorder"]):
                    ms = self.program.frames([*arguments, "--order", order, "--mapping", mapping,
                                              *reorder])["wall_ms"]
                    self.add("order", network=network, order=order, mapping=mapping,
                             reorder=bool(reorder), ms=ms)

    def size_rows(self, network):
        for mapping in ("hash", "sorted_search"):
            for count, box in SIZES.items():
                run = self.program.frames(
                    ["--input", f"scene:uniform?n={count}&box={box}", "--network", network,
                     "--dtype", "f16", "--fold-batch-norm", "--mapping", mapping, "--dataflow",
                     DATAFLOW, "--frames", "5"])
                self.add("size", network=network, voxels=count, mapping=mapping, ms=run["wall_ms"],
                         stages_ms=stages_of(run))

    def batch_rows(self, count):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "batch.npz")
            write_batch(self.program, count, path)
            for network in NETWORKS:
                run = self.program.frames(
                    ["--input", path, "--network", network, "--dtype", "f16", "--fold-batch-norm",
                     "--mapping", MAPPING, "--dataflow", DATAFLOW, "--frames", self.frames])
                self.add("batch", network=network, frames=count, voxels=run["voxels"],
                         ms=run["wall_ms"], frames_per_s=1e3 * count / run["wall_ms"])

    def in_flight_rows(self, count):
        found = self.program.bench(
            [*self.input_of("L"), *[word for name in NETWORKS for word in ("--network", name)],
             "--dtype", "f16", "--in-flight", str(count), "--config",
             f"{MAPPING}/{DATAFLOW}/fused", f"--benchmark_filter=^network/.*in_flight={count}",
             "--benchmark_min_time=0.1"])
        assert len(found) == len(NETWORKS), list(found)
        for name, entry in found.items():
            self.add("in flight", network=name.split("/")[1], frames=count,
                     frames_per_s=entry["frames_per_second"], ms=time_ms(entry))

    def perfect_hash_rows(self):
        seen = {}

        def measure(program):
            found = program.bench([*self.input_of("L"), "--mapping", "perfect_hash:build=device",
                                   "--dataflow", DATAFLOW,
                                   "--benchmark_filter=^map/.*/K27/iterations"])
            seen.update(found)
            return {name: time_ms(entry) for name, entry in found.items() if "/for=" not in name}

        rows = 94444
        (ms, before), = self.least(measure, turns=1).values()
        self.add("perfect_hash", cloud="L", ms=ms, before_ms=before,
                 floor_ms=rows * (16 + 27 * 4 + 4) / self.copy * 1e3)

    def point_rows(self):
        arguments = [*self.input_of("L"), "--points", "--network", "minkunet42", "--dtype", "f16",
                     "--config", f"{MAPPING_BEFORE}/{DATAFLOW}/fused", "--benchmark_filter=^points/",
                     "--benchmark_min_time=0.1"]

        def measure(program):
            return {name: time_ms(entry) for name, entry in program.bench(arguments).items()}

        for name, (ms, before) in self.least(measure, turns=1).items():
            what = "points to voxels" if name.endswith("/voxels/device") else "points to features"
            self.add(what, cloud="L", dtype="f16", ms=ms, before_ms=before)

    def rows(self):
        """(name, what measures it), the most telling ones first."""
        for network in NETWORKS:
            for dtype in NETWORK_DTYPES:
                yield (f"network/{network}/L/{dtype}",
                       lambda n=network, d=dtype: self.network_rows(n, "L", d))
        yield "points", self.point_rows
        yield "perfect_hash", self.perfect_hash_rows
        for cloud in CLOUDS:
            yield f"layer/{cloud}", lambda c=cloud: self.layer_rows(c)
        for network in NETWORKS:
            yield f"order/{network}", lambda n=network: self.order_rows(n)
        for network in NETWORKS:
            for dtype in ("f16", "tf32"):
                yield (f"network/{network}/N/{dtype}",
                       lambda n=network, d=dtype: self.network_rows(n, "N", d))
        for count in (4, 8):
            yield f"batch/{count}", lambda n=count: self.batch_rows(n)
        for count in (2,):
            yield f"in-flight/{count}", lambda n=count: self.in_flight_rows(n)
        for network in NETWORKS:
            yield f"size/{network}", lambda n=network: self.size_rows(n)

    def run(self, only, limit_s):
        """Measures the rows whose names begin with one of `only`, or all. What fails is noted, and
        the others go on. After `limit_s` seconds the rest is left out."""
        begin = time.monotonic()
        self.ceilings()
        for name, measure in self.rows():
            if only and not any(name.startswith(one) for one in only):
                continue
            if time.monotonic() - begin > limit_s:
                self.left_out.append(name)
                continue
            since = time.monotonic()
            try:
                measure()
            except Exception as error:  # pylint: disable=broad-except
                self.failures.append(f"{name}: {describe(error)}")
                print(self.failures[-1], file=sys.stderr, flush=True)
            print(f"{name}: {time.monotonic() - since:.1f} s", file=sys.stderr, flush=True)


def device_name():
    found = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], check=True,
                           capture_output=True, text=True).stdout
    return found.splitlines()[0].strip()


def describe(error):
    if isinstance(error, subprocess.CalledProcessError):
        return f"{' '.join(error.cmd)}: {error.stderr.strip()[-400:]}"
    return f"{type(error).__name__}: {error}"
