# SPDX-License-Identifier: Apache-2.0
"""What several processes give beside one: frames a second, and the same losses."""

import argparse
import os
import re
import socket
import subprocess
import sys


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(script: str, given: list[str], scenes: int, processes: int) -> str:
    """What rank 0 of so many processes prints. The environment is that of torchrun."""
    command = [sys.executable, script, *given, "--scenes", str(scenes)]
    shared = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1",
              "MASTER_PORT": str(free_port())}
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                         text=True, env={**os.environ, **shared, "RANK": str(rank),
                                         "LOCAL_RANK": str(rank)})
        for rank in range(processes)
    ]
    try:
        output, _ = running[0].communicate()
        codes = [process.wait() for process in running]
    finally:
        for process in running:
            process.kill()
    if any(codes):
        raise SystemExit(f"{processes} processes ended with {codes}")
    return output


def rate(output: str) -> float:
    return float(re.findall(r"frames a second (\S+)", output)[0])


def losses(output: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+) loss (\S+)", output)}


def told(output: str, scenes: int, processes: int) -> str:
    print(f"{processes} processes, {scenes} scenes a step: {rate(output):.2f} frames a second",
          flush=True)
    return output


def compare(script: str, options: argparse.Namespace) -> None:
    given, skip = [], False
    for word in sys.argv[1:]:  # without --scaling N and --scenes M
        name = word.partition("=")[0]
        if not skip and name not in ("--scaling", "--scenes"):
            given.append(word)
        skip = not skip and word in ("--scaling", "--scenes")
    if options.checkpoint is not None:
        raise SystemExit("--checkpoint: has no meaning with --scaling, whose runs begin anew")
    if options.steps < 12:
        raise SystemExit(f"--steps {options.steps}: --scaling needs at least 12")
    count, scenes = options.scaling, options.scenes
    share, several, whole = (
        told(run(script, given, some, processes), some, processes)
        for some, processes in ((scenes // count, 1), (scenes, count), (scenes, 1))
    )
    a, b = rate(share), rate(several)
    print(f"frames a second: 1 process {a:.2f}, {count} processes {b:.2f}, {b / a:.3f} times as many "
          f"({scenes // count} scenes a process)")
    ours, theirs = losses(several), losses(whole)
    apart = {step: abs(ours[step] / theirs[step] - 1) for step in theirs}
    worst = max(apart, key=apart.__getitem__)
    print(f"losses of {count} processes beside 1 with all {scenes} scenes: at most {apart[worst]:.2e} "
          f"apart in {len(apart)} steps (step {worst}); first {theirs[1]:.6f}, last "
          f"{theirs[max(theirs)]:.6f}")
