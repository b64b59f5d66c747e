"""A changelog that shows the committed checkpoint later than the group's positions do: its transaction ends bucket by bucket."""

from __future__ import annotations

import pytest
from support.disks import Disk, copy_of, restart
from support.subjects import EXACT, Subject, events

import penstock as ps
from penstock.ops.kernel import Driver
from penstock.ops.kernel.shards import shard_opener
from penstock.processors.declare import plan_of
from penstock.state import MemoryStateFolder
from penstock.transport.memory import MemoryBus

EVENTS = events(60)


class Late:
    """A bus on which the first readers of a changelog see its end before the last messages, as during an open transaction."""

    def __init__(self, bus: MemoryBus, changelog: str, readers: int) -> None:
        self._stable_ends, self._changelog, self.readers = bus.stable_ends, changelog, readers

    def __call__(self, name: str) -> dict[int, int]:
        ends = self._stable_ends(name)
        if not self.readers or name != self._changelog:
            return ends
        self.readers -= 1
        return {
            number: max(end - 4, 0) for number, end in ends.items()
        }  # three messages and the end of their transaction


def lost(readers: int) -> tuple[Driver, type[ps.Processor], Late]:
    """Return a processor with two inputs that has lost its disk, and whose changelog is late for a number of readers."""
    processor = Subject("merging", EXACT, EXACT).make("x", ps.CheckpointInterval(events=20))
    driver = Driver(processor)
    for number, category in enumerate(plan_of(processor).inputs):
        some = EVENTS[number:40:2]
        driver.send(category, [category.record(event.key, event.at, event.number) for event in some])
    late = Late(driver.bus, f"{processor.name}.changelog", readers)
    driver.bus.stable_ends = late  # type: ignore[method-assign]  # until it is read as often
    return driver, processor, late


def test_a_state_is_rebuilt_up_to_the_committed_checkpoint() -> None:
    """The changelog is replayed again; each event counts once, in the chain of its key."""
    driver, processor, late = lost(3)
    restart(driver, processor, Disk.NONE, copy_of(driver, processor))
    category = plan_of(processor).inputs[0]
    driver.send(category, [category.record(event.key, event.at, event.number) for event in EVENTS[40:]])
    counts: dict[str, list[int]] = {}
    links = driver.read(plan_of(processor).outputs[0])
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
