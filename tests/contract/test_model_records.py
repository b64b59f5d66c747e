"""Pydantic models as records: in every format, in columns, in state, in joins, and refused where they cannot be records."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, NewType
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    RootModel,
    computed_field,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

import penstock as ps
from penstock.backfill.warehouse import RecordColumns
from penstock.errors import DeclarationError
from penstock.processors.declare import CodecSpec, Decoded, InvalidRecord
from penstock.testing import Crash, Driver, Step, json_of, record_of
from penstock.transport import MessageCopy
from penstock.transport.codecs import Codecs
from penstock.transport.memory import MemoryBus

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
CODECS = pytest.mark.parametrize("codec", ["json", "avro", ps.codecs.MessagePack()], ids=str)
Article = NewType("Article", str)


class Payment(Enum):
    """An enum."""

    CARD = "card"
    CASH = "cash"


class Line(BaseModel):
    """A nested model with an alias."""

    article: Article = Field(alias="articleId")
    count: int = Field(ge=1, le=2**63 - 1)
    options: dict[str, int] = {}


class Order(BaseModel):
    """A model with a field of each shape, and the names of another language."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    order_id: str
    ordered_at: AwareDatetime
    price: Annotated[Decimal, Field(ge=0)]
    reference: UUID
    payment: Payment = Payment.CARD
    lines: list[Line] = []
    first_line: Line | None = None
    note: str = "none"

    @model_validator(mode="after")
    def first_is_a_line(self) -> Order:
        """Refuse a first line that is no line."""
        if self.first_line is not None and self.first_line not in self.lines:
            raise ValueError("the first line is no line of the order")
        return self


class Flat(BaseModel):
    """A model of scalars."""

    id: str
    at: ps.EventTime
    note: str = "none"
    rate: float | None = None


class Answer(Flat):
    """The same fields as another type, as joins distinguish their inputs by type."""


LINES = st.builds(
    lambda article, count, options: Line(articleId=article, count=count, options=options),
    TEXT,
    st.integers(1, 2**63 - 1),
    st.dictionaries(TEXT, INT64, max_size=2),
)


@st.composite
def orders(draw: st.DrawFn) -> Order:
    """Return an order."""
    lines = draw(st.lists(LINES, max_size=2))
    return Order(
        order_id=draw(TEXT),
        ordered_at=datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=draw(st.integers(0, 2**52))),
        price=draw(st.decimals(0, 10**6, places=2)),
        reference=draw(st.uuids()),
        payment=draw(st.sampled_from(Payment)),
        lines=lines,
        first_line=draw(st.sampled_from([None, *lines])),
        note=draw(TEXT),
    )


FLATS = st.builds(
    Flat,
    id=st.from_regex(r"\A[a-z]+\Z"),
    at=INT64,
    note=TEXT.filter(lambda text: "\0" not in text),
    rate=st.none() | st.floats(allow_nan=False, allow_infinity=False),
)


def of_orders(codec: Any = "json") -> ps.Category[Order]:
    return ps.Category("orders", Order, key="order_id", event_time="ordered_at", codec=codec)


def of_flats(name: str = "flats", record: type[Any] = Flat, codec: Any = "json") -> ps.Category[Any]:
    return ps.Category(name, record, key="id", event_time="at", buckets=1, codec=codec)


def decoded(of: ps.Category[Any], values: Sequence[bytes]) -> Decoded:
    return Codecs(MemoryBus()).of(of).decode(list(map(MessageCopy, values)))


def reread(of: ps.Category[Any], records: list[Any]) -> list[Any]:
    """Return records after they were encoded and decoded."""
    codec = Codecs(MemoryBus()).of(of)
    found = codec.decode(list(map(MessageCopy, codec.encode(records))))
    assert found.bad == []
    return list(found.events)


@settings(deadline=None)
@CODECS
@given(given_orders=st.lists(orders(), max_size=3))
def test_models_are_read_as_they_were_written(codec: str | CodecSpec, given_orders: list[Order]) -> None:
    """They have nested models, datetimes, decimals, enums and aliases."""
    assert reread(of_orders(codec), given_orders) == given_orders


@settings(deadline=None)
@given(records=st.lists(FLATS, max_size=3))
def test_models_are_csv_lines(records: list[Flat]) -> None:
    """Pydantic reads numbers from the text."""
    assert reread(of_flats(codec=ps.codecs.Csv()), records) == records


@settings(deadline=None)
@given(given_orders=st.lists(orders(), max_size=3), flats=st.lists(FLATS, max_size=3))
def test_models_survive_the_conversion_to_columns_and_back(given_orders: list[Order], flats: list[Flat]) -> None:
    """The archive and Spark store such columns."""
    for record, records in ((Order, given_orders), (Flat, flats)):
        columns = RecordColumns(record)
        stored = pa.RecordBatch.from_arrays(columns.arrays(records), schema=columns.schema)
        assert columns.records(stored) == records


def test_aliases_are_the_names_on_the_bus() -> None:
    """Messages and columns have them. The key and the event time accept both names."""
    by_alias = ps.Category("orders", Order, key="orderId", event_time="orderedAt")
    [value] = (
        Codecs(MemoryBus())
        .of(by_alias)
        .encode(
            [Order(order_id="a", ordered_at=datetime(2024, 1, 1, tzinfo=UTC), price=Decimal(1), reference=UUID(int=1))]
        )
    )

    assert (by_alias.key, by_alias.times.name) == (of_orders().key, of_orders().times.name) == ("orderId", "orderedAt")
    assert value == (
        b'{"orderId":"a","orderedAt":"2024-01-01T00:00:00Z","price":"1","reference":"00000000-0000-0000-0000-000000000001",'
        b'"payment":"card","lines":[],"firstLine":null,"note":"none"}'
    )
    assert RecordColumns(Order).schema.names[:2] == ["orderId", "orderedAt"]


@CODECS
def test_a_message_that_pydantic_refuses_is_undecodable(codec: Any) -> None:
    """The reason has pydantic's reasons and their places, but not the values. Other messages of the batch are read."""
    lax = ps.Category("orders", Lax, key="id", event_time="at", codec=codec)
    strict = ps.Category("orders", Limited, key="id", event_time="at", codec=codec)
    bus = MemoryBus()
    good, bad = Codecs(bus).of(lax).encode([Lax(id="a", at=1, counts=[1]), Lax(id="secret", at=2, counts=[5, -1])])
    found = Codecs(bus).of(strict).decode([MessageCopy(good), MessageCopy(bad)])

    assert found.events == [Limited(id="a", at=1, counts=[1])]
    assert [(each.at, each.reason) for each in found.bad] == [
        (1, "Value error, no such id - at `$.id`; Input should be greater than 0 - at `$.counts[1]`")
    ]


class Lax(BaseModel):
    """A model without limits."""

    id: str
    at: int
    counts: list[int]


class Limited(BaseModel):
    """The same with limits."""

    id: str
    at: int
    counts: list[Annotated[int, Field(gt=0)]]

    @field_validator("id")
    @classmethod
    def _check_id(cls, value: str) -> str:
        if value == "secret":
            raise ValueError("no such id")
        return value


def test_the_rules_of_pydantic_apply_in_place_of_msgspecs() -> None:
    """Text becomes a number, as pydantic converts it; a strict model refuses it. Unknown fields are ignored."""

    class Strict(Flat, strict=True):
        """A strict model."""

    value = b'{"id": "a", "at": "7", "other": 1}'

    assert decoded(of_flats(), [value]).events == [Flat(id="a", at=7)]
    assert [bad.reason for bad in decoded(of_flats(record=Strict), [value]).bad] == [
        "Input should be a valid integer - at `$.at`"
    ]


def test_a_validator_that_fails_makes_its_message_undecodable() -> None:
    """The error may be one that pydantic does not expect of validators."""

    class Failing(Flat):
        """A model with a mistake."""

        @field_validator("note")
        @classmethod
        def look_up(cls, value: str) -> str:
            """Look up a name."""
            return {"x": "y"}[value]

    [bad] = decoded(of_flats(record=Failing), [b'{"id": "a", "at": 1, "note": "z"}']).bad

    assert bad.reason == "a validator of Failing raised KeyError: 'z'"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{", "truncated"),
        (b"[]", "Input should be an object"),
        (b'{"id": "a", "at": 1, "rate": NaN}', "float must be finite"),
        (b'{"id": "a", "at": 9223372036854775808}', "beyond 64 bits"),
        (None, "the message is empty"),
    ],
)
def test_the_limits_of_all_records_apply(value: bytes | None, reason: str) -> None:
    """Numbers that no other format can represent are refused, also where pydantic accepts them."""
    time = ps.Category("flats", Flat, key="id", event_time=lambda _: 0)
    found = Codecs(MemoryBus()).of(time).decode([MessageCopy(value)])

    assert [reason in bad.reason for bad in found.bad] == [True]


def test_a_missing_event_time_is_no_other_violation() -> None:
    """The setting `on_missing_event_time` applies to it."""
    [bad] = decoded(
        of_orders(), [b'{"orderId": "a", "price": 1, "reference": "00000000-0000-0000-0000-000000000001"}']
    ).bad

    assert (bad.untimed, bad.reason) == (True, "no event time: 'orderedAt' is missing or null")


def test_times_with_offsets_are_converted_to_utc() -> None:
    """The record is copied."""
    at = datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    [read] = reread(of_orders(), [Order(order_id="a", ordered_at=at, price=Decimal(1), reference=UUID(int=1))])

    assert read.ordered_at.isoformat() == "2024-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (Flat(id="a", at=1).model_copy(update={"note": 5}), "Expected `str`, got `int`"),
        (
            Limited(id="a", at=1, counts=[1]).model_copy(update={"counts": [-1]}),
            r"greater than 0 - at `\$.counts\[0\]`",
        ),
        (Limited.model_construct(id="secret", at=1, counts=[]), "no such id"),
        (Flat.model_construct(id="a"), "missing required field `at`"),
    ],
    ids=str,
)
def test_a_model_that_violates_its_own_rules_is_not_written(record: Any, reason: str) -> None:
    """Pydantic checks only constructors, so a copy or an assignment can make a model that its readers would refuse."""
    with pytest.raises(InvalidRecord, match=reason):
        reread(ps.Category("any", type(record), key="id", event_time=lambda _: 0), [record])


class Taxed(Flat):
    """A model whose validator changes its own results."""

    @field_validator("at")
    @classmethod
    def add(cls, value: int) -> int:
        """Add one."""
        return value + 1


def test_a_model_whose_validators_change_their_results_is_not_written() -> None:
    """Readers would get another record."""
    with pytest.raises(InvalidRecord, match="validators change a valid value"):
        reread(of_flats(record=Taxed), [Taxed(id="a", at=1)])


@CODECS
def test_nan_is_not_written(codec: str | CodecSpec) -> None:
    """It would become null in JSON."""
    with pytest.raises(InvalidRecord, match="must be finite"):
        reread(of_flats(codec=codec), [Flat(id="a", at=1, rate=float("nan"))])


def test_validators_do_not_run_for_stored_records() -> None:
    """A record in the archive or in a state was validated when its message was read; its validators would change it again."""
    [read] = decoded(of_flats(record=Taxed), [b'{"id": "a", "at": 1}']).events
    columns = RecordColumns(Taxed)
    stored = pa.RecordBatch.from_arrays(columns.arrays([read]), schema=columns.schema)

    assert read.at == 2
    assert columns.records(stored) == [read] == [record_of(of_flats(record=Taxed), json_of(read))]


class Seen(BaseModel):
    """A state."""

    model_config = ConfigDict(frozen=True)

    count: int = Field(alias="n")
    last: Line | None = None


def test_a_state_may_be_a_frozen_model() -> None:
    """It survives crashes."""
    flats, counts = of_flats(), of_flats("counts")

    class Count(ps.Stateful):
        """Counts the events of a key."""

        reads, writes, state = flats, counts, Seen
        state_semantics = output_semantics = ps.Semantics.EXACTLY_ONCE

        def process(self, event: Flat, state: Seen | None, context: ps.Context) -> tuple[Seen, list[Flat]]:
            assert {type(state), type(state and state.last)} in ({type(None)}, {Seen, Line})
            count = (state.count if state else 0) + 1
            return Seen(n=count, last=Line(articleId=Article("x"), count=count)), [
                Flat(id=event.id, at=event.at, note=f"{count}")
            ]

    driver = Driver(Count)
    driver.send(flats, [Flat(id="a", at=1), Crash(before=Step.APPLY_STATE), Flat(id="a", at=2), Crash(before=None)])
    driver.run()
    driver.send(flats, [Flat(id="a", at=3)])
    driver.run()

    assert [event.note for event in driver.read(counts)] == ["1", "2", "3"]


def test_a_state_that_is_changed_in_place_counts_no_rejected_event() -> None:
    """A model that is not frozen may be changed and returned; what a rejected event has changed is in no state."""
    flats, counts = of_flats(), of_flats("counts")

    class Count(ps.Stateful):
        """Collects in its state, and then refuses some events."""

        reads, writes, state = flats, counts, Line
        on_error = ps.ErrorPolicy.DEAD_LETTER

        def process(self, event: Flat, state: Line | None, context: ps.Context) -> tuple[Line, list[Flat]]:
            state = state or Line(articleId=Article("x"), count=1)
            state.options[f"{event.at}"] = 1
            if event.note == "bad":
                raise ValueError(event.note)
            return state, [Flat(id=event.id, at=event.at, note=f"{len(state.options)}")]

    driver = Driver(Count)
    notes = ["good", "bad", "good", "bad", "good"]
    driver.send(flats, [Flat(id="a", at=at, note=note) for at, note in enumerate(notes, 1)])
    driver.run()

    assert [event.note for event in driver.read(counts)] == ["1", "2", "3"]


def test_models_wait_in_the_buffer_of_an_ordered_processor() -> None:
    """They are delivered in order of event time, after a crash, and are not validated again."""
    taxed, texts = of_flats("taxed", Taxed), of_flats("texts")

    class InOrder(ps.Stateful):
        """Writes its events in order."""

        reads, writes, state, ordered = taxed, texts, int, True
        watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(milliseconds=10))

        def process(self, event: Taxed, state: int | None, context: ps.Context) -> tuple[int, list[Flat]]:
            return 0, [Flat(id=event.id, at=event.at)]

    driver = Driver(InOrder)
    driver.send(taxed, [b'{"id": "a", "at": %d}' % at for at in (5, 3, 4)])
    driver.send(taxed, [Crash(before=None), b'{"id": "a", "at": 100}', b'{"id": "a", "at": 200}'])

    assert [event.at for event in driver.read(texts)] == [4, 5, 6, 101]


def test_models_are_joined() -> None:
    """The events wait in state until their partner arrives."""
    lefts, rights, both = of_flats("left"), of_flats("right", Answer), of_flats("both")

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


class Computed(Flat):
    """A model with a computed field."""

    @computed_field  # type: ignore[prop-decorator]  # as pydantic documents it
    @property
    def size(self) -> int:
        """The length of the note."""
        return len(self.note)


class Root(RootModel[dict[str, int]]):
    """A model that is one value."""


class Shop:
    """An arbitrary class."""


class Arbitrary(Flat, arbitrary_types_allowed=True):
    """A model with a value of any class."""

    shop: Shop


class Open(Flat, extra="allow"):
    """A model that keeps unknown fields."""


class Serialized(Flat):
    """A model with its own serializer."""

    @field_serializer("note")
    def shout(self, value: str) -> str:
        """Return capitals."""
        return value.upper()


class Annotations(Flat):
    """A model with a serializer in the type of a field."""

    marks: list[Annotated[int, PlainSerializer(str)]]


class Encoded(Flat):
    """A model with encoders in its configuration."""

    model_config = ConfigDict(json_encoders={Decimal: float})


class Hidden(Flat):
    """A model with a field that pydantic does not write."""

    secret: str = Field("", exclude=True)


class TwoNames(Flat):
    """A model that reads one name and writes another."""

    page: str = Field("", validation_alias="url")


class Choices(Flat):
    """A model that reads several names."""

    page: str = Field("", validation_alias=AliasChoices("url", "page"))


class SameName(Flat):
    """A model with two fields of one name."""

    text: str = Field("", alias="note")


class Dependent(Flat):
    """A model whose default depends on another field."""

    size: int = Field(default_factory=lambda fields: len(fields["note"]))


class WrongDefault(Flat):
    """A model with a default of another type, which pydantic does not check."""

    price: Decimal = 0  # type: ignore[assignment]  # the mistake


class NoDefault(Flat):
    """A model with a default that does not fit the type."""

    count: int = "none"  # type: ignore[assignment]  # the mistake


class Raw(Flat):
    """A model with bytes."""

    data: bytes


class Nested(Flat):
    """A model that contains a refused one."""

    inner: Computed | None = None


class WithMetadata(Flat):
    """A model with a metadata field."""

    key: Annotated[str, ps.metadata.Key]


class AroundModel(ps.Record, frozen=True):
    """A Record with a model."""

    id: str
    at: int
    lines: list[Line]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (lambda: BaseModel, "no fields"),
        (lambda: Computed, "computed field 'size'.*property"),
        (lambda: Root, "root model"),
        (lambda: Arbitrary, "Arbitrary.shop.*Shop"),
        (lambda: Open, 'extra="allow"'),
        (lambda: Serialized, "serializer 'shout'"),
        (lambda: Annotations, "serializer of Annotations.marks"),
        (lambda: Encoded, "serializer 'json_encoders'"),
        (lambda: Hidden, "Hidden.secret is excluded"),
        (lambda: TwoNames, "read as 'url' and written as 'page'"),
        (lambda: Choices, r"read as AliasChoices.*Field\(alias=…\)"),
        (lambda: SameName, "have the name 'note' on the bus"),
        (lambda: Dependent, "default of Dependent.size depends on other fields"),
        (lambda: WrongDefault, "default 0 of WrongDefault.price.*, Decimal, and pydantic would not convert it"),
        (lambda: NoDefault, "default 'none' of NoDefault.count.*Expected `int`, got `str`"),
        (lambda: Raw, "Raw.data is bytes.*base64"),
        (lambda: Nested, "Computed is not a record type"),
        (lambda: WithMetadata, "WithMetadata.key is a metadata field"),
        (lambda: AroundModel, "AroundModel.lines contains the pydantic model Line.*as a model, too"),
        (lambda: Flat | Limited, "has no tag"),
    ],
)
def test_a_model_that_cannot_be_a_record_is_refused_with_the_remedy(record: Callable[[], Any], reason: str) -> None:
    """Each declaration of the category is refused."""
    for _ in range(2):
        with pytest.raises(DeclarationError, match=reason):
            of_flats(record=record())


def test_a_version_of_pydantic_without_the_needed_options_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message would otherwise be undecodable."""
    monkeypatch.setattr("penstock.processors.models.structs.VERSION", "2.10.6")

    class Model(Flat):
        """A model."""

    with pytest.raises(DeclarationError, match=r"pydantic 2.10.6, .*penstock\[pydantic\]"):
        of_flats(record=Model)


class Tree(BaseModel):
    """A model that contains models of its own type, through another one."""

    id: str
    at: int
    left: Branch | None = None


class Branch(BaseModel):
    """The other one."""

    tree: Tree
    weight: int = Field(default=1, alias="w")


def test_a_model_may_contain_itself() -> None:
    """It may be nested at any depth."""
    tree = Tree(id="a", at=1, left=Branch(tree=Tree(id="b", at=2, left=Branch(tree=Tree(id="c", at=3), w=2))))

    assert reread(of_flats(record=Tree), [tree]) == [tree]


class Coded(Flat, use_enum_values=True):
    """A model that contains the values of an enum."""

    payment: Payment


def test_a_model_with_the_values_of_enums_keeps_them() -> None:
    """Columns have the values, too."""
    columns = RecordColumns(Coded)
    record = Coded(id="a", at=1, payment=Payment.CASH)
    stored = pa.RecordBatch.from_arrays(columns.arrays([record]), schema=columns.schema)

    assert reread(of_flats(record=Coded), [record]) == columns.records(stored) == [record]
    assert record.model_dump()["payment"] == "cash"


def test_an_app_without_models_does_not_import_pydantic() -> None:
    """It need not be installed, and commands start as fast as without it."""
    program = """
import sys
from penstock.ops.shell.command_line.main import app
import penstock as ps

class Flat(ps.Record, frozen=True):
    id: str
    at: int

ps.Category("flats", Flat, key="id", event_time="at")
sys.exit("pydantic" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
