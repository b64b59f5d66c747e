"""Times in text with more digits than microseconds, which msgspec rounds to the nearest: they are cut, so that no time moves into the next window."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import inspect as shapes

from .records import RECORD_SHAPES, RecordType, fields_of, plain

_BYTES = re.compile(rb"(:\d\d[.,]\d{6})\d+")
_TEXT = re.compile(r"(:\d\d[.,]\d{6})\d+")


class FineTimes:
    """Cuts the digits after microseconds in the datetime fields of records. Other fields keep their text.

    Args:
        record: the type of the records.
    """

    def __init__(self, record: RecordType) -> None:
        self.names = frozenset(_names_of_times(fields_of(record).values()))
        names = b"|".join(re.escape(name.encode()) for name in sorted(self.names))
        # A value: a text, or a list or map of texts.
        self._values = re.compile(rb'"(?:' + names + rb')"\s*:\s*(?:"[^"\\]*"|[\[{][^\[\]{}]*[\]}])')

    def cut_json(self, value: bytes | memoryview) -> bytes | memoryview:
        """Return JSON with its times cut; the same object if there is nothing to cut."""
        if not self.names or _BYTES.search(value) is None:
            return value
        return self._values.sub(lambda found: _BYTES.sub(rb"\1", found[0]), value)

    def cut_fields(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return fields with their times cut."""
        return self._cut(fields, is_time=False) if self.names else fields

    def _cut(self, value: Any, *, is_time: bool) -> Any:
        if isinstance(value, str):
            return _TEXT.sub(r"\1", value) if is_time else value
        if isinstance(value, Mapping):
            return {name: self._cut(each, is_time=is_time or name in self.names) for name, each in value.items()}
        if isinstance(value, list):
            return [self._cut(each, is_time=is_time) for each in value]
        return value


def _names_of_times(fields: Iterable[shapes.Field], around: frozenset[Any] = frozenset()) -> Iterator[str]:
    """Yield the names on the bus of fields with datetimes, at all depths."""
    for field in fields:
        for shape in _parts(field.type):
            if isinstance(shape, shapes.DateTimeType):
                yield field.encode_name
            elif isinstance(shape, RECORD_SHAPES) and shape.cls not in around:
                yield from _names_of_times(shape.fields, around | {shape.cls})


def _parts(shape: Any) -> Iterator[Any]:
    """Yield the types that a type contains, without the fields of records."""
    shape = plain(shape)
    if isinstance(shape, shapes.UnionType):
        for member in shape.types:
            yield from _parts(member)
    elif isinstance(shape, shapes.CollectionType):
        yield from _parts(shape.item_type)
    elif isinstance(shape, shapes.DictType):
        yield from _parts(shape.value_type)
    else:
        yield shape
