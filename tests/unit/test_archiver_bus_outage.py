"""An archiver during outages of the bus: it continues, and every event is archived once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec
import pytest
from support.warehouses import MemoryWarehouse

import penstock as ps
from penstock.backfill.archive.archived_ends import archived_ends
from penstock.backfill.archive.archiver import Archiver
from penstock.backfill.archive.category_archive import FENCED_PAUSE_S
from penstock.backfill.archive.consumer_group import group_of
from penstock.backfill.warehouse.listing import Listing
from penstock.backfill.warehouse.schema_evolution import table_of
from penstock.transport.category_spec import CategorySpec
from penstock.transport.errors import BusError, BusRefuses, BusUnreachable, CommitUnconfirmed, Fenced, MembershipLost
from penstock.transport.memory import MemoryBus
from penstock.transport.messages import Bucket, Outgoing


class Reading(ps.Record, frozen=True):
    """A sensor's reading."""

    at: ps.EventTime
    value: int


READINGS = ps.Category("readings", Reading, key=lambda _: "k", event_time="at", buckets=2)


class Failing:
    """A bus, a catalog or a reader that raises at one call: before or after its effect."""

    def __init__(self, target: Any, fail: Callable[[str], None]) -> None:
        self._target = target
        self._fail = fail

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if name == "catalog":
            return Failing(found, self._fail)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            self._fail(f"{name} was not done")
            given = found(*args, **options)
            if name in {
                "commit",
                "start",
            }:  # what others did is lost with their answer: a reader, messages, a closed membership
                self._fail(f"{name} was not answered")
            return Failing(given, self._fail) if name == "reader" else given

        return call if name not in {"close", "leave"} else found


def filled_bus() -> MemoryBus:
    """Return a bus with forty events."""
    bus = MemoryBus()
    bus.create(CategorySpec.of(READINGS))
    for value in range(40):
        bus.append("readings", Outgoing(b"k", msgspec.json.encode(Reading(value, value)), value % 2))
    return bus


def archive(bus: Any, warehouse: MemoryWarehouse) -> None:
    """Archive all events; each look at the clock advances it."""
    seconds = count(0.0, FENCED_PAUSE_S)
    ends = {Bucket("readings", number): 20 for number in (0, 1)}
    archiver = Archiver(bus, [READINGS], warehouse, segment_events=6, monotonic_s=lambda: next(seconds))
    archiver.run(lambda it: it.has_reached(ends))


def values(warehouse: MemoryWarehouse) -> list[Any]:
    """Return the value of each archived event."""
    files = Listing.of(warehouse, "readings").files
    return sorted(value for file in files for value in table_of(warehouse.read(file)).column("value").to_pylist())


@pytest.mark.parametrize("error", [CommitUnconfirmed, BusUnreachable, Fenced, MembershipLost])
def test_an_archiver_continues_after_a_recoverable_error(error: type[BusError]) -> None:
    """At any call of the bus, with or without its effect."""
    for fail_at in count(1):
        bus, warehouse, calls = filled_bus(), MemoryWarehouse(), count(1)

        def fail(what: str, calls: count[int] = calls, fail_at: int = fail_at) -> None:
            if next(calls) == fail_at:
                raise error(f"{what}.")

        archive(Failing(bus, fail), warehouse)
        assert values(warehouse) == list(range(40)), fail_at
        assert archived_ends(bus, warehouse, "readings") == {0: 20, 1: 20}
        if next(calls) <= fail_at:
            break

    assert fail_at > 10


def test_an_archiver_with_wrong_credentials_stops() -> None:
    """Wrong credentials stay wrong."""

    def refuse(_: str) -> None:
        raise BusRefuses("Who are you?")

    with pytest.raises(BusRefuses):
        archive(Failing(filled_bus(), refuse), MemoryWarehouse())


def test_an_archiver_that_is_asked_to_stop_in_an_outage_stops() -> None:
    """It asks once more; the next archiver reads uncommitted events again."""
    bus, warehouse = filled_bus(), MemoryWarehouse()
    is_away = [False]

    def fail(what: str) -> None:
        if is_away[0]:
            raise BusUnreachable(f"{what}.")

    archiver = Archiver(Failing(bus, fail), [READINGS], warehouse, segment_events=6)
    for _ in range(3):
        archiver.run_once()
    is_away[0] = True
    archiver.run_once()
    archiver.stop()
    archiver.run()
    assert bus.committed(group_of("readings"), "readings") == {0: 18, 1: 18}

    archive(bus, warehouse)
    assert values(warehouse) == list(range(40))


def test_a_bucket_revoked_in_an_outage_is_released_without_a_commit() -> None:
    """The next owner reads uncommitted events again."""
    bus, warehouse = filled_bus(), MemoryWarehouse()
    is_away = [False]

    def fail(what: str) -> None:
        if is_away[0] and what.startswith("commit"):
            raise CommitUnconfirmed(f"{what}.")

    first = Archiver(Failing(bus, fail), [READINGS], warehouse, segment_events=6)
    for _ in range(3):
        first.run_once()
    is_away[0] = True
    second = Archiver(bus, [READINGS], warehouse, segment_events=6)
    for archiver in (second, first, second, second, first):
        archiver.run_once()
    is_away[0] = False
    for archiver in (first, second):
        archiver.save()

    assert values(warehouse) == list(range(40))
    assert archived_ends(bus, warehouse, "readings") == {0: 20, 1: 20}
