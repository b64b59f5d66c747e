"""A batch run up to now reads the warehouse and the rest from Kafka, each event once. This file is also the app."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

import penstock as ps
from penstock.backfill import BackfillRefused
from penstock.backfill.archive import Archiver
from penstock.backfill.run import BootstrapTarget, NodeResult, bootstrap, run_backfill
from penstock.backfill.sources import BatchEvents, BusPart, handoff_offsets
from penstock.backfill.spark import ShippedApp, spark_session
from penstock.backfill.warehouse import DAY_MS, day_of, open_warehouse
from penstock.ops.kernel import Environment, assemble_worker, ends_of, prepare
from penstock.ops.shell.command_line.main import app
from penstock.processors.apps import AppName
from penstock.processors.declare import plan_of
from penstock.state.files import LocalFileStore
from penstock.transport import Bucket, CategorySpec, Outgoing, Position, create_missing_categories
from penstock.transport.codecs import Codecs
from penstock.transport.kafka import KafkaBus, KafkaSettings
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import WATERMARKS

APP = AppName(Path(__file__))
MASTER = "local[2]"
START_MS = 15_706 * DAY_MS
FIRST = date(2013, 1, 2)
SEGMENT = 200
LIMIT_S = 90.0
TRANSACTION_LIMIT_S = 600.0


class Call(ps.Record, frozen=True):
    """A call."""

    caller: str
    at: ps.EventTime
    number: int


class Numbered(Call, frozen=True):
    """A call with the caller's count so far, and the number of the call before."""

    turn: int
    before: int | None


class Daily(ps.Record, frozen=True):
    """The number of a caller's calls in a window, and the sum of their numbers."""

    caller: str
    window: ps.EventTime
    calls: int
    numbers: int


calls = ps.Category("until_now.calls", Call, key="caller", event_time="at", buckets=3)
unarchived = ps.Category("until_now.unarchived", Call, key="caller", event_time="at", buckets=2, codec="avro")
numbered = ps.Category("until_now.numbered", Numbered, key="caller", event_time="at", buckets=1)
daily = ps.Category("until_now.daily", Daily, key="caller", event_time="window", buckets=1)
ended = ps.Category("until_now.ended", Daily, key="caller", event_time="window", buckets=1)
copied = ps.Category("until_now.copied", Call, key="caller", event_time="at", buckets=1)


class Number(ps.Stateful):
    """Numbers a caller's calls in the order of their arrival."""

    reads, writes = calls, numbered
    state = tuple[int, int]

    def process(
        self, event: Call, state: tuple[int, int] | None, context: ps.Context
    ) -> tuple[tuple[int, int], list[Numbered]]:
        """Return the call with its count."""
        turn, before = state or (0, None)
        return (turn + 1, event.number), [Numbered(event.caller, event.at, event.number, turn + 1, before)]


class CountDaily(ps.Aggregator):
    """Counts in windows that cross days."""

    reads, writes = calls, daily
    monoid = ps.monoids.TupleOf(ps.monoids.Count(), ps.monoids.Sum())
    window = ps.windows.Tumbling(timedelta(hours=7))

    def observe(self, event: Call) -> tuple[int, int]:
        """Return the observation for both parts of the monoid."""
        return 1, event.number

    def result(self, key: str, window: ps.windows.Window, value: tuple[int, int]) -> Daily:
        """Return the counts."""
        return Daily(key, window.start, *value)


class CountEnded(CountDaily):
    """Counts in windows that end and drop late events: the result depends on the order of arrival."""

    reads, writes = calls, ended
    emit, late = ps.AtWatermark(), ps.OnLate.DROP
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(hours=1))


class Copy(ps.Stateless):
    """Passes on a category that only Kafka contains."""

    reads, writes = unarchived, copied

    def process(self, event: Call) -> Iterable[Call]:
        """Return the event."""
        return [event]


class World:
    """A partly archived stream with committed, aborted and open transactions."""

    def __init__(self, folder: Path, bus: KafkaBus) -> None:
        self.folder, self.bus = folder, bus
        self.warehouse = open_warehouse(folder / "warehouse")
        self.sent = made_up_calls()
        self.unarchived = [Call(f"caller {n % 7}", START_MS + DAY_MS + n, n) for n in range(300)]
        for category in (*APP.load().categories(), calls, unarchived):
            if category.name not in bus.catalog.names():
                bus.catalog.create(CategorySpec.of(category))
        create_missing_categories(bus, WATERMARKS)
        self.plain(calls, self.sent[:900])
        self.undecodable()
        self.transaction(self.sent[900:1300], commit=True)
        self.transaction(ghosts(), commit=False)
        self.archive()
        self.archived = handoff_offsets(bus, self.warehouse, calls.name).offsets
        self.transaction(self.sent[1300:1700], commit=True)
        self.undecodable()
        self.plain(calls, self.sent[1700:])
        self.transaction(ghosts(), commit=False)
        self.plain(unarchived, self.unarchived)
        self.settle()

    def plain(self, category: Any, events: Sequence[Call]) -> None:
        writer = self.bus.writer()
        encoded = Codecs(self.bus).of(category).encode(events)
        writer.send(category.name, map(Outgoing, [key.encode() for key in category.keys_of(events)], encoded))
        writer.flush()
        writer.close()

    def transaction(self, events: Sequence[Call], *, commit: bool | None) -> Producer:
        """Write events in a transaction, and commit it, abort it or leave it open."""
        producer = Producer(self.bus.settings.for_transactional_writer("until-now", TRANSACTION_LIMIT_S))
        producer.init_transactions(LIMIT_S)
        producer.begin_transaction()
        for event in events:
            producer.produce(calls.name, msgspec.json.encode(event), event.caller.encode())
        producer.flush(LIMIT_S)
        if commit is not None:
            (producer.commit_transaction if commit else producer.abort_transaction)(LIMIT_S)
            self.settle()
        return producer

    def undecodable(self) -> None:
        """Write messages that do not decode into each bucket."""
        writer = self.bus.writer()
        writer.send(calls.name, [Outgoing(None, b"{", number) for number in range(3)])
        writer.flush()
        writer.close()

    def settle(self) -> None:
        """Wait until the broker has written the transaction markers."""
        deadline = time.monotonic() + LIMIT_S
        while self.bus.catalog.stable_ends(calls.name) != self.bus.catalog.ends(calls.name):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def archive(self) -> None:
        """Archive the present events."""
        ends = {Bucket(calls.name, number): end for number, end in self.bus.catalog.stable_ends(calls.name).items()}
        Archiver(self.bus, [calls], self.warehouse, segment_events=SEGMENT).run(lambda it: it.has_reached(ends))

    def backfill(self, output: str, app: AppName = APP) -> list[NodeResult]:
        return run_backfill(
            app,
            self.warehouse,
            first=FIRST,
            last=date.max,
            output=open_warehouse(self.folder / output),
            master=MASTER,
            until_now=self.bus,
        )

    def stream(self, processor: type[ps.Processor], backups: str = "backups") -> list[Any]:
        """Run a worker to the end of the bus; return all of its outputs."""
        around = Environment(self.folder / "states", LocalFileStore(self.folder / backups), timedelta(seconds=0.5))
        targets = {
            bucket: self.bus.catalog.stable_ends(bucket.category)[bucket.number]
            for bucket in ends_of(plan_of(processor).inputs, self.bus)
        }
        deadline = time.monotonic() + 2 * LIMIT_S
        with assemble_worker(prepare(processor, self.bus), self.bus, around) as worker:
            worker.run(lambda it: it.has_reached(targets) or time.monotonic() > deadline)
        category = plan_of(processor).outputs[0]
        scanner = self.bus.scanner([Position(Bucket(category.name, 0), 0)])
        found: list[Any] = []
        polled = scanner.poll(1.0)
        while not polled.ended:
            assert time.monotonic() < deadline
            found += [
                event
                for batch in polled.batches
                for event in Codecs(self.bus).of(category).decode(batch.messages).events
            ]
            polled = scanner.poll(1.0)
        scanner.close()
        return found


def made_up_calls() -> list[Call]:
    """Return calls over four days; one in four is late by up to half a day."""
    dice = random.Random(11)
    late = [0, 0, 0, DAY_MS // 2]
    return [
        Call(
            f"caller {dice.randrange(60)}", START_MS + n * 4 * DAY_MS // 2400 - dice.randrange(dice.choice(late) + 1), n
        )
        for n in range(2400)
    ]


def ghosts() -> list[Call]:
    """Return calls that must never count."""
    return [Call(f"caller {n % 60}", START_MS + 2 * DAY_MS, 10**6 + n) for n in range(150)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, kafka: str) -> Iterator[World]:
    """One stream, and one Spark session."""
    if not shutil.which("java"):
        pytest.skip("Spark needs Java 17 or later on PATH: nothing of what is read up to now is tested")
    with spark_session(MASTER):
        yield World(tmp_path_factory.mktemp("world"), KafkaBus(KafkaSettings(kafka)))


@pytest.fixture(scope="module")
def results(world: World) -> dict[str, NodeResult]:
    """A backfill up to now, with an open transaction."""
    open_one = world.transaction(ghosts(), commit=None)
    results = {result.processor: result for result in world.backfill("batch")}
    open_one.abort_transaction(LIMIT_S)
    world.settle()
    return results


def rows_of(world: World, category: Any) -> list[Any]:
    """Return the batch run's outputs as records."""
    folder = world.folder / "batch" / f"category={category.name}"
    names = [field.encode_name for field in msgspec.structs.fields(category.record)]
    return [category.record(*(row[name] for name in names)) for row in pq.read_table(folder).to_pylist()]


def in_days(events: Iterable[Call]) -> list[Call]:
    return [event for event in events if day_of(event.at) >= str(FIRST)]


def numbered_calls(events: Iterable[Call]) -> list[Numbered]:
    """Number calls without Penstock, as a reference."""
    last: dict[str, tuple[int, int | None]] = {}
    found = []
    for event in events:
        turn, before = last.get(event.caller, (0, None))
        last[event.caller] = turn + 1, event.number
        found.append(Numbered(event.caller, event.at, event.number, turn + 1, before))
    return found


def daily_calls(events: Iterable[Call]) -> set[Daily]:
    """Count calls without Penstock, as a reference."""
    size_ms = 7 * 3_600_000
    numbers: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for event in events:
        numbers[event.caller, event.at // size_ms * size_ms].append(event.number)
    return {
        Daily(*place, len(of_place), sum(of_place))
        for place, of_place in numbers.items()
        if day_of(place[1]) >= str(FIRST)
    }


def test_each_event_counts_once_in_the_warehouse_or_kafka(world: World, results: dict[str, NodeResult]) -> None:
    """An aggregator and a reducer read both, and a mapper reads an unarchived category. Results equal the reference."""
    assert Counter(rows_of(world, daily)) == Counter(daily_calls(world.sent))
    assert Counter(rows_of(world, numbered)) == Counter(in_days(numbered_calls(world.sent)))
    assert Counter(rows_of(world, copied)) == Counter(world.unarchived)


def test_order_of_arrival_reproduces_the_streams_results(world: World, results: dict[str, NodeResult]) -> None:
    """Whether an event is late depends on all earlier events, in the warehouse and in Kafka."""
    streamed = [one for one in world.stream(CountEnded) if day_of(one.window) >= str(FIRST)]

    assert Counter(rows_of(world, ended)) == Counter({(one.caller, one.window): one for one in streamed}.values())
    assert 100 < len(streamed) < len(daily_calls(world.sent))
    assert sum(one.calls for one in streamed) < len(in_days(world.sent))


def test_a_run_reports_its_events_from_the_warehouse_and_kafka(world: World, results: dict[str, NodeResult]) -> None:
    """Messages in Kafka that do not decode count once, though a reducer reads them twice; the archiver reports those in the archive."""
    archived, live = len(world.sent[:1300]), len(world.sent[1300:])

    assert f"{calls.name}: {archived:,} events from the warehouse, {live:,} from the bus" in results["Number"].note
    assert (
        f"{calls.name}: skipped 3 messages on the bus that cannot be decoded, the first at offset"
        in results["Number"].note
    )
    assert results["Copy"].note == f"{unarchived.name}: 0 events from the warehouse, 300 from the bus"


def test_a_state_from_both_sources_is_continued_by_the_stream(world: World, results: dict[str, NodeResult]) -> None:
    """Its positions are the offsets up to which Kafka was read, and the stream numbers the calls after them."""
    destination = BootstrapTarget(world.bus, LocalFileStore(world.folder / "built"))
    built = bootstrap(AppName(APP.path, "Number"), world.warehouse, destination, master=MASTER, until_now=world.bus)
    more = [Call(f"caller {n % 60}", START_MS + 4 * DAY_MS + n, 3000 + n) for n in range(200)]
    world.plain(calls, more)
    streamed = world.stream(Number, "built")

    assert sum(shard.events for shard in built.shards) == len(world.sent)
    assert Counter(streamed) == Counter(numbered_calls([*world.sent, *more])[-len(more) :])


def test_an_archiver_may_run_during_a_backfill(world: World, results: dict[str, NodeResult]) -> None:
    """It rewrites files of open segments after they were listed, and adds others: the plan stays valid."""
    with spark_session(MASTER) as spark:
        bus = BusPart.of(spark, world.bus, ShippedApp(APP), world.warehouse, [calls])
        listed_early = BatchEvents(spark, world.warehouse, bus=bus).events(calls)
        world.archive()
        listed_late = BatchEvents(spark, world.warehouse, bus=bus).events(calls)
        read = [
            Counter(row.number for row in frame.where("number < 2400").collect())
            for frame in (listed_early, listed_late)
        ]

    assert (
        handoff_offsets(world.bus, world.warehouse, calls.name).offsets
        != bus.handoffs[calls.name].offsets
        == world.archived
    )
    assert read == [Counter(range(2400))] * 2


def test_a_file_that_grows_loses_no_events(world: World, tmp_path: Path) -> None:
    """A reader that listed it earlier reads at least the earlier events, also without an end offset; Spark alone would skip it."""
    dice, bus, warehouse = random.Random(5), MemoryBus(), open_warehouse(tmp_path)
    category = ps.Category("growing", Call, key="caller", event_time="at", buckets=1)
    bus.create(CategorySpec.of(category))

    def archived(events: list[Call]) -> None:
        bus.writer().send(category.name, [Outgoing(None, one) for one in Codecs(bus).of(category).encode(events)])
        target = {Bucket(category.name, 0): bus.ends(category.name)[0]}
        Archiver(bus, [category], warehouse).run(lambda it: it.has_reached(target))

    first, more = (
        [Call(dice.randbytes(8).hex(), START_MS, dice.getrandbits(60)) for _ in range(length)]
        for length in (100, 20_000)
    )
    with spark_session(MASTER) as spark:
        archived(first)
        listed = BatchEvents(spark, warehouse).events(category)
        archived(more)
        read = {row.number for row in listed.collect()}

    assert {event.number for event in first} <= read


def test_kafka_settings_are_not_shown(world: World, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Readers receive them; neither the output nor Spark's plans contain them."""
    bootstrap_servers = world.bus.settings.bootstrap
    settings = tmp_path / "settings.toml"
    settings.write_text('[kafka-settings]\nsasl.password = "s3cret"\n')
    kafka = f"--kafka {bootstrap_servers} --config {settings} --master {MASTER}"
    places = f"--warehouse {world.folder / 'warehouse'} --output {tmp_path / 'batch'}"
    done = CliRunner().invoke(app, f"backfill {APP.path}:Copy --from {FIRST} --to now {kafka} {places}".split())
    bus = KafkaBus(KafkaSettings(bootstrap_servers, {"sasl.password": "s3cret"}))
    with spark_session(MASTER) as spark:
        side = BusPart.of(spark, bus, ShippedApp(APP), world.warehouse, [unarchived])
        BatchEvents(spark, world.warehouse, bus=side).events(unarchived).explain(extended=True)
    printed = "".join([done.output, *capfd.readouterr()])

    assert done.exit_code == 0
    assert f"Copy: {unarchived.name}: 0 events from the warehouse, 300 from the bus." in printed
    assert "penstock-bus" in printed
    assert "s3cret" not in printed
    assert "s3cret" not in repr(side)


def test_events_in_neither_place_are_refused(world: World, tmp_path: Path) -> None:
    """Kafka has deleted events before they were archived, or the warehouse belongs to another cluster."""
    category = ps.Category("until_now.short_lived", Call, key="caller", event_time="at", buckets=1)
    world.bus.catalog.create(CategorySpec.of(category))
    world.plain(category, world.sent[:100])
    warehouse = open_warehouse(tmp_path)
    Archiver(world.bus, [category], warehouse).run(lambda it: it.has_reached({Bucket(category.name, 0): 100}))
    world.plain(category, world.sent[:100])
    whole = handoff_offsets(world.bus, warehouse, category.name).by_bucket
    admin, first = AdminClient(world.bus.settings.for_admin()), TopicPartition(category.name, 0, 130)
    admin.delete_records([first])[first].result(LIMIT_S)

    assert whole == {0: (100, 200)}
    with pytest.raises(
        BackfillRefused,
        match=r"short_lived/0 is archived up to offset 100, but starts at offset 130 on the bus: neither has the 30 offsets",
    ):
        handoff_offsets(world.bus, warehouse, category.name)
    with pytest.raises(BackfillRefused, match=r"has no note that the earlier events are archived. Nothing was started"):
        handoff_offsets(world.bus, open_warehouse(tmp_path / "other"), category.name)


def test_a_state_up_to_another_day_is_refused() -> None:
    """A state ends at the archive's end or now."""
    done = CliRunner().invoke(app, ["bootstrap", f"{APP.path}:Number", "--backup", "backups", "--to", "2013-01-03"])

    assert done.exit_code == 2
    assert "--to now" in done.output
