"""Idle buckets of an archiver."""

from __future__ import annotations

from datetime import timedelta

from penstock.backfill.archive.idle_buckets import IdleBuckets
from penstock.transport import CategorySpec
from penstock.transport.memory import MemoryBus


def test_without_a_timeout_a_bucket_is_idle_once_it_is_read_to_its_end() -> None:
    """It is idle directly after its last event: a run that stops at the end requests the ends once more, and they count."""
    bus = MemoryBus()
    bus.create(CategorySpec("words", 2))
    silences = IdleBuckets(bus, "words", timedelta(0), lambda: 100.0)
    silences.interrupt([0])
    silences.refresh({0: 0, 1: 0})

    assert silences.idle() == {0, 1}
