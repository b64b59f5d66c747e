"""Standard dataclasses as records: in every format, in columns, in state, in joins, and refused where they cannot be records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic.dataclasses import dataclass as pydantic_dataclass

import penstock as ps
from penstock.backfill.warehouse import RecordColumns
from penstock.errors import DeclarationError
from penstock.processors.declare import CodecSpec, InvalidRecord
from penstock.testing import Driver
from penstock.transport import MessageCopy
from penstock.transport.codecs import Codecs
from penstock.transport.memory import MemoryBus

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@dataclass
class Line:
    """A nested dataclass that can change."""

    article: str
    count: int
    options: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Order:
    """A frozen dataclass with a field of each shape."""

    id: str
    at: datetime
    price: Decimal
    lines: list[Line]
    first: Line | None = None
    note: str = "none"

    def __post_init__(self) -> None:
        """Refuse negative prices."""
        if self.price < 0:
            raise ValueError("the price is negative")


@dataclass(kw_only=True)
class Flat:
    """A dataclass of scalars with keyword arguments; a default is before a field without one."""

    note: str = "none"
    id: str
    at: ps.EventTime


@dataclass
class Answer(Flat):
    """The same fields as another type, as joins distinguish their inputs by type."""


@dataclass
class Traced:
    """A dataclass with metadata fields."""

    text: str
    id: Annotated[str, ps.metadata.Key]
    at: ps.EventTime
    trace: Annotated[str | None, ps.metadata.Header("trace")] = None


LINES = st.builds(Line, TEXT, INT64, st.dictionaries(TEXT, INT64, max_size=2))
ORDERS = st.builds(
    Order,
    id=TEXT,
    at=st.integers(0, 2**52).map(lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)),
    price=st.decimals(0, 10**6, places=2),
    lines=st.lists(LINES, max_size=2),
    first=st.none() | LINES,
    note=TEXT,
)
FLATS = st.builds(Flat, note=TEXT.filter(lambda text: "\0" not in text), id=st.from_regex(r"\A[a-z]+\Z"), at=INT64)


def category(record: type[Any], codec: Any = "json") -> ps.Category[Any]:
    return ps.Category("orders", record, key="id", event_time="at", codec=codec)


def reread(of: ps.Category[Any], records: list[Any]) -> list[Any]:
    """Return records after they were encoded and decoded."""
    codec = Codecs(MemoryBus()).of(of)
    decoded = codec.decode(list(map(MessageCopy, codec.encode(records))))
    assert decoded.bad == []
    return list(decoded.events)


@settings(deadline=None)
@pytest.mark.parametrize("codec", ["json", "avro", ps.codecs.MessagePack()], ids=str)
@given(orders=st.lists(ORDERS, max_size=3))
def test_dataclasses_are_read_as_they_were_written(codec: str | CodecSpec, orders: list[Order]) -> None:
    """They have nested dataclasses, datetimes and decimals."""
    assert reread(category(Order, codec), orders) == orders


@given(records=st.lists(FLATS, max_size=3))
def test_dataclasses_with_keyword_arguments_are_csv_lines(records: list[Flat]) -> None:
    """Each field is found by its name."""
    assert reread(category(Flat, ps.codecs.Csv()), records) == records


@settings(deadline=None)
@given(orders=st.lists(ORDERS, max_size=3), flats=st.lists(FLATS, max_size=3))
def test_dataclasses_survive_the_conversion_to_columns_and_back(orders: list[Order], flats: list[Flat]) -> None:
    """The archive and Spark store such columns."""
    for record, records in ((Order, orders), (Flat, flats)):
        columns = RecordColumns(record)
        stored = pa.RecordBatch.from_arrays(columns.arrays(records), schema=columns.schema)
        assert columns.records(stored) == records


@pytest.mark.parametrize("codec", ["json", ps.codecs.MessagePack()], ids=str)
def test_a_constructor_that_refuses_a_value_makes_the_message_undecodable(codec: str | CodecSpec) -> None:
    """`__post_init__` validates messages, too; other messages of the batch are read."""
    good = Order("a", datetime(2024, 1, 1, tzinfo=UTC), Decimal(1), [])
    subject = Codecs(MemoryBus()).of(category(Order, codec))
    [value] = subject.encode([good])
    negative = value.replace(b'"1"', b'"-1"').replace(b"\xa11", b"\xa2-1")

    decoded = subject.decode([MessageCopy(negative), MessageCopy(value)])

    assert list(decoded.events) == [good]
    assert ["the price is negative" in bad.reason for bad in decoded.bad] == [True]


def test_a_value_that_does_not_fit_is_not_written() -> None:
    """Dataclasses do not check their values, so the codec does."""
    wrong: Any = "many"
    with pytest.raises(InvalidRecord, match="Order does not fit"):
        reread(category(Order), [Order("a", datetime(2024, 1, 1, tzinfo=UTC), Decimal(1), [Line("b", wrong)])])


def test_times_with_offsets_are_converted_to_utc() -> None:
    """A frozen dataclass is copied."""
    at = datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    [read] = reread(category(Order), [Order("a", at, Decimal(1), [])])

    assert read.at.isoformat() == "2024-01-01T00:00:00+00:00"


def test_metadata_fields_of_a_dataclass_are_filled() -> None:
    """The key and a header are parts of the message, and the rest is its value."""
    texts = category(Traced)
    copies = ps.Category("copies", Traced, key="id", event_time="at")

    class Copy(ps.Stateless):
        """Returns each event, under another key."""

        reads, writes = texts, copies

        def process(self, event: Traced) -> list[ps.To]:
            return [ps.To(copies, event, key="b")]

    driver = Driver(Copy)
    driver.send(texts, [Traced("hello", "a", 1_700_000_000_000, "t1")])
    driver.run()

    assert driver.read(copies) == [Traced("hello", "b", 1_700_000_000_000, "t1")]


@dataclass(frozen=True)
class Seen:
    """A state."""

    count: int
    last: Line | None


def test_a_state_may_be_a_frozen_dataclass() -> None:
    """It survives a crash."""
    flats = ps.Category("flats", Flat, key="id", event_time="at", buckets=1)
    counts = ps.Category("counts", Flat, key="id", event_time="at", buckets=1)

    class Count(ps.Stateful):
        """Counts the events of a key."""

        reads, writes, state = flats, counts, Seen

        def process(self, event: Flat, state: Seen | None, context: ps.Context) -> tuple[Seen, list[Flat]]:
            count = (state.count if state else 0) + 1
            return Seen(count, Line(event.note, count)), [Flat(id=event.id, at=event.at, note=f"{count}")]

    driver = Driver(Count)
    driver.send(flats, [Flat(id="a", at=1_700_000_000_000), Flat(id="a", at=1_700_000_000_001)])
    driver.run()
    driver.send(flats, [Flat(id="a", at=1_700_000_000_002)])
    driver.run()

    assert [event.note for event in driver.read(counts)] == ["1", "2", "3"]


def test_a_state_that_is_changed_in_place_counts_no_rejected_event() -> None:
    """A dataclass that is not frozen may be changed and returned; what a rejected event has changed is in no state."""
    flats = ps.Category("flats", Flat, key="id", event_time="at", buckets=1)
    counts = ps.Category("counts", Flat, key="id", event_time="at", buckets=1)

    class Count(ps.Stateful):
        """Counts in its state, and then refuses some events."""

        reads, writes, state = flats, counts, Line
        on_error = ps.ErrorPolicy.DEAD_LETTER

        def process(self, event: Flat, state: Line | None, context: ps.Context) -> tuple[Line, list[Flat]]:
            state = state or Line("a", 0)
            state.count += 1
            if event.note == "bad":
                raise ValueError(event.note)
            return state, [Flat(id=event.id, at=event.at, note=f"{state.count}")]

    driver = Driver(Count)
    notes = ["good", "bad", "good", "bad", "good"]
    driver.send(flats, [Flat(id="a", at=1_700_000_000_000 + at, note=note) for at, note in enumerate(notes)])

    assert [event.note for event in driver.read(counts)] == ["1", "2", "3"]


def test_dataclasses_are_joined() -> None:
    """The events wait in state until their partner arrives."""
    lefts = ps.Category("left", Flat, key="id", event_time="at", buckets=1)
    rights = ps.Category("right", Answer, key="id", event_time="at", buckets=1)
    both = ps.Category("both", Flat, key="id", event_time="at", buckets=1)

    class Both(ps.Join):
        """Joins two categories."""

        left, right, writes = lefts, rights, both
        after = timedelta(minutes=1)

        def join(self, left: Flat, right: Answer, context: ps.Context) -> list[Flat]:
            return [Flat(id=left.id, at=left.at, note=left.note + right.note)]

    driver = Driver(Both)
    driver.send(lefts, [Flat(id="a", at=1_700_000_000_000, note="x")])
    driver.run()
    driver.send(rights, [Answer(id="a", at=1_700_000_000_001, note="y")])
    driver.run()

    assert [event.note for event in driver.read(both)] == ["xy"]


@pydantic_dataclass
class PydanticData:
    """A dataclass of pydantic."""

    id: str
    at: int


@dataclass
class Computed:
    """A dataclass with a computed field."""

    id: str
    at: int
    size: int = field(init=False)


@dataclass
class WithArgument:
    """A dataclass with an argument that is no field."""

    id: str
    at: int
    seed: InitVar[int] = 1


class Undecorated(Flat):
    """Adds a field without being a dataclass."""

    size: int


@dataclass(init=False)
class OwnConstructor:
    """A dataclass with its own constructor."""

    id: str
    at: int


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (lambda: PydanticData, "would not be validated by pydantic.*standard dataclass"),
        (lambda: Computed, "'size' is no argument of the constructor.*property"),
        (lambda: WithArgument, "InitVar"),
        (lambda: Undecorated, "Decorate it with @dataclass"),
        (lambda: OwnConstructor, "Omit `init=False`"),
        (lambda: dict, "neither a Record nor a dataclass.*standard dataclass"),
        (lambda: dict[str, int], "it is no class.*standard dataclass"),
    ],
)
def test_a_type_that_cannot_be_a_record_is_refused_with_the_remedy(record: Callable[[], Any], reason: str) -> None:
    """The declaration of the category is refused."""
    with pytest.raises(DeclarationError, match=reason):
        category(record())
