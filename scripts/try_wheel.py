# SPDX-License-Identifier: Apache-2.0
"""A first look at an installed package: how long its import takes, and whether a network runs."""

import statistics
import subprocess
import sys

import voxconv

MOST_SECONDS = 0.3
LOOK = "import time; begin = time.perf_counter(); import voxconv; print(time.perf_counter() - begin)"


def import_seconds() -> float:
    """The median of seven new processes. NumPy, which the first array needs, is not imported by it."""
    times = [
        float(subprocess.run([sys.executable, "-c", LOOK], check=True, capture_output=True).stdout)
        for _ in range(7)
    ]
    return statistics.median(times)


def main() -> int:
    x = voxconv.load("scene:sphere?n=1000", channels=4)
    y = voxconv.networks.minkunet42(width=0.25).initialize()(x)
    seconds = import_seconds()
    print(f"voxconv {voxconv.__version__} on Python {sys.version.split()[0]}: {len(y)} voxels of "
          f"{y.channels} classes; import takes {seconds:.3f} s")
    return seconds > MOST_SECONDS


if __name__ == "__main__":
    sys.exit(main())
