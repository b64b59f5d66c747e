"""A replay repeats the outputs of the live processor, each time the same, and changes nothing on the bus."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support import shop
from support.replays import ALL, ReplayRequest, at, by_key

import penstock as ps
from penstock.backfill.archive import Archiver
from penstock.backfill.warehouse import open_warehouse
from penstock.ops.kernel import Driver
from penstock.ops.look_back import BusEventSource, FromBackup, PastRange
from penstock.ops.look_back.replay.archive_source import ArchiveEventSource
from penstock.ops.look_back.replay.bus_source import is_expired
from penstock.ops.look_back.replay.errors import ReplayRefused, ReplayStopped
from penstock.ops.look_back.replay.initial_state import AtStart
from penstock.ops.look_back.replay.outputs import Output
from penstock.ops.look_back.replay.replay import paced
from penstock.ops.look_back.replay.shard_replay import ReplayedBatch
from penstock.ops.look_back.replay.sinks import LinesFile, ScratchCategories
from penstock.processors.declare import bucket_of, plan_of
from penstock.processors.shard import StatePosition
from penstock.state import ShardIdentity
from penstock.state.backups import Manifest, ShardBackups, claim, snapshot_folder
from penstock.state.files import LocalFileStore
from penstock.state.local import RocksStateFolder
from penstock.transport import Bucket, memory

START_MS = 4_102_444_800_000
PAUSE_S = 10.0


class Reading(ps.Record, frozen=True):
    """A meter's reading."""

    meter: str
    at: ps.EventTime
    litres: int


class Total(ps.Record, frozen=True):
    """A meter's running total."""

    meter: str
    at: ps.EventTime
    litres: int


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=2)
totals = ps.Category("totals", Total, key="meter", event_time="at", buckets=2)
by_size = ps.Category("by_size", Total, key=lambda total: str(total.litres % 3), event_time="at", buckets=2)


class Totals(ps.Stateful):
    """Sums each meter's readings."""

    reads, writes, state = readings, totals, int

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
        if event.litres < 0:
            raise ValueError(f"{event.litres} litres")
        total = (state or 0) + event.litres
        return total, [Total(event.meter, event.at, total)]


class Forgiving(Totals):
    """Sums readings, and writes invalid readings to the dead letters."""

    on_error = ps.ErrorPolicy.DEAD_LETTER


class Resized(ps.Stateless):
    """Writes readings under another key."""

    reads, writes = readings, by_size

    def process(self, event: Reading) -> Iterable[Total]:
        yield Total(event.meter, event.at, event.litres)


class Alarm(ps.Stateful):
    """Rings a minute after a reading, by a processing-time timer."""

    reads, writes, state = readings, totals, int
    deterministic = False

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
        context.timer(START_MS + 60_000, "alarm", clock=ps.Clock.WALL)
        return event.litres, []

    def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> tuple[None, list[Total]]:
        return None, [Total(context.key, timer.at, state)]


class Stored(ps.Aggregator):
    """Sums litres by meter in a remote store, and writes the sums to a category."""

    reads, writes = readings, totals
    monoid, store = ps.monoids.Sum(), ps.RemoteStore()

    def observe(self, event: Reading) -> int:
        return event.litres

    def result(self, key: str, window: ps.windows.Window, value: int) -> Total:
        return Total(key, 0, value)


def sent(processor: type[ps.Processor], *litres: int) -> Driver:
    """Run a processor on readings of one meter, one per second."""
    driver = Driver(processor, start_ms=START_MS)
    for number, amount in enumerate(litres):
        driver.send(readings, [Reading("m", number, amount)])
        driver.advance(1.0)
    return driver


@cache
def shop_driver(processor: type[ps.Processor]) -> Driver:
    """Run a processor on a shop's stream, with a pause after each part. Replays do not change the driver, so it is cached."""
    driver = Driver(processor, start_ms=START_MS)
    names = {category.name for category in plan_of(processor).inputs}
    for part in shop.stream_parts():
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


@pytest.mark.parametrize("processor", SHOP, ids=lambda processor: processor.__name__)
def test_a_replay_repeats_the_outputs_of_the_live_processor(processor: type[ps.Processor]) -> None:
    """Late events, timers, windows and joins produce the same outputs, in the order of each key."""
    driver = shop_driver(processor)
    replayed = ReplayRequest(processor, driver.bus).run()

    for category in plan_of(processor).outputs:
        ours = [output.record for output in replayed.outputs if output.category is category]
        assert by_key(category, ours) == by_key(category, driver.read(category))
    assert replayed.outputs


@pytest.mark.parametrize("processor", [shop.Hourly, shop.Silence, shop.Paid], ids=lambda processor: processor.__name__)
def test_a_second_replay_produces_the_same_bytes(
    processor: type[ps.Processor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does so even if the bus returns events in other batches."""
    driver = shop_driver(processor)
    first = ReplayRequest(processor, driver.bus).run()
    monkeypatch.setattr(memory.readers, "POLL_LIMIT", 7)

    assert ReplayRequest(processor, driver.bus).run().lines == first.lines


def test_a_replay_changes_nothing_on_the_bus() -> None:
    """It writes no record and no offset, and creates no category and no group."""
    driver = shop_driver(shop.Numbered)

    def contents() -> Any:
        bus = driver.bus
        committed = {name: bus.committed(shop.Numbered.name, name) for name in bus.names()}
        return [(name, bus.ends(name)) for name in bus.names()], committed, sorted(bus.cluster.groups)

    before = contents()
    ReplayRequest(shop.Numbered, driver.bus).run()

    assert contents() == before


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (PastRange(at(START_MS + 2000)), [3, 4]),
        (PastRange(at(START_MS + 1000), at(START_MS + 3000)), [2, 3]),
        (PastRange(1, 2), [2]),
        (PastRange(at(START_MS - 1000), at(START_MS)), []),
        (PastRange(9), []),
    ],
)
def test_a_range_has_arrival_times_or_offsets(span: PastRange, expected: list[int]) -> None:
    """The end is exclusive."""
    driver = sent(Resized, 1, 2, 3, 4)

    assert [total.litres for total in ReplayRequest(Resized, driver.bus, span).run().records] == expected


def test_a_replay_with_an_empty_state_starts_at_the_beginning_of_the_range() -> None:
    """With the state at the start of the range, the totals equal those of the live processor."""
    driver = sent(Totals, 1, 2, 3, 4)
    span = PastRange(at(START_MS + 2000))
    empty, whole = (
        ReplayRequest(Totals, driver.bus, span).run(),
        ReplayRequest(Totals, driver.bus, span, AtStart(None)).run(),
    )

    assert [total.litres for total in empty.records] == [3, 7]
    assert [total.litres for total in whole.records] == [6, 10]
    assert (whole.taking.counts.warmed_up, whole.taking.counts.events) == (2, 2)
    assert [output.value["litres"] for output in whole.taking.warming] == [1, 3]


def backed_up(place: LocalFileStore, folder: Path, saved: list[tuple[int, int]]) -> list[Manifest]:
    """Store backups of the meter's shard, each with a total and an offset."""
    identity = ShardIdentity(Totals.name, bucket_of(b"m", 2), plan_of(Totals).state_shape)
    owner = claim(ShardBackups(place, identity.processor, identity.bucket), identity)
    manifests = []
    with closing(RocksStateFolder(folder).open(identity)) as state:
        for total, offset in saved:
            state.save_together({b"m": msgspec.msgpack.encode(total)}, StatePosition({readings.name: offset}))
            with snapshot_folder(state.folder) as snapshot:
                state.snapshot(snapshot)
                manifests.append(owner.save(snapshot, state.position()))
    return manifests


def test_a_replay_restores_the_newest_backup_before_its_range(tmp_path: Path) -> None:
    """Events between the backup and the range update the state without outputs."""
    driver = sent(Totals, 1, 2, 3, 4)
    place = LocalFileStore(tmp_path / "backups")
    backed_up(place, tmp_path, [(50, 0), (100, 1), (1000, 4)])
    wish = ReplayRequest(
        Totals, driver.bus, PastRange(at(START_MS + 2000)), AtStart(place), numbers=[bucket_of(b"m", 2)]
    )
    replayed = wish.run()

    assert [total.litres for total in replayed.records] == [105, 109]
    assert replayed.taking.counts.warmed_up == 1


def test_a_replay_can_start_from_a_named_backup(tmp_path: Path) -> None:
    """It uses the named backup even if the backup contains events of the range."""
    driver = sent(Totals, 1, 2, 3, 4)
    place = LocalFileStore(tmp_path / "backups")
    _, late = backed_up(place, tmp_path, [(50, 0), (1000, 4)])
    wish = ReplayRequest(
        Totals, driver.bus, PastRange(at(START_MS + 2000)), FromBackup(place, late.id), numbers=[bucket_of(b"m", 2)]
    )

    assert [total.litres for total in wish.run().records] == [1003, 1007]


def test_a_replay_refuses_a_backup_of_another_shape(tmp_path: Path) -> None:
    """The error names the declared shape."""
    driver = sent(Totals, 1, 2)
    place = LocalFileStore(tmp_path / "backups")
    backed_up(place, tmp_path, [(50, 0)])

    class Other(Totals):
        """Another type of state."""

        name, state = Totals.name, float  # type: ignore[assignment]  # the mistake under test

    with pytest.raises(ReplayRefused, match="declares float by meter"):
        ReplayRequest(Other, driver.bus, PastRange(at(START_MS)), AtStart(place), numbers=[bucket_of(b"m", 2)]).run()


class ExpiredSource(BusEventSource):
    """A bus that has dropped the first two events of each bucket."""

    def first(self, bucket: Bucket) -> int:
        return 2


def test_a_replay_without_a_restorable_state_is_refused(tmp_path: Path) -> None:
    """It is refused if no backup is old enough, or if events after the backup have expired. The error names the alternatives."""
    driver = sent(Totals, 1, 2, 3, 4)
    place, number = LocalFileStore(tmp_path / "backups"), bucket_of(b"m", 2)

    def past(running: ps.Processor) -> ExpiredSource:
        return ExpiredSource(running, driver.bus)

    span = PastRange(at(START_MS + 3000))
    with pytest.raises(ReplayRefused, match=r"no backup is older than the start of the span.*--state empty"):
        ReplayRequest(Totals, driver.bus, span, AtStart(place), numbers=[number], past=past).run()
    backed_up(place, tmp_path, [(50, 1)])
    with pytest.raises(ReplayRefused, match=r"is at offset 1, and events are retained only from offset 2"):
        ReplayRequest(Totals, driver.bus, span, AtStart(place), numbers=[number], past=past).run()


NOW = datetime(2026, 1, 10, tzinfo=UTC)
WEEK = timedelta(days=7)


@pytest.mark.parametrize(
    ("since", "start", "first", "retention", "expired"),
    [
        (NOW - timedelta(days=9), 0, 0, WEEK, False),  # no event was ever deleted
        (NOW - timedelta(days=9), 5, 5, WEEK, True),
        (NOW - timedelta(days=9), 5, 5, None, True),  # a user deleted them
        (NOW - timedelta(days=1), 5, 5, WEEK, False),  # the deleted events are a week old
        (NOW - timedelta(days=9), 6, 5, WEEK, False),  # an older event is still retained
        (4, 5, 5, WEEK, True),
        (5, 5, 5, WEEK, False),
    ],
)
def test_expired_events_are_distinguished_from_quiet_times(
    since: datetime | int, start: int, first: int, retention: timedelta | None, expired: bool
) -> None:
    """A quiet bucket whose old events have expired still has all events of today."""
    assert is_expired(since, start, first, retention, NOW) is expired


def test_a_replay_of_one_key_repeats_the_keys_outputs() -> None:
    """All events of the bucket advance the watermark, so the same events are late and the same windows complete."""
    for processor in (shop.Hourly, shop.Tale, shop.Silence, shop.Paid):
        driver = shop_driver(processor)
        found = ReplayRequest(processor, driver.bus, key="c7").run()
        assert found.outputs, processor
        for category in plan_of(processor).outputs:
            ours = [output.record for output in found.outputs if output.category is category]
            assert ours == by_key(category, driver.read(category)).get("c7", []), processor


def test_a_replay_of_one_key_selects_events_by_key() -> None:
    """It returns all outputs of the selected events, also outputs with other keys."""
    driver = Driver(Resized, start_ms=START_MS)
    driver.send(readings, [Reading(meter, n, n) for n in range(6) for meter in "ab"])

    found = ReplayRequest(Resized, driver.bus, key="a").run()

    assert [total.meter for total in found.records] == ["a"] * 6
    assert {output.key for output in found.outputs} == {"0", "1", "2"}


def test_an_exception_in_the_processor_ends_the_replay() -> None:
    """Earlier events are processed. The error names the event's position and the next command."""
    driver = sent(Forgiving, 1, 2, -3, 4)
    processed: list[Any] = []

    with pytest.raises(ReplayStopped, match=r"readings/\d at offset 2: Totals raised ValueError: -3 litres.*--debug"):
        ReplayRequest(Totals, driver.bus, ALL, prepare=lambda running: _spy(running, processed)).run()

    assert processed == [1, 2, -3]


def _spy(running: Any, processed: list[Any]) -> None:
    process = running.process

    def recording_process(event: Reading, state: Any, context: ps.Context) -> Any:
        processed.append(event.litres)
        return process(event, state, context)

    object.__setattr__(running, "process", recording_process)


def test_a_replay_counts_dead_letters_and_continues() -> None:
    """It counts exceptions and messages that do not decode."""
    driver = sent(Forgiving, 1, -2, 3)
    driver.send(readings, [b"rubbish"])

    replayed = ReplayRequest(Forgiving, driver.bus).run()

    assert [total.litres for total in replayed.records] == [1, 4]
    assert (replayed.taking.counts.dead_letters, replayed.taking.counts.exceptions) == (2, 1)


@pytest.mark.parametrize(("until_s", "rings"), [(59, False), (61, True)])
def test_processing_time_timers_of_a_replay_use_arrival_times(until_s: int, rings: bool) -> None:
    """A timer also fires at the end of a range in the past."""
    driver = sent(Alarm, 1)
    replayed = ReplayRequest(Alarm, driver.bus, PastRange(at(START_MS), at(START_MS + until_s * 1000))).run()

    assert [total.litres for total in replayed.records] == ([1] if rings else [])


def test_a_replay_of_a_remote_aggregator_does_not_use_its_store() -> None:
    """It uses a scratch state, which is always empty at the start."""
    driver = sent(Resized, 1, 2, 3)

    assert ReplayRequest(Stored, driver.bus).run().records[-1] == Total("m", 0, 6)
    with pytest.raises(ReplayRefused, match=r"remote state.*--state empty"):
        ReplayRequest(Stored, driver.bus, start=AtStart(None)).run()


def test_a_replay_uses_the_published_upstream_watermarks() -> None:
    """The same windows are complete as in the live run, as far as the bus retains the watermarks."""

    class Filtered(Total, frozen=True):
        """An output of the first processor."""

    class Count(Total, frozen=True):
        """An output of the second processor."""

    passed = ps.Category("passed", Filtered, key="meter", event_time="at", buckets=2)
    counted = ps.Category("counted", Count, key="meter", event_time="at", buckets=2)

    class Passing(ps.Stateless):
        """Passes each reading on."""

        reads, writes, watermark = readings, passed, ps.watermarks.BoundedOutOfOrderness()

        def process(self, event: Reading) -> Iterable[Filtered]:
            yield Filtered(event.meter, event.at, event.litres)

    class Counting(ps.Aggregator):
        """Counts readings per second, at the end of each second."""

        reads, writes, watermark = passed, counted, ps.watermarks.UpstreamWatermark()
        monoid, window, emit = ps.monoids.Count(), ps.windows.Tumbling(timedelta(seconds=1)), ps.AtWatermark()

        def result(self, key: str, window: ps.windows.Window, value: int) -> Count:
            return Count(key, window.start, value)

    driver = Driver([Passing, Counting], start_ms=START_MS)
    for n in range(20):
        driver.send(readings, [Reading(meter, n * 300, n) for meter in "abcd"])
        driver.advance(1.0)

    replayed = ReplayRequest(Counting, driver.bus).run()

    assert len(driver.read(counted)) > 8
    assert by_key(counted, replayed.records) == by_key(counted, driver.read(counted))


def test_a_replay_from_the_warehouse_equals_a_replay_from_the_bus(tmp_path: Path) -> None:
    """Ranges can be times or offsets. Events that are not yet archived are read from the bus."""
    driver = shop_driver.__wrapped__(shop.Silence)
    categories = list(plan_of(shop.Silence).inputs)
    ends = {Bucket(c.name, n): end for c in categories for n, end in driver.bus.ends(c.name).items()}
    warehouse = open_warehouse(tmp_path)
    Archiver(driver.bus, categories, warehouse, segment_events=50).run(lambda archiver: archiver.has_reached(ends))
    driver.send(shop.orders, shop.random_events(shop.Purchase, 100, 3))

    def past(running: ps.Processor) -> ArchiveEventSource:
        return ArchiveEventSource(running, warehouse, driver.bus)

    middle = at(START_MS + 15_000), at(START_MS + 45_000)
    for span in (ALL, PastRange(*middle), PastRange(100, 250), PastRange(middle[0])):
        from_bus = ReplayRequest(shop.Silence, driver.bus, span).run()
        assert ReplayRequest(shop.Silence, driver.bus, span, past=past).run().lines == from_bus.lines
        assert from_bus.outputs


def test_a_replay_refuses_a_category_that_is_not_archived(tmp_path: Path) -> None:
    """The error names the category."""
    driver = sent(Resized, 1)

    def past(running: ps.Processor) -> ArchiveEventSource:
        return ArchiveEventSource(running, open_warehouse(tmp_path), driver.bus)

    with pytest.raises(ReplayRefused, match="readings is not archived"):
        ReplayRequest(Resized, driver.bus, PastRange(at(START_MS)), past=past).run()


def test_a_replay_keeps_the_requested_speed() -> None:
    """At 10x, it takes a tenth of the time; events before the range are not delayed."""
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
    batches = list(paced((batch for batch in played), 10.0, monotonic_s=lambda: clock[0], sleep=sleep))

    assert batches == played
    assert slept == [0.1, 0.3]


def test_the_output_file_of_a_replay_is_written_atomically(tmp_path: Path) -> None:
    """A failed replay keeps the earlier file."""
    driver = sent(Resized, 1, 2)
    path = tmp_path / "outputs.jsonl"
    outputs = ReplayRequest(Resized, driver.bus).run().outputs
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


def test_a_replay_creates_its_scratch_categories() -> None:
    """It refuses existing categories."""
    driver = sent(Resized, 1, 2)
    outputs = ReplayRequest(Resized, driver.bus).run().outputs
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
