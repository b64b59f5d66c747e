"""An archiver during outages of the bus: it continues, and every event is archived once."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import partial
from itertools import count
from threading import Event, Thread
from typing import Any

import msgspec
import pytest
from support.warehouses import MemoryFileStore, MemoryWarehouse

import penstock as ps
from penstock.backfill.archive import Archiver, archived_ends, group_of
from penstock.backfill.archive import archiver as archiver_module
from penstock.backfill.archive.archiver import OUTAGE_LIMIT, RETRY_PAUSES_S
from penstock.backfill.archive.category_archive import FENCED_PAUSE_S
from penstock.backfill.warehouse import Listing, Warehouse, table_of
from penstock.processors import CallRetry
from penstock.state import FileStoreUnreachable
from penstock.state.files import RetryingFileStore, wrappers
from penstock.transport import (
    Bucket,
    BusError,
    BusRefuses,
    BusUnreachable,
    CategorySpec,
    CommitUnconfirmed,
    Fenced,
    MembershipLost,
    Outgoing,
)
from penstock.transport.memory import MemoryBus


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
    """Any call of the bus may fail, with or without its effect."""
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


def test_the_log_says_how_long_kafka_has_not_answered(caplog: pytest.LogCaptureFixture) -> None:
    """It says so at once, and then with growing pauses. The client returns empty polls during an outage, too, so they are not answers."""
    now_s, is_away = [0.0], [False]

    def fail(what: str) -> None:
        if is_away[0] and not what.startswith("poll"):
            raise BusUnreachable("No Kafka broker answers.")

    archiver = Archiver(
        Failing(filled_bus(), fail), [READINGS], MemoryWarehouse(), segment_events=6, monotonic_s=lambda: now_s[0]
    )

    def run_for(seconds: int) -> list[str]:
        caplog.clear()
        for _ in range(seconds):
            now_s[0] += 1
            archiver.run_once()
        return [record.message for record in caplog.records]

    assert run_for(10) == []
    is_away[0] = True
    first, *later = run_for(200)
    is_away[0] = False
    [recovered] = run_for(10)

    assert first == "No Kafka broker answers. The archiver of readings waits for Kafka, and keeps retrying."
    assert [re.findall(r"waits for Kafka for (\d+) s, since \d\d:\d\d:\d\d UTC", line) for line in later] == [
        ["10"],
        ["30"],
        ["70"],
        ["150"],
    ]
    assert recovered.startswith("The archiver of readings has recovered: Kafka answers, after 20")


def test_the_log_says_how_long_the_warehouse_has_not_answered(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the location, the start of the outage and the time limit. Its last line says that the warehouse answers again."""
    now_s = [0.0]

    class Away(MemoryFileStore):
        def list_folder(self, folder: str) -> dict[str, int | None]:
            if now_s[0] < 100:
                raise FileStoreUnreachable("No NameNode answers.")
            return super().list_folder(folder)

    def pause(seconds: float) -> None:
        now_s[0] += max(seconds, 1.0)

    retry = CallRetry(OUTAGE_LIMIT.total_seconds(), *RETRY_PAUSES_S, clock=lambda: now_s[0], pause=pause)
    with caplog.at_level("WARNING"):
        RetryingFileStore(Away(), retry, "Nothing is lost.").list_folder("")
    first, *later, last = [record.message for record in caplog.records]

    assert first == "No NameNode answers. The request is repeated for up to 240 s."
    waits = [
        float(waited)
        for line in later
        for waited in re.findall(r"memory: has not answered for (\d+) s, since \d\d:\d\d:\d\d UTC", line)
    ]
    assert len(waits) == len(later)
    assert 2 <= len(waits) <= 3
    assert all(after - before >= pause for before, after, pause in zip([0.0, *waits], waits, [9, 19, 39], strict=False))
    assert re.fullmatch(r"memory: answers again, after 1\d\d s\.", last)


def test_the_log_says_how_long_the_warehouse_hangs(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hanging disk raises no error, and neither does a NameNode that accepts a request and never answers."""
    now_s, hangs, released = [0.0], Event(), Event()

    class Hanging(MemoryFileStore):
        def list_folder(self, folder: str) -> dict[str, int | None]:
            hangs.set()
            assert released.wait(60)
            return super().list_folder(folder)

    monkeypatch.setattr(Archiver, "_log_waits", lambda *_: None)
    monkeypatch.setattr(archiver_module, "CallRetry", partial(CallRetry, clock=lambda: now_s[0]))
    archiver = Archiver(filled_bus(), [READINGS], Warehouse(Hanging()), segment_events=6)
    thread = Thread(target=archiver.run)
    thread.start()
    assert hangs.wait(60)
    for _ in range(100):
        now_s[0] += 1
        archiver._files.log_wait()
    released.set()
    archiver.stop()
    thread.join()
    archiver._files.log_wait()
    *lines, last = [record.message for record in caplog.records]

    assert [re.findall(r"memory: has not answered for (\d+) s, since", line) for line in lines] == [
        ["10"],
        ["20"],
        ["40"],
        ["80"],
    ]
    assert last == "memory: answers again, after 100 s."


def test_a_thread_of_the_archiver_looks_for_a_warehouse_that_hangs(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archiver's own thread waits meanwhile."""
    logged = Event()

    class Hanging(MemoryFileStore):
        def list_folder(self, folder: str) -> dict[str, int | None]:
            assert logged.wait(60)
            return super().list_folder(folder)

    class Noticing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "has not answered" in record.getMessage():
                logged.set()

    monkeypatch.setattr(archiver_module, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(wrappers, "HANGS_S", 0.05)
    handler = Noticing()
    logging.getLogger("penstock.state").addHandler(handler)
    try:
        archiver = Archiver(filled_bus(), [READINGS], Warehouse(Hanging()), segment_events=6)
        archiver.run(lambda it: it.has_reached({}))
    finally:
        logging.getLogger("penstock.state").removeHandler(handler)

    assert "memory: has not answered" in caplog.text
