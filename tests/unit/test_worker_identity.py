"""The identity of a worker belongs to one folder on one machine."""

from __future__ import annotations

import shutil
from pathlib import Path

from penstock.ops.worker.identity import worker_identity


def name_in(state: Path) -> str:
    """Return the identity of the only worker of a folder."""
    with worker_identity(state, "totals") as identity:
        return identity.name


def test_a_restarted_worker_keeps_its_identity(tmp_path: Path) -> None:
    """Also after its folder was renamed."""
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
