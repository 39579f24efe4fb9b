# SPDX-License-Identifier: Apache-2.0
"""A run of `voxconv train`: curves of its loss and accuracy, and its confusion matrix."""

import json
import math
import pathlib
from typing import NamedTuple

import fields
import plots

MOST_POINTS = 4000   # of a curve by step
MOST_CLASSES = 60    # whose names stand at the confusion matrix
MOST_NUMBERS = 16    # classes whose shares are written into it


class Training(NamedTuple):
    title: str
    images: list    # (title, path)
    tables: list    # (title, header, rows)
    text: list      # sentences
    problems: list


def _number(value):
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None


def _read(path, key, problems):
    """The lines of the file that have a whole number `key`. Others are named, but for a last line that
    is cut off: the run goes on, or was killed."""
    found = []
    if not path.exists():
        return found
    lines = fields.text_of(path).split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
            if not isinstance(content, dict) or not isinstance(content.get(key), int):
                raise ValueError(f"it has no whole number '{key}'")
            found.append(content)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                break
            problems.append(f"{path.name}: line {number} is left out: {error}")
    return found


def files(directory):
    """The run's files of lines; none where the directory holds no run. Results of an experiment may
    have such names, too: their lines say what they are."""
    found = []
    for name in ("epochs.jsonl", "steps.jsonl"):
        path = pathlib.Path(directory) / name
        if not path.is_file():
            continue
        with path.open(encoding="utf-8", errors="replace") as file:
            first = file.readline(1 << 20)
        if '"kind"' not in first and ('"epoch"' in first or not first.strip()):
            found.append(path)
    return found


def _matrix(epoch):
    """The confusion matrix of an epoch's line, square and of counts, or None. Raises ValueError."""
    matrix = epoch.get("test_confusion")
    if matrix is None:
        return None
    square = (isinstance(matrix, list) and matrix and
              all(isinstance(row, list) and len(row) == len(matrix) for row in matrix))
    if not square or not all(isinstance(n, int) and n >= 0 for row in matrix for n in row):
        raise ValueError("key 'test_confusion' is no square of counts")
    return matrix


def _names(epoch, count):
    names = epoch.get("test_classes")
    if isinstance(names, list) and len(names) == count:
        return [str(name) for name in names]
    return [f"class {i}" for i in range(count)]


def _percent(value):
    return "" if _number(value) is None else f"{100 * value:.2f} %"


def _curve(lines, key, x):
    points = [(line[x], _number(line.get(key))) for line in lines]
    return [(at, value) for at, value in points if value is not None]


def _thinned(points):
    """Every n-th point, and n."""
    every = -(-len(points) // MOST_POINTS) or 1
    return points[::every], every


def _draw_loss(path, steps, epochs):
    points, every = _thinned(_curve(steps, "loss", "step"))
    of = "each step" if every == 1 else f"one step of {every}"
    curves = [(f"loss of {of}", points, "steps")]
    curves.append(("mean of an epoch's steps", _curve(epochs, "loss", "step"), "epochs"))
    return plots.curves(path, "training loss", "step", "loss", curves)


def _draw_accuracy(path, epochs):
    curves = [(name, [(at, 100 * value) for at, value in _curve(epochs, key, "epoch")], "epochs")
              for name, key in (("accuracy", "test_accuracy"), ("mean IoU", "test_miou"))]
    return plots.curves(path, "test accuracy and mean IoU", "epoch", "%", curves)


def _draw_confusion(path, matrix, names, epoch):
    shares = []
    for row in matrix:
        total = sum(row)
        shares.append([count / total if total else math.nan for count in row])
    title = f"confusion after epoch {epoch}: share of each class's rows, by what was predicted"
    return plots.confusion(path, title, shares, names if len(names) <= MOST_CLASSES else None,
                           written=len(names) <= MOST_NUMBERS)


def _epoch_rows(epochs):
    return [[str(line["epoch"]), str(line.get("step", "")),
             "" if _number(line.get("loss")) is None else f"{line['loss']:.4f}",
             _percent(line.get("test_accuracy")), _percent(line.get("test_miou"))]
            for line in epochs]


def _class_rows(matrix, names):
    rows = []
    for i, (name, counts) in enumerate(zip(names, matrix)):
        predicted = sum(row[i] for row in matrix)
        union = sum(counts) + predicted - counts[i]
        rows.append([name, str(sum(counts)), str(counts[i]),
                     f"{100 * counts[i] / union:.1f} %" if union else ""])
    return rows


def _last_confusion(epochs, problems):
    """(line, matrix) of the last epoch that has one, or None."""
    for line in reversed(epochs):
        try:
            matrix = _matrix(line)
        except ValueError as error:
            problems.append(f"epochs.jsonl, epoch {line['epoch']}: {error}")
            continue
        if matrix is not None:
            return line, matrix
    return None


def load(directory, folder):
    """The run that the directory holds, with its pictures drawn into `folder`, or None."""
    paths = files(directory)
    if not paths:
        return None
    problems, images, tables = [], [], []
    by_name = {path.name: path for path in paths}
    missing = pathlib.Path(directory) / "none"
    epochs = _read(by_name.get("epochs.jsonl", missing), "epoch", problems)
    steps = _read(by_name.get("steps.jsonl", missing), "step", problems)
    epochs = [line for line in epochs if isinstance(line.get("step"), int)]

    def picture(name, title, draw):
        path = folder / name
        try:
            if draw(path):
                images.append((title, path))
        except Exception as error:  # pylint: disable=broad-except  (as report.drawn)
            problems.append(f"'{title}' cannot be drawn: {error!r:.200}")
            plots.close_all()

    picture("training-loss.png", "Loss", lambda path: _draw_loss(path, steps, epochs))
    picture("training-accuracy.png", "Accuracy and mean IoU of the test split",
            lambda path: _draw_accuracy(path, epochs))
    last = _last_confusion(epochs, problems)
    if last is not None:
        line, matrix = last
        names = _names(line, len(matrix))
        picture("training-confusion.png", "Confusion matrix",
                lambda path: _draw_confusion(path, matrix, names, line["epoch"]))
        tables.append((f"Classes after epoch {line['epoch']}", ["class", "rows", "right", "IoU"],
                       _class_rows(matrix, names)))
    tables.append(("Epochs", ["epoch", "steps", "mean loss", "accuracy", "mean IoU"],
                   _epoch_rows(epochs)))
    text = [f"{len(epochs)} epochs, {max((line['step'] for line in steps), default=0)} steps."]
    return Training(f"training run {pathlib.Path(directory).resolve().name}", images, tables, text,
                    problems)
