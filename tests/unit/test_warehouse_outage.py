"""A warehouse that is away: the archiver waits for it, or stops with a sentence, and every event is archived once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.warehouses import MemoryWarehouse

from penstock.backfill.archive.retrying_warehouse import RetryingWarehouse
from penstock.backfill.errors import NotStored, WarehouseError
from penstock.backfill.warehouse.layout import Note, Stored

NOTE = Note("readings", "_note.json")


class AwayWarehouse(MemoryWarehouse):
    """A warehouse that is away until some time."""

    def __init__(self, back_s: float) -> None:
        super().__init__()
        self.back_s = back_s
        self.now_s = 0.0

    def write(self, file: Stored, content: bytes) -> None:
        """Store a file, if it is not away."""
        if self.now_s < self.back_s:
            raise WarehouseError("The NameNode does not answer.")
        super().write(file, content)

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds

    def lasting(self, *, is_over: bool = False) -> RetryingWarehouse:
        """Return it with a minute's patience."""
        return RetryingWarehouse(self, timedelta(minutes=1), lambda: is_over, lambda: self.now_s, self.pause)


def test_what_is_back_in_time_gets_what_was_to_be_stored() -> None:
    """Nobody else notices but for the time."""
    away = AwayWarehouse(back_s=30)
    away.lasting().write(NOTE, b"content")

    assert away.read(NOTE) == b"content"
    assert 30 <= away.now_s < 60


def test_what_stays_away_is_told_with_what_it_means() -> None:
    """After as long as was declared."""
    away = AwayWarehouse(back_s=1e9)
    with pytest.raises(WarehouseError, match=r"does not answer\. .* start the archiver again, .* every event once"):
        away.lasting().write(NOTE, b"content")

    assert 60 <= away.now_s < 80


def test_nobody_waits_who_was_asked_to_stop() -> None:
    """The next run goes on there."""
    away = AwayWarehouse(back_s=1e9)
    with pytest.raises(WarehouseError):
        away.lasting(is_over=True).write(NOTE, b"content")

    assert away.now_s == 0


def test_a_file_that_is_not_there_is_no_outage() -> None:
    """It will not come by itself."""
    away = AwayWarehouse(back_s=0)
    with pytest.raises(NotStored):
        away.lasting().read(NOTE)

    assert away.now_s == 0
