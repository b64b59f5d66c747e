"""A changelog that shows the committed checkpoint later than the group's positions do: its transaction ends bucket by bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.disks import Disk, copy_of, restart
from support.subjects import EXACT, Subject, events

import penstock as ps
from penstock.ops.testing import Driver
from penstock.ops.worker import shard_opener
from penstock.state.protocols import MemoryStateFolder
from penstock.transport.memory import MemoryBus
from penstock.transport.messages import End, Polled, Position, RawBatch

EVENTS = events(60)


class Late:
    """A bus on which the first readers of a changelog see its end before the last messages, as during an open transaction."""

    def __init__(self, bus: MemoryBus, changelog: str, readers: int) -> None:
        self._scanner, self._changelog, self.readers = bus.scanner, changelog, readers

    def __call__(self, positions: Sequence[Position]) -> Any:
        scanner = self._scanner(positions)
        bucket = positions[0].bucket
        if not self.readers or bucket.category != self._changelog:
            return scanner
        self.readers -= 1
        poll = scanner.poll

        def early(timeout_s: float) -> Polled:
            batches = [RawBatch(bucket, batch.messages[:-3]) for batch in poll(timeout_s).batches]
            shown = [batch for batch in batches if batch.messages]
            return Polled(shown, [End(bucket, shown[-1].next_offset if shown else 0)])

        scanner.poll = early  # type: ignore[method-assign]  # this reader finds an early end
        return scanner


def lost(readers: int) -> tuple[Driver, type[ps.Processor], Late]:
    """Return a processor with two inputs that has lost its disk, and whose changelog is late for a number of readers."""
    processor = Subject("merging", EXACT, EXACT).make("x", ps.CheckpointInterval(events=20))
    driver = Driver(processor)
    for number, category in enumerate(processor.inputs()):
        some = EVENTS[number:40:2]
        driver.send(category, [category.record(event.key, event.at, event.number) for event in some])
    late = Late(driver.bus, f"{processor.name}.changelog", readers)
    driver.bus.scanner = late  # type: ignore[method-assign]  # until it is read as often
    return driver, processor, late


def test_a_state_is_rebuilt_up_to_the_committed_checkpoint() -> None:
    """The changelog is replayed again; each event counts once, in the chain of its key."""
    driver, processor, late = lost(3)
    restart(driver, processor, Disk.NONE, copy_of(driver, processor))
    category = processor.inputs()[0]
    driver.send(category, [category.record(event.key, event.at, event.number) for event in EVENTS[40:]])
    counts: dict[str, list[int]] = {}
    links = driver.read(processor.outputs()[0])
    for link in links:
        counts.setdefault(link.key, []).append(link.count)

    assert late.readers == 0
    assert sorted(link.number for link in links) == sorted(event.number for event in EVENTS)
    assert all(sorted(of_key) == list(range(1, len(of_key) + 1)) for of_key in counts.values())


def test_a_worker_reads_no_input_until_its_changelog_shows_the_checkpoint(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker logs it, and tries again."""
    monkeypatch.setattr(shard_opener, "REPLAYS", 2)
    driver, processor, _ = lost(1_000)
    driver._discard_worker(processor)
    driver._states[processor] = MemoryStateFolder()
    worker = driver._worker(processor, lambda _: None)
    for _ in range(4):
        worker.run_once()
        driver.clock.advance(2)

    assert "does not contain yet" in caplog.text
    assert list(worker.shards) == []
