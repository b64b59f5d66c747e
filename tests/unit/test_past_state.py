"""The state at a past moment contains the events that had arrived by then, and no later one."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.replays import at

import penstock as ps
from penstock.ops.look_back import BusEventSource
from penstock.ops.look_back.replay.initial_state import AtStart
from penstock.ops.look_back.replay.past_state import PastState, StateQuery, differences
from penstock.ops.shell import SteeredClock
from penstock.processors.declare import plan_of
from penstock.processors.shard import StatePosition
from penstock.processors.time import Window
from penstock.state import ShardIdentity, StateError
from penstock.state.backups import ShardBackups, StateEntry, claim, snapshot_folder
from penstock.state.files import LocalFileStore
from penstock.state.local import RocksStateFolder
from penstock.transport import CategorySpec, Outgoing
from penstock.transport.memory import MemoryBus

START_MS = 4_102_444_800_000
MINUTE_MS = 60_000


class Reading(ps.Record, frozen=True):
    """A meter's reading."""

    meter: str
    at: ps.EventTime
    litres: int


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=2)
by_minute = ps.Category("by_minute", Reading, key="meter", event_time="at", buckets=2)


class Totals(ps.Stateful):
    """Sums each meter's readings."""

    reads, state = readings, int

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, tuple[()]]:
        return (state or 0) + event.litres, ()


class ByMinute(ps.Aggregator):
    """Sums each meter's readings by minute."""

    reads, writes, monoid = readings, by_minute, ps.monoids.Sum()
    window = ps.windows.Tumbling(timedelta(minutes=1))

    def observe(self, event: Reading) -> int:
        return event.litres

    def result(self, key: str, window: ps.Window, value: int) -> Reading:
        return Reading(key, window.start, value)


class Doubled(ps.Stateless[Reading, Reading]):
    """Has no state."""

    reads, writes = readings, by_minute

    def process(self, event: Reading) -> Iterable[Reading]:
        return (event, event)


def sent(events: Iterable[tuple[str, int]]) -> MemoryBus:
    """Return a bus with events that arrived one per second: a meter and its litres."""
    clock = SteeredClock(START_MS)
    bus = MemoryBus(clock.now_ms)
    for category in (readings, by_minute):
        bus.catalog.create(CategorySpec(category.name, 2))
    with closing(bus.writer()) as writer:
        for number, (meter, litres) in enumerate(events):
            record = msgspec.json.encode(Reading(meter, START_MS + 1_000 * number, litres))
            writer.send(readings.name, [Outgoing(meter.encode(), record)])
            clock.advance(1)
    return bus


def query(
    processor: type[ps.Processor], bus: MemoryBus, key: str | None = None, place: LocalFileStore | None = None
) -> StateQuery:
    """Return a query for all buckets."""
    return StateQuery(processor, bus, lambda running: BusEventSource(running, bus), AtStart(place), [0, 1], key)


def values(states: list[PastState]) -> dict[object, object]:
    """Return values by key, or by key and start of the window."""
    return {
        entry.key if entry.window is None else (entry.key, entry.window.start): entry.value
        for state in states
        for entry in state.entries
    }


EVENTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), max_size=70)


@settings(max_examples=4, deadline=None)
@given(events=EVENTS, seconds=st.integers(0, 80))
def test_a_past_state_contains_the_events_until_then(events: list[tuple[str, int]], seconds: int) -> None:
    """It is recomputed from the input, per key and per window. One key alone and a moment after all events work, too."""
    bus, moment = sent(events), at(START_MS + 1_000 * seconds)
    totals: Counter[str] = Counter()
    minutes: dict[tuple[str, int], int] = defaultdict(int)
    for number, (meter, litres) in enumerate(events[:seconds]):
        totals[meter] += litres
        minutes[meter, START_MS + number * 1_000 // MINUTE_MS * MINUTE_MS] += litres
    of_a = query(Totals, bus, "a").at(moment)

    assert values(query(Totals, bus).at(moment)) == totals
    assert values(query(ByMinute, bus).at(moment)) == minutes
    assert values(of_a) == {meter: litres for meter, litres in totals.items() if meter == "a"}
    assert sum(state.replayed for state in of_a) == len(events[:seconds])


def test_differences_name_each_changed_value() -> None:
    """Values appeared, disappeared or changed. Differences are in the order of keys and windows."""
    first, second = Window(0, 60), Window(60, 120)

    def state(**entries: int) -> list[PastState]:
        places = {"a0": ("a", first), "a1": ("a", second), "b": ("b", None)}
        return [PastState(0, [_entry(*places[name], value) for name, value in entries.items()], 0)]

    found = differences(state(a0=1, a1=2), state(a1=3, b=4))

    assert [tuple(each) for each in found] == [("a", first, 1, None), ("a", second, 2, 3), ("b", None, None, 4)]
    assert differences(state(a0=1), state(a0=1)) == []


def _entry(key: str, window: Window | None, value: int) -> StateEntry:
    return StateEntry(key, window, value)


def test_the_newest_backup_before_the_moment_is_used(tmp_path: Path) -> None:
    """A later one contains later events. Only the events after the backup are replayed."""
    bus, place = sent([("a", 1), ("a", 2), ("a", 3), ("a", 4)]), LocalFileStore(tmp_path / "backups")
    number = readings.bucket_of("a")
    shape = plan_of(Totals).state_shape
    assert shape is not None
    identity = ShardIdentity(Totals.name, number, shape)
    owner = claim(ShardBackups(place, identity.processor, number), identity)
    with closing(RocksStateFolder(tmp_path).open(identity)) as state:
        for total, offset in ((100, 1), (1_000, 4)):
            state.save_together({b"a": msgspec.msgpack.encode(total)}, StatePosition({readings.name: offset}))
            with snapshot_folder(state.folder) as snapshot:
                state.snapshot(snapshot)
                owner.save(snapshot, state.position())
    found = query(Totals, bus, "a", place).at(at(START_MS + 3_000))

    assert values(found) == {"a": 100 + 2 + 3}
    assert sum(state.replayed for state in found) == 2


def test_a_processor_without_state_is_refused() -> None:
    """The error contains the reason."""
    with pytest.raises(StateError, match="Doubled has no state"):
        query(Doubled, sent([])).at(at(START_MS), sys.maxsize)
