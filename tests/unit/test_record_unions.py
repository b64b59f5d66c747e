"""Several record types in one category: declarations, routes, joins, and messages of other types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import pytest

import penstock as ps
from penstock.errors import DeclarationError
from penstock.processors.declare import plan_of
from penstock.testing import Driver


class Placed(ps.Record, frozen=True, tag="placed"):
    """An order was placed."""

    order: str
    at: ps.EventTime
    cents: int


class Settled(ps.Record, frozen=True, tag="settled"):
    """An order was paid."""

    order: str
    at: ps.EventTime
    card: str | None = None


class Balance(ps.Record, frozen=True):
    """The open amount of an order."""

    order: str
    at: ps.EventTime
    cents: int


Event = Placed | Settled


def category(name: str, record: Any, codec: Any = "json", **more: Any) -> ps.Category[Any]:
    return ps.Category(name, record, key="order", event_time="at", codec=codec, **more)


events: ps.Category[Event] = category("events", Placed | Settled)
wanted_events: ps.Category[Event] = category("wanted", Placed | Settled, ps.codecs.Json(other_types="skip"))
balances = ps.Category("balances", Balance, key="order", event_time="at")


class Balances(ps.Stateful[Event, int, Balance]):
    """Keeps the open amount of each order."""

    reads, writes, state = events, balances, int
    on_undecodable = ps.ErrorPolicy.DEAD_LETTER

    def process(self, event: Event, state: int | None, context: ps.Context) -> tuple[int | None, list[Balance]]:
        """Return the amount after the event."""
        match event:
            case Placed():
                cents = (state or 0) + event.cents
                return cents, [Balance(event.order, event.at, cents)]
            case Settled():
                return None, [Balance(event.order, event.at, 0)]


class WantedBalances(Balances):
    """The same, of a topic with further types."""

    reads = wanted_events


GIVEN: list[Event] = [Placed("a", 1, 5), Placed("b", 2, 7), Settled("a", 3), Placed("a", 4, 2)]
EXPECTED = [Balance("a", 1, 5), Balance("b", 2, 7), Balance("a", 3, 0), Balance("a", 4, 2)]
SHIPPED = b'{"type":"shipped","order":"a","at":2}'


def by_time(records: list[Balance]) -> list[Balance]:
    return sorted(records, key=lambda balance: balance.at)


def test_events_of_all_types_are_in_order_per_key() -> None:
    """The state of a key sees each of them."""
    driver = Driver(Balances)
    driver.send(events, GIVEN)
    driver.run()

    assert by_time(driver.read(balances)) == EXPECTED
    assert sorted(driver.read(events), key=lambda event: event.at) == GIVEN


@pytest.mark.parametrize(("of", "processor", "letters"), [(events, Balances, 1), (wanted_events, WantedBalances, 0)])
def test_other_types_are_undecodable_or_skipped(of: ps.Category[Any], processor: type[Balances], letters: int) -> None:
    """The codec declares the choice. The events around them are processed."""
    driver = Driver(processor)
    driver.send(of, [GIVEN[0], SHIPPED, *GIVEN[1:]])
    driver.run()

    assert by_time(driver.read(balances)) == EXPECTED
    assert len(driver.dead_letters(processor)) == letters
    assert all("shipped" in letter.reason for letter in driver.dead_letters(processor))


@pytest.mark.parametrize("message", [b'{"order":"a","at":2}', b'{"type":["placed"],"order":"a","at":2}', b"[]", b"{"])
def test_skipping_other_types_skips_no_invalid_message(message: bytes) -> None:
    """A message without a tag violates the format."""
    driver = Driver(WantedBalances)
    driver.send(wanted_events, [message])
    driver.run()

    assert len(driver.dead_letters(WantedBalances)) == 1


class Split(ps.Stateless[Event, Event]):
    """Writes each type to its category."""

    reads = events
    placed, settled = category("placed", Placed), category("settled", Settled)
    writes = (placed, settled)

    def process(self, event: Event) -> list[Event]:
        """Return the event."""
        return [event]


class Merge(ps.Stateless[Event, Event]):
    """Writes both types to one category."""

    reads, writes = (Split.placed, Split.settled), events

    def process(self, event: Event) -> list[Event]:
        """Return the event."""
        return [event]


def test_the_type_of_an_output_selects_its_category() -> None:
    """The category may have several types."""
    split, merge = Driver(Split), Driver(Merge)
    split.send(events, GIVEN)
    split.run()
    placed, settled = split.read(Split.placed), split.read(Split.settled)
    merge.send(Split.placed, placed)
    merge.send(Split.settled, settled)
    merge.run()

    assert {type(record) for record in placed} == {Placed}
    assert {type(record) for record in settled} == {Settled}
    assert sorted(merge.read(events), key=lambda event: event.at) == GIVEN


class Customer(ps.Record, frozen=True):
    """The customer of an order."""

    order: str
    at: ps.EventTime
    name: str


class Named(ps.Join[Event, Customer, Balance]):
    """Joins events of both types with a customer."""

    left, right = events, category("customers", Customer)
    writes = balances
    after = timedelta(seconds=1)

    def join(self, left: Event, right: Customer, context: ps.Context) -> list[Balance]:
        """Return one record for each pair."""
        return [Balance(f"{right.name}'s {type(left).__name__}", left.at, 0)]


def test_joins_buffer_all_types() -> None:
    """An event of either type finds its match."""
    driver = Driver(Named)
    driver.send(events, GIVEN[:3])
    driver.send(Named.right, [Customer("a", 4, "ann")])
    driver.run()

    assert [balance.order for balance in by_time(driver.read(balances))] == ["ann's Placed", "ann's Settled"]


class Untagged(ps.Record, frozen=True):
    """A record without a tag."""

    order: str
    at: ps.EventTime


class OtherField(ps.Record, frozen=True, tag="other", tag_field="kind"):
    """A record with another tag field."""

    order: str
    at: ps.EventTime


class SameTag(ps.Record, frozen=True, tag="placed"):
    """A record with the tag of another one."""

    order: str
    at: ps.EventTime


class OtherCents(ps.Record, frozen=True, tag="cents"):
    """A record with another type of a field."""

    order: str
    at: ps.EventTime
    cents: str


class Keyless(ps.Record, frozen=True, tag="keyless"):
    """A record without the key."""

    at: ps.EventTime


class Timeless(ps.Record, frozen=True, tag="timeless"):
    """A record without the event time."""

    order: str


class WithHeader(ps.Record, frozen=True, tag="header"):
    """A record with a metadata field."""

    order: str
    at: ps.EventTime
    trace: Annotated[str | None, ps.metadata.Header("trace")] = None


@dataclass
class Plain:
    """A dataclass, which has no tag."""

    order: str
    at: int


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: category("x", Placed | Untagged), r"Untagged in a union .* has no tag.*tag_field="),
        (lambda: category("x", Placed | Plain), r"Plain in a union .* has no tag"),
        (lambda: category("x", Placed | OtherField), r"different tag fields"),
        (lambda: category("x", Placed | SameTag), r"Placed, SameTag have the same tag"),
        (lambda: category("x", Placed | OtherCents), r"'cents' has several types"),
        (lambda: category("x", Placed | Keyless), r"`key='order'` is not a field of Keyless"),
        (lambda: category("x", Placed | Timeless), r"`event_time='at'` is not a field of Timeless"),
        (lambda: category("x", Placed | WithHeader), r"WithHeader in the union .* metadata fields \(trace\)"),
        (lambda: category("x", Placed | None), r"None"),
        (lambda: category("x", Event, "avro"), r"'avro' does not support several record types .*JSON or MessagePack"),
        (lambda: category("x", Event, ps.codecs.Csv()), r"does not support several record types"),
        (lambda: ps.codecs.Json(other_types="drop"), r"'reject' or 'skip'"),  # type: ignore[arg-type]  # on purpose
    ],
)
def test_types_that_do_not_fit_together_are_refused(declare: Callable[[], Any], message: str) -> None:
    """They are refused at the declaration of the category, with the type to change."""
    with pytest.raises(DeclarationError, match=message):
        declare()


class Rows(ps.TableJoin[Untagged, Any, Balance]):
    """Reads a category with several types as a table."""

    stream, table, writes = category("stream", Untagged), events, balances

    def join(self, event: Any, row: Any, context: ps.Context) -> list[Balance]:
        """Return nothing."""
        return []


def test_a_table_has_one_type() -> None:
    """The error names the alternative."""
    with pytest.raises(DeclarationError, match=r"the table events has several record types .*category of their own"):
        plan_of(Rows).check()


class Ambiguous(Split):
    """Writes a type to two categories."""

    writes = (Split.placed, category("others", Placed | Settled))


def test_a_type_in_two_outputs_needs_a_named_category() -> None:
    """Its outputs would otherwise be in one of them by chance."""
    driver = Driver(Ambiguous)

    with pytest.raises(ps.PenstockError, match=r"penstock\.To"):
        driver.send(events, GIVEN[:1])


def test_a_producer_takes_the_types_of_a_union() -> None:
    """They go to one category; a type of two categories is refused."""
    with pytest.raises(DeclarationError, match="the same record type, Placed"):
        ps.Producer(events, Split.placed, kafka="localhost:1")
