# SPDX-License-Identifier: Apache-2.0
"""What the tests of experiments share."""

import json
import pathlib
import subprocess
import sys

SMALL = "scene:uniform?n=300&box=10"


def need_matplotlib():
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print("skipped: python3-matplotlib is not installed")
        sys.exit(77)


def definition(**changes):
    """A small experiment file's content."""
    content = {
        "name": "small", "title": "a small experiment", "kind": "layer", "inputs": [SMALL],
        "layers": [{"kernel": 3, "channels": [[4, 4]]}],
        "configurations": [{"name": "one", "spec": "hash/fetch_on_demand"},
                           {"name": "same", "spec": "hash/fetch_on_demand"}],
        "baseline": "same",
    }
    content.update(changes)
    return content


def write(path, content):
    pathlib.Path(path).write_text(json.dumps(content))
    return str(path)


def run(*arguments):
    return subprocess.run([str(a) for a in arguments], capture_output=True, text=True, check=False)


def read_lines(path):
    return [json.loads(text) for text in pathlib.Path(path).read_text().splitlines()]


def read_json_lines(path):
    """The same for lines whose names hold other ends of lines."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def write_lines(path, lines):
    pathlib.Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines))


def markdown_of(folder):
    """All Markdown of a report: the front page, then each experiment's page."""
    folder = pathlib.Path(folder)
    pages = [folder / "report.md", *sorted(folder.glob("experiments/*.md"))]
    return "\n".join(page.read_text(encoding="utf-8") for page in pages if page.exists())
