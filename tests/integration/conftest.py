"""The command line on a real broker, and an app to run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli import Cli
from support.meters import APP


@pytest.fixture
def cli(kafka: str, tmp_path: Path) -> Iterator[Cli]:
    """The command line on the shared broker."""
    cli = Cli(kafka, tmp_path)
    yield cli
    cli.end_all()


@pytest.fixture
def app(tmp_path: Path, unique: str) -> Path:
    """An app of three processors, on categories of this test alone."""
    path = tmp_path / "app.py"
    path.write_text(APP.replace("{prefix}", unique[:60]))
    return path


@pytest.fixture
def prefix(unique: str) -> str:
    """How the names of this test's categories begin."""
    return unique[:60]
