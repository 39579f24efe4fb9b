# SPDX-License-Identifier: Apache-2.0
"""Runs experiments as tasks of Ray, one shard each, and merges their results.

    python examples/sweeps/ray_shards.py SHARDS OUT NAME... [--backend cuda] [OPTIONS OF voxconv experiment]

OUT must be a directory that all nodes share, and `voxconv` must be in their PATH. The same command goes on
where it stopped.
"""

import argparse
import os
import pathlib
import subprocess

import ray


@ray.remote
def run(words: list[str]) -> None:
    subprocess.run(["voxconv", "experiment", *words], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shards", type=int)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--backend", default="cpu", choices=["cpu", "cuda"])
    given, words = parser.parse_known_args()
    out = given.out.absolute()
    folders = [str(out / f"shard-{i + 1}") for i in range(given.shards)]
    # A shard has a GPU, or all cores of a node, for itself: its times are measured.
    needs = {"num_gpus": 1} if given.backend == "cuda" else {"num_cpus": os.cpu_count()}
    ray.init()
    ray.get([
        run.options(**needs).remote([*words, "--backend", given.backend, "--out", folder,
                                     "--shard", f"{i + 1}/{given.shards}"])
        for i, folder in enumerate(folders)
    ])
    merge = ["voxconv", "experiment", "--merge", *folders, "--out", str(out / "all")]
    subprocess.run(merge, check=True)


if __name__ == "__main__":
    main()
