"""Allowed imports between folders: the pure core imports no other folder, and no folder imports operations."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAY_IMPORT = {
    "processors": set[str](),
    "transport": {"processors"},
    "state": {"processors"},
    "backfill": {"processors", "transport", "state"},
    "ops": {"processors", "transport", "state", "backfill"},
}
ARROW_OF_ITS_ARGUMENTS = ROOT / "processors/sql/columns.py"
"""The only module of processors that imports Arrow: in a function that receives Arrow's columns, so that it is there."""
OUTSIDE_OF_PROCESSORS = {"confluent_kafka", "rocksdict", "pyspark", "hdfs", "fastavro", "pyarrow", "typer", "rich"}


def imported(path: Path) -> Iterator[str]:
    """Yield each module that a file imports, as an absolute name from the repository's root."""
    package = path.relative_to(ROOT).parent.parts
    for node in loaded(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            names = [node.module] if node.module else [alias.name for alias in node.names]
            yield from (".".join([*base, name]) for name in names)


def loaded(tree: ast.AST) -> Iterator[ast.AST]:
    """Give what is in a tree, but for what only a type checker sees: types are named there, and nothing is needed."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            yield node
            yield from loaded(node)


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_a_folder_imports_only_its_allowed_folders(folder: str) -> None:
    """Imports follow the direction of the design."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files(folder)
        for name in imported(path)
        if (top := name.removeprefix("penstock.").split(".")[0]) in MAY_IMPORT
        and top != folder
        and top not in MAY_IMPORT[folder]
    ]

    assert files(folder)
    assert wrong == []


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_inside_the_library_are_relative(folder: str) -> None:
    """Each folder works as a part of the package penstock, through its link."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files(folder)
        for name in imported(path)
        if name.split(".")[0] == "penstock"
    ]

    assert wrong == []


def room_of(path: Path) -> str:
    """Return the folder below a top folder that contains a module, or the module itself if there is none."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return "/".join(parts[:2])


def rooms_imported(folder: str) -> dict[str, set[str]]:
    """Return which rooms of a top folder each of its rooms imports."""
    found: dict[str, set[str]] = {}
    for path in files(folder):
        rooms = {"/".join(name.removeprefix("penstock.").split(".")[:2]) for name in imported(path)}
        found.setdefault(room_of(path), set()).update(
            room for room in rooms if room.startswith(f"{folder}/") and room != room_of(path)
        )
    return found


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_folders_have_no_import_cycles(folder: str) -> None:
    """If a domain imports another, that one does not import it."""
    TopologicalSorter(rooms_imported(folder)).prepare()  # raises CycleError


def test_the_core_imports_no_bus_no_store_and_no_spark() -> None:
    """Processors are independent of their runtime, so they run anywhere."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files("processors")
        for name in imported(path)
        if name.split(".")[0] in OUTSIDE_OF_PROCESSORS - ({"pyarrow"} if path == ARROW_OF_ITS_ARGUMENTS else set())
    ]

    assert wrong == []


def test_each_folder_is_linked_into_the_package() -> None:
    """By a relative link, so that a clone anywhere works."""
    for folder in MAY_IMPORT:
        link = ROOT / "penstock" / folder
        assert link.is_symlink()
        assert str(link.readlink()) == f"../{folder}"
