"""What `penstock --version` reports about C code, and what the installation reports where it cannot compile it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.ops.shell.command_line.main import app
from penstock.processors.declare import partitioner
from penstock.transport.codecs import json_columns
from penstock.transport.kafka import client_handle, column_queue

ROOT = Path(__file__).parents[2]
LIBRARIES = [
    partitioner.LIBRARY,
    column_queue.LIBRARY,
    client_handle.LIBRARY,
    json_columns.LIBRARY,
]


def version() -> list[str]:
    """Return the lines of `penstock --version`."""
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0
    return done.stdout.splitlines()


def compiled(first: str) -> str:
    """Return the compiled parts that the first line names."""
    return first.partition("; compiled: ")[2].rstrip(")")


def test_everything_is_compiled_where_a_compiler_was() -> None:
    """One line is all that a complete installation needs."""
    [line] = version()

    assert line.startswith(f"penstock {ps.__version__} (Python {sys.version_info[0]}.")
    assert compiled(line) == "keys, JSON, Kafka reader, Kafka writer"


def test_parts_that_a_variable_turns_off_are_named_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other parts stay on."""
    monkeypatch.setenv(client_handle.VARIABLE, "off")
    first, *off = version()

    assert compiled(first) == "keys, JSON"
    assert off == [
        f"Kafka {part}, slower: turned off by {client_handle.VARIABLE}=off." for part in ("reader", "writer")
    ]


def test_a_value_of_the_variable_without_a_meaning_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that use Kafka refuse it, so the command that explains the installation names it."""
    monkeypatch.setenv(client_handle.VARIABLE, "never")

    assert f"{client_handle.VARIABLE} is never, which has no meaning" in version()[1]


@pytest.mark.parametrize("is_broken", [False, True])
def test_parts_without_a_library_are_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_broken: bool) -> None:
    """A library for another system counts as none, and is named."""
    for module in (partitioner, json_columns, column_queue, client_handle):
        library = tmp_path / module.LIBRARY.name
        monkeypatch.setattr(module, "LIBRARY", library)
        if is_broken:
            library.write_bytes(b"for another system")
    first, *off = version()

    assert compiled(first) == "nothing"
    assert [line.partition(", slower: ")[0] for line in off] == ["keys", "JSON", "Kafka reader", "Kafka writer"]
    assert all(("cannot be loaded" if is_broken else "found no working C compiler") in line for line in off)


def test_a_version_of_the_client_that_was_not_tested_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader stays compiled, and the line names the version."""
    monkeypatch.setattr(column_queue, "VALUES_IN_RECORDS", frozenset({"0.0.1"}))
    first, limit = version()

    assert "Kafka reader" in compiled(first)
    assert limit.startswith("Kafka reader: ")
    assert client_handle.client_versions() in limit


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return `hatch_build.py`, with a base class in place of the builder's, which is not installed."""
    interface = ModuleType("interface")
    interface.BuildHookInterface = dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", interface)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def built(build: ModuleType, tmp_path: Path) -> Callable[[str], tuple[list[str], dict[str, Any]]]:
    """Return a function that builds a wheel of a copy of the sources and returns its warnings and build data."""
    for place in build.SOURCES:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text((ROOT / place).read_text())

    def build_with(version: str) -> tuple[list[str], dict[str, Any]]:
        hook, warnings = build.CompileBuildHook(), list[str]()
        hook.root, hook.config, hook.app = tmp_path, {}, SimpleNamespace(display_warning=warnings.append)
        data: dict[str, Any] = {"force_include": {}}
        hook.initialize(version, data)
        return warnings, data

    return build_with


def test_the_build_reports_a_missing_compiler_once(
    built: Callable[[str], tuple[list[str], dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheel is then pure Python."""
    monkeypatch.setenv("CC", "cc-of-nowhere -m64")
    [warning], data = built("standard")

    assert "No C compiler was found (cc-of-nowhere -m64)" in warning
    assert "penstock --version" in warning
    assert data == {"force_include": {}}


def test_the_build_reports_each_file_that_does_not_compile(
    built: Callable[[str], tuple[list[str], dict[str, Any]]], build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that fails differs from none: each file has its own error."""
    monkeypatch.setenv("CC", "false")
    warnings, data = built("standard")

    assert [warning.split()[0] for warning in warnings] == [place.name for place in build.SOURCES]
    assert data == {"force_include": {}}


def test_every_c_file_is_compiled_and_reported(build: ModuleType) -> None:
    """A new C file joins the build, and the list of parts."""
    listed = subprocess.run(["git", "ls-files", "*.c"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = {Path(name) for name in listed.stdout.split()}

    assert files == set(build.SOURCES)
    assert {(ROOT / place).with_suffix(".so") for place in files} == {library.resolve() for library in LIBRARIES}
