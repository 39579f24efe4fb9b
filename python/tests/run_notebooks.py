# SPDX-License-Identifier: Apache-2.0
"""Runs the notebooks of docs/notebooks and writes them with their outputs.

    python run_notebooks.py OUT

`voxconv` and the command of this name ($VOXCONV) must be there. The exit status is 1 where a cell fails,
or where a notebook makes no picture.
"""

import pathlib
import sys

import jupytext
import nbclient
import nbformat

SOURCES = pathlib.Path(__file__).parents[2] / "docs" / "notebooks"


def main(out):
    out.mkdir(parents=True, exist_ok=True)
    for source in sorted(SOURCES.glob("*.py")):
        notebook = jupytext.read(source)
        nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        pictures = sum("image/png" in output.get("data", {}) for output in outputs)
        nbformat.write(notebook, out / f"{source.stem}.ipynb")
        print(f"{source.stem}: {len(notebook.cells)} cells, {pictures} pictures")
        if pictures == 0:
            sys.exit(f"{source}: has no picture")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
