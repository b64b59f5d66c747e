"""What errors advise about failures of a file system: the remedy of the failure at hand, and of no other."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from penstock.processors import file_remedy
from penstock.state import FileStoreUnreachable, StateUnwritable
from penstock.state.files import LocalFileStore
from penstock.state.local import translated_errors

REMEDIES = {
    errno.ENOSPC: "Free space",
    errno.EACCES: "Allow this user",
    errno.EROFS: "Mount its file system for writing",
    errno.EIO: "`dmesg`",
    errno.ENOTDIR: "A file is where a folder should be",
}


@pytest.mark.parametrize("number", REMEDIES)
@pytest.mark.parametrize("names_number", [True, False], ids=["an error of the system", "the text of a library"])
def test_a_failure_has_its_own_remedy(number: int, names_number: bool) -> None:
    """A full disk needs another remedy than missing permissions."""
    text = os.strerror(number)
    error = OSError(number, text, "/data") if names_number else Exception(f"IO error: {text}: While open a file: /data")
    advice = file_remedy(error)

    assert [other for other, remedy in REMEDIES.items() if remedy in advice] == [number]


def test_the_error_of_a_state_contains_the_remedy(tmp_path: Path) -> None:
    """RocksDB's errors have no number."""
    with (
        pytest.raises(StateUnwritable, match=r"Free space on this disk\. Then start again"),
        translated_errors(tmp_path),
    ):
        raise Exception("IO error: No space left on device: While appending to file")  # noqa: TRY002 - as the library


def test_the_error_of_a_file_store_contains_the_remedy(tmp_path: Path) -> None:
    """A file in the place of the folder is moved away."""
    (tmp_path / "file").touch()
    with pytest.raises(FileStoreUnreachable, match="A file is where a folder should be"):
        LocalFileStore(tmp_path / "file" / "backups").write("name", [b"text"])
