# SPDX-License-Identifier: Apache-2.0
"""What a result line must hold for the report to read it: asked once, when it is read."""

import errno
import gzip
import zlib

NUMBER = (int, float)
NAMES = {str: "a text", dict: "an object", list: "an array", bool: "true or false",
         int: "a whole number", NUMBER: "a number"}

_RATIO = {"ratio": NUMBER, "low": NUMBER, "high": NUMBER}
_COUNTERS = {name: NUMBER for name in (
    "queries", "true_pairs", "padded_pairs", "bytes_read", "bytes_written", "launches",
    "index_bytes", "peak_workspace")}
_SIDE = {"wall_ms": {"median": NUMBER}, "stages_ms": dict, "wall_ms_samples": list,
         "counters": _COUNTERS}
_CELL = {"input": str, "work": str, "dtype": str, "maps": str, "configuration": str,
         "params": dict, "voxels": NUMBER, "neighbours": NUMBER}
_PROVENANCE = {"commit": str, "dirty": bool, "compiler": str, "build_type": str, "backend": str,
               "device": str, "time_utc": str}
_LAYER = {"name": str, "map": str, "geometry": str, "map_sizes": list, "n_in": NUMBER,
          "n_out": NUMBER, "c_in": NUMBER, "c_out": NUMBER, "pairs": NUMBER, "counters": _COUNTERS}
_LINE = {"status": str, "quick": bool, "cell": _CELL, "provenance": _PROVENANCE}
_OPTIONAL = {"round": int, "hardware": dict, "cell.against": str, "cell.like": str,
             "cell.x": NUMBER, "cell.resolution": NUMBER, "cell.order": str}
_STATUSES = ("measured", "refused", "failed")


def text_of(path):
    """The text of a file, unpacked where its name ends in .gz. OSError where it cannot be read.

    A pipe in its place would be waited for, and is refused.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    if path.suffix != ".gz":
        return path.read_text(encoding="utf-8", errors="replace")
    try:
        return gzip.decompress(path.read_bytes()).decode("utf-8", errors="replace")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise OSError(errno.EINVAL, f"it is no gzip file: {error}", str(path)) from error


def _is(value, kind):
    # JSON's true is no number, and its numbers may be NaN.
    if isinstance(value, bool) != (kind is bool):
        return False
    return isinstance(value, kind) and value == value


def _check(value, wanted, path):
    if not isinstance(wanted, dict):
        if not _is(value, wanted):
            raise ValueError(f"key '{path}' is {value!r:.60}; allowed is {NAMES[wanted]}")
        return
    _check(value, dict, path or "the line")
    for key, inner in wanted.items():
        full = f"{path}.{key}" if path else key
        if key not in value:
            raise ValueError(f"key '{full}' is missing")
        _check(value[key], inner, full)


def _check_ratio(ratio, path):
    _check(ratio, _RATIO, path)
    for key, value in ratio.items():
        if not value > 0:
            raise ValueError(f"key '{path}.{key}' is {value}; allowed are numbers above 0")


def _check_captured(captured):
    if captured is None or "why" in _object(captured, "result.captured"):
        return
    _check(captured, {"verdict": str, "pairs": int, "launch_bound": list,
                      "a": {"wall_ms": {"median": NUMBER}}, "b": {"wall_ms": {"median": NUMBER}}},
           "result.captured")
    if captured.get("speedup") is not None:
        _check_ratio(captured["speedup"], "result.captured.speedup")


def _object(value, path):
    _check(value, dict, path)
    return value


def _check_result(result):
    _check(result, {"verdict": str, "pairs": int, "a": _SIDE, "b": _SIDE}, "result")
    for side in "ab":
        samples = result[side]["wall_ms_samples"]
        for i, sample in enumerate(samples):
            _check(sample, NUMBER, f"result.{side}.wall_ms_samples[{i}]")
        if not samples:
            raise ValueError(f"key 'result.{side}.wall_ms_samples' is empty")
        for stage, times in result[side]["stages_ms"].items():
            _check(times, {"median": NUMBER}, f"result.{side}.stages_ms.{stage}")
    _check_ratio(result.get("speedup"), "result.speedup")
    for why in ("busy", "clocks"):
        if result.get(why) is not None:
            _check(result[why], str, f"result.{why}")
    _check_captured(result.get("captured"))
    stages = result.get("stage_speedups", {})
    _check(stages, dict, "result.stage_speedups")
    for stage, ratio in stages.items():
        _check_ratio(ratio, f"result.stage_speedups.{stage}")


def check_cell(line):
    """Raises ValueError, naming the key, its value and what is allowed."""
    _check(line, _LINE, "")
    if line["status"] not in _STATUSES:
        raise ValueError(
            f"key 'status' is '{line['status']}'; allowed are {', '.join(_STATUSES)}")
    for path, kind in _OPTIONAL.items():
        holder, _, key = path.rpartition(".")
        value = (line[holder] if holder else line).get(key)
        if value is not None:
            _check(value, kind, path)
    if "against" not in line["cell"]:
        raise ValueError("key 'cell.against' is missing")
    for name, value in line["cell"]["params"].items():
        if value is None or isinstance(value, (list, dict)):
            raise ValueError(f"key 'cell.params.{name}' is {value!r:.60}; "
                             "allowed are texts and numbers")
    for side, profile in (line.get("hardware") or {}).items():
        _check(profile, dict, f"hardware.{side}")
        for metric in ("l2_hit", "dram_bytes", "utilisation"):
            if profile.get(metric) is not None:
                _check(profile[metric], NUMBER, f"hardware.{side}.{metric}")
    if line["status"] == "refused":
        _check(line, {"reason": str}, "")
    if line["status"] == "measured" and "result" not in line and "layers" not in line:
        raise ValueError("key 'result' is missing")
    if "result" in line:
        _check_result(line["result"])
    if "layers" in line:
        _check(line["layers"], list, "layers")
        for i, layer in enumerate(line["layers"]):
            _check(layer, _LAYER, f"layers[{i}]")


def check_definition(line):
    """The same for the line before the cells. The program has read the rest."""
    _check(line, {"definition": {"name": str, "title": str}}, "")
    for key, kind in (("published", list), ("plots", list)):
        _check(line["definition"].get(key, []), kind, f"definition.{key}")
    if "asked" not in line:
        return
    _check(line["asked"], {"backend": str, "device": str, "quick": bool, "cells": list}, "asked")
    for i, cell in enumerate(line["asked"]["cells"]):
        _check(cell, {"configuration": str, "params": dict}, f"asked.cells[{i}]")
