"""A category of typed keys and JSON values, which contains the latest value of each key.

A message without a value deletes its key. The first write creates the category; a missing category is an empty table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from typing import Generic, NamedTuple, TypeVar

import msgspec

from ...processors.declare import Message
from ..bucket_follower import SILENCE_LIMIT_S, BucketFollower
from ..bus import Bus
from ..category_spec import CategorySpec
from ..errors import BusUnreachable, ForeignMessage
from ..internal_topics import create_missing_categories
from ..messages import Bucket, Outgoing, RawBatch

K = TypeVar("K")
V = TypeVar("V")

_encode = msgspec.json.Encoder().encode


class TableKeys(NamedTuple, Generic[K]):
    """The encoding of a key.

    Args:
        encode: returns the bytes of a key.
        decode: returns the key of these bytes.
    """

    encode: Callable[[K], bytes]
    decode: Callable[[bytes], K]


def _numbered(key: bytes) -> tuple[str, int]:
    name, _, number = key.decode().rpartition("/")
    return name, int(number)


BYTES_KEY: TableKeys[bytes] = TableKeys(bytes, bytes)
"""Bytes, as they are."""

TEXT_KEY: TableKeys[str] = TableKeys(str.encode, bytes.decode)
"""Text, in UTF-8."""

NUMBERED_KEY: TableKeys[tuple[str, int]] = TableKeys(lambda key: f"{key[0]}/{key[1]}".encode(), _numbered)
"""A name and a number: ``name/number``."""


class Change(NamedTuple, Generic[K, V]):
    """One message of a table.

    Args:
        key: the key.
        value: its new value; None for a deletion.
        offset: the offset of the message.
        arrived_ms: when the bus received the message, by its own clock (milliseconds since 1970, UTC).
    """

    key: K
    value: V | None
    offset: int
    arrived_ms: int


class BusTable(Generic[K, V]):
    """A table in a category of one bucket.

    Args:
        spec: the category.
        key: the format of keys.
        decode: returns the value of a message's JSON.
    """

    def __init__(self, spec: CategorySpec, key: TableKeys[K], decode: Callable[[bytes], V]) -> None:
        self.spec = spec
        self._key = key
        self._decode = decode

    def put(self, key: K, value: V) -> Outgoing:
        """Return the message that sets the value of a key."""
        return Outgoing(self._key.encode(key), _encode(value))

    def delete(self, key: K) -> Outgoing:
        """Return the message that deletes a key."""
        return Outgoing(self._key.encode(key), None)

    def write(self, bus: Bus, messages: Iterable[Outgoing]) -> None:
        """Send messages of `put` and `delete`; durable on return. Creates a missing category."""
        create_missing_categories(bus, self.spec)
        with closing(bus.writer()) as writer:
            writer.send(self.spec.name, messages)
            writer.flush()

    def read(self, bus: Bus, *, wait_for_transactions: bool = False) -> dict[K, V]:
        """Return the latest value of each key, at present; empty if the category is missing.

        Args:
            bus: the bus of the category.
            wait_for_transactions: whether to wait for open transactions, and to include them. Otherwise the table ends before the first one.

        Raises:
            BusUnreachable: the bus sent neither messages nor the end of the category for too long.
        """
        if not bus.catalog.topics([self.spec.name]):
            return {}
        end = bus.catalog.ends(self.spec.name)[0] if wait_for_transactions else 0
        latest: dict[K, V] = {}
        with closing(self.follow(bus, end=end)) as reader:
            for key, value, *_ in reader.read_to_end():
                if value is None:
                    latest.pop(key, None)
                else:
                    latest[key] = value
        return latest

    def follow(
        self, bus: Bus, start: int | None = None, *, end: int = 0, may_be_missing: bool = False
    ) -> TableReader[K, V]:
        """Return a reader of all changes.

        Args:
            bus: the bus of the category.
            start: the first offset to read; None for the first message that the bus keeps.
            end: the offset at which the reader is complete, even if open transactions delay it.
            may_be_missing: whether the category may be missing; each read then looks for it, and finds no changes before it exists.
        """
        return TableReader(self, bus, start, end, may_be_missing=may_be_missing)

    def change(self, message: Message) -> Change[K, V]:
        """Decode a message.

        Raises:
            ForeignMessage: no program of this version wrote it.
        """
        value = message.value()
        try:
            key = self._key.decode(message.key() or b"")
            decoded = None if value is None else self._decode(value)
            return Change(key, decoded, message.offset(), message.timestamp()[1])
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ForeignMessage(
                f"The message at offset {message.offset()} of {self.spec.name} is not in this version's format: {error}. Another program or "
                "another version of Penstock wrote to that category, which belongs to Penstock. Nothing was changed. Use the version that wrote it, "
                "or a Kafka cluster without its data."
            ) from error


class TableReader(Generic[K, V]):
    """Reads the changes of a table, each once. One thread; close it."""

    def __init__(
        self, table: BusTable[K, V], bus: Bus, start: int | None, end: int, *, may_be_missing: bool = False
    ) -> None:
        self._table = table
        self._bus = bus
        self._end = end
        self._start = start
        self._bucket = Bucket(table.spec.name, 0)
        self._follower = None if may_be_missing else self._open()

    def _open(self) -> BucketFollower:
        return BucketFollower(self._bus, {self._bucket: self._start}, {self._bucket: self._end} if self._end else None)

    def _opened(self) -> BucketFollower | None:
        """Return the open follower; None while the category is missing."""
        if self._follower is None and self._bus.catalog.topics([self._table.spec.name]):
            self._follower = self._open()
        return self._follower

    @property
    def complete(self) -> bool:
        """Whether the reader has reached the end of the category."""
        return self._follower is not None and self._follower.is_complete

    def is_read_to(self, end: int) -> bool:
        """Return whether all changes before an offset are read, also if the bus has compacted the last ones."""
        position = (self._start or 0) if self._follower is None else self._follower.positions[self._bucket]
        return position >= end

    def read(self, timeout_s: float = 0.0) -> list[Change[K, V]]:
        """Return the changes since the last call, in order; waits up to `timeout_s` if there are none."""
        follower = self._opened()
        return [] if follower is None else list(self._changes(follower.poll(timeout_s)))

    def read_to_end(self, silence_limit_s: float = SILENCE_LIMIT_S) -> Iterator[Change[K, V]]:
        """Yield the changes since the last call. Waits for the end of the category unless the reader has reached it before.

        Raises:
            BusUnreachable: the bus sent neither messages nor the end of the category for `silence_limit_s`.
        """
        yield from self.read()
        if self._follower is None:
            return
        if not self.complete:
            with suppress(BusUnreachable):  # the reader waits for the bus
                stable = self._bus.catalog.stable_ends(self._table.spec.name)[0]
                self._follower.expect_ends({self._bucket: max(stable, self._end)})
        yield from self._changes(self._follower.read_to_end(silence_limit_s))

    def _changes(self, batches: Iterable[RawBatch]) -> Iterator[Change[K, V]]:
        return (self._table.change(message) for batch in batches for message in batch.messages)

    def close(self) -> None:
        """Stop reading. May be repeated."""
        if self._follower is not None:
            self._follower.close()
