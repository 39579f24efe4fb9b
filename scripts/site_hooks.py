# SPDX-License-Identifier: Apache-2.0
"""Hooks of mkdocs.yml: pages that are made of docstrings, headers and notebooks, and links to files that lie
outside of docs/. The package voxconv must be importable; voxconv.torch is read, not imported."""

import ast
import importlib
import inspect
import os
import pathlib
import re

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).parent.parent
MODULES = ["voxconv", "voxconv.networks", "voxconv.interop"]
HEADERS = ["library", "core", "mapping", "dataflows", "networks", "training", "io", "measure", "verify"]


def heading(level, title, signature, text):
    code = f"```\n{signature}\n```\n\n" if signature else ""
    return f"{'#' * level} `{title}`\n\n{code}```text\n{inspect.cleandoc(text or '')}\n```\n"


def signature_of(thing):
    # Functions of the extension carry theirs.
    signatures = getattr(thing, "__nb_signature__", None)
    if signatures:
        return signatures[0][0]
    if not inspect.isroutine(thing):  # a property
        return None
    try:
        return f"{thing.__name__}{inspect.signature(thing)}"
    except (TypeError, ValueError):
        return None


def members(thing):
    for name, value in vars(thing).items():
        if name in ("__init__", "__call__") or not name.startswith("_"):
            if getattr(value, "__doc__", None):
                yield name, value


def imported(name):
    """Everything public of a module that can be imported."""
    module = importlib.import_module(name)
    yield f"## {name}\n\n```text\n{inspect.cleandoc(module.__doc__)}\n```\n"
    for public in module.__all__:
        thing = getattr(module, public)
        if inspect.ismodule(thing) or not callable(thing):
            continue
        yield heading(3, f"{name}.{public}", None if inspect.isclass(thing) else signature_of(thing),
                      thing.__doc__)
        if inspect.isclass(thing):
            for member, value in members(thing):
                yield heading(4, f"{public}.{member}", signature_of(value), value.__doc__)


def signature_in(node):
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){returns}"


def public_of(source):
    """The names in __all__, or those of classes and functions without an underscore."""
    for node in source.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    return [node.name for node in source.body
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")]


def of_torch():
    """The same of voxconv.torch, which may lack PyTorch here."""
    folder = ROOT / "python" / "voxconv" / "torch"
    sources = {path.stem: ast.parse(path.read_text(encoding="utf-8"))
               for path in sorted(folder.glob("*.py"))}
    found = {}
    for source in sources.values():
        for node in source.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.setdefault(node.name, node)
    modules = ["__init__"]
    for module in modules:
        prefix = "voxconv.torch" if module == "__init__" else f"voxconv.torch.{module}"
        yield f"## {prefix}\n\n```text\n{ast.get_docstring(sources[module])}\n```\n"
        for name in public_of(sources[module]):
            if name in found:
                yield from of_node(f"{prefix}.{name}", found[name])
            else:
                modules.append(name)  # a module of the package


def of_node(title, node):
    is_class = isinstance(node, ast.ClassDef)
    yield heading(3, title, None if is_class else signature_in(node), ast.get_docstring(node))
    for member in node.body if is_class else ():
        if not isinstance(member, ast.FunctionDef) or not ast.get_docstring(member):
            continue
        if member.name == "__init__" or not member.name.startswith("_"):
            yield heading(4, f"{node.name}.{member.name}", signature_in(member),
                          ast.get_docstring(member))


def python_api():
    parts = ["# Python API\n"]
    for name in MODULES:
        parts += imported(name)
    return "\n".join([*parts, *of_torch()])


def headers():
    """The first comment of each public header."""
    parts = ["# C++ headers\n", "A header begins with what it holds. Its declarations say the rest.\n"]
    for folder in HEADERS:
        rows = []
        for path in sorted((ROOT / folder).rglob("*.h")):
            lines = path.read_text(encoding="utf-8").splitlines()
            comment = []
            for line in lines[1:]:
                if not line.startswith("//") or line.strip() == "//":
                    break
                comment.append(line[2:].strip())
            text = " ".join(comment).replace("|", "\\|").replace("<", "&lt;")
            rows.append(f"| `{path.relative_to(ROOT)}` | {text} |")
        if rows:
            parts += [f"## {folder}\n", "| header | |\n| --- | --- |\n" + "\n".join(rows) + "\n"]
    return "\n".join(parts)


def notebook(path):
    """The cells of a notebook as text, without outputs (python/tests/run_notebooks.py makes them)."""
    cells = re.split(r"^# %%(.*)\n", path.read_text(encoding="utf-8"), flags=re.M)[1:]
    parts = []
    for kind, body in zip(cells[::2], cells[1::2]):
        if "[markdown]" in kind:
            parts.append(re.sub(r"^# ?", "", body, flags=re.M).strip())
        else:
            parts.append(f"```python\n{body.strip()}\n```")
    return "\n\n".join([*parts, f"The notebook is `{path.relative_to(ROOT)}`; Jupyter opens it with jupytext."])


def on_files(files, config):
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.py")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=notebook(path)))
    files.append(File.generated(config, "python_api.md", content=python_api()))
    files.append(File.generated(config, "headers.md", content=headers()))
    return files


def on_page_markdown(markdown, page, config, files):
    """A link to a file of the repository outside of docs/ becomes its path; it must be there."""
    folder = pathlib.Path(page.file.src_uri).parent

    def outside(match):
        text, target = match[1], match[2]
        path = os.path.normpath(ROOT / "docs" / folder / target)
        inside = path.startswith(os.path.join(ROOT, "docs") + os.sep)
        if "://" in target or inside and os.path.isfile(path):
            return match[0]
        if not os.path.exists(path):
            raise PluginError(f"{page.file.src_uri}: link to {target}, which does not exist")
        return f"{text} (`{os.path.relpath(path, ROOT)}`)"

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(?:#[^)]*)?\)", outside, markdown)
