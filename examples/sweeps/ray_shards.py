# SPDX-License-Identifier: Apache-2.0
"""Runs experiments as tasks of Ray, one shard each, and merges their results.

    python examples/sweeps/ray_shards.py SHARDS OUT NAME... [--backend cuda] [--quick]

OUT must be a directory that all nodes share. The same command goes on where it stopped.
"""

import argparse
import os
import pathlib

import ray
import voxconv


@ray.remote(max_calls=1)  # a process of its own for each shard, as memory sets times
def run(name: str, shard: str, out: str, options: dict) -> int:
    return len(voxconv.experiment(name, out, shard=shard, **options))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shards", type=int)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--backend", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    out = given.out.absolute()
    folders = [out / f"shard-{i + 1}" for i in range(given.shards)]
    options = {"backend": given.backend, "quick": given.quick}
    # A shard has a GPU, or all cores of a node, for itself: its times are measured.
    needs = {"num_gpus": 1} if given.backend == "cuda" else {"num_cpus": os.cpu_count()}
    ray.init()
    ray.get([
        run.options(**needs).remote(name, f"{i + 1}/{given.shards}", str(folder), options)
        for name in given.names for i, folder in enumerate(folders)
    ])
    print(voxconv.merge_results(folders, out / "all"))


if __name__ == "__main__":
    main()
