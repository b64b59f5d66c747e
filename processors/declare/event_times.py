"""Event times of records: a field, a field of a nested record, or a function of the record, as milliseconds since 1970, UTC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
from msgspec import inspect as shapes

from ..errors import DeclarationError
from ..time import Times
from ..validation import is_function_of, similar_member
from ..wording import as_code
from .field_paths import FieldPath, find_field
from .record_check import INT_MAX, INT_MIN, SHOWN, InvalidRecord
from .records import EVENT_TIME_EXTRA, RecordType, fields_of, members_of, type_name
from .tombstones import RowDeletion

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class TimeUnit(Enum):
    """A unit of event times. The value is the number of nanoseconds."""

    SECONDS = 1_000_000_000
    MILLISECONDS = 1_000_000
    MICROSECONDS = 1_000
    NANOSECONDS = 1


@dataclass(frozen=True)
class TimeField:
    """An event time in a numeric field, in any unit.

    Whole numbers are rounded down to milliseconds, and floats to the nearest millisecond.

    Args:
        name: the field, or the dotted path of a field in a nested record.
        unit: the unit of its values since 1970, UTC.

    Examples:
        >>> TimeField("ts", unit=TimeUnit.SECONDS)
        TimeField(name='ts', unit=<TimeUnit.SECONDS: 1000000000>)
    """

    name: str
    unit: TimeUnit = TimeUnit.MILLISECONDS


EventTimeSource: TypeAlias = str | TimeField | Callable[[Any], int | datetime]
"""The declaration of an event time: a field or dotted path, a `TimeField`, or a function of the record."""


class InvalidEventTime(InvalidRecord):
    """A record whose event time is no valid time."""


class AbsentEventTime(InvalidEventTime):
    """A record without an event time: an optional field on its path is None."""


class EventTimes:
    """Reads the event times of one category's records.

    Args:
        category: the name of the category, for errors.
        record: the type of the records.
        source: the declared source.

    Raises:
        DeclarationError: the source is no field of the record, or its type is no time.
    """

    def __init__(self, category: str, record: RecordType, source: EventTimeSource) -> None:
        self._category, self._record, self._source = category, record, source
        self._path: FieldPath | None = None
        self._value: Callable[[Any], Any]
        self._convert: Callable[[Any], int] | None
        self.unit: TimeUnit | None = None
        if isinstance(source, (str, TimeField)):
            for member in members_of(record):
                find_field(category, "event_time", member, _path_of(source))
            path = self._path = find_field(category, "event_time", record, _path_of(source))
            self.unit, self._convert = _conversion(category, record, path, source)
            self._value = attrgetter(path.attribute)
        else:
            self._value, self._convert = source, _of_any

    @property
    def name(self) -> str:
        """The field's path on the bus, or the function's name."""
        return self._path.name if self._path else getattr(self._source, "__name__", repr(self._source))

    @property
    def field(self) -> str | None:
        """The dotted path, in names on the bus, of the field with the event time; None for a function."""
        return self._path.name if self._path else None

    @property
    def column(self) -> str | None:
        """The column with the event time in milliseconds, by its name on the bus; None if the time needs a computation or may be absent."""
        return self._path.name if self._path and self.always_valid and len(self._path.names) == 1 else None

    @property
    def attribute(self) -> str | None:
        """The Python name of the column."""
        return self._path.attribute if self._path and self.column else None

    @property
    def always_valid(self) -> bool:
        """Whether every record of the type has a valid event time."""
        return self._convert is None and self._path is not None and not self._path.optional

    def of(self, records: Sequence[Any]) -> list[int]:
        """Return the event time of each record (milliseconds since 1970, UTC).

        Raises:
            InvalidEventTime: a record has no valid event time.
        """
        if self.always_valid:
            # A tombstone has no nested records.
            with suppress(AttributeError):
                return list(map(self._value, records))
        return list(map(self.of_one, records))

    def array_of(self, records: Sequence[Any]) -> Times:
        """Return the same as an array.

        Raises:
            InvalidEventTime: a record has no valid event time.
            OverflowError: an event time has more than 64 bits.
        """
        if self.always_valid:
            # A tombstone has no nested records.
            with suppress(AttributeError):
                return np.fromiter(map(self._value, records), np.int64, len(records))
        return np.array(self.of(records), np.int64)

    def of_one(self, record: Any) -> int:
        """Return the event time of one record (milliseconds since 1970, UTC).

        Raises:
            InvalidEventTime: the record has no valid event time.
        """
        return record.deleted_at_ms if isinstance(record, RowDeletion) else self._time_of(record)

    def _time_of(self, record: Any) -> int:
        try:
            value = self._value(record)
            time = None if value is None else self._convert(value) if self._convert else value
        except Exception as error:
            if self._has_none(record):
                raise self._absent(record) from None
            raise self._invalid(f"{type(error).__name__}: {error}", record) from error
        if time is None:
            raise self._absent(record)
        if not (self.always_valid or INT_MIN <= time <= INT_MAX):
            raise self._invalid("it is beyond 64 bits in milliseconds", record)
        return time

    def _has_none(self, record: Any) -> bool:
        """Return whether a nested record on the path is None."""
        for attribute in self._path.attribute.split(".")[:-1] if self._path else ():
            record = getattr(record, attribute, None)
            if record is None:
                return True
        return False

    def _absent(self, record: Any) -> AbsentEventTime:
        return AbsentEventTime(f"no event time: {self.name!r} is missing or null, in {record!r:.{SHOWN}}")

    def _invalid(self, reason: str, record: Any) -> InvalidEventTime:
        return InvalidEventTime(f"no valid event time from {self.name!r}: {reason}, in {record!r:.{SHOWN}}")

    def unit_remedy(self, seeming: TimeUnit) -> str:
        """Return the declaration that corrects the unit of a field, as a sentence; empty if the declaration cannot be the cause.

        Args:
            seeming: the unit that the event times seem to have, where they should be milliseconds.
        """
        if self.unit is None:
            return ""
        nanoseconds = self.unit.value * seeming.value // TimeUnit.MILLISECONDS.value
        actual = next((unit for unit in TimeUnit if unit.value == nanoseconds), None)
        return (
            f"If {self.name!r} is in {actual.name.lower()}, declare `event_time=penstock.TimeField({self.name!r}, unit=penstock.TimeUnit.{actual.name})`. "
            if actual
            else ""
        )


def expect_source(category: str, source: object) -> None:
    """Raise DeclarationError for a source of event times of the wrong type."""
    if isinstance(source, TimeField):
        parts: tuple[object, object] = (source.name, source.unit)
        if not (isinstance(parts[0], str) and isinstance(parts[1], TimeUnit)):
            raise DeclarationError(
                f"Category {category!r}: event_time={source!r} has the wrong type. Declare the name of a field and a penstock.TimeUnit.{similar_member(TimeUnit, source.unit)}"
            )
    elif not isinstance(source, str) and not is_function_of(source, "record"):
        raise DeclarationError(
            f"Category {category!r}: event_time={as_code(source)} has the wrong type. Declare the name of a field, a penstock.TimeField, or a function "
            "of the record."
        )


def _path_of(source: str | TimeField) -> str:
    return source if isinstance(source, str) else source.name


def _conversion(
    category: str, record: RecordType, path: FieldPath, source: str | TimeField
) -> tuple[TimeUnit | None, Callable[[Any], int] | None]:
    """Return the unit of a field, and the conversion of its values to milliseconds; None for no conversion."""
    unit = source.unit if isinstance(source, TimeField) else TimeUnit.MILLISECONDS
    match path.shape:
        case shapes.IntType():
            return unit, None if unit is TimeUnit.MILLISECONDS else _of_ints(unit)
        case shapes.FloatType() if isinstance(source, TimeField):
            return unit, _of_floats(unit)
        case shapes.DateTimeType() if isinstance(source, str):
            return None, _of_datetime
    raise DeclarationError(
        f"Category {category}: the event time {path.name!r} of {type_name(record)} has the wrong type. Declare it as a "
        "penstock.EventTime (whole milliseconds since 1970) or a datetime. For a number in another unit, declare "
        f"`event_time=penstock.TimeField({path.name!r}, unit=…)`; for other types, a function of the record."
    )


def _of_ints(unit: TimeUnit) -> Callable[[int], int]:
    nanoseconds = unit.value

    def convert(value: int) -> int:
        if not INT_MIN <= value <= INT_MAX:
            raise ValueError(f"{value} is beyond 64 bits")
        return value * nanoseconds // TimeUnit.MILLISECONDS.value

    return convert


def _of_floats(unit: TimeUnit) -> Callable[[float], int]:
    if unit is TimeUnit.SECONDS:
        return lambda value: round(value * 1_000)  # a quotient by 0.001 would be inexact
    per_millisecond = TimeUnit.MILLISECONDS.value // unit.value
    return lambda value: round(value / per_millisecond)


def _of_datetime(value: datetime) -> int:
    if value.utcoffset() is None:
        raise ValueError(f"{value.isoformat()} has no offset from UTC")
    return (value - EPOCH) // _MILLISECOND


def _of_any(value: object) -> int:
    """Return the result of a function in milliseconds."""
    if isinstance(value, datetime):
        return _of_datetime(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(
        f"the function returned {value!r}. It must return whole milliseconds since 1970 or a datetime with an offset"
    )


def only_time_of(name: str, record: RecordType) -> EventTimes | None:
    """Return the event times of records without a declared one: those of their only `EventTime` or datetime; None without exactly one.

    Args:
        name: where they are, for errors.
        record: their type.
    """
    found = [field.encode_name for field in fields_of(record).values() if _is_time(field.type)]
    return EventTimes(name, record, found[0]) if len(found) == 1 else None


def _is_time(shape: shapes.Type) -> bool:
    if isinstance(shape, shapes.Metadata):
        return shape.extra == EVENT_TIME_EXTRA or _is_time(shape.type)
    return isinstance(shape, shapes.DateTimeType)
