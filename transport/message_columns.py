"""Messages of one bucket as columns: one object for a batch, instead of one for each message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import overload

import numpy as np
import numpy.typing as npt

from ..processors.declare import Message, MessageHeaders
from ..processors.time import UNKNOWN_ARRIVAL_MS, Times
from .messages import MessageCopy, RawBatch

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class BytesColumn:
    """The values or keys of messages, within one buffer.

    Args:
        buffer: contains them in order.
        starts: where each begins.
        ends: where each ends.
        present: whether each exists; others are null.
    """

    buffer: memoryview
    starts: Numbers
    ends: Numbers
    present: Flags

    def __len__(self) -> int:
        return len(self.starts)

    def part(self, inside: slice) -> BytesColumn:
        """Return consecutive items."""
        return BytesColumn(self.buffer, self.starts[inside], self.ends[inside], self.present[inside])

    def all(self) -> list[bytes | None]:
        """Return copies of the items."""
        buffer = self.buffer
        places = zip(self.starts.tolist(), self.ends.tolist(), self.present.tolist(), strict=True)
        return [bytes(buffer[start:end]) if present else None for start, end, present in places]

    def at(self, index: int) -> bytes | None:
        """Return a copy of one item."""
        return bytes(self.buffer[self.starts[index] : self.ends[index]]) if self.present[index] else None

    @property
    def size_bytes(self) -> int:
        """The size of all items."""
        return int(self.ends.sum() - self.starts.sum())


@dataclass(frozen=True, slots=True, eq=False)
class MessageColumns(Sequence[Message]):
    """Messages of one bucket, in order of their offsets. As a sequence, it creates a copy of each message.

    Args:
        bucket: the number of the bucket.
        offsets: the offset of each message.
        timestamps: the time of each timestamp (milliseconds since 1970, UTC).
        timestamp_types: the type of each timestamp (0: none, 1: the writer's, 2: the bus's).
        values: the payloads; there is one newline between two of them.
        keys: the keys.
        headers: the headers of each message; None if no message has any.
    """

    bucket: int
    offsets: Numbers
    timestamps: Numbers
    timestamp_types: npt.NDArray[np.int8]
    values: BytesColumn
    keys: BytesColumn
    headers: Sequence[MessageHeaders | None] | None

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> MessageColumns: ...
    def __getitem__(self, index: int | slice) -> Message | MessageColumns:
        if isinstance(index, slice):
            return replace(
                self,
                offsets=self.offsets[index],
                timestamps=self.timestamps[index],
                timestamp_types=self.timestamp_types[index],
                values=self.values.part(index),
                keys=self.keys.part(index),
                headers=self.headers and self.headers[index],
            )
        return MessageCopy(
            self.values.at(index),
            self.keys.at(index),
            self.bucket,
            int(self.offsets[index]),
            (int(self.timestamp_types[index]), int(self.timestamps[index])),
            self.headers[index] if self.headers else None,
        )

    def __iter__(self) -> Iterator[Message]:
        return map(
            MessageCopy,
            self.values.all(),
            self.keys.all(),
            repeat(self.bucket),
            self.offsets.tolist(),
            zip(self.timestamp_types.tolist(), self.timestamps.tolist(), strict=True),
            self.headers or repeat(None),
        )


class ColumnBatch(RawBatch):
    """Messages of one bucket, as columns; at least one."""

    __slots__ = ()
    messages: MessageColumns

    @property
    def next_offset(self) -> int:
        """The next unread offset after this batch."""
        return int(self.messages.offsets[-1]) + 1

    def offsets(self) -> list[int]:
        """Return the offset of each message."""
        offsets: list[int] = self.messages.offsets.tolist()
        return offsets

    def headers(self) -> Sequence[MessageHeaders | None]:
        """Return the headers of each message; None for a message without headers."""
        return self.messages.headers or [None] * len(self.messages)

    def size_bytes(self) -> int:
        """Return the size of all payloads."""
        return self.messages.values.size_bytes

    def arrivals_ms(self) -> Times:
        """Return the arrival time of each message; `UNKNOWN_ARRIVAL_MS` for a message without a timestamp."""
        messages = self.messages
        return np.where(messages.timestamp_types, messages.timestamps, UNKNOWN_ARRIVAL_MS)
