"""A replay gives what the live processor gave, the same each time, and leaves no trace."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing, suppress
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support import shop
from support.replays import ALL, Wish, at, by_key

import penstock as ps
from penstock.backfill.archive.archiver import Archiver
from penstock.backfill.warehouse.warehouse import open_warehouse
from penstock.ops.replay.archive_source import ArchiveEventSource
from penstock.ops.replay.bus_source import BusEventSource, is_expired
from penstock.ops.replay.errors import ReplayRefused, ReplayStopped
from penstock.ops.replay.event_source import Span
from penstock.ops.replay.initial_state import AtStart, FromBackup
from penstock.ops.replay.outputs import Output
from penstock.ops.replay.replay import paced
from penstock.ops.replay.shard_replay import ReplayedBatch
from penstock.ops.replay.sinks import LinesFile, ScratchCategories
from penstock.ops.testing import Driver
from penstock.processors.declare.partitioner import bucket_of
from penstock.processors.shard.position import StatePosition
from penstock.state.backups.manifest import Manifest
from penstock.state.backups.shard import ShardBackups
from penstock.state.backups.shard_backup import snapshot_folder
from penstock.state.backups.writer import claim
from penstock.state.files.local_files import LocalFileStore
from penstock.state.local.folder import RocksStateFolder
from penstock.state.protocols import ShardIdentity
from penstock.transport import memory
from penstock.transport.messages import Bucket

START_MS = 4_102_444_800_000
PAUSE_S = 10.0


class Reading(ps.Record, frozen=True):
    """A meter's reading."""

    meter: str
    at: ps.EventTime
    litres: int


class Total(ps.Record, frozen=True):
    """A meter's total so far."""

    meter: str
    at: ps.EventTime
    litres: int


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=2)
totals = ps.Category("totals", Total, key="meter", event_time="at", buckets=2)
by_size = ps.Category("by_size", Total, key=lambda one: str(one.litres % 3), event_time="at", buckets=2)


class Totals(ps.Stateful):
    """Adds up each meter."""

    reads, writes, state = readings, totals, int

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
        if event.litres < 0:
            raise ValueError(f"{event.litres} litres")
        total = (state or 0) + event.litres
        return total, [Total(event.meter, event.at, total)]


class Forgiving(Totals):
    """The same, setting mistakes aside."""

    on_error = ps.ErrorPolicy.DEAD_LETTER


class Resized(ps.Stateless):
    """Keys what it reads by something else."""

    reads, writes = readings, by_size

    def process(self, event: Reading) -> Iterable[Total]:
        yield Total(event.meter, event.at, event.litres)


class Alarm(ps.Stateful):
    """Rings a minute after a reading, by the time of day."""

    reads, writes, state = readings, totals, int
    deterministic = False

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
        context.timer(START_MS + 60_000, "alarm", clock=ps.Clock.WALL)
        return event.litres, []

    def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> tuple[None, list[Total]]:
        return None, [Total(context.key, timer.at, state)]


class Stored(ps.Aggregator):
    """Litres by meter, in a store that others read, and told on."""

    reads, writes = readings, totals
    monoid, store = ps.monoids.Sum(), ps.RemoteStore()

    def observe(self, event: Reading) -> int:
        return event.litres

    def result(self, key: str, window: ps.windows.Window, value: int) -> Total:
        return Total(key, 0, value)


def sent(processor: type[ps.Processor], *litres: int) -> Driver:
    """Run a processor on readings of one meter, a second between any two."""
    driver = Driver(processor, start_ms=START_MS)
    for number, amount in enumerate(litres):
        driver.send(readings, [Reading("m", number, amount)])
        driver.advance(1.0)
    return driver


@cache
def shopped(processor: type[ps.Processor]) -> Driver:
    """Run a processor on a shop's stream, with a pause after each part of it. Replays leave the driver as it is."""
    driver = Driver(processor, start_ms=START_MS)
    names = {category.name for category in processor.inputs()}
    for part in shop.parts():
        for category, events in part:
            if category.name in names:
                driver.send(category, events)
                driver.advance(PAUSE_S)
    return driver


SHOP = [
    shop.Hourly,
    shop.Visits,
    shop.Tale,
    shop.Silence,
    shop.Paid,
    shop.LastPaid,
    shop.Numbered,
    shop.Counted,
    shop.Baskets,
]


@pytest.mark.parametrize("processor", SHOP, ids=lambda one: one.__name__)
def test_a_replay_gives_what_the_live_processor_gave(processor: type[ps.Processor]) -> None:
    """Of each kind: late events, timers, windows and joins included, in the order of each key."""
    driver = shopped(processor)
    replayed = Wish(processor, driver.bus).run()

    for category in processor.outputs():
        ours = [output.record for output in replayed.outputs if output.category is category]
        assert by_key(category, ours) == by_key(category, driver.read(category))
    assert replayed.outputs


@pytest.mark.parametrize("processor", [shop.Hourly, shop.Silence, shop.Paid], ids=lambda one: one.__name__)
def test_a_second_replay_gives_the_same_bytes(processor: type[ps.Processor], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the bus gives the events in other batches."""
    driver = shopped(processor)
    first = Wish(processor, driver.bus).run()
    monkeypatch.setattr(memory.readers, "POLL_LIMIT", 7)

    assert Wish(processor, driver.bus).run().lines == first.lines


def test_a_replay_leaves_no_trace() -> None:
    """No category, no position, no group, no record: the bus is as it was."""
    driver = shopped(shop.Numbered)

    def seen() -> Any:
        bus = driver.bus
        committed = {name: bus.committed(shop.Numbered.name, name) for name in bus.names()}
        return [(name, bus.ends(name)) for name in bus.names()], committed, sorted(bus.cluster.groups)

    before = seen()
    Wish(shop.Numbered, driver.bus).run()

    assert seen() == before


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (Span(at(START_MS + 2000)), [3, 4]),
        (Span(at(START_MS + 1000), at(START_MS + 3000)), [2, 3]),
        (Span(1, 2), [2]),
        (Span(at(START_MS - 1000), at(START_MS)), []),
        (Span(9), []),
    ],
)
def test_the_span_is_told_by_arrival_or_by_offsets(span: Span, expected: list[int]) -> None:
    """The end itself is not in it."""
    driver = sent(Resized, 1, 2, 3, 4)

    assert [one.litres for one in Wish(Resized, driver.bus, span).run().records] == expected


def test_without_a_state_it_counts_from_the_beginning_of_the_span() -> None:
    """Which is what was asked for; with that of the start, the totals are those of the live processor."""
    driver = sent(Totals, 1, 2, 3, 4)
    span = Span(at(START_MS + 2000))
    empty, whole = Wish(Totals, driver.bus, span).run(), Wish(Totals, driver.bus, span, AtStart(None)).run()

    assert [total.litres for total in empty.records] == [3, 7]
    assert [total.litres for total in whole.records] == [6, 10]
    assert (whole.taking.counts.warmed_up, whole.taking.counts.events) == (2, 2)
    assert [one.value["litres"] for one in whole.taking.warming] == [1, 3]


def backed_up(place: LocalFileStore, folder: Path, saved: list[tuple[int, int]]) -> list[Manifest]:
    """Store backups of the meter's shard: of a total, at an offset."""
    identity = ShardIdentity(Totals.name, bucket_of(b"m", 2), Totals.state_shape())
    owner = claim(ShardBackups(place, identity.processor, identity.bucket), identity)
    made = []
    with closing(RocksStateFolder(folder).open(identity)) as state:
        for total, offset in saved:
            state.save_together({b"m": msgspec.msgpack.encode(total)}, StatePosition({readings.name: offset}))
            with snapshot_folder(state.folder) as snapshot:
                state.snapshot(snapshot)
                made.append(owner.save(snapshot, state.position()))
    return made


def test_the_newest_backup_before_the_span_is_brought_up_to_it(tmp_path: Path) -> None:
    """Not an older one, nor one that has read into the span; what lies between is read for the state alone."""
    driver = sent(Totals, 1, 2, 3, 4)
    place = LocalFileStore(tmp_path / "backups")
    backed_up(place, tmp_path, [(50, 0), (100, 1), (1000, 4)])
    wish = Wish(Totals, driver.bus, Span(at(START_MS + 2000)), AtStart(place), numbers=[bucket_of(b"m", 2)])
    replayed = wish.run()

    assert [total.litres for total in replayed.records] == [105, 109]
    assert replayed.taking.counts.warmed_up == 1


def test_a_backup_may_be_named(tmp_path: Path) -> None:
    """One that has read into the span is taken as it is."""
    driver = sent(Totals, 1, 2, 3, 4)
    place = LocalFileStore(tmp_path / "backups")
    _, late = backed_up(place, tmp_path, [(50, 0), (1000, 4)])
    wish = Wish(Totals, driver.bus, Span(at(START_MS + 2000)), FromBackup(place, late.id), numbers=[bucket_of(b"m", 2)])

    assert [total.litres for total in wish.run().records] == [1003, 1007]


def test_a_backup_of_another_shape_is_refused(tmp_path: Path) -> None:
    """It declares float by meter."""
    driver = sent(Totals, 1, 2)
    place = LocalFileStore(tmp_path / "backups")
    backed_up(place, tmp_path, [(50, 0)])

    class Other(Totals):
        """Another type of state."""

        name, state = Totals.name, float  # type: ignore[assignment]  # that is what is wrong with it

    with pytest.raises(ReplayRefused, match="declares float by meter"):
        Wish(Other, driver.bus, Span(at(START_MS)), AtStart(place), numbers=[bucket_of(b"m", 2)]).run()


class Forgetful(BusEventSource):
    """A bus that has dropped the first two events of each bucket."""

    def first(self, bucket: Bucket) -> int:
        return 2


def test_a_state_that_is_not_to_be_had_is_refused_with_the_choices(tmp_path: Path) -> None:
    """No backup is old enough, or what lies between is gone."""
    driver = sent(Totals, 1, 2, 3, 4)
    place, number = LocalFileStore(tmp_path / "backups"), bucket_of(b"m", 2)

    def past(running: ps.Processor) -> Forgetful:
        return Forgetful(running, driver.bus)

    span = Span(at(START_MS + 3000))
    with pytest.raises(ReplayRefused, match=r"no backup is older than the start of the span.*--state empty"):
        Wish(Totals, driver.bus, span, AtStart(place), numbers=[number], past=past).run()
    backed_up(place, tmp_path, [(50, 1)])
    with pytest.raises(ReplayRefused, match=r"is at offset 1, and events are retained only from offset 2"):
        Wish(Totals, driver.bus, span, AtStart(place), numbers=[number], past=past).run()


NOW = datetime(2026, 1, 10, tzinfo=timezone.utc)
WEEK = timedelta(days=7)


@pytest.mark.parametrize(
    ("since", "start", "first", "retention", "gone"),
    [
        (NOW - timedelta(days=9), 0, 0, WEEK, False),  # nothing was ever dropped
        (NOW - timedelta(days=9), 5, 5, WEEK, True),
        (NOW - timedelta(days=9), 5, 5, None, True),  # somebody removed them
        (NOW - timedelta(days=1), 5, 5, WEEK, False),  # what was dropped is a week old
        (NOW - timedelta(days=9), 6, 5, WEEK, False),  # something older is still there
        (4, 5, 5, WEEK, True),
        (5, 5, 5, WEEK, False),
    ],
)
def test_what_is_expired_is_told_from_what_never_was(
    since: datetime | int, start: int, first: int, retention: timedelta | None, gone: bool
) -> None:
    """A quiet bucket that dropped its old events has all of today's."""
    assert is_expired(since, start, first, retention, NOW) is gone


def test_a_key_is_shown_alone_and_as_it_was() -> None:
    """With the watermark that all events of its bucket moved: the same events are late, the same windows complete."""
    for processor in (shop.Hourly, shop.Tale, shop.Silence, shop.Paid):
        driver = shopped(processor)
        found = Wish(processor, driver.bus, key="c7").run()
        assert found.outputs, processor
        for category in processor.outputs():
            ours = [output.record for output in found.outputs if output.category is category]
            assert ours == by_key(category, driver.read(category)).get("c7", []), processor


def test_a_key_is_that_of_the_events_not_of_the_outputs() -> None:
    """An output of another key is shown if it comes of the key's events."""
    driver = Driver(Resized, start_ms=START_MS)
    driver.send(readings, [Reading(meter, n, n) for n in range(6) for meter in "ab"])

    found = Wish(Resized, driver.bus, key="a").run()

    assert [one.meter for one in found.records] == ["a"] * 6
    assert {output.key for output in found.outputs} == {"0", "1", "2"}


def test_an_event_for_which_the_processor_raises_ends_the_replay() -> None:
    """What came before it was given; it says where, and what to do."""
    driver = sent(Forgiving, 1, 2, -3, 4)
    given: list[Any] = []

    with pytest.raises(ReplayStopped, match=r"readings/\d at offset 2: Totals raised ValueError: -3 litres.*--debug"):
        Wish(Totals, driver.bus, ALL, prepare=lambda running: _spy(running, given)).run()

    assert given == [1, 2, -3]


def _spy(running: Any, given: list[Any]) -> None:
    process = running.process

    def noting(event: Reading, state: Any, context: ps.Context) -> Any:
        given.append(event.litres)
        return process(event, state, context)

    running.process = noting


def test_where_a_worker_sets_events_aside_they_are_counted() -> None:
    """And the rest goes on; a message that does not decode, too."""
    driver = sent(Forgiving, 1, -2, 3)
    driver.send(readings, [b"rubbish"])

    replayed = Wish(Forgiving, driver.bus).run()

    assert [one.litres for one in replayed.records] == [1, 4]
    assert (replayed.taking.counts.dead_letters, replayed.taking.counts.exceptions) == (2, 1)


@pytest.mark.parametrize(("until_s", "rings"), [(59, False), (61, True)])
def test_timers_by_the_time_of_day_go_by_the_time_of_the_events(until_s: int, rings: bool) -> None:
    """And by the end of the span, however long ago that was."""
    driver = sent(Alarm, 1)
    replayed = Wish(Alarm, driver.bus, Span(at(START_MS), at(START_MS + until_s * 1000))).run()

    assert [one.litres for one in replayed.records] == ([1] if rings else [])


def test_a_remote_aggregator_counts_beside_its_store() -> None:
    """In a scratch state, which begins with nothing: there is no other."""
    driver = sent(Resized, 1, 2, 3)

    assert Wish(Stored, driver.bus).run().records[-1] == Total("m", 0, 6)
    with pytest.raises(ReplayRefused, match=r"remote state.*--state empty"):
        Wish(Stored, driver.bus, start=AtStart(None)).run()


def test_a_promised_watermark_is_what_was_promised() -> None:
    """As far as the bus still knows: the windows that were complete are so again."""

    class Filtered(Total, frozen=True):
        """What the first one passes on."""

    class Count(Total, frozen=True):
        """What the second one counts."""

    passed = ps.Category("passed", Filtered, key="meter", event_time="at", buckets=2)
    counted = ps.Category("counted", Count, key="meter", event_time="at", buckets=2)

    class Passing(ps.Stateless):
        """Passes everything on."""

        reads, writes, watermark = readings, passed, ps.watermarks.BoundedOutOfOrderness()

        def process(self, event: Reading) -> Iterable[Filtered]:
            yield Filtered(event.meter, event.at, event.litres)

    class Counting(ps.Aggregator):
        """Counts by second, once."""

        reads, writes, watermark = passed, counted, ps.watermarks.UpstreamWatermark()
        monoid, window, emit = ps.monoids.Count(), ps.windows.Tumbling(timedelta(seconds=1)), ps.AtWatermark()

        def result(self, key: str, window: ps.windows.Window, value: int) -> Count:
            return Count(key, window.start, value)

    driver = Driver([Passing, Counting], start_ms=START_MS)
    for n in range(20):
        driver.send(readings, [Reading(meter, n * 300, n) for meter in "abcd"])
        driver.advance(1.0)

    replayed = Wish(Counting, driver.bus).run()

    assert len(driver.read(counted)) > 8
    assert by_key(counted, replayed.records) == by_key(counted, driver.read(counted))


def test_the_warehouse_gives_the_same_as_the_bus(tmp_path: Path) -> None:
    """By time and by offsets, whole and in part; what is not archived yet comes from the bus."""
    driver = shopped.__wrapped__(shop.Silence)
    categories = list(shop.Silence.inputs())
    ends = {Bucket(c.name, n): end for c in categories for n, end in driver.bus.ends(c.name).items()}
    warehouse = open_warehouse(tmp_path)
    Archiver(driver.bus, categories, warehouse, segment_events=50).run(lambda it: it.has_reached(ends))
    driver.send(shop.orders, shop.made_up(shop.Purchase, 100, 3))

    def past(running: ps.Processor) -> ArchiveEventSource:
        return ArchiveEventSource(running, warehouse, driver.bus)

    middle = at(START_MS + 15_000), at(START_MS + 45_000)
    for span in (ALL, Span(*middle), Span(100, 250), Span(middle[0])):
        from_bus = Wish(shop.Silence, driver.bus, span).run()
        assert Wish(shop.Silence, driver.bus, span, past=past).run().lines == from_bus.lines
        assert from_bus.outputs


def test_a_category_that_is_not_archived_is_refused(tmp_path: Path) -> None:
    """With where it was looked for."""
    driver = sent(Resized, 1)

    def past(running: ps.Processor) -> ArchiveEventSource:
        return ArchiveEventSource(running, open_warehouse(tmp_path), driver.bus)

    with pytest.raises(ReplayRefused, match="readings is not archived"):
        Wish(Resized, driver.bus, Span(at(START_MS)), past=past).run()


def test_a_pace_is_kept() -> None:
    """A tenth of the time at 10x; what lies before the span takes none."""
    slept: list[float] = []
    clock = [100.0]

    def sleep(seconds: float) -> None:
        slept.append(round(seconds, 3))
        clock[0] += seconds

    played = [
        ReplayedBatch(0, 500, [], True),
        ReplayedBatch(0, 1000, [], False),
        ReplayedBatch(0, 2000, [], False),
        ReplayedBatch(0, 5000, [], False),
    ]
    given = list(paced((one for one in played), 10.0, monotonic_s=lambda: clock[0], sleep=sleep))

    assert given == played
    assert slept == [0.1, 0.3]


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    """An older one stays where a replay fails."""
    driver = sent(Resized, 1, 2)
    path = tmp_path / "outputs.jsonl"
    outputs = Wish(Resized, driver.bus).run().outputs
    with LinesFile(path) as lines:
        lines.give(outputs[0])
    first = path.read_bytes()
    _fail_writing(path, outputs[1])

    assert path.read_bytes() == first
    assert msgspec.json.decode(first)["value"] == {"meter": "m", "at": 0, "litres": 1}
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ReplayRefused, match="Cannot write"), LinesFile(tmp_path / "none" / "it"):
        pass


def _fail_writing(path: Path, output: Output) -> None:
    with suppress(ReplayStopped), LinesFile(path) as lines:
        lines.give(output)
        raise ReplayStopped


def test_scratch_categories_are_the_replays_own() -> None:
    """They are made for it, and never those of anybody else."""
    driver = sent(Resized, 1, 2)
    outputs = Wish(Resized, driver.bus).run().outputs
    with ScratchCategories(Resized, "mine", driver.bus) as scratch:
        for output in outputs:
            scratch.give(output)

    assert sum(driver.bus.ends("mine.by_size").values()) == 2
    assert sum(driver.bus.ends("by_size").values()) == 2
    with (
        pytest.raises(ReplayRefused, match=r"mine\.by_size already exists"),
        ScratchCategories(Resized, "mine", driver.bus),
    ):
        pass
