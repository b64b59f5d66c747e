"""Files with users' data or secrets are closed to other users, whatever the umask is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.ops.kernel import worker_identity
from penstock.state import ShardIdentity
from penstock.state.files import make_private_folder, replace_file
from penstock.state.local import RocksStateFolder


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """A umask that closes nothing."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_this_user_enters_the_folders_of_a_state(tmp_path: Path) -> None:
    """RocksDB chooses the modes of its own files, so every folder above them is closed."""
    root = tmp_path / "data" / "state"
    with worker_identity(root, "totals"):
        state = RocksStateFolder(root).open(ShardIdentity("totals", 0, "float"))
        state.snapshot(root / "totals" / "snapshots" / "1")
        state.close()
    own = [folder for folder in (tmp_path / "data").rglob("*") if folder.is_dir() and folder.parent.name != "snapshots"]

    assert (root / "totals" / "workers") in own
    assert {mode(folder) for folder in (tmp_path / "data", *own)} == {0o700}


def test_a_replaced_file_is_closed_even_if_it_was_open(tmp_path: Path) -> None:
    """A file of an earlier release may be readable by others; its replacement is not."""
    path = tmp_path / "new" / "desired.json"
    replace_file(path, b"1")
    path.chmod(0o666)
    replace_file(path, b"2")

    assert (mode(path), mode(path.parent), path.read_bytes()) == (0o600, 0o700, b"2")


def test_an_existing_folder_keeps_its_permissions(tmp_path: Path) -> None:
    """The folder may be shared on purpose, such as a mounted volume."""
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    make_private_folder(shared / "state")

    assert (mode(shared), mode(shared / "state")) == (0o755, 0o700)
