"""The `Args:` of a docstring name parameters and fields that exist: after a renaming, the text would describe what is no longer there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBRARY = ("processors", "transport", "state", "backfill", "ops")

Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def described(docstring: str) -> list[str]:
    """Return the names that a docstring describes under `Args:`."""
    section = re.search(r"^Args:\n((?:    .*\n|\n)*)", f"{docstring}\n", re.MULTILINE)
    return re.findall(r"^    \*{0,2}(\w+):", section[1], re.MULTILINE) if section else []


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    given = node.args
    variadic = [each for each in (given.vararg, given.kwarg) if each]
    return {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, *variadic)}


def fields(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> set[str]:
    """Return the fields of a class and the parameters of its constructor, with those of its bases in the library."""
    own: set[str] = set()
    for each in node.body:
        match each:
            case ast.AnnAssign(target=ast.Name(name)):
                own.add(name)
            case ast.FunctionDef(name="__init__"):
                own |= parameters(each)
            case _:
                pass
    bases = [classes[name] for base in node.bases if (name := ast.unparse(base).partition("[")[0]) in classes]
    return own.union(*(fields(base, classes) for base in bases))


def missing(node: Documented, classes: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    """Yield each described name that neither a parameter nor a field has."""
    known = fields(node, classes) if isinstance(node, ast.ClassDef) else parameters(node)
    yield from (name for name in described(ast.get_docstring(node) or "") if name not in known)


def test_each_described_argument_exists() -> None:
    trees = {path: ast.parse(path.read_text()) for folder in LIBRARY for path in sorted((ROOT / folder).rglob("*.py"))}
    nodes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree) if isinstance(node, Documented)]
    classes = {node.name: node for _, node in nodes if isinstance(node, ast.ClassDef)}
    found = [
        f"{path.relative_to(ROOT)}, line {node.lineno}: {node.name} has no {name}"
        for path, node in nodes
        for name in missing(node, classes)
    ]

    assert sum(len(described(ast.get_docstring(node) or "")) for _, node in nodes) > 1_000, "descriptions are found"
    assert not found, "\n".join(found)
