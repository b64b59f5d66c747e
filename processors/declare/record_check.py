"""Validation of the values in records.

Integers must fit into 64 bits with sign, and floats must be finite. JSON has no NaN or infinity; state, Avro and the warehouse have no wider
integers. The same limits therefore apply to every codec, in the stream and in Spark.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, Union
from uuid import UUID

import msgspec
from msgspec import inspect as shapes

from ..models import encode_model, is_model, shape_of
from ..wording import is_encodable, with_article, with_capital_article
from .record_readers import reader_of
from .records import RECORD_SHAPES, AnyRecord, RecordType, fields_of, members_of, type_name

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
SHOWN = 500
"""The maximum length of a record in an error, in characters."""
_FLOAT_MAX = sys.float_info.max


class InvalidRecord(TypeError):
    """A record contains a value that its category cannot carry."""


class _NotBounded(Exception):
    """A field has a type without a bounded equivalent; only the slow check applies."""


class RecordCheck:
    """Checks that the values in records fit their category.

    Args:
        record: the type.
        unchecked_field: a field whose integers are checked elsewhere, by its name on the bus.
    """

    def __init__(self, record: RecordType, unchecked_field: str | None = None) -> None:
        self._checks = {member: _TypeCheck(member, unchecked_field) for member in members_of(record)}
        self._name = type_name(record)

    def expect(self, records: Sequence[Any]) -> None:
        """Check a batch.

        Raises:
            InvalidRecord: a value does not fit; the message contains the record and the field.
        """
        for check, at in self._by_type(records):
            check.expect([records[index] for index in at] if len(self._checks) > 1 else records)

    def expect_one(self, record: Any) -> None:
        """Check one record, faster than as a batch, including its text.

        Raises:
            InvalidRecord: a value does not fit.
        """
        self._check_of(record).expect_one(record)

    def expect_text(self, records: Sequence[Any]) -> None:
        """Check that all text of a batch can be encoded. `expect` leaves this to the encoder; see `naming_text`.

        Raises:
            InvalidRecord: a text cannot be encoded; the message contains the record and the field.
        """
        for check, at in self._by_type(records):
            check.expect_text([records[index] for index in at])

    @contextmanager
    def naming_text(self, records: Sequence[Any]) -> Iterator[None]:
        """Encode a batch in this context.

        Raises:
            InvalidRecord: the encoder raised because of a text; the message contains the record and the field.
        """
        try:
            yield
        except UnicodeEncodeError:
            self.expect_text(records)
            raise

    def unfit(self, records: Sequence[Any]) -> dict[int, str]:
        """Return the reasons of the records in a batch that do not fit, by index."""
        found: dict[int, str] = {}
        for check, at in self._by_type(records):
            of_type = [records[index] for index in at] if len(self._checks) > 1 else records
            found |= {at[index]: reason for index, reason in check.unfit(of_type).items()}
        return found

    def _check_of(self, record: Any) -> _TypeCheck:
        if len(self._checks) == 1:
            return next(iter(self._checks.values()))
        check = self._checks.get(type(record))
        if check is None:
            raise InvalidRecord(
                f"{with_capital_article(type(record).__name__)} is not {with_article(self._name)}, in {record!r:.{SHOWN}}."
            )
        return check

    def _by_type(self, records: Sequence[Any]) -> Iterator[tuple[_TypeCheck, Sequence[int]]]:
        """Yield the check of each type among the records, with the indices of its records."""
        if len(self._checks) == 1:
            yield self._check_of(None), range(len(records))
            return
        indices: dict[_TypeCheck, list[int]] = {}
        for index, record in enumerate(records):
            indices.setdefault(self._check_of(record), []).append(index)
        yield from indices.items()


class _TypeCheck:
    """Checks records of one type.

    A whole batch is converted at once to a twin of the record type with bounded numbers. If the conversion fails, each record is checked
    value by value.

    Args:
        record: the type.
        unchecked_field: a field whose integers are checked elsewhere, by its name on the bus.
    """

    def __init__(self, record: type[AnyRecord], unchecked_field: str | None = None) -> None:
        self._record = record
        self._unchecked_field = unchecked_field
        self._shape = shape_of(record)
        self._reader = reader_of(record)
        self._encode = msgspec.json.Encoder(enc_hook=encode_model).encode
        self._is_model = is_model(record)
        self._twin: Any = _twin_of(record, unchecked_field)
        self._twins: Any = list[self._twin]  # type: ignore[name-defined]  # a dynamic type

    def expect(self, records: Sequence[Any]) -> None:
        """Check a batch.

        Raises:
            InvalidRecord: a value does not fit; the message contains the record and the field.
        """
        reasons = () if self._fit(records) else map(self._reason, records)
        self._raise_first(records, reasons)
        if self._is_model:
            self._raise_first(records, self._reasons_of_readers(records))

    def _raise_first(self, records: Sequence[Any], reasons: Iterable[str | None]) -> None:
        for record, reason in zip(records, reasons, strict=False):
            if reason is not None:
                shown = f"{record!r:.{SHOWN}}".encode(errors="backslashreplace").decode()
                raise InvalidRecord(
                    f"{with_capital_article(self._record.__name__)} does not fit its own type: {reason}, in {shown}."
                )

    def expect_one(self, record: Any) -> None:
        """Check one record, faster than as a batch.

        Raises:
            InvalidRecord: a value does not fit.
        """
        if self._is_model or not self._fits(record, self._twin):
            self.expect([record])
        self.expect_text([record])

    def expect_text(self, records: Sequence[Any]) -> None:
        """Check that all text of a batch can be encoded.

        Raises:
            InvalidRecord: a text cannot be encoded; the message contains the record and the field.
        """
        try:
            self._encode(records)
        except UnicodeEncodeError:
            self._raise_first(records, map(_text_reason, records))
            raise

    def unfit(self, records: Sequence[Any]) -> dict[int, str]:
        """Return the reasons of the records in a batch that do not fit, by index."""
        if self._fit(records):
            return {}
        reasons = ((index, self._reason(record)) for index, record in enumerate(records))
        return {index: reason for index, reason in reasons if reason is not None}

    def _fit(self, records: Sequence[Any]) -> bool:
        return self._fits(records, self._twins)

    def _fits(self, records: Any, twin: Any) -> bool:
        """Return whether a record or a batch certainly fits. False means that the slow check decides."""
        if self._twin is None:
            return False
        try:
            msgspec.convert(records, twin, from_attributes=True)
        except (msgspec.ValidationError, OverflowError):
            return False
        return True

    def _reason(self, record: Any) -> str | None:
        """Return why a record does not fit; None if it fits. Includes errors of decoding its JSON, and values that JSON cannot represent."""
        if self._fits(record, self._twin):
            return None
        try:
            content = msgspec.to_builtins(record, builtin_types=(bytes,), enc_hook=encode_model)
            for place, value in _leaves(content, ""):
                if isinstance(value, float) and not math.isfinite(value):
                    return (
                        f"`{place}` is {value}, and a float must be finite (for unknown values, declare `float | None`)"
                    )
                if isinstance(value, int) and not INT_MIN <= value <= INT_MAX and not self._takes(place):
                    return f"`{place}` is {value}, which is beyond 64 bits"
            self._reader.from_json(self._encode(record))
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            return str(error)
        return None

    def _reasons_of_readers(self, models: Sequence[Any]) -> Iterator[str | None]:
        """Yield why readers would not get an equal model; None if they would. Pydantic checks only constructors, so a model can violate its own rules."""
        structs = list(map(encode_model, models))
        for struct, text in zip(structs, map(self._encode, structs), strict=True):
            try:
                read = self._reader.from_json(text)
            except msgspec.ValidationError as error:
                yield str(error)
            else:
                yield (
                    None
                    if encode_model(read) == struct
                    else (
                        f"its validators change a valid value, so readers would get {read!r:.{SHOWN}}. A validator must accept its own results unchanged"
                    )
                )

    def _takes(self, place: str) -> bool:
        """Return whether a top-level field accepts any integer: as a float, or because it is checked elsewhere."""
        if place == self._unchecked_field:
            return True
        fields = self._shape.fields if isinstance(self._shape, RECORD_SHAPES) else ()
        return any(field.encode_name == place and _takes_floats(field.type) for field in fields)


def _takes_floats(shape: Any) -> bool:
    while isinstance(shape, shapes.Metadata):
        shape = shape.type
    members = shape.types if isinstance(shape, shapes.UnionType) else (shape,)
    kinds = {type(member) for member in members}
    return shapes.FloatType in kinds and shapes.IntType not in kinds


def _text_reason(record: Any) -> str | None:
    """Return which text of a record cannot be encoded; None if all can."""
    content = msgspec.to_builtins(record, builtin_types=(bytes,), enc_hook=encode_model)
    for place, value in _leaves(content, ""):
        if isinstance(value, str) and not is_encodable(value):
            return (
                f"`{place}` is {value!a:.{SHOWN}}, which contains half a character (a lone surrogate, as of a truncated emoji), so it cannot be "
                "encoded in UTF-8"
            )
    return None


def _leaves(content: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yield every value in the plain values of a record that contains no others, with its path."""
    if isinstance(content, dict):
        for name, value in content.items():
            yield from _leaves(name, place)
            yield from _leaves(value, f"{place}.{name}" if place else str(name))
    elif isinstance(content, (list, tuple, set, frozenset)):
        for index, value in enumerate(content):
            yield from _leaves(value, f"{place}[{index}]")
    else:
        yield place, content


@lru_cache(maxsize=1_000)
def _twin_of(record: type[AnyRecord], unchecked_field: str | None) -> Any:
    """Return the twin of a record type; None if a field type has no bounded equivalent."""
    try:
        return _Twins(unchecked_field).of(shape_of(record))
    except _NotBounded:
        return None


class _Twins:
    """Builds the bounded equivalents of types.

    Args:
        unchecked_field: a field of the top-level record without bounds, by its name on the bus.
    """

    def __init__(self, unchecked_field: str | None) -> None:
        self._unchecked_field = unchecked_field
        self._structs: dict[type, Any] = {}

    def of(self, shape: Any) -> Any:
        """Return the bounded type.

        Raises:
            _NotBounded: the type has no bounded equivalent.
        """
        match shape:
            case shapes.Metadata():
                return self.of(shape.type)
            case shapes.IntType():
                return _bounded(int, shape, INT_MIN, INT_MAX)
            case shapes.FloatType():
                return _bounded(float, shape, -_FLOAT_MAX, _FLOAT_MAX)
            case shapes.StrType():
                lengths = {"min_length": shape.min_length, "max_length": shape.max_length, "pattern": shape.pattern}
                return _annotated(str, lengths)
            case shapes.BytesType():
                return _annotated(bytes, {"min_length": shape.min_length, "max_length": shape.max_length})
            case _:
                return self._others.get(type(shape), self._collection)(shape)

    @cached_property
    def _others(self) -> dict[type, Callable[[Any], Any]]:
        return {
            shapes.BoolType: lambda _: bool,
            shapes.NoneType: lambda _: None,
            shapes.EnumType: lambda shape: shape.cls,
            shapes.DateTimeType: lambda shape: _annotated(datetime, {"tz": shape.tz}),
            shapes.DateType: lambda _: date,
            shapes.DecimalType: lambda _: Decimal,
            shapes.UUIDType: lambda _: UUID,
            shapes.LiteralType: lambda shape: Literal[shape.values],
            shapes.UnionType: self._union,
            shapes.StructType: self._struct,
            shapes.DataclassType: self._struct,
        }

    def _collection(self, shape: Any) -> Any:
        match shape:
            case shapes.ListType():
                collection: Any = list[self.of(shape.item_type)]  # type: ignore[misc]  # a dynamic type
            case shapes.VarTupleType():
                collection = tuple[self.of(shape.item_type), ...]  # type: ignore[misc]  # as above
            case shapes.TupleType():
                return tuple[tuple(map(self.of, shape.item_types))]  # type: ignore[misc]  # as above
            case shapes.DictType():
                collection = dict[self.of(shape.key_type), self.of(shape.value_type)]  # type: ignore[misc]  # as above
            case _:
                raise _NotBounded
        return _annotated(collection, {"min_length": shape.min_length, "max_length": shape.max_length})

    def _union(self, shape: shapes.UnionType) -> Any:
        if sum(isinstance(member, RECORD_SHAPES) for member in shape.types) > 1:
            raise _NotBounded  # tags distinguish the structs, but tags are not attributes
        return Union[tuple(map(self.of, shape.types))]  # noqa: UP007 - of types that are a dynamic type

    def _struct(self, shape: shapes.StructType | shapes.DataclassType) -> Any:
        if shape.cls not in self._structs:
            twin = msgspec.defstruct(shape.cls.__name__, [(field.name, Any) for field in shape.fields], gc=False)
            self._structs[shape.cls] = twin
            # msgspec resolves annotations at first use, so a record may contain records of its own type.
            unchecked_field, self._unchecked_field = self._unchecked_field, None
            twin.__annotations__.update(
                {
                    field.name: int
                    if field.encode_name == unchecked_field and _is_int(field.type)
                    else self.of(field.type)
                    for field in shape.fields
                }
            )
        return self._structs[shape.cls]


def _is_int(shape: Any) -> bool:
    while isinstance(shape, shapes.Metadata):
        shape = shape.type
    return isinstance(shape, shapes.IntType)


def _bounded(number: type, shape: Any, least: float, greatest: float) -> Any:
    bounds: dict[str, Any] = {"multiple_of": shape.multiple_of}
    bounds |= {"ge": least if shape.ge is None else shape.ge} if shape.gt is None else {"gt": shape.gt}
    bounds |= {"le": greatest if shape.le is None else shape.le} if shape.lt is None else {"lt": shape.lt}
    return _annotated(number, bounds)


def _annotated(kind: Any, constraints: dict[str, Any]) -> Any:
    given = {name: value for name, value in constraints.items() if value is not None}
    return Annotated[kind, msgspec.Meta(**given)] if given else kind


def has_whole_numbers(record: RecordType, unchecked_field: str | None) -> bool:
    """Return whether a record may contain integers besides one field.

    Args:
        record: the record type.
        unchecked_field: a field to ignore, by its name on the bus; None for none.
    """
    found: set[type] = set()
    return any(
        _may_contain_int(field.type, found) for name, field in fields_of(record).items() if name != unchecked_field
    )


def _may_contain_int(shape: Any, found: set[type]) -> bool:
    match shape:
        case shapes.StructType() | shapes.DataclassType():
            inner = [] if shape.cls in found else [field.type for field in shape.fields]
            found.add(shape.cls)
        case shapes.Metadata():
            inner = [shape.type]
        case shapes.UnionType():
            inner = list(shape.types)
        case shapes.ListType() | shapes.VarTupleType():
            inner = [shape.item_type]
        case _:
            return type(shape) not in _WITHOUT_INT
    return any(_may_contain_int(one, found) for one in inner)


_WITHOUT_INT = {
    shapes.StrType,
    shapes.BytesType,
    shapes.BoolType,
    shapes.FloatType,
    shapes.NoneType,
    shapes.EnumType,
    shapes.LiteralType,
    shapes.DateTimeType,
    shapes.DateType,
    shapes.DecimalType,
    shapes.UUIDType,
}
