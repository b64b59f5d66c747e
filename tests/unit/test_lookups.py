"""Lookup joins: each event gets the row of its key; the declaration selects the action for missing rows and outages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.ops.kernel import Crash, Driver
from penstock.ops.kernel.telemetry.waits import LOOKUP, Waits
from penstock.processors import DeclarationError
from penstock.processors.shard import EventRejected, Step
from penstock.transport import End, Polled, memory


class Departure(ps.Record, frozen=True):
    """A departure of a plane."""

    flight: str
    at: ps.EventTime
    origin: str | None


class Airport(ps.Record, frozen=True):
    """An airport."""

    name: str
    feet: int


class Located(ps.Record, frozen=True):
    """A departure with the name of its airport."""

    flight: str
    at: ps.EventTime
    airport: str | None


departures = ps.Category("departures", Departure, key="flight", event_time="at", buckets=1)
located = ps.Category("located", Located, key="flight", event_time="at", buckets=1)
AIRPORTS = {"JFK": Airport("Kennedy", 13), "LGA": Airport("La Guardia", 22)}


class Flaky:
    """A source with scripted failures; it records the requested keys."""

    def __init__(self, rows: Mapping[str, Any], failures: Sequence[Exception] = ()) -> None:
        self.rows = dict(rows)
        self.failures = list(failures)
        self.requested: list[set[str]] = []

    def open(self) -> Flaky:
        return self

    def fetch(self, keys: Sequence[str]) -> dict[str, Any]:
        if not keys:
            return {}
        self.requested.append(set(keys))
        if self.failures:
            raise self.failures.pop(0)
        return {key: self.rows[key] for key in keys if key in self.rows}

    def close(self) -> None:
        self.rows.clear()


class Locate(ps.LookupJoin):
    """Names the airport."""

    reads, writes = departures, located
    source = ps.lookups.MemoryTable(AIRPORTS)

    def key_of(self, event: Departure) -> str | None:
        if event.flight == "broken":
            raise ValueError(event.flight)
        return event.origin

    def join(self, event: Departure, row: Airport | None) -> Iterable[Located]:
        yield Located(event.flight, event.at, row.name if row else None)
        if row and row.feet < 0:
            raise ValueError(f"{row.name} lies under water")


def like(**attributes: Any) -> type[ps.LookupJoin]:
    """Return `Locate` with other attributes."""
    return type("Locate", (Locate,), attributes)


def leaves(flight: str, origin: str | None) -> Departure:
    return Departure(flight, 1_000, origin)


def names(driver: Driver) -> list[tuple[str, str | None]]:
    return [(event.flight, event.airport) for event in driver.read(located)]


def test_each_event_is_joined_with_the_row_of_its_key() -> None:
    """An event without a key, or without a row, is joined with None."""
    driver = Driver(Locate)
    driver.send(departures, [leaves("1", "JFK"), leaves("2", "XXX"), leaves("3", "LGA"), leaves("4", None)])

    assert names(driver) == [("1", "Kennedy"), ("2", None), ("3", "La Guardia"), ("4", None)]


def test_a_batch_makes_one_request_for_its_distinct_keys() -> None:
    """Cached keys are not requested until they expire; keys without a row are cached, too."""
    cached = ps.lookups.Cached(ttl=timedelta(minutes=10), missing_ttl=timedelta(minutes=1))
    source, kind = Flaky(AIRPORTS), like(cache=cached)
    driver = Driver(kind, sources={kind: source})
    events = [leaves("1", "JFK"), leaves("2", "XXX"), leaves("3", "JFK")]
    for pause_s in (0, 30, 60, 600):
        driver.advance(pause_s)
        driver.send(departures, events)

    assert source.requested == [{"JFK", "XXX"}, {"XXX"}, {"JFK", "XXX"}]
    counts = driver.metrics(kind).lookups
    assert counts is not None
    assert (counts.keys, counts.cached, counts.missing) == (8, 3, 4)


def test_without_a_cache_each_batch_requests_its_rows() -> None:
    """The next batch uses a row that has changed in the source."""
    source = Flaky(AIRPORTS)
    driver = Driver(Locate, sources={Locate: source})
    driver.send(departures, [leaves("1", "JFK")])
    source.rows["JFK"] = Airport("Idlewild", 13)
    driver.send(departures, [leaves("2", "JFK")])

    assert names(driver) == [("1", "Kennedy"), ("2", "Idlewild")]


def test_events_without_a_row_can_be_dropped() -> None:
    """The metrics count and show them."""
    kind = like(on_miss=ps.lookups.OnMiss.DROP)
    driver = Driver(kind)
    driver.send(departures, [leaves("1", "JFK"), leaves("2", "XXX"), leaves("3", None)])

    assert names(driver) == [("1", "Kennedy")]
    assert driver.metrics(kind).unmatched == 2
    assert "2 dropped without a row" in str(driver.metrics(kind))
    assert driver.dead_letters(kind) == []


def test_events_without_a_row_can_become_dead_letters() -> None:
    """The reason names the key and the source. An exception still stops the worker."""
    kind = like(on_miss=ps.lookups.OnMiss.DEAD_LETTER)
    driver = Driver(kind)
    driver.send(departures, [leaves("1", "JFK"), leaves("2", "XXX"), leaves("3", "LGA")])

    assert names(driver) == [("1", "Kennedy"), ("3", "La Guardia")]
    assert [letter.reason for letter in driver.dead_letters(kind)] == [
        "there is no row for key 'XXX' in a table in memory"
    ]
    with pytest.raises(EventRejected, match=r"offset 4: Locate raised ValueError: broken"):
        driver.send(departures, [leaves("4", "XXX"), leaves("broken", "JFK")])
    assert len(driver.dead_letters(kind)) == 2


def test_events_without_a_row_can_stop_the_worker() -> None:
    """Earlier events are saved, and the error names the alternative. Exceptions can still become dead letters."""
    kind = like(on_miss=ps.lookups.OnMiss.STOP, on_error=ps.ErrorPolicy.DEAD_LETTER)
    driver = Driver(kind)
    with pytest.raises(EventRejected, match=r"offset 2: there is no row for key 'XXX'.*on_miss = OnMiss.DEAD_LETTER"):
        driver.send(departures, [leaves("broken", "JFK"), leaves("1", "JFK"), leaves("2", "XXX"), leaves("3", "JFK")])

    assert names(driver) == [("1", "Kennedy")]
    assert driver.bus.committed(kind.name, "departures") == {0: 2}
    assert [letter.reason for letter in driver.dead_letters(kind)] == ["Locate raised ValueError: broken"]


def test_an_invalid_row_affects_only_the_events_of_its_key() -> None:
    """It counts as an exception in `join`. A key of another type is an error in `key_of`."""
    unfit = ps.lookups.InvalidRow("the row of 'XXX' is not a valid Airport: Expected `int`")
    kind = like(on_error=ps.ErrorPolicy.DEAD_LETTER, cache=ps.lookups.Cached())
    driver = Driver(
        kind, sources={kind: ps.lookups.MemoryTable({**AIRPORTS, "XXX": unfit, "LOW": Airport("Atlantis", -1)})}
    )
    numbered: Any = Departure("4", 1_000, 5)  # type: ignore[arg-type]  # a user's mistake
    driver.send(departures, [leaves("1", "XXX"), leaves("2", "LOW"), leaves("3", "JFK")])
    with pytest.raises(TypeError, match=r"key_of returned 5 for Departure.*must return a str"):
        list(driver._processors[kind].process(numbered))  # type: ignore[attr-defined]

    assert names(driver) == [("3", "Kennedy")]
    assert [letter.reason for letter in driver.dead_letters(kind)] == [
        f"Locate raised InvalidRow: {unfit}",
        "Locate raised ValueError: Atlantis lies under water",
    ]


def test_an_unreachable_source_stops_the_worker_by_default() -> None:
    """Earlier events are saved, no event is skipped, and the next start requests the rows again."""
    source = Flaky(AIRPORTS)
    driver = Driver(Locate, sources={Locate: source})
    driver.send(departures, [leaves("1", "JFK")])
    source.failures = [ps.lookups.LookupUnreachable("The airports gave no answer within 5 s.")]
    with pytest.raises(EventRejected) as stopped:
        driver.send(departures, [b"{broken", leaves("2", "JFK")])
    for part in ("departures/0 at offset 1", "no answer within 5 s", "OnUnreachable.WAIT", "nothing was skipped"):
        assert part in str(stopped.value)
    assert driver.dead_letters(Locate) == []
    driver.run()

    assert names(driver) == [("1", "Kennedy"), ("2", "Kennedy")]
    assert len(driver.dead_letters(Locate)) == 1


def test_a_worker_can_wait_for_an_unreachable_source(caplog: pytest.LogCaptureFixture) -> None:
    """It joins each event once, logs each outage once, and counts each failed request."""
    kind = like(on_unreachable=ps.lookups.OnUnreachable.WAIT, output_semantics=ps.Semantics.EXACTLY_ONCE)
    source = Flaky(AIRPORTS)
    driver = Driver(kind, sources={kind: source})
    for number in range(2):
        source.failures = [ps.lookups.LookupUnreachable("The airports gave no answer.")] * 5
        driver.send(departures, [b"{broken", leaves(f"{number}", "JFK"), Crash(Step.COMMIT_TRANSACTION)])

    assert names(driver) == [("0", "Kennedy"), ("1", "Kennedy")]
    assert len(driver.dead_letters(kind)) == 2
    counts = driver.metrics(kind).lookups
    assert counts is not None
    assert counts.failed_requests == 10
    assert [record.levelname for record in caplog.records if record.name == "penstock.lookups"].count("WARNING") == 2


class Observed(Flaky):
    """Notes what the worker reports to wait for, at each request."""

    def __init__(self) -> None:
        super().__init__(AIRPORTS)
        self.waits: Waits | None = None
        self.noted: list[str | None] = []

    def fetch(self, keys: Sequence[str]) -> dict[str, Any]:
        if keys and self.waits is not None:
            self.noted.append(self.waits.longest and self.waits.longest.name)
        return super().fetch(keys)


def test_a_worker_reports_that_it_waits_for_its_lookup() -> None:
    """It does so from the first request without an answer until the next answer."""
    kind = like(on_unreachable=ps.lookups.OnUnreachable.WAIT)
    source = Observed()
    driver = Driver(kind, sources={kind: source})
    driver.send(departures, [leaves("0", "JFK")])
    source.waits = driver.metrics(kind).waits
    source.failures = [ps.lookups.LookupUnreachable("The airports gave no answer.")] * 2
    driver.send(departures, [leaves("1", "JFK")])

    assert source.noted == [None, LOOKUP, LOOKUP]
    assert source.waits.longest is None


class Sent(Departure, frozen=True):
    """A departure of another category."""


others = ps.Category("others", Sent, key="flight", event_time="at", buckets=2)


def test_waiting_events_of_several_inputs_and_buckets_are_joined_once() -> None:
    """A bucket with waiting events does not count as read, however many requests fail."""
    two = ps.Category("two", Departure, key="flight", event_time="at", buckets=2)
    kind = like(reads=(two, others), on_unreachable=ps.lookups.OnUnreachable.WAIT)
    source = Flaky(AIRPORTS)
    driver = Driver(kind, sources={kind: source})
    for number in range(20):
        source.failures = [ps.lookups.LookupUnreachable("No answer.")] * (number % 4)
        driver.send(two, [leaves(f"a{number}", "JFK"), leaves(f"b{number}", "LGA")])
        driver.send(others, [Sent(f"c{number}", 1_000, "JFK")])

    assert sorted(flight for flight, _ in names(driver)) == sorted(
        f"{side}{number}" for side in "abc" for number in range(20)
    )


def test_a_bucket_that_ends_with_waiting_events_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bus may report a bucket's end together with its last events."""
    take = memory.readers.MemoryScanner.take

    def eager(scanner: memory.readers.MemoryScanner) -> Polled:
        batches, ended = take(scanner)
        return Polled(batches, [*ended, *(End(batch.bucket, batch.next_offset) for batch in batches)])

    monkeypatch.setattr(memory.readers.MemoryScanner, "take", eager)
    kind = like(on_unreachable=ps.lookups.OnUnreachable.WAIT)
    driver = Driver(kind, sources={kind: Flaky(AIRPORTS, [ps.lookups.LookupUnreachable("No answer.")])})
    driver.send(departures, [leaves("1", "JFK")])

    assert names(driver) == [("1", "Kennedy")]


@pytest.mark.parametrize("error", [ps.lookups.LookupRefused("There is no such table."), KeyError("airports")])
def test_other_errors_of_a_source_stop_the_worker(error: Exception) -> None:
    """`OnUnreachable.WAIT` applies only to unreachable sources."""
    kind = like(on_unreachable=ps.lookups.OnUnreachable.WAIT)
    driver = Driver(kind, sources={kind: Flaky(AIRPORTS, [error])})
    with pytest.raises(EventRejected, match=r"airports|no such table"):
        driver.send(departures, [leaves("1", "JFK")])
    driver.run()

    assert names(driver) == [("1", "Kennedy")]


class Unreachable(Flaky):
    """A source that is never reachable."""

    def fetch(self, keys: Sequence[str]) -> dict[str, Any]:
        raise ps.lookups.LookupUnreachable("The airports are away.")


def test_the_source_must_be_reachable_at_the_start_unless_the_worker_waits() -> None:
    """With `OnUnreachable.WAIT`, the worker starts without the source."""
    kind = like(on_unreachable=ps.lookups.OnUnreachable.WAIT)
    with pytest.raises(ps.PenstockError, match="are away"):
        Driver(Locate, sources={Locate: Unreachable({})})

    Driver(kind, sources={kind: Unreachable({})})


def test_a_processor_that_overrides_open_still_opens_and_closes_its_source() -> None:
    """Closing is idempotent. The source opens at its first use if `open` does not call the base method."""
    source = Flaky(AIRPORTS)

    class More(Locate):
        """Overrides `open` without calling the base method."""

        def open(self) -> None:
            self.loaded = True

    driver = Driver(More, sources={More: source})
    driver.send(departures, [leaves("1", "JFK")])
    processor = driver._processors[More]
    processor.close()
    processor.close()

    assert names(driver) == [("1", "Kennedy")]
    assert source.rows == {}


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"source": None}, "Declare `source = …`"),
        ({"source": "airports.csv"}, "Declare `source = …`"),
        ({"key_of": ps.LookupJoin.key_of}, "Define `key_of"),
        ({"cache": 100}, "`cache = 100`"),
        ({"on_miss": ps.ErrorPolicy.STOP}, "`on_miss = "),
        ({"on_unreachable": True}, "`on_unreachable = True`"),
    ],
)
def test_an_invalid_lookup_is_refused(attributes: dict[str, Any], message: str) -> None:
    """The error names the attribute to change."""
    with pytest.raises(DeclarationError, match=message):
        Driver(like(**attributes))


def test_a_lookup_needs_a_source() -> None:
    """The error names the attribute to declare."""

    class Nowhere(ps.LookupJoin):
        """Declares no source."""

        reads = departures

        def join(self, event: Departure, row: Any) -> Iterable[ps.Record]:
            return ()

    with pytest.raises(DeclarationError, match="Declare `source"):
        Driver(Nowhere)
