"""Fixtures of the unit tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.machines import Machine

from penstock.state.files import LocalFileStore
from penstock.transport.memory import MemoryBus


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine on a bus of its own."""
    return Machine(tmp_path / "one", MemoryBus(), LocalFileStore(tmp_path / "place"))
