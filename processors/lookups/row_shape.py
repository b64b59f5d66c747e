"""Rows as they lie outside, made into the type that a user names; and an error that says what does not fit, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
from msgspec import inspect as shapes

from ..declare.records import plain
from ..errors import DeclarationError
from ..validation import is_class
from .protocols import InvalidRow, LookupRefused


@dataclass(frozen=True)
class RowShape:
    """What the rows of a table become.

    Args:
        record: a Record, or any other struct of msgspec.

    Raises:
        DeclarationError: it is none, or one whose fields msgspec does not understand.
    """

    record: type[msgspec.Struct]

    def __post_init__(self) -> None:
        if not (is_class(self.record) and issubclass(self.record, msgspec.Struct)):
            raise DeclarationError(
                f"Rows cannot be read as {self.record!r}: name a type that is derived from penstock.Record, or another struct of msgspec."
            )
        try:
            shapes.type_info(self.record)
        except (TypeError, NameError) as error:
            raise DeclarationError(f"Rows cannot be read as {self.record.__qualname__}: {error}.") from error

    @cached_property
    def fields(self) -> dict[str, shapes.Field]:
        """Its fields by the names that columns have."""
        shape = shapes.type_info(self.record)
        return {field.encode_name: field for field in shape.fields} if isinstance(shape, shapes.StructType) else {}

    def columns(self, present: list[str], key: str, location: str) -> list[str]:
        """Return which of the columns that are present are needed, beside the key's.

        Raises:
            LookupRefused: the key's is missing, or one of a field without a default.
        """
        required = [key, *(name for name, field in self.fields.items() if field.required and name != key)]
        missing = [name for name in required if name not in present]
        if missing:
            what = "the key" if key in missing else self.record.__name__
            raise LookupRefused(
                f"{location} has no column {', '.join(map(repr, missing))}, which {what} needs. It has: {', '.join(present)}. Nothing was "
                f"looked up; mend the table, or {self.record.__name__} and the declared key."
            )
        return [name for name in self.fields if name in present]

    def from_values(self, values: Mapping[str, Any], location: str) -> Any:
        """Return the row of typed values, as a database or Parquet has them.

        A null in a field that cannot be None is as if it were not there.

        Raises:
            InvalidRow: they do not fit.
        """
        present = {name: value for name, value in values.items() if value is not None or name in self._nullable}
        return self._converted(present, location, strict=True)

    def from_texts(self, texts: Mapping[str, str], location: str) -> Any:
        """Return the row of texts, as CSV and hashes of Redis have them: numbers and truth values are read from their digits and names.

        An empty text is None where that is possible, and otherwise, unless the field is a text itself, as if it were not there.

        Raises:
            InvalidRow: they do not fit.
        """
        values: dict[str, str | None] = {name: text for name, text in texts.items() if text}
        values |= {name: None for name, text in texts.items() if not text and name in self._nullable}
        values |= {name: "" for name, text in texts.items() if not text and name in self._textual}
        return self._converted(values, location, strict=False)

    def from_json(self, encoded: bytes, location: str) -> Any:
        """Return the row of a JSON object.

        Raises:
            InvalidRow: it does not fit, or is not JSON.
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
        return InvalidRow(f"{location} is no {self.record.__name__}: {error}")

    @cached_property
    def _json(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self.record)

    @cached_property
    def _nullable(self) -> frozenset[str]:
        return frozenset(name for name, field in self.fields.items() if _may_be(field, shapes.NoneType))

    @cached_property
    def _textual(self) -> frozenset[str]:
        """The fields in which an empty text is one."""
        return frozenset(name for name, field in self.fields.items() if _may_be(field, shapes.StrType)) - self._nullable


def _may_be(field: shapes.Field, kind: type[shapes.Type]) -> bool:
    shape = plain(field.type)
    members = shape.types if isinstance(shape, shapes.UnionType) else [shape]
    return any(isinstance(plain(member), kind) for member in members)


def rows_by_key(keyed: list[tuple[str, str, Any]], location: str) -> dict[str, Any]:
    """Return rows by key, each given with its key and its place in the table.

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
        f"{location} has several rows of one key: {'; '.join(doubled[:5])}{more}. Which of them is meant cannot be known; leave one of each."
    )
