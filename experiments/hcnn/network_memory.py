#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The memory of a whole network in training: surface voxels, as H-CNN stores features, against an
octree as O-CNN stores them, against dense grids.

    network_memory.py [options] INPUT...

An INPUT is a mesh, a point cloud, scene:NAME, or FILE.npz:I for mesh I of the test split of a data set
of meshes. The inputs are one batch. Each is scaled into the unit sphere and voxelised.

All are steps of `voxconv train`, which writes what it holds at once: parts as it counts them, and the most
bytes that the backend's allocator held until the step's end, with workspaces and inputs (peak).
- psh: the voxels of the surface; maps of perfect_hash, dataflow hash2col.
- lookup: the same without maps. Each layer looks its neighbours up in the perfect hash, as Algorithm 1 does.
- octree: O-CNN stores all eight children of each octant that is not empty. So level k, counted from the
  finest, has 8 rows for each octant of level k + 1 that is not empty. The step runs on a cloud with exactly
  these numbers of rows on all levels. What lies where does not change the size of any tensor. It does
  change the number of pairs, so the octree's maps are counted: the surface's bytes a row, times its rows.
  The peak is that of the step as it ran.
- dense: all voxels. Beyond --dense-most it is counted: its rows grow by 8 with each doubling. What does not
  grow with the rows is that of the step before, and peaks less parameters grow by 8.
Before anything is measured, a cloud with the surface's numbers of rows is held against the surface
itself: activations must be the same to the byte.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

NETWORKS = ("hcnn_classifier", "hcnn_segmenter")
KINDS = {  # plugins by what is stored
    "psh": ("perfect_hash", "hash2col"),
    "lookup": ("perfect_hash:map=lookup", "hash2col:columns=lookup"),
    "octree": ("octree:children=all", "hash2col"),
    "dense": ("grid:storage=dense", "hash2col"),
}
MIB = 1 << 20


def run(command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"network_memory: {' '.join(map(str, command))}: {result.stderr.strip()}")


def mesh_of(source, folder):
    """A file that voxconv reads. FILE.npz:I becomes an OBJ file."""
    path, _, index = source.rpartition(":")
    if not path.endswith(".npz") or not index.isdigit():
        return source
    arrays = np.load(path)
    vertex_ends, face_ends = arrays["mesh_voff_test"], arrays["mesh_foff_test"]
    i = int(index)
    if i + 1 >= len(face_ends):
        sys.exit(f"network_memory: {source}: the test split has meshes 0 to {len(face_ends) - 2}")
    vertices = arrays["mesh_vertices_test"][vertex_ends[i]:vertex_ends[i + 1]]
    faces = arrays["mesh_faces_test"][face_ends[i]:face_ends[i + 1]].astype(int) + 1
    file = folder / f"mesh{i}.obj"
    file.write_text("".join(f"v {x} {y} {z}\n" for x, y, z in vertices)
                    + "".join(f"f {a} {b} {c}\n" for a, b, c in faces))
    return file


def voxelize(options, source, resolution, folder):
    """Cells [n, 3] of the unit sphere, in 0 .. resolution - 1."""
    out = folder / "voxels.npz"
    command = [options.voxconv, "voxelize", source, out, "--origin=-1", "--voxel-size", repr(2 / resolution)]
    if not str(source).startswith("scene:"):  # the objects among the scenes lie in the unit sphere
        command += ["--unit-sphere", "--samples", options.samples * resolution ** 2]
    run(command)
    cells = np.load(out)["coords"][:, 1:]
    return np.unique(np.clip(cells, 0, resolution - 1), axis=0)


def surfaces(options, folder):
    """The inputs' cells by resolution."""
    meshes = [mesh_of(source, folder) for source in options.inputs]
    clouds = {}
    for resolution in options.resolutions:
        kept = pathlib.Path(options.cells) / f"{resolution}.npz" if options.cells else None
        if kept and kept.exists():
            with np.load(kept) as arrays:
                clouds[resolution] = [arrays[str(i)].astype(np.int64) for i in range(len(meshes))]
            continue
        clouds[resolution] = [voxelize(options, mesh, resolution, folder) for mesh in meshes]
        if kept:
            kept.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(kept, **{str(i): cells.astype(np.int16) for i, cells in enumerate(clouds[resolution])})
    return clouds


def level_counts(cells, levels):
    """How many cells are not empty on each level from the finest, with two levels more. The last one has
    the windows of the classifier's first fully connected layer."""
    counts = []
    for level in range(levels + 3):
        counts.append(len(np.unique(cells >> level, axis=0)))
    return counts


def stand_in(counts):
    """A cloud with these numbers of cells on its levels, from the finest to the coarsest."""
    side = int(np.ceil(np.sqrt(counts[-1])))
    at = np.arange(counts[-1])
    cells = np.stack([at % side, at // side, np.zeros_like(at)], axis=1)
    for count in reversed(counts[:-1]):
        share, more = divmod(count, len(cells))
        children = np.full(len(cells), share)
        children[:more] += 1
        assert children.min() >= 1 and children.max() <= 8
        parent = np.repeat(np.arange(len(cells)), children)
        octant = np.arange(count) - np.repeat(np.cumsum(children) - children, children)
        cells = 2 * cells[parent] + np.stack([octant & 1, octant >> 1 & 1, octant >> 2], axis=1)
    return cells


def write_models(path, clouds, tiny):
    """A data set with a class for each cloud, and a small test split."""
    arrays = {"class_names": np.array([f"object{i}" for i in range(len(clouds))])}
    for split, of_split in (("train", clouds), ("test", [tiny] * len(clouds))):
        arrays[f"coords_{split}"] = np.concatenate(of_split).astype(np.int32)
        arrays[f"offsets_{split}"] = np.cumsum([0] + [len(c) for c in of_split])
        arrays[f"labels_{split}"] = np.arange(len(clouds), dtype=np.int32)
    np.savez(path, **arrays)
    return ["--data", path]


def write_frames(folder, clouds, tiny):
    """Labelled frames: the parts of each cloud are its octants about the middle."""
    paths = []
    for i, cells in enumerate(clouds + [tiny]):
        parts = (cells > cells.mean(axis=0)) @ np.array([1, 2, 4])
        paths.append(folder / f"frame{i}.npz")
        np.savez(paths[-1], xyz=cells + 0.5, label=parts.astype(np.int32) + 1,
                 class_names=np.array(["none"] + [f"part{part}" for part in range(8)]))
    return ["--data", ",".join(map(str, paths[:-1])), "--test-data", paths[-1]]


@dataclasses.dataclass(frozen=True)
class Run:
    """One step of the trainer."""
    network: str
    kind: str
    resolution: int
    levels: int
    width: float


def measure(options, run_, clouds):
    """Bytes of a step by what they are of."""
    mapping, dataflow = KINDS[run_.kind]
    # A window of the classifier has 4^3 of the coarsest cells and begins at cell -2.
    clouds = [cells - (2 << run_.levels) for cells in clouds]
    tiny = np.array([[0, 0, 0], [1, 0, 0], [0, 3, 0]])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        data = (write_frames(folder, clouds, tiny) if run_.network == "hcnn_segmenter"
                else write_models(folder / "models.npz", clouds, tiny))
        command = [options.voxconv, "train", "--network", run_.network, "--levels", run_.levels, *data,
                   "--width", run_.width, "--in-channels", 1, "--no-xyz", "--batch", len(clouds), "--workers", 0,
                   "--epochs", 1, "--mapping", mapping, "--dataflow", dataflow, "--backend", options.backend,
                   "--out", folder / "run"]
        if options.threads:
            command += ["--threads", options.threads]
        run(command)
        step = json.loads((folder / "run" / "steps.jsonl").read_text().splitlines()[0])
    expected = sum(len(cells) for cells in clouds)
    if step["voxels"] != expected:
        sys.exit(f"network_memory: {run_}: {step['voxels']} rows instead of {expected}")
    return {"rows": step["voxels"], "activations": step["activation_bytes"], "maps": step["map_bytes"],
            "parameters": step["parameter_bytes"], "peak": step["peak_bytes"], "counted": False}


def check_stand_in(options, run_, clouds):
    """That sizes do not depend on what lies where."""
    counts = [level_counts(cells, run_.levels) for cells in clouds]
    real = measure(options, run_, clouds)
    other = measure(options, run_, [stand_in(count) for count in counts])
    if real["activations"] != other["activations"]:
        sys.exit(f"network_memory: {run_}: {real['activations']} bytes of activations on the surface, "
                 f"{other['activations']} on a cloud with as many rows on each level")


def dense_cells(resolution):
    return np.stack(np.meshgrid(*[np.arange(resolution)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)


def clouds_of(run_, clouds):
    """What the step runs on, for the surface's `clouds`."""
    if run_.kind == "octree":
        counts = [level_counts(cells, run_.levels) for cells in clouds]
        return [stand_in([8 * parents for parents in count[1:-1]] + count[-2:]) for count in counts]
    return [dense_cells(run_.resolution)] * len(clouds) if run_.kind == "dense" else clouds


def counted_dense(coarser, factor):
    """A dense grid with `factor` times the rows of another on every level."""
    grown = {key: coarser[key] * factor for key in ("rows", "activations", "maps")}
    peak = coarser["parameters"] + (coarser["peak"] - coarser["parameters"]) * factor
    return coarser | grown | {"peak": peak, "counted": True}


def cells_of(options):
    """What is asked for, each with the run that gives it."""
    for resolution in options.resolutions:
        levels, width = options.levels, 1.0
        if levels == 0:
            levels = resolution.bit_length() - 3
            width = 2.0 ** (3 - levels)
        for network in options.networks:
            for kind in KINDS:
                cell = Run(network, kind, resolution, levels, width)
                # The levels of a coarser grid must not come to less than one cell.
                most = max(options.dense_most, options.resolutions[0], resolution >> 2)
                yield cell, (dataclasses.replace(cell, resolution=min(resolution, most))
                             if kind == "dense" else cell)


def all_lines(options, clouds):
    """The results as they come. `clouds` are by resolution."""
    cells = list(cells_of(options))
    first = {cell.network: cell for cell, _ in reversed(cells) if cell.kind == "psh"}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as jobs:
        checks = [jobs.submit(check_stand_in, options, cell, clouds[cell.resolution]) for cell in first.values()]
        # A dense grid may be coarser than all surfaces; it takes their number alone.
        surface = {run_: clouds.get(run_.resolution, clouds[options.resolutions[0]]) for _, run_ in cells}
        results = {run_: jobs.submit(lambda r: measure(options, r, clouds_of(r, surface[r])), run_)
                   for run_ in surface}
        for check in checks:
            check.result()
        for cell, run_ in cells:
            result = results[run_].result()
            if run_ != cell:
                result = counted_dense(result, cell.resolution ** 3 // run_.resolution ** 3)
            print(f"network_memory: {cell}: done", file=sys.stderr, flush=True)
            yield {**dataclasses.asdict(cell), "objects": [pathlib.Path(source).name for source in options.inputs],
                   "plugins": "/".join(KINDS[cell.kind]), **result}


def whole(line, psh):
    maps = psh["maps"] * line["rows"] / psh["rows"] if line["kind"] == "octree" else line["maps"]
    return line["activations"] + maps + line["parameters"]


def ratio(lines, size):
    """Octree over surface: the geometric mean over all networks and resolutions, and the extremes."""
    ratios = []
    for psh in (line for line in lines if line["kind"] == "psh"):
        octree = next(line for line in lines if line["kind"] == "octree" and all(
            line[key] == psh[key] for key in ("network", "resolution")))
        ratios.append(size(octree, psh) / size(psh, psh))
    mean = float(np.exp(np.mean(np.log(ratios))))
    return f"{mean:.2f}x ({min(ratios):.2f}..{max(ratios):.2f})"


def table(lines):
    """Markdown: a row for each network and resolution."""
    by_key = {(line["network"], line["resolution"], line["kind"]): line for line in lines}
    text = ["| network | cells | voxels | rows: octree / voxels | activations, MiB: surface | octree | dense | "
            "octree / surface | dense / surface | whole, MiB: surface | octree | dense | octree / surface |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for network, resolution in sorted({key[:2] for key in by_key}):
        psh, octree, dense = (by_key[network, resolution, kind] for kind in ("psh", "octree", "dense"))
        mark = " (counted)" if dense["counted"] else ""
        activations = [f"{line['activations'] / MIB:,.1f}" for line in (psh, octree, dense)]
        wholes = [f"{whole(line, psh) / MIB:,.1f}" for line in (psh, octree, dense)]
        text.append(
            f"| `{network}` | {resolution}³ | {psh['rows']:,} | {octree['rows'] / psh['rows']:.2f} | "
            f"{activations[0]} | {activations[1]} | {activations[2]}{mark} | "
            f"**{octree['activations'] / psh['activations']:.2f}x** | "
            f"{dense['activations'] / psh['activations']:.1f}x | {wholes[0]} | {wholes[1]} | "
            f"{wholes[2]}{mark} | {whole(octree, psh) / whole(psh, psh):.2f}x |")
    text += ["", f"Octree / surface in the geometric mean: activations "
                 f"{ratio(lines, lambda line, _: line['activations'])}, whole {ratio(lines, whole)}."]
    return "\n".join(text) + "\n"


def peak_table(lines):
    """Markdown: the measured peaks, a row for each network and resolution."""
    by_key = {(line["network"], line["resolution"], line["kind"]): line["peak"] for line in lines}
    counted = {(line["network"], line["resolution"]) for line in lines if line["counted"]}
    text = ["| network | cells | peak, MiB: surface, maps | surface, lookups | octree | dense | "
            "octree / surface, maps | octree / surface, lookups | dense / surface, maps |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for network, resolution in sorted({key[:2] for key in by_key}):
        peaks = [by_key[network, resolution, kind] for kind in KINDS]
        psh, lookup, octree, dense = peaks
        shown = " | ".join(f"{peak / MIB:,.1f}" for peak in peaks)
        mark = " (counted)" if (network, resolution) in counted else ""
        text.append(f"| `{network}` | {resolution}³ | {shown}{mark} | **{octree / psh:.2f}x** | "
                    f"{octree / lookup:.2f}x | {dense / psh:.1f}x |")
    return "\n".join(text) + "\n"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", metavar="INPUT", nargs="*",
                        default=["scene:torus?n=1000000", "scene:sphere?n=1000000"])
    parser.add_argument("--voxconv", default="build/cpu/bin/voxconv", help="the program")
    parser.add_argument("--resolutions", default="32,64,128,256", help="numbers of cells along an edge")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--levels", type=int, default=3,
                        help="how often the resolution is halved; 0: down to 4^3, with channels halved for each level "
                             "beyond three, so that the coarsest one has as many at each resolution")
    parser.add_argument("--samples", type=int, default=64,
                        help="points drawn on a mesh, times the square of the resolution")
    parser.add_argument("--dense-most", type=int, default=64, help="the finest dense grid that runs")
    parser.add_argument("--backend", default="cpu", choices=("cpu", "cuda"), help="of the program")
    parser.add_argument("--threads", type=int, default=0, help="of the program; 0: its default")
    parser.add_argument("--jobs", type=int, default=1, help="programs that run at once")
    parser.add_argument("--cells", help="a folder that keeps the inputs' cells for later calls with the same inputs")
    parser.add_argument("--out", help="a file that gets a line of JSON for each result")
    parser.add_argument("--from", dest="lines", help="print the table of such a file; measure nothing")
    options = parser.parse_args()
    least = 2 ** (options.levels + 1) if options.levels else 8
    try:
        options.resolutions = sorted(int(word) for word in options.resolutions.split(","))
    except ValueError:
        parser.error(f"--resolutions {options.resolutions}: numbers with commas between them are needed")
    if options.resolutions[0] < least:
        parser.error(f"--resolutions {options.resolutions[0]}: at least {least} is needed for --levels "
                     f"{options.levels}")
    if options.levels == 0 and any(resolution & (resolution - 1) for resolution in options.resolutions):
        parser.error("--levels 0: --resolutions must be powers of two")
    options.networks = options.networks.split(",")
    for network in options.networks:
        if network not in NETWORKS:
            parser.error(f"--networks {network}: allowed are {', '.join(NETWORKS)}")
    return options


def main():
    options = parse()
    if options.lines:
        text = pathlib.Path(options.lines).read_text()
        lines = [json.loads(line) for line in text.splitlines()]
    else:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            clouds = surfaces(options, folder)
            lines = []
            for line in all_lines(options, clouds):
                lines.append(line)
                if options.out:  # also where the rest is cut off
                    with open(options.out, "w" if len(lines) == 1 else "a", encoding="utf-8") as out:
                        out.write(json.dumps(line) + "\n")
    print(table(lines), end="")
    if all("peak" in line for line in lines):
        print("\n" + peak_table(lines), end="")


if __name__ == "__main__":
    main()
