"""A backfill into a remote store beside its workers counts each event once. This file is the app."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

import penstock as ps
from penstock.backfill import BackfillRefused
from penstock.backfill.archive import Archiver
from penstock.backfill.run import StoreBackfillResult, StoreTarget, backfill_store, bootstrap_store
from penstock.backfill.spark import spark_session
from penstock.backfill.warehouse import DAY_MS, open_warehouse
from penstock.ops.kernel import Environment, assemble_worker, ends_of, prepare
from penstock.processors.apps import AppName
from penstock.processors.declare import Aggregator, bucket_of, plan_of
from penstock.processors.keyed_state import encode_window_key
from penstock.state import ShardIdentity
from penstock.state.errors import ForeignState
from penstock.state.remote import open_rebuild, read_results, remote_states
from penstock.transport import Bucket, CategorySpec, GroupInUse, Outgoing, create_missing_categories
from penstock.transport.codecs import Codecs
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import WATERMARKS

MASTER = "local[2]"
START = date(2013, 1, 1)
START_MS = 15_706 * DAY_MS
WINDOW_MS = 6 * 3_600_000
SECOND_DAY = START + timedelta(days=1)
LIMIT_S = 240.0

Slots = dict[tuple[str, int], Any]


class Use(ps.Record, frozen=True):
    """A meter's reading."""

    meter: str
    at: ps.EventTime
    litres: int


uses = ps.Category("uses", Use, key="meter", event_time="at", buckets=3)


class Summed(ps.Aggregator):
    """Litres by meter and six hours, summed by the store."""

    reads, window = uses, ps.windows.Tumbling(timedelta(milliseconds=WINDOW_MS))
    monoid: ClassVar[ps.monoids.Monoid[Any]] = ps.monoids.Sum()
    store = ps.RemoteStore(ps.WriteMode.APPEND)

    def observe(self, event: Use) -> Any:
        """Return the litres."""
        return event.litres


class Listed(Summed):
    """A meter's last reading in six hours, and their number, as whole values."""

    monoid = ps.monoids.TupleOf(ps.monoids.LastArrived(), ps.monoids.Count())
    store = ps.RemoteStore(ps.WriteMode.READ_MERGE_WRITE)

    def observe(self, event: Use) -> Any:
        """Return the observation for both parts of the monoid."""
        return event.litres, 1


class SummedFromTheArchive(Summed):
    """The same, filled from the archive at first."""


class ListedFromTheArchive(Listed):
    """The same, filled from the archive at first."""


class Refused(Summed):
    """The same, for refused replacements."""


def measured(count: int) -> list[Use]:
    """Return readings of seven meters in three days, some of them out of order."""
    return [Use(f"m{n % 7}", START_MS + (n * 7_919_000) % (3 * DAY_MS), n) for n in range(count)]


def truth(processor: type[Aggregator], events: list[Use]) -> Slots:
    """Compute the results from the events, one by one."""
    found: Slots = {}
    for one in events:
        slot = one.meter, one.at - one.at % WINDOW_MS
        if issubclass(processor, Listed):
            found[slot] = (one.litres, found.get(slot, (0, 0))[1] + 1)
        else:
            found[slot] = found.get(slot, 0) + one.litres
    return found


class World:
    """A bus, its archive, and a store."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.now_ms = START_MS + 9 * DAY_MS
        self.bus = MemoryBus(lambda: self.now_ms)
        self.bus.create(CategorySpec.of(uses))
        create_missing_categories(self.bus, WATERMARKS)
        self.warehouse = open_warehouse(folder / "warehouse")
        self.destination = StoreTarget(self.bus, url)

    def send(self, events: list[Use]) -> None:
        """Send events."""
        encoded = Codecs(self.bus).of(uses).encode(events)
        self.bus.writer().send(uses.name, map(Outgoing, [key.encode() for key in uses.keys_of(events)], encoded))

    def archive(self) -> None:
        """Archive all events on the bus."""
        ends = {Bucket(uses.name, number): end for number, end in self.bus.ends(uses.name).items()}
        Archiver(self.bus, [uses], self.warehouse).run(lambda it: it.has_reached(ends))

    def run(self, processor: type[Aggregator]) -> None:
        """Run a worker to the end of the bus."""
        targets, deadline = ends_of(plan_of(processor).inputs, self.bus), time.monotonic() + LIMIT_S
        around = Environment(self.folder / "state", store=self.url)
        with assemble_worker(prepare(processor, self.bus), self.bus, around) as worker:
            worker.run(lambda it: it.has_reached(targets) or time.monotonic() > deadline)

    def results(self, processor: type[Aggregator]) -> Slots:
        """Return the results in the store."""
        with read_results(self.url, processor) as results:
            return {(key, window.start): value for key, window, value in results.scan(10_000)}

    def spoil(self, processor: type[Aggregator], key: str, start: int, observation: Any) -> None:
        """Put a wrong value into a slot, like a bug."""
        bucket = bucket_of(key.encode(), uses.buckets)
        states = remote_states(self.url, processor)
        with closing(states):
            state = states.open(ShardIdentity(processor.name, bucket, plan_of(processor).state_shape))
            state.save({encode_window_key(key, start): processor.monoid.encode(processor.monoid.lift(observation))})

    def refill(self, processor: type[Aggregator], first: date, last: date) -> StoreBackfillResult:
        """Replace some days in a processor's store."""
        return backfill_store(app(processor), self.warehouse, self.destination, first=first, last=last, master=MASTER)


def app(processor: type[Aggregator]) -> AppName:
    """Return the name of a processor in this file."""
    return AppName(Path(__file__), processor.__name__)


@pytest.fixture(scope="module")
def spark() -> Iterator[None]:
    """One session for all tests."""
    if not shutil.which("java"):
        pytest.skip("Spark needs Java 17 or later on PATH: no backfill into a store is tested")
    with spark_session(MASTER):
        yield


@pytest.fixture(params=["postgres", "redis_server"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """An empty bus, with each kind of store."""
    return World(tmp_path, request.getfixturevalue(request.param).url)


@pytest.mark.parametrize("processor", [Summed, Listed])
def test_days_are_replaced_up_to_the_stores_position(spark: None, world: World, processor: type[Aggregator]) -> None:
    """Later archived events and other days have no effect, and the worker continues without counting an event twice."""
    events = measured(600)
    world.send(events[:400])
    world.run(processor)
    world.send(events[400:])
    world.archive()
    right, second, third = truth(processor, events[:400]), START_MS + DAY_MS, START_MS + 2 * DAY_MS
    spoiled = 10**6 if processor is Summed else (10**6, 1)
    for key, start in (("m1", second), ("bogus", second), ("m1", third)):
        world.spoil(processor, key, start, spoiled)
    wrong = world.results(processor)
    for _ in range(2):
        done = world.refill(processor, SECOND_DAY, SECOND_DAY)

    assert world.results(processor) == right | {("m1", third): wrong["m1", third]}
    assert wrong["m1", third] != right["m1", third]
    assert sum(shard.written for shard in done.shards) == sum(second <= start < third for _, start in right)
    assert done.events == sum(second <= one.at < third for one in events[:400])

    world.run(processor)
    world.refill(processor, SECOND_DAY, SECOND_DAY + timedelta(days=1))
    assert world.results(processor) == truth(processor, events)


@pytest.mark.parametrize("processor", [SummedFromTheArchive, ListedFromTheArchive])
def test_a_worker_continues_a_store_that_was_filled_from_the_archive(
    spark: None, world: World, processor: type[Aggregator]
) -> None:
    """An interrupted bootstrap starts again, and no worker counts before it completes; then the worker reads newer events."""
    events = measured(600)
    world.send(events[:400])
    world.archive()
    world.send(events[400:])
    with pytest.raises(BackfillRefused, match="has no values in its store yet"):
        world.refill(processor, START, SECOND_DAY)
    break_off(world, processor)
    with pytest.raises(ForeignState, match="being built"):
        world.run(processor)
    world.bus.kill_members(processor.name)  # its session expires
    with pytest.raises(BackfillRefused, match="was interrupted"):
        world.refill(processor, START, SECOND_DAY)
    filled = bootstrap_store(app(processor), world.warehouse, world.destination, master=MASTER)
    assert world.results(processor) == truth(processor, events[:400])
    assert filled.events == 400
    assert {shard.bucket: shard.position[uses.name] for shard in filled.shards} == world.bus.committed(
        "archiver.uses", uses.name
    )

    world.run(processor)
    assert world.results(processor) == truth(processor, events)
    with pytest.raises(BackfillRefused, match="has run already"):
        bootstrap_store(app(processor), world.warehouse, world.destination, master=MASTER)


def break_off(world: World, processor: type[Aggregator]) -> None:
    """Leave the shards of a bootstrap that is killed after its first shard and within the second."""

    def dying() -> Iterator[tuple[bytes, bytes]]:
        yield encode_window_key("bogus", START_MS), processor.monoid.encode(processor.monoid.identity())
        raise KeyboardInterrupt

    ends = world.bus.committed("archiver.uses", uses.name)
    with open_rebuild(world.url, processor) as shards:
        shards.begin()
        shards.replace(0, {uses.name: ends[0]}, [], lambda _: True)
        with pytest.raises(KeyboardInterrupt):
            shards.replace(1, {uses.name: ends[1]}, dying(), lambda _: True)


def test_a_replacement_with_wrong_results_is_refused(world: World) -> None:
    """Spark does not start and nothing changes: for unarchived events, running workers, and states outside the store."""
    world.send(measured(50))
    world.run(Refused)
    before = world.results(Refused)
    with pytest.raises(BackfillRefused, match=r"has counted uses/\d up to offset \d+, but it is archived up to 0"):
        world.refill(Refused, START, SECOND_DAY)
    member = world.bus.reader(Refused.name, [uses.name], NoHandler())
    with closing(member), pytest.raises(GroupInUse):
        world.refill(Refused, START, SECOND_DAY)
    with pytest.raises(BackfillRefused, match="is later than the last day"):
        world.refill(Refused, SECOND_DAY, START)
    world.archive()
    other = open_warehouse(world.folder / "other")
    with pytest.raises(BackfillRefused, match="does not record that it contains all earlier events"):
        backfill_store(app(Refused), other, world.destination, first=START, last=START, master=MASTER)

    assert world.results(Refused) == before


class NoHandler:
    """Ignores assignments."""

    def assigned(self, buckets: Any) -> None:
        """Do nothing."""

    revoked = lost = assigned
