"""Conversion of external rows to the declared row type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
from msgspec import inspect as shapes

from ..declare import plain
from ..errors import DeclarationError
from ..validation import is_class
from .protocols import InvalidRow, LookupRefused


@dataclass(frozen=True)
class RowShape:
    """The type of a table's rows.

    Args:
        record: a Record or another msgspec struct.

    Raises:
        DeclarationError: the type is not a struct, or msgspec does not support one of its fields.
    """

    record: type[msgspec.Struct]

    def __post_init__(self) -> None:
        if not (is_class(self.record) and issubclass(self.record, msgspec.Struct)):
            raise DeclarationError(
                f"Rows cannot be read as {self.record!r}, which is not a struct. Declare a type that is derived from penstock.Record."
            )
        try:
            shapes.type_info(self.record)
        except (TypeError, NameError) as error:
            raise DeclarationError(f"Rows cannot be read as {self.record.__qualname__}: {error}.") from error

    @cached_property
    def fields(self) -> dict[str, shapes.Field]:
        """The fields by column name."""
        shape = shapes.type_info(self.record)
        return {field.encode_name: field for field in shape.fields} if isinstance(shape, shapes.StructType) else {}

    def columns(self, present: list[str], key: str, location: str) -> list[str]:
        """Return the columns to read besides the key.

        Args:
            present: the columns of the table.
            key: the key column.
            location: the table, for errors.

        Raises:
            LookupRefused: the key column is missing, or the column of a field without a default.
        """
        required = [key, *(name for name, field in self.fields.items() if field.required and name != key)]
        missing = [name for name in required if name not in present]
        if missing:
            needed_by = "the key" if key in missing else self.record.__name__
            raise LookupRefused(
                f"{location} has no column {', '.join(map(repr, missing))}, which {needed_by} needs. It has: {', '.join(present)}. No row was "
                f"read. Correct the table, {self.record.__name__} or the declared key."
            )
        return [name for name in self.fields if name in present]

    def from_values(self, values: Mapping[str, Any], location: str) -> Any:
        """Return the row of typed values, as from a database or Parquet.

        A null counts as missing if its field cannot be None.

        Raises:
            InvalidRow: the values do not match the type.
        """
        present = {name: value for name, value in values.items() if value is not None or name in self._nullable}
        return self._converted(present, location, strict=True)

    def from_texts(self, texts: Mapping[str, str], location: str) -> Any:
        """Return the row of strings, as from CSV or a Redis hash. Numbers and booleans are parsed.

        An empty string is None if the field can be None; an empty string if the field is a string; otherwise it counts as missing.

        Raises:
            InvalidRow: the values do not match the type.
        """
        values: dict[str, str | None] = {name: text for name, text in texts.items() if text}
        values |= {name: None for name, text in texts.items() if not text and name in self._nullable}
        values |= {name: "" for name, text in texts.items() if not text and name in self._textual}
        return self._converted(values, location, strict=False)

    def from_json(self, encoded: bytes, location: str) -> Any:
        """Return the row of a JSON object.

        Raises:
            InvalidRow: the bytes are not JSON, or do not match the type.
        """
        try:
            return self._json.decode(encoded)
        except msgspec.MsgspecError as error:
            raise self._invalid(location, error) from error

    def _converted(self, values: Mapping[str, Any], location: str, *, strict: bool) -> Any:
        try:
            return msgspec.convert(values, self.record, strict=strict)
        except msgspec.ValidationError as error:
            raise self._invalid(location, error) from error

    def _invalid(self, location: str, error: Exception) -> InvalidRow:
        return InvalidRow(f"{location} is not a valid {self.record.__name__}: {error}")

    @cached_property
    def _json(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self.record)

    @cached_property
    def _nullable(self) -> frozenset[str]:
        return frozenset(name for name, field in self.fields.items() if _may_be(field, shapes.NoneType))

    @cached_property
    def _textual(self) -> frozenset[str]:
        """The fields in which an empty string stays a string."""
        return frozenset(name for name, field in self.fields.items() if _may_be(field, shapes.StrType)) - self._nullable


def _may_be(field: shapes.Field, kind: type[shapes.Type]) -> bool:
    shape = plain(field.type)
    members = shape.types if isinstance(shape, shapes.UnionType) else [shape]
    return any(isinstance(plain(member), kind) for member in members)


def rows_by_key(keyed: list[tuple[str, str, Any]], location: str) -> dict[str, Any]:
    """Return rows by key.

    Args:
        keyed: the key, the location in the table and the value of each row.
        location: the table, for errors.

    Raises:
        LookupRefused: a key has several rows.
    """
    rows = {key: row for key, _, row in keyed}
    if len(rows) == len(keyed):
        return rows
    places: dict[str, list[str]] = {}
    for key, where, _ in keyed:
        places.setdefault(key, []).append(where)
    doubled = [f"{key!r} ({', '.join(found[:3])})" for key, found in places.items() if len(found) > 1]
    more = f" and {len(doubled) - 5} more" if len(doubled) > 5 else ""
    raise LookupRefused(
        f"{location} has several rows of one key: {'; '.join(doubled[:5])}{more}. No row was read. Keep one row per key."
    )
