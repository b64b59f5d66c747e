"""An outage of the warehouse: the archiver waits, or stops with an error, and every event is archived once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pytest
from support.warehouses import MemoryFileStore

from penstock.backfill import WarehouseError
from penstock.backfill.archive.archiver import OUTAGE_ADVICE
from penstock.backfill.errors import WarehouseFileMissing
from penstock.backfill.warehouse import Note, Warehouse
from penstock.processors import CallRetry
from penstock.state import FileStoreUnreachable
from penstock.state.files import RetryingFileStore

NOTE = Note("readings", "_note.json")
LIMIT = timedelta(minutes=1)


class UnreachableFileStore(MemoryFileStore):
    """A file store that is unreachable until some time."""

    def __init__(self, back_s: float) -> None:
        super().__init__()
        self.back_s = back_s
        self.now_s = 0.0

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store a file, unless the store is unreachable."""
        if self.now_s < self.back_s:
            raise FileStoreUnreachable("The NameNode does not answer.")
        super().write(path, chunks)

    def pause(self, seconds: float) -> None:
        """Advance the clock."""
        self.now_s += max(seconds, 0.001)

    def retrying(self, *, is_stopping: bool = False) -> Warehouse:
        """Return a warehouse that retries for a minute."""
        retry = CallRetry(
            LIMIT.total_seconds(),
            0.25,
            10.0,
            is_stopping=lambda: is_stopping,
            clock=lambda: self.now_s,
            pause=self.pause,
        )
        return Warehouse(RetryingFileStore(self, retry, OUTAGE_ADVICE))


def test_a_write_succeeds_once_the_store_is_reachable_again() -> None:
    """The caller only notices the delay."""
    files = UnreachableFileStore(back_s=30)
    files.retrying().write(NOTE, b"content")

    assert files.stored == {NOTE.path: b"content"}
    assert 30 <= files.now_s < 60


def test_a_long_outage_ends_with_an_error_that_explains_its_effect() -> None:
    """Retries end at the declared limit."""
    files = UnreachableFileStore(back_s=1e9)
    with pytest.raises(WarehouseError, match=r"does not answer\. .* Start the archiver again: .* every event once"):
        files.retrying().write(NOTE, b"content")

    assert 60 <= files.now_s < 61


def test_an_archiver_that_is_stopping_does_not_wait() -> None:
    """The next run continues from there."""
    files = UnreachableFileStore(back_s=1e9)
    with pytest.raises(WarehouseError):
        files.retrying(is_stopping=True).write(NOTE, b"content")

    assert files.now_s == 0


def test_a_missing_file_is_not_an_outage() -> None:
    """Retries would not create it."""
    files = UnreachableFileStore(back_s=0)
    with pytest.raises(WarehouseFileMissing):
        files.retrying().read(NOTE)

    assert files.now_s == 0
