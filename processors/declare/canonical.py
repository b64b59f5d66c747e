"""Canonical form of the datetimes and decimals in records.

One value has one form in every codec, in the warehouse and in Spark: datetimes are in UTC, and decimals fit the column of their field. Records from
different codecs are therefore equal, byte by byte, once they are encoded alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from msgspec import inspect as shapes

from ..errors import DeclarationError
from ..models import shape_of
from ..wording import with_capital_article
from .record_check import SHOWN, InvalidRecord
from .records import RECORD_SHAPES, RecordType, replace_fields, type_name

MAX_DIGITS = 38
"""The maximum number of digits of a decimal, as in Spark, Hive and Parquet."""
DEFAULT_SCALE = 18
"""The maximum number of fractional digits of a decimal whose field declares no scale."""

_CONTEXT = Context(prec=200, traps=[Inexact, InvalidOperation])
_WHOLE = Decimal(1)

_Convert: TypeAlias = Callable[[Any], Any]


class DecimalDigits(NamedTuple):
    """The digits of a decimal field.

    Args:
        precision: the maximum number of digits.
        scale: the maximum number of fractional digits.
        is_fixed: whether every value has `scale` fractional digits; otherwise values have no trailing zeros.
    """

    precision: int = MAX_DIGITS
    scale: int = DEFAULT_SCALE
    is_fixed: bool = False


def decimal_digits(shape: Any) -> DecimalDigits:
    """Return the digits of a decimal field, as `Meta(extra={"precision": …, "scale": …})` declares them.

    Args:
        shape: the type of the field, with its annotations.

    Raises:
        DeclarationError: the declared digits are invalid.
    """
    extra: dict[str, Any] = {}
    for part in _annotations(shape):
        extra |= part
    if not {"precision", "scale"} & extra.keys():
        return DecimalDigits()
    precision, scale = extra.get("precision", MAX_DIGITS), extra.get("scale", 0)
    if not (
        isinstance(precision, int)
        and isinstance(scale, int)
        and 0 <= scale <= precision
        and 1 <= precision <= MAX_DIGITS
    ):
        raise DeclarationError(
            f"A decimal field declares precision {precision!r} and scale {scale!r}. Declare at most {MAX_DIGITS} digits, and a scale between 0 and "
            "the precision."
        )
    return DecimalDigits(precision, scale, is_fixed=True)


def _annotations(shape: Any) -> list[dict[str, Any]]:
    if isinstance(shape, shapes.UnionType):
        return [extra for member in shape.types for extra in _annotations(member)]
    return [shape.extra or {}, *_annotations(shape.type)] if isinstance(shape, shapes.Metadata) else []


class _Unfit(ValueError):
    """A value without a canonical form.

    Args:
        reason: why.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.place: tuple[str, ...] = ()
        super().__init__(reason)


class CanonicalForm:
    """Converts the records of one type to their canonical form.

    Args:
        record: the type.

    Raises:
        DeclarationError: a datetime is declared without an offset, or a decimal with invalid digits.
    """

    def __init__(self, record: RecordType) -> None:
        self._record = record
        self._convert = _conversion_of_record(record)

    @property
    def is_identity(self) -> bool:
        """Whether every record of the type is in its canonical form."""
        return self._convert is None

    def of(self, records: Sequence[Any]) -> Sequence[Any]:
        """Return the canonical form of records; unchanged records are not copied.

        Raises:
            InvalidRecord: a value has no canonical form: a datetime without an offset, or a decimal with too many digits.
        """
        return records if self._convert is None else [self.of_one(record) for record in records]

    def of_one(self, record: Any) -> Any:
        """Return the canonical form of one record, as `of` does."""
        try:
            return record if self._convert is None else self._convert(record)
        except _Unfit as error:
            place = ".".join(error.place)
            raise InvalidRecord(
                f"{with_capital_article(type_name(self._record))} does not fit its own type: `{place}` {error.reason}, in {record!r:.{SHOWN}}."
            ) from None
        except (AttributeError, TypeError):
            return record  # a value of another type, which the check of the record reports


@lru_cache(maxsize=1_000)
def _conversion_of_record(record: RecordType) -> _Convert | None:
    return conversion_of(shape_of(record))


def conversion_of(shape: Any) -> Callable[[Any], Any] | None:
    """Return the conversion of a type's values to their canonical form; None if all are.

    The conversion raises a ValueError for a value without a canonical form.
    """
    return _Conversions().of(shape)


def _inner(shape: Any, found: set[type]) -> Sequence[Any]:
    """Return the types within a type; a record that contains itself only once."""
    match shape:
        case shapes.UnionType():
            inner = shape.types
        case shapes.StructType() | shapes.DataclassType():
            inner = () if shape.cls in found else tuple(field.type for field in shape.fields)
            found.add(shape.cls)
        case shapes.ListType() | shapes.VarTupleType():
            inner = (shape.item_type,)
        case shapes.TupleType():
            inner = shape.item_types
        case shapes.DictType():
            inner = (shape.value_type,)
        case _:
            inner = (shape.type,) if isinstance(shape, shapes.Metadata) else ()
    return inner


def _needs_conversion(shape: Any, found: set[type]) -> bool:
    return isinstance(shape, (shapes.DateTimeType, shapes.DecimalType)) or any(
        _needs_conversion(inner, found) for inner in _inner(shape, found)
    )


class _Conversions:
    """Builds the conversions of types."""

    def __init__(self) -> None:
        self._structs: dict[type, _Convert] = {}

    def of(self, shape: Any, digits: DecimalDigits | None = None) -> _Convert | None:
        """Return the conversion of a type; None if it has no datetimes or decimals."""
        if not _needs_conversion(shape, set()):
            return None
        match shape:
            case shapes.Metadata():
                convert = self.of(shape.type, digits or decimal_digits(shape))
            case shapes.DateTimeType():
                _expect_offset(shape)
                convert = _in_utc
            case shapes.DecimalType():
                convert = _fitting(digits or DecimalDigits())
            case shapes.UnionType():
                convert = self._union(shape, digits)
            case shapes.StructType() | shapes.DataclassType():
                convert = self._struct(shape)
            case _:
                convert = self._collection(shape)
        return convert

    def _collection(self, shape: Any) -> _Convert:
        match shape:
            case shapes.TupleType():
                items = [self.of(item) or _unchanged for item in shape.item_types]
                return lambda values: tuple(convert(value) for convert, value in zip(items, values, strict=True))
            case shapes.DictType():
                of_value = self.of(shape.value_type) or _unchanged
                return lambda values: {key: of_value(value) for key, value in values.items()}
        of_item = self.of(shape.item_type) or _unchanged
        collection = list if isinstance(shape, shapes.ListType) else tuple
        return lambda values: collection(map(of_item, values))

    def _union(self, shape: shapes.UnionType, digits: DecimalDigits | None) -> _Convert:
        found = [(_class_of(member), self.of(member, digits) or _unchanged) for member in shape.types]
        by_class = [(kind, convert) for kind, convert in found if kind]

        def convert(value: Any) -> Any:
            for kind, of_kind in by_class:
                if isinstance(value, kind):
                    return of_kind(value)
            return value

        return convert

    def _struct(self, shape: shapes.StructType | shapes.DataclassType) -> _Convert:
        if shape.cls in self._structs:
            return self._structs[shape.cls]
        fields: list[tuple[str, str, _Convert]] = []

        def convert(value: Any) -> Any:
            changes = {}
            for name, on_bus, of_field in fields:
                old = getattr(value, name)
                try:
                    new = of_field(old)
                except _Unfit as error:
                    error.place = (on_bus, *error.place)
                    raise
                if new is not old:
                    changes[name] = new
            return replace_fields(value, changes) if changes else value

        self._structs[shape.cls] = convert
        for field in shape.fields:
            of_field = self.of(field.type)
            if of_field:
                fields.append((field.name, field.encode_name, of_field))
        return convert


_CLASSES: dict[type, type] = {
    shapes.DateTimeType: datetime,
    shapes.DecimalType: Decimal,
    shapes.ListType: list,
    shapes.VarTupleType: tuple,
    shapes.TupleType: tuple,
    shapes.DictType: dict,
}


def _class_of(shape: Any) -> type | None:
    while isinstance(shape, shapes.Metadata):
        shape = shape.type
    return shape.cls if isinstance(shape, RECORD_SHAPES) else _CLASSES.get(type(shape))


def _unchanged(value: Any) -> Any:
    return value


def _in_utc(value: datetime) -> datetime:
    if value.tzinfo is UTC:
        return value
    if value.utcoffset() is None:
        raise _Unfit(f"is {value.isoformat()}, a datetime without an offset from UTC")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise _Unfit(f"is {value.isoformat()}, which is outside the years 1 to 9999 in UTC") from None


def _expect_offset(shape: shapes.DateTimeType) -> None:
    if shape.tz is False:
        raise DeclarationError(
            "A datetime field is declared without an offset (`tz=False`), so its values would be no points in time. Declare a datetime."
        )


def _fitting(digits: DecimalDigits) -> _Convert:
    """Return the conversion of decimals with some digits."""
    smallest, whole_digits = Decimal(1).scaleb(-digits.scale), digits.precision - digits.scale

    def convert(value: Decimal) -> Decimal:
        if not value.is_finite():
            raise _Unfit(f"is {value}, and a decimal must be finite")
        try:
            # A value of too many digits must not be expanded: 1E+1000000 would be a million digits long.
            fitted = (
                _CONTEXT.quantize(value or Decimal(0), smallest)
                if not value or value.adjusted() < whole_digits
                else None
            )
        except (Inexact, InvalidOperation):
            fitted = None
        if fitted is None:
            raise _Unfit(
                f"is {value}, which exceeds {whole_digits} digits before or {digits.scale} digits after the point"
            )
        canonical = fitted if digits.is_fixed else _without_trailing_zeros(fitted)
        return value if canonical.as_tuple() == value.as_tuple() else canonical

    return convert


def _without_trailing_zeros(value: Decimal) -> Decimal:
    shortest = _CONTEXT.normalize(value)
    exponent = shortest.as_tuple().exponent
    return _CONTEXT.quantize(shortest, _WHOLE) if isinstance(exponent, int) and exponent > 0 else shortest
