"""Past events and replays as tables, on a bus in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest

import penstock as ps
from penstock import notebook
from penstock.errors import DeclarationError
from penstock.transport import CategorySpec, Outgoing
from penstock.transport.codecs import Codecs, encoded_messages
from penstock.transport.memory import MemoryBus


class Sale(ps.Record, frozen=True):
    """A sale."""

    shop: str
    at: ps.EventTime
    cents: int


class Total(ps.Record, frozen=True):
    """The sales of a shop so far."""

    shop: str
    at: ps.EventTime
    cents: int


sales = ps.Category("sales", Sale, key="shop", event_time="at", buckets=2)
totals = ps.Category("totals", Total, key="shop", event_time="at", buckets=2)


class Totals(ps.Stateful[Sale, int, Total]):
    """Adds the sales of each shop."""

    reads, writes, state = sales, totals, int
    on_undecodable = ps.ErrorPolicy.DEAD_LETTER

    def process(self, event: Sale, state: int | None, context: ps.Context) -> tuple[int, Iterable[Total]]:
        """Return the new total."""
        cents = (state or 0) + event.cents
        return cents, [Total(event.shop, event.at, cents)]


NOW_MS = int(datetime.now(UTC).timestamp() * 1000)
GIVEN = [Sale(f"s{number % 3}", NOW_MS - 100 + number, number) for number in range(30)]


@pytest.fixture
def bus() -> MemoryBus:
    """A bus with sales, one of which does not decode."""
    bus = MemoryBus()
    for category in (sales, totals):
        bus.create(CategorySpec.of(category))
    writer = bus.writer()
    writer.send(sales.name, list(encoded_messages(sales, Codecs(bus).of(sales), GIVEN)))
    writer.send(sales.name, [Outgoing(b"s0", b"{", -1)])
    writer.flush()
    return bus


def test_a_slice_is_a_sequence_of_records_and_a_table(bus: MemoryBus) -> None:
    """Each record has its origin. Messages that do not decode are counted."""
    found = notebook.read(sales, bus=bus)
    table = found.to_arrow()

    assert sorted(found, key=lambda sale: sale.at) == GIVEN
    assert found.undecodable == 1
    assert table.num_rows == 30
    assert table.column_names == ["shop", "at", "cents", "_bucket", "_key", "_event_time", "_arrived"]
    assert Counter(table["_key"].to_pylist()) == Counter(sale.shop for sale in GIVEN)
    assert found.to_pandas()["cents"].sum() == found.to_polars()["cents"].sum() == sum(sale.cents for sale in GIVEN)


def test_a_slice_of_a_key_has_only_its_events(bus: MemoryBus) -> None:
    """They are in order."""
    assert list(notebook.read(sales, key="s1", bus=bus)) == [sale for sale in GIVEN if sale.shop == "s1"]


def test_a_limit_keeps_the_last_records(bus: MemoryBus) -> None:
    """They are the last ones of all buckets together."""
    found = notebook.read(sales, limit=5, bus=bus)

    assert len(found) == 5
    assert len(found[:2].to_arrow()) == 2


@pytest.mark.parametrize(("since", "until"), [(timedelta(hours=1), None), (timedelta(hours=-2), timedelta(hours=-1))])
def test_a_range_without_events_is_empty(bus: MemoryBus, since: timedelta, until: timedelta | None) -> None:
    """It is not an error, and the table still has its columns."""
    now = datetime.now(UTC)
    found = notebook.read(sales, since=now + since, until=None if until is None else now + until, bus=bus)

    assert len(found) == 0
    assert "cents" in found.to_arrow().column_names


def test_a_replay_returns_the_outputs_and_writes_nothing(bus: MemoryBus) -> None:
    """Each shop has its totals in order."""
    result = notebook.replay(Totals, bus=bus)

    for shop in ("s0", "s1", "s2"):
        cents = [sale.cents for sale in GIVEN if sale.shop == shop]
        expected = [sum(cents[: at + 1]) for at in range(len(cents))]
        assert [total.cents for total in result[totals] if total.shop == shop] == expected
    assert (result.counts.events, result.counts.outputs, result.counts.dead_letters) == (31, 30, 1)
    assert list(result) == [totals]
    assert sum(bus.describe(totals.name).ends.values()) == 0


def test_a_replay_of_a_key_returns_its_outputs_only(bus: MemoryBus) -> None:
    """The state of the other keys is the same."""
    result = notebook.replay(Totals, key="s2", from_empty=True, bus=bus)

    assert {total.shop for total in result[totals]} == {"s2"}
    assert len(result[totals]) == 10


def test_tables_are_shown_short(bus: MemoryBus) -> None:
    """Text and HTML contain the first records and the number of the others, and no markup of the data."""
    writer = bus.writer()
    writer.send(sales.name, list(encoded_messages(sales, Codecs(bus).of(sales), [Sale("<b>", NOW_MS, 1)])))
    writer.flush()
    found, result = notebook.read(sales, bus=bus), notebook.replay(Totals, bus=bus)

    assert "31 records of sales, and 1 message that did not decode" in repr(found)
    assert "… and 21 more" in repr(found)
    assert "… and 21 more" in found._repr_html_()
    assert "<b>" not in notebook.read(sales, key="<b>", bus=bus)._repr_html_()
    assert "Totals: 32 events read" in repr(result)
    assert "Totals: 32 events read" in result._repr_html_()


@pytest.mark.parametrize("reads", [notebook.read, notebook.replay])
def test_an_unclear_range_is_refused(bus: MemoryBus, reads: object) -> None:
    """It has two beginnings, or a time without an offset from UTC."""
    subject = sales if reads is notebook.read else Totals
    now = datetime.now(UTC)

    with pytest.raises(DeclarationError, match="`last` and `since`"):
        reads(subject, last=timedelta(hours=1), since=now, bus=bus)  # type: ignore[operator]  # two signatures
    with pytest.raises(DeclarationError, match="no offset from UTC"):
        reads(subject, since=now.replace(tzinfo=None), bus=bus)  # type: ignore[operator]  # as above
