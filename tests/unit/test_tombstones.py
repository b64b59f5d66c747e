"""Tombstones and message keys of outputs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Annotated, Any

import pytest
from support.replays import ReplayRequest

import penstock as ps
from penstock.backfill.steps import OutputRows
from penstock.ops.kernel.checkpoint.output_writer import OutputRefused
from penstock.ops.look_back import OutputRecord, PastRange
from penstock.ops.look_back.replay.live_outputs import Replayed, compare_with_live
from penstock.ops.look_back.replay.outputs import as_record, line_of
from penstock.processors import DeclarationError, ProcessorFailed
from penstock.processors.declare import Routes, plan_of
from penstock.processors.shard import Step, steps_of
from penstock.testing import Crash, Driver
from penstock.transport import Bucket

USERS = 5


class Visit(ps.Record, frozen=True):
    """A user enters or leaves."""

    user: str
    at: ps.EventTime
    enters: bool = True


class Presence(ps.Record, frozen=True):
    """A user who is present."""

    user: str
    since: ps.EventTime


class Purchase(ps.Record, frozen=True):
    """A user buys."""

    user: str
    at: ps.EventTime


class Sale(ps.Record, frozen=True):
    """A purchase, and since when the user was present."""

    user: str
    at: ps.EventTime
    since: int | None


class Notice(ps.Record, frozen=True):
    """A text for a number, which is only in the message key."""

    text: str
    at: ps.EventTime
    number: Annotated[int, ps.metadata.Key] = 0


visits = ps.Category("visits", Visit, key="user", event_time="at", buckets=2)
present = ps.Category("present", Presence, key="user", event_time="since", buckets=2, compacted=True)
absent = ps.Category("absent", Presence, key=lambda record: record.user, event_time="since", buckets=2)
purchases = ps.Category("purchases", Purchase, key="user", event_time="at", buckets=2)
sales = ps.Category("sales", Sale, key="user", event_time="at", buckets=2)
notices = ps.Category("notices", Notice, key="number", event_time="at", buckets=4, key_codec=ps.KeyCodec.INT64)
numbers = ps.Category("numbers", Notice, key="number", event_time="at", buckets=4)


class Present(ps.Stateful):
    """Writes a row for each present user, and deletes it when the user leaves."""

    reads, writes, state = visits, present, int

    def process(
        self, event: Visit, state: int | None, context: ps.Context
    ) -> tuple[int, list[Presence | ps.Tombstone]]:
        if event.enters:
            return event.at, [Presence(event.user, event.at)]
        return 0, [ps.Tombstone(event.user)]


class PresentStateless(ps.Stateless):
    """The same without state, with a named category."""

    reads, writes = visits, present

    def process(self, event: Visit) -> Iterable[ps.To]:
        yield ps.To(present, Presence(event.user, event.at) if event.enters else ps.Tombstone(event.user))


class Sales(ps.TableJoin):
    """Joins purchases with the present users."""

    stream, table, writes = purchases, present, sales

    def join(self, event: Purchase, row: Presence | None, context: ps.Context) -> list[Sale]:
        return [Sale(event.user, event.at, None if row is None else row.since)]


class Announce(ps.Stateless):
    """Writes to several categories."""

    reads, writes = visits, (present, absent, notices, numbers)

    def process(self, event: Visit) -> Iterable[ps.Record]:
        yield ps.To(notices, Notice("came", event.at), key=str(event.at))


class Days(ps.Aggregator):
    """Returns a tombstone in place of a result."""

    reads, writes = visits, present
    monoid, window = ps.monoids.Count(), ps.windows.Tumbling(timedelta(days=1))

    def observe(self, event: Visit) -> int:
        return 1

    def result(self, key: str, window: ps.windows.Window, value: int) -> Any:
        return ps.Tombstone(key)


VISITS = [Visit(f"u{n % USERS}", n, n // USERS % 2 == 0) for n in range(6 * USERS)]


def by_user(outputs: Iterable[Any]) -> dict[str, list[Any]]:
    """Group rows and tombstones by user, in order."""
    found: dict[str, list[Any]] = {}
    for output in outputs:
        found.setdefault(output.key if isinstance(output, ps.Tombstone) else output.user, []).append(output)
    return found


def messages_of(driver: Driver, category: ps.Category[Any]) -> list[tuple[int, bytes, Any]]:
    """Return the bucket, key and decoded JSON value of all messages in a category."""
    return [
        (bucket, message.key() or b"", None if message.value() is None else json.loads(message.value() or b""))
        for bucket, end in driver.bus.describe(category.name).ends.items()
        for message in driver.bus.slice(Bucket(category.name, bucket), 0, end)
    ]


def expected() -> dict[str, list[Any]]:
    """Return the rows and tombstones of all visits."""
    return by_user(Presence(v.user, v.at) if v.enters else ps.Tombstone(v.user) for v in VISITS)


@pytest.mark.parametrize("semantics", ps.Semantics)
@pytest.mark.parametrize("processor", [Present, PresentStateless])
def test_tombstones_are_written_in_the_order_of_their_events(
    processor: type[ps.Processor], semantics: ps.Semantics
) -> None:
    """Their bucket is the bucket of their key, between its records, with all semantics."""
    state = ps.Semantics.AT_MOST_ONCE if semantics is ps.Semantics.AT_MOST_ONCE else ps.Semantics.EXACTLY_ONCE
    chosen = type(
        processor.__name__, (processor,), {"output_semantics": semantics, "state_semantics": state, "name": "present"}
    )
    driver = Driver(chosen)
    driver.send(visits, VISITS)

    assert by_user(driver.read(present)) == expected()
    assert {(bucket, key.decode()) for bucket, key, _ in messages_of(driver, present)} == {
        (present.bucket_of(user), user) for user in expected()
    }


@pytest.mark.parametrize(
    "step", [*dict.fromkeys(steps_of(type("P", (Present,), {"output_semantics": ps.Semantics.EXACTLY_ONCE}))), None]
)
def test_each_tombstone_is_written_exactly_once_despite_crashes(step: Step | None) -> None:
    """Some of them were saved with the state, and are sent after the crash."""
    chosen = type("Once", (Present,), {"output_semantics": ps.Semantics.EXACTLY_ONCE})
    driver = Driver(chosen)
    driver.send(visits, [*VISITS[:12], Crash(before=step), *VISITS[12:]])

    assert by_user(driver.read(present)) == expected()


def test_a_table_join_deletes_the_row_of_a_written_tombstone() -> None:
    """The join finds the row until then, and no row afterwards."""
    driver = Driver([Present, Sales])
    driver.send(visits, [Visit("ann", 1), Visit("bob", 1)])
    driver.send(purchases, [Purchase("ann", 2)])
    driver.send(visits, [Visit("ann", 3, enters=False)])
    driver.send(purchases, [Purchase("ann", 4), Purchase("bob", 4)])

    assert sorted(driver.read(sales), key=lambda sale: (sale.user, sale.at)) == [
        Sale("ann", 2, 1),
        Sale("ann", 4, None),
        Sale("bob", 4, 1),
    ]
    assert driver.dead_letters(Sales) == []


def test_a_test_sends_tombstones_to_a_table() -> None:
    """Another program would do the same."""
    driver = Driver(Sales)
    driver.send(present, [Presence("ann", 1), ps.Tombstone("ann")])
    driver.send(purchases, [Purchase("ann", 2)])

    assert driver.read(sales) == [Sale("ann", 2, None)]


def test_a_given_key_is_the_message_key() -> None:
    """Its field in the record is filled from the message key."""
    driver = Driver(Announce)
    driver.send(visits, [Visit("ann", 7), Visit("bob", 8)])

    found = sorted(driver.read(notices), key=lambda notice: notice.at)
    assert found == [Notice("came", 7, 7), Notice("came", 8, 8)]
    assert sorted(messages_of(driver, notices)) == sorted(
        (notices.bucket_of(key), int(key).to_bytes(8, "big"), {"text": "came", "at": int(key)}) for key in ("7", "8")
    )


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (ps.Tombstone("ann"), r"returned a Tombstone, but writes present, absent, notices, numbers\. Return"),
        (ps.To(sales, ps.Tombstone("ann")), "returned a Tombstone for sales, but writes only"),
        (ps.To(notices, ps.Tombstone("ann")), "the key 'ann' does not fit its `key_codec`"),
        (ps.To(numbers, ps.Tombstone("07")), "The key '07' of an output for numbers is not an int in decimal digits"),
        (ps.To(present, ps.Tombstone(7)), "The key 7 of an output for present is not a str"),  # type: ignore[arg-type]  # a mistake
        (ps.To(present, ps.Tombstone("ann"), key="bob"), "has two keys, 'ann' and key='bob'"),
        (ps.To(present, Presence("ann", 1), key="bob"), "the key of this category is the field 'user'"),
        (ps.To(absent, Presence("ann", 1), key="bob"), "the key of this category is a function of the record"),
        (ps.To(notices, Notice("a", 1), key="ann"), "the key 'ann' does not fit its `key_codec`"),
        (ps.To(numbers, Notice("a", 1), key="ann"), "is not an int in decimal digits"),
    ],
)
def test_an_output_with_a_wrong_key_is_refused(output: Any, words: str) -> None:
    """It is refused before anything is written."""
    with pytest.raises(TypeError, match=words):
        Routes(Announce).split([output])


def test_a_tombstone_is_no_result_of_a_window() -> None:
    """The worker stops, and writes nothing."""
    driver = Driver(Days)

    with pytest.raises(OutputRefused, match="Aggregator Days returned a Tombstone"):
        driver.send(visits, VISITS)
    assert driver.read(present) == []


@pytest.mark.parametrize("kind", [ps.Stateful, ps.Stateless])
def test_the_event_of_a_wrong_tombstone_becomes_a_dead_letter(kind: type[ps.Processor]) -> None:
    """Other events are processed."""

    class Careless(PresentStateless if kind is ps.Stateless else Present):  # type: ignore[misc]  # one of two bases
        name = "careless"
        on_error = ps.ErrorPolicy.DEAD_LETTER

        def process(self, event: Visit, *state: Any) -> Any:
            key: Any = event.at if event.user == "u1" else event.user
            outputs = [ps.Tombstone(key)]
            return (0, outputs) if state else outputs

    driver = Driver(Careless)
    driver.send(visits, VISITS[:USERS])

    assert sorted(one.key for one in driver.read(present)) == ["u0", "u2", "u3", "u4"]  # type: ignore[attr-defined]  # tombstones
    [letter] = driver.dead_letters(Careless)
    assert "The key 1 of an output for present is not a str" in letter.reason


def replayed(driver: Driver) -> tuple[Sequence[Any], Any]:
    """Replay all visits; return the outputs and their comparison with the live ones."""
    ran = ReplayRequest(Present, driver.bus).run()
    taking = ran.taking
    against = Replayed(Present, taking.ours, taking.warming, taking.inputs, False, PastRange(0).until_ms)
    [comparison] = compare_with_live(against, driver.bus).comparisons
    return ran.outputs, comparison


def test_a_replay_shows_and_compares_tombstones() -> None:
    """Their lines have neither an event time nor a value. A missing live tombstone is a difference."""
    driver = Driver(Present)
    driver.send(visits, VISITS)

    outputs, comparison = replayed(driver)
    tombstones = [output for output in outputs if isinstance(output.record, ps.Tombstone)]
    assert len(tombstones) == 3 * USERS
    assert as_record(tombstones[0]) == OutputRecord("present", tombstones[0].number, tombstones[0].key, None, None)
    assert b'"event_time":null,"value":null' in line_of(tombstones[0])
    assert (comparison.equal, comparison.differing) == (len(VISITS), 0)

    other = Driver(Present)
    other.send(visits, [visit for visit in VISITS if visit.enters])
    other._write(visits, [visit for visit in VISITS if not visit.enters])
    _, comparison = replayed(other)
    assert (comparison.equal, comparison.only_left, comparison.only_right) == (3 * USERS, 0, 3 * USERS)
    assert comparison.examples[0].event_time is None


def test_a_backfill_refuses_tombstones() -> None:
    """Its files contain only records, so a deletion would be lost."""
    rows = OutputRows(Present)

    assert sum(batch.num_rows for batch in rows.batches([Presence("ann", 1)])) == 1
    for tombstone in (ps.Tombstone("ann"), ps.To(present, ps.Tombstone("ann"))):
        with pytest.raises(
            ProcessorFailed, match="returned a tombstone of the key 'ann', and batch output contains only"
        ):
            list(rows.batches([Presence("ann", 1), tombstone]))


class Balance(ps.Record, frozen=True):
    """The number of records of a user since the last deletion."""

    user: str
    at: ps.EventTime
    records: int


balances = ps.Category("balances", Balance, key="user", event_time="at", buckets=2)
copies = ps.Category("copies", Presence, key="user", event_time="since", buckets=2)


class Balances(ps.Stateful[Presence | ps.Tombstone, int, Balance]):
    """Counts records, and starts anew after a deletion."""

    reads, writes, state, tombstones = present, balances, int, True
    output_semantics = ps.Semantics.EXACTLY_ONCE
    compaction_safe = True

    def process(
        self, event: Presence | ps.Tombstone, state: int | None, context: ps.Context
    ) -> tuple[int | None, list[Balance]]:
        if isinstance(event, ps.Tombstone):
            assert event.key == context.key
            return None, [Balance(context.key, context.event_time, -(state or 0))]
        return (state or 0) + 1, [Balance(context.key, event.since, (state or 0) + 1)]


class OrderedBalances(Balances):
    """The same, in order of event time."""

    name, ordered = "ordered_balances", True
    writes = ps.Category("ordered", Balance, key="user", event_time="at", buckets=2)
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(seconds=1))


class Copies(ps.Stateless[Presence | ps.Tombstone, Presence | ps.Tombstone]):
    """Copies records and tombstones."""

    reads, writes, tombstones = present, copies, True

    def process(self, event: Presence | ps.Tombstone) -> list[Presence | ps.Tombstone]:
        return [event]


class AsyncCopies(Copies):
    """The same, with concurrent calls."""

    name, writes = "async_copies", ps.Category("async_copies", Presence, key="user", event_time="since", buckets=2)

    async def process(self, event: Presence | ps.Tombstone) -> list[Presence | ps.Tombstone]:  # type: ignore[override]  # another colour
        return [event]


ROWS: list[Presence | ps.Tombstone] = [
    *(Presence(user, 1) for user in "abc"),
    ps.Tombstone("a"),
    Presence("b", 2),
    ps.Tombstone("b"),
    ps.Tombstone("b"),
    Presence("a", 3),
]


@pytest.mark.parametrize("step", [None, *(step for step in steps_of(Balances))])
def test_a_stateful_processor_receives_the_tombstones_that_it_declares(step: Step | None) -> None:
    """They are in order with the records of their key, once despite crashes."""
    driver = Driver(Balances)
    crash = [] if step is None else [Crash(before=step)]
    driver.send(present, [*ROWS[:5], *crash, *ROWS[5:]])
    found: dict[str, list[int]] = {}
    for balance in driver.read(balances):
        found.setdefault(balance.user, []).append(balance.records)

    assert found == {"a": [1, -1, 1], "b": [1, 2, -2, 0], "c": [1]}
    assert driver.dead_letters(Balances) == []


def test_an_ordered_processor_receives_tombstones_at_their_timestamps() -> None:
    """They come after the records, whose event times are earlier."""
    driver = Driver(OrderedBalances)
    driver.send(present, [Presence("b", 2), Presence("b", 1), Presence("c", 1), ps.Tombstone("b"), ps.Tombstone("a")])
    driver.advance(60)
    driver.send(present, [ps.Tombstone(f"later{number}") for number in range(20)])
    found: dict[str, list[int]] = {}
    for balance in driver.read(OrderedBalances.writes):
        found.setdefault(balance.user, []).append(balance.records)

    assert {user: found.get(user) for user in "abc"} == {"a": [0], "b": [1, 2, -2], "c": [1]}


@pytest.mark.parametrize("processor", [Copies, AsyncCopies])
def test_a_stateless_processor_forwards_tombstones(processor: type[Copies]) -> None:
    """Each has the key of its record."""
    driver = Driver(processor)
    driver.send(present, ROWS)

    by_user: dict[str, list[Any]] = {}
    for row in driver.read(processor.writes):
        by_user.setdefault(row.key if isinstance(row, ps.Tombstone) else row.user, []).append(row)
    assert by_user == {
        user: [row for row in ROWS if (row.key if isinstance(row, ps.Tombstone) else row.user) == user]
        for user in "abc"
    }


def test_other_processors_reject_tombstones() -> None:
    """Tombstones count as messages that do not decode."""

    class Deaf(Copies):
        name, tombstones = "deaf", False

    driver = Driver(Deaf)
    driver.send(present, ROWS)

    assert len(driver.dead_letters(Deaf)) == 3


def test_tombstones_are_refused_where_they_have_no_meaning() -> None:
    """A repartition, joins, windows, and processors with a category of late events refuse them."""

    class Rekeyed(ps.Repartition):
        reads, tombstones = present, True
        writes = ps.Category("rekeyed", Presence, key="since", event_time="since", buckets=2)

    class Looked(ps.LookupJoin):
        reads, writes, tombstones = present, copies, True
        source = ps.lookups.MemoryTable({})

        def key_of(self, event: Presence) -> str:
            return event.user

        def join(self, event: Presence, row: Any) -> list[Presence]:
            return [event]

    class Late(OrderedBalances):
        late = ps.Category("late_rows", Presence, key="user", event_time="since", buckets=2)

    class Joined(ps.TableJoin):
        table, stream, writes, tombstones = present, purchases, sales, True

        def join(self, event: Purchase, row: Presence | None, context: ps.Context) -> list[Sale]:
            return []

    for processor in (Rekeyed, Looked, Joined, Late):
        with pytest.raises(DeclarationError, match="tombstone"):
            plan_of(processor).check()
