# SPDX-License-Identifier: Apache-2.0
import doctest
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import voxconv

ROOT = pathlib.Path(__file__).parents[2]


def documented():
    """(name, docstring) of the package, its modules, functions, classes and their members."""
    for module in (voxconv, voxconv.interop, voxconv.networks):
        yield module.__name__, module.__doc__
        for name in module.__all__:
            thing = getattr(module, name)
            if isinstance(thing, (str, bool)) or thing in (voxconv.interop, voxconv.networks):
                continue
            yield f"{module.__name__}.{name}", thing.__doc__
            if isinstance(thing, type):
                for member, value in vars(thing).items():
                    if member in ("__init__", "__call__") or not member.startswith("_"):
                        yield f"{module.__name__}.{name}.{member}", getattr(value, "__doc__", None)


DOCUMENTED = dict(documented())


def words(text):
    """Without the signatures that nanobind writes before a text."""
    lines = (text or "").splitlines()
    return [line for line in lines if line and not re.match(r"(\w+)?\(.*\) -> ", line)]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_docstring(name):
    text = DOCUMENTED[name]
    assert words(text)
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test)
    assert runner.failures == 0


@pytest.mark.parametrize("path", ["README.md", "docs/python.md"])
def test_python_in_documents_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(encoding="utf-8"), re.S)
    assert blocks
    names = {}
    for block in blocks:
        if "import torch" in block and importlib.util.find_spec("torch") is None:
            continue  # python/torch_tests runs it
        exec(compile(block, path, "exec"), names)


def test_version_is_the_projects():
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    assert re.search(r"project\(voxconv VERSION ([0-9.]+)", text)[1] == voxconv.__version__


def test_stub_has_every_name():
    stub = pathlib.Path(voxconv._voxconv.__file__).parent / "_voxconv.pyi"
    text = stub.read_text(encoding="utf-8")
    compile(text, str(stub), "exec")
    for name in voxconv.__all__:
        if name not in ("interop", "networks", "report", "__version__"):
            assert re.search(rf"^(def|class) {name}\b|^{name}: ", text, re.M), name
    assert (stub.parent / "py.typed").exists()


def test_data_files_beside_the_library_go_first(tmp_path):
    package = tmp_path / "voxconv"
    presets = package / "share" / "voxconv" / "presets"
    presets.mkdir(parents=True)
    (presets / "defaults.json").write_text("{}", encoding="utf-8")
    sources = pathlib.Path(voxconv.__file__).parent.glob("*.py")
    for source in (voxconv._voxconv.__file__, *sources):
        shutil.copy(source, package)
    libraries = package.parent / "voxconv.libs"  # of a wheel that auditwheel has repaired
    original = pathlib.Path(voxconv.__file__).parents[1] / libraries.name
    if original.is_dir():
        libraries.symlink_to(original)
    code = (
        "import voxconv; x = voxconv.load('scene:sphere?n=100', channels=4); "
        "voxconv.networks.minkunet42(width=0.25).initialize()(x)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert str(presets / "defaults.json") in done.stderr.splitlines()[-1]


@pytest.mark.unsanitized
def test_import_is_quick_and_needs_no_numpy():
    code = (
        "import time; begin = time.process_time(); import voxconv, sys; "
        "print(time.process_time() - begin, 'numpy' in sys.modules)"
    )
    times = []  # of the processor, so that other work on the machine does not count
    for _ in range(5):
        output = subprocess.run(
            [sys.executable, "-c", code], env=os.environ, check=True, capture_output=True, text=True
        ).stdout.split()
        assert output[1] == "False"
        times.append(float(output[0]))
    assert min(times) <= 0.3


def test_nothing_is_said_at_exit():
    code = (
        "import numpy as np, voxconv\n"
        "x = voxconv.load('scene:sphere?n=500', channels=4)\n"
        "y = voxconv.networks.minkunet42(width=0.25).initialize()(x)\n"
        "m = voxconv.KernelMap(x)\n"
        "class P:\n"
        "    name = 'p'\n"
        "    def forward(self, map, x, w, y): y[:] = 0\n"
        "voxconv.register_dataflow(P)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, check=True, capture_output=True, text=True
    )
    assert done.stdout + done.stderr == ""
