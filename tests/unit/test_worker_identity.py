"""The identity of a worker belongs to one folder on one machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from penstock.ops.kernel import worker_identity


def name_in(state: Path) -> str:
    """Return the identity of the only worker of a folder."""
    with worker_identity(state, "totals") as identity:
        return identity.name


def test_a_restarted_worker_keeps_its_identity(tmp_path: Path) -> None:
    """Its folder may have been renamed."""
    name = name_in(tmp_path / "state")
    assert name_in(tmp_path / "state") == name

    (tmp_path / "state").rename(tmp_path / "moved")
    assert name_in(tmp_path / "moved") == name


def test_a_copied_folder_has_another_identity(tmp_path: Path) -> None:
    """Two workers with one identity would fence each other forever."""
    name = name_in(tmp_path / "state")
    shutil.copytree(tmp_path / "state", tmp_path / "copy")

    copied = name_in(tmp_path / "copy")
    assert copied != name
    assert name_in(tmp_path / "copy") == copied
    assert name_in(tmp_path / "state") == name


def test_workers_of_one_folder_have_different_identities(tmp_path: Path) -> None:
    """A second worker takes the next place."""
    with worker_identity(tmp_path, "totals") as first, worker_identity(tmp_path, "totals") as second:
        assert first.name != second.name


HOLDER = """
import signal, sys, threading, time
from pathlib import Path
from penstock.ops.kernel.process.identity import HAND_OVER, worker_identity
asked = threading.Event()
signal.signal(HAND_OVER, lambda *_: asked.set())
with worker_identity(Path(sys.argv[1]), "totals", 1) as identity:
    print(identity.name, flush=True)
    asked.wait()
    Path(sys.argv[1], "saved").touch()
"""


def test_a_numbered_worker_takes_over_from_its_predecessor(tmp_path: Path) -> None:
    """The predecessor is asked to hand over, and ends before its successor has its name."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        name = holder.stdout.readline().strip()
        with worker_identity(tmp_path, "totals", 1) as identity:
            assert (tmp_path / "saved").exists()

    assert identity.name == name
    assert holder.returncode == 0


def test_a_numbered_worker_returns_under_its_name_whatever_else_runs(tmp_path: Path) -> None:
    """A free place of a lower number, or another worker of the folder, does not change it."""
    with worker_identity(tmp_path, "totals", 0), worker_identity(tmp_path, "totals", 2) as before:
        pass
    with worker_identity(tmp_path, "totals") as other, worker_identity(tmp_path, "totals", 2) as after:
        assert after.name == before.name
        assert other.name not in {name_of(tmp_path, number) for number in (0, 1)}


def name_of(state: Path, number: int) -> str:
    """Return the name of a numbered worker."""
    with worker_identity(state, "totals", number) as identity:
        return identity.name
