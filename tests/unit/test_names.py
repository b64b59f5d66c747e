"""Names: one name means one thing, and docstrings describe what is there."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("processors", "transport", "state", "backfill", "ops")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) if "_package_" not in path.parts]
_ARGUMENT = re.compile(r"^ {4}(\w+)(?: \([^)]*\))?: ", re.MULTILINE)


def test_no_two_public_classes_have_the_same_name() -> None:
    """A search for a name finds one class."""
    places = defaultdict(list)
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))

    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def documented(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names below `Args:` of a docstring."""
    docstring = ast.get_docstring(node) or ""
    _, _, section = docstring.partition("\nArgs:\n")
    return set(_ARGUMENT.findall(re.split(r"\n(?=\S)", section)[0]))


CLASSES = {
    node.name: node
    for path in FILES
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, ast.ClassDef)
}


def arguments_of(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the arguments of a function, or of the constructor and the fields of a class and its bases."""
    if not isinstance(node, ast.ClassDef):
        given = node.args
        every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        return {argument.arg for argument in every if argument is not None}
    inits = [
        inner for inner in node.body if isinstance(inner, ast.FunctionDef) and inner.name in {"__init__", "__new__"}
    ]
    fields = {
        inner.target.id
        for inner in node.body
        if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name)
    }
    bases: list[ast.ClassDef | ast.FunctionDef] = [
        CLASSES[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in CLASSES
    ]
    return fields.union(*(arguments_of(part) for part in (*inits, *bases)))


@pytest.mark.parametrize("folder", FOLDERS)
def test_documented_arguments_exist(folder: str) -> None:
    """A docstring whose argument was renamed or removed is found."""
    wrong = []
    for path in FILES:
        if path.relative_to(ROOT).parts[0] != folder:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                unknown = documented(node) - arguments_of(node)
                wrong += [f"{path.relative_to(ROOT)}: {node.name} documents {name}" for name in sorted(unknown)]

    assert wrong == []
