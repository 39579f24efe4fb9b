# SPDX-License-Identifier: Apache-2.0
"""Pages of results."""

import importlib.util
import os
import pathlib
import subprocess
import sys

from voxconv._voxconv import _data_directories


def report(
    directory: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    again: str | os.PathLike[str] | None = None,
    before: str | os.PathLike[str] | None = None,
    title: str = "voxconv experiments",
) -> pathlib.Path:
    """Writes report.html, report.md and plots of result files, as `voxconv report` does.

    Args:
        directory: result files of experiments, or the folder of a training run.
        out: where the pages go; `directory` unless given.
        again: results of the same experiments from another run, for a table of what agrees.
        before: earlier results of the same experiments, for a page with each verdict before and now.
            `directory`/changes.json says why verdicts changed.
        title: of the pages.

    Returns:
        The path of report.html. A program of its own writes it, in this Python.

    Raises:
        ValueError: there are no results, or lines of them cannot be read or failed. The pages may have
            been written all the same; the message has the program's last line.
        ImportError: Matplotlib is missing.
    """
    others = {name: path for name, path in (("again", again), ("before", before))
              if path is not None}
    for name, path in {"directory": directory, **others}.items():
        if not pathlib.Path(path).is_dir():
            raise ValueError(f"{name} '{os.fspath(path)}': is not a directory")
    for name, path in others.items():
        if os.path.samefile(directory, path):
            raise ValueError(f"{name} '{os.fspath(path)}': is the directory itself; results of another "
                             "run are needed")
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("voxconv.report needs matplotlib; pip install matplotlib")
    programs = [pathlib.Path(found) / "report.py"
                for found in _data_directories("VOXCONV_REPORT_DIR", "report")]
    program = next((path for path in programs if path.exists()), None)
    if program is None:
        raise ValueError("report.py is in none of $VOXCONV_REPORT_DIR and the package's files")
    out = pathlib.Path(directory if out is None else out)
    command = [sys.executable, "-B", str(program), os.fspath(directory), "--out", str(out)]
    command += ["--title", title]
    for name, path in others.items():
        command += [f"--{name}", os.fspath(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise ValueError(f"directory '{os.fspath(directory)}': {lines[-1]}")
    return out / "report.html"
