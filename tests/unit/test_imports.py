"""Allowed imports between folders: the pure core imports no other folder, and no folder imports operations."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
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
ARROW_OF_ITS_ARGUMENTS = {ROOT / "processors/sql/columns.py", ROOT / "processors/declare/arrow_values.py"}
"""The only modules of processors that import Arrow: in a function for columns of Arrow, so that it is there."""
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


def module_of(path: Path) -> str:
    """Return the name of a module or package, from the repository's root."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for folder in MAY_IMPORT for path in files(folder) if "_package_" not in path.parts}
PACKAGES = {name for name, path in MODULES.items() if path.name == "__init__.py"}
DOORS = {module_of(path): path for folder in MAY_IMPORT for path in sorted((ROOT / folder).rglob("__init__.pyi"))}


def names_imported(path: Path, nodes: Callable[[ast.AST], Iterator[ast.AST]]) -> Iterator[tuple[str, str]]:
    """Yield what a file imports from the library: a module or a package, and a name in it, which may be a module of the package.

    Args:
        path: the file.
        nodes: `loaded` for imports at run time, `ast.walk` for imports that only a type checker sees, too.
    """
    package = path.relative_to(ROOT).parent.parts if path.parts[len(ROOT.parts)] in MAY_IMPORT else ("penstock",)
    for node in nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            source = ".".join([*base, *filter(None, [node.module])]).removeprefix("penstock.")
            yield from ((source, alias.name) for alias in node.names if source in MODULES)


def exported(door: str) -> set[str]:
    """Return the names that a package lets others import."""
    tree = ast.parse(DOORS[door].read_text(encoding="utf-8")) if door in DOORS else ast.Module([], [])
    return {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}


def is_inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def passes_a_wall(importer: str, source: str, name: str) -> bool:
    """Return whether an import takes a name from inside a package that does not contain the importer."""
    target = f"{source}.{name}" if f"{source}.{name}" in MODULES and name not in exported(source) else source
    around = [target[:at] for at, letter in enumerate(target) if letter == "."]
    if target in PACKAGES:
        around = around[1:]  # a top folder has packages, each with its own door
    elif len(around) > 1:
        around = around[1:]
    return any(not is_inside(importer, package) for package in around)


LIBRARY = {
    **{name: path for name, path in MODULES.items() if name not in PACKAGES},
    **{f"penstock.{path.stem}": path for path in sorted((ROOT / "penstock").glob("*.py"))},
}
"""The modules of the library by name, with the ones that users import."""


def test_packages_are_entered_by_their_doors() -> None:
    """A package's `__init__.pyi` lists what others may import; its modules are its own."""
    wrong = [
        f"{importer} imports {source}.{name}"
        for importer, path in LIBRARY.items()
        for source, name in names_imported(path, ast.walk)
        if passes_a_wall(importer, source, name)
    ]

    assert len(DOORS) > len(MAY_IMPORT)
    assert wrong == []


def test_doors_export_what_others_import() -> None:
    """A name that no other package needs is not a part of what a package promises."""
    used = {
        (source, name)
        for importer, path in LIBRARY.items()
        for source, name in names_imported(path, ast.walk)
        if not is_inside(importer, source)
    }

    assert [door for door in DOORS if not exported(door)] == []
    assert [f"{door}.{name}" for door in DOORS for name in sorted(exported(door)) if (door, name) not in used] == []


def neighbours(package: str) -> dict[str, set[str]]:
    """Return which modules and packages inside a package each of them imports."""
    found: dict[str, set[str]] = {}
    depth = package.count(".") + 2

    def room(module: str) -> str:
        return ".".join(module.split(".")[:depth])

    for importer, path in MODULES.items():
        if not importer.startswith(f"{package}."):
            continue
        for source, name in names_imported(path, loaded):
            target = f"{source}.{name}" if f"{source}.{name}" in MODULES else source
            if target.startswith(f"{package}.") and room(target) != room(importer):
                found.setdefault(room(importer), set()).add(room(target))
    return found


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_packages_and_modules_import_in_one_direction(package: str) -> None:
    """If one imports another, that one does not import it, at each level."""
    TopologicalSorter(neighbours(package)).prepare()  # raises CycleError


def test_the_architecture_lists_operations_in_the_order_of_their_imports() -> None:
    """A package imports only packages above it in the table."""
    _, _, rest = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").partition("## The packages of operations")
    listed = [f"ops.{name}" for name in re.findall(r"^\| `(\w+)/` \|", rest.partition("\n## ")[0], re.MULTILINE)]
    below = {
        (package, imported)
        for package, others in neighbours("ops").items()
        for imported in others
        if listed.index(imported) > listed.index(package)
    }

    assert set(listed) == {name for name in PACKAGES if name.count(".") == 1 and name.startswith("ops.")}
    assert below == set()


def test_the_core_imports_no_bus_no_store_and_no_spark() -> None:
    """Processors are independent of their runtime, so they run anywhere."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files("processors")
        for name in imported(path)
        if name.split(".")[0] in OUTSIDE_OF_PROCESSORS - ({"pyarrow"} if path in ARROW_OF_ITS_ARGUMENTS else set())
    ]

    assert wrong == []


def test_each_folder_is_linked_into_the_package() -> None:
    """The link is relative, so that a clone works in any place."""
    for folder in MAY_IMPORT:
        link = ROOT / "penstock" / folder
        assert link.is_symlink()
        assert str(link.readlink()) == f"../{folder}"
