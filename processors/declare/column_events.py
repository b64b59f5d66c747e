"""Events as columns: the operators that can use the columns need no object for each event; the others get the records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from ..time import Times
from .arrow_values import numbers_of, texts_of
from .event_batch import EventBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from .categories import AnyCategory


class KeyGroups(NamedTuple):
    """The distinct keys of a batch.

    Args:
        names: the keys, in order of their first events.
        groups: the index of each event's key.
    """

    names: list[str]
    groups: npt.NDArray[np.int64]

    @classmethod
    def of(cls, keys: pa.Array[Any]) -> KeyGroups:
        """Return the distinct keys of a column; numbers are keys as text."""
        encoded = keys.dictionary_encode()
        return cls(texts_of(encoded.dictionary.cast("string")), numbers_of(encoded.indices).astype(np.int64))


class RowKeys(Sequence[str]):
    """The key of each event, which is looked up when it is asked for: a group of many events needs no list of them.

    Args:
        distinct: the distinct keys.
    """

    def __init__(self, distinct: KeyGroups) -> None:
        self._distinct = distinct

    def __len__(self) -> int:
        return len(self._distinct.groups)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> RowKeys: ...
    def __getitem__(self, index: int | slice) -> Any:
        names, groups = self._distinct
        return RowKeys(KeyGroups(names, groups[index])) if isinstance(index, slice) else names[groups[index]]

    def __iter__(self) -> Iterator[str]:
        return map(self._distinct.names.__getitem__, self._distinct.groups.tolist())


class ColumnEvents(Sequence[Any]):
    """Events of one category, in order, as Arrow columns. Their records are decoded when something asks for one.

    Args:
        category: the category; its event time is a field of whole milliseconds.
        columns: fields of the events, by their names on the bus; with the event time, and with the key if that is used.
        decode: returns the records from one index up to, not including, another.
    """

    def __init__(
        self, category: AnyCategory, columns: pa.RecordBatch, decode: Callable[[int, int], Sequence[Any]]
    ) -> None:
        self._category = category
        self._decode = decode
        self.columns = columns

    def __len__(self) -> int:
        return self.columns.num_rows

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> ColumnEvents: ...
    def __getitem__(self, index: int | slice) -> Any:
        if not isinstance(index, slice):
            return self._records[index]
        begin, end, step = index.indices(len(self))
        if step != 1:
            raise ValueError("a part of columns is contiguous")
        count = max(end - begin, 0)
        if count == len(self):
            return self
        decode = self._decode
        return ColumnEvents(
            self._category,
            self.columns.slice(begin, count),
            lambda first, after: decode(begin + first, begin + after),
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self._records)

    @cached_property
    def _records(self) -> Sequence[Any]:
        return self._decode(0, len(self))

    def of(self, events: Sequence[Any]) -> EventBatch:
        """Return other events of the category."""
        return EventBatch(self._category, events)

    def is_of(self, category: AnyCategory) -> bool:
        """Return whether these are events of a category."""
        return self._category is category

    def selected(self, names: Sequence[str]) -> pa.RecordBatch:
        """Return some columns, by their names on the bus."""
        return self.columns.select(list(names))

    @property
    def has_keys(self) -> bool:
        """Whether the key is one of the columns."""
        fields = self._category.key_fields
        return len(fields) == 1 and fields[0] in self.columns.schema.names

    @property
    def key_array(self) -> pa.Array[Any]:
        """The key of each event as text. The key must be a field."""
        keys = self.columns.column(self._category.key_fields[0])
        return keys.cast("string") if self._category.key_is_number else keys

    @cached_property
    def key_groups(self) -> KeyGroups:
        """The distinct keys. The key must be a field."""
        return KeyGroups.of(self.columns.column(self._category.key_fields[0]))

    @cached_property
    def keys(self) -> list[str]:
        """The key of each event."""
        if not self.has_keys:
            return self._category.computed_keys_of(self._records)
        return list(RowKeys(self.key_groups))

    @cached_property
    def times(self) -> list[int]:
        """The event time of each event (milliseconds since 1970, UTC)."""
        times: list[int] = self.time_array.tolist()
        return times

    @cached_property
    def time_array(self) -> Times:
        """The same as an array."""
        return numbers_of(self.columns.column(str(self._category.times.column)))
