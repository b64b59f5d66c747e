"""The values of each key that later sliding windows need, over the saved state.

    value of a completed time --> the key's tail, saved under the key
    a long tail               --> its oldest values move to chunks, separate entries that are written once
    a chunk or tail           --> removed when no later window includes it

A checkpoint therefore writes at most a tail and the new chunks of each key, regardless of the number of values in a window.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

import msgspec

from ..keyed_state import ENTRY_BYTES, STATE_CACHE, Changes, StateReader, key_layout
from ..monoids import Monoid
from .sliding_aggregate import SlidingAggregate

CHUNK_VALUES = 64
"""The number of values in a chunk, and the maximum in a tail."""

Value = tuple[int, bytes]
"""An event time, and the encoded partial of its events."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[list[int], list[Value]]).decode
_decode_chunk = msgspec.msgpack.Decoder(list[Value]).decode


class KeyHistory(NamedTuple):
    """The history of a key.

    Args:
        aggregate: the value of the window that ends with the newest event.
        chunks: the last event time in each chunk, which identifies it.
        tail: the values after the chunks.
    """

    aggregate: SlidingAggregate
    chunks: list[int]
    tail: list[Value]


class SlidingHistory:
    """The histories of a shard's keys. Call `load` with a key before any other method.

    Args:
        monoid: combines the values.
        decode: decodes them.
        size_ms: the size of the windows, in milliseconds.
        saved: the shard's state, including all drained changes.
    """

    def __init__(self, monoid: Monoid[Any], decode: Callable[[bytes], Any], size_ms: int, saved: StateReader) -> None:
        self._monoid = monoid
        self._decode = decode
        self._size_ms = size_ms
        self._saved = saved
        self._histories: dict[str, KeyHistory] = {}
        self._changed: set[str] = set()
        self._removed: Changes = {}

    def load(self, keys: Iterable[str]) -> None:
        """Load the histories of these keys in two reads."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._histories]
        for key, head in zip(missing, self._saved.fetch([key.encode() for key in missing]), strict=True):
            self._histories[key] = self._new(*(([], []) if head is None else _decode(head)))
        chunks = [(key, last) for key in missing for last in self._histories[key].chunks]
        for (key, _), chunk in zip(chunks, self._saved.fetch([_chunk_key(*chunk) for chunk in chunks]), strict=True):
            self._aggregate(key, _decode_chunk(cast("bytes", chunk)))
        for key in missing:
            self._aggregate(key, self._histories[key].tail)

    def _aggregate(self, key: str, values: Iterable[Value]) -> None:
        for time, encoded in values:
            self._histories[key].aggregate.add(time, self._decode(encoded))

    def add(self, key: str, time: int, encoded: bytes) -> Any:
        """Add the value of a key's next event time; return the value of the window that ends there."""
        history = self._histories[key]
        history.tail.append((time, encoded))
        self._changed.add(key)
        return history.aggregate.add(time, self._decode(encoded))

    def has_values(self, key: str) -> bool:
        """Return whether a key has values."""
        return bool(self._histories[key].tail)

    def expire(self, key: str, until_ms: int) -> int | None:
        """Remove whole chunks up to a time. Return the last time of the next chunk or tail, None if no value remains."""
        history = self._histories[key]
        self._changed.add(key)
        self._drop_chunks(key, until_ms)
        if history.chunks:
            return history.chunks[0]
        if _time(history.tail[-1]) > until_ms:
            return _time(history.tail[-1])
        self._histories[key] = self._new([], [])
        return None

    def drain(self) -> Changes:
        """Return the changes since the last drain."""
        written: Changes = {}
        for key in self._changed:
            self._shorten(key, written)
        changes, self._removed = self._removed | written, {}
        self._changed.clear()
        values = sum(1 + len(history.aggregate) for history in self._histories.values())
        if STATE_CACHE.must_forget(self, values * ENTRY_BYTES):
            self._histories.clear()
        return changes

    def _shorten(self, key: str, written: Changes) -> None:
        """Remove the expired values of a key, and move the oldest values of a long tail to chunks."""
        _, chunks, tail = self._histories[key]
        if not tail:
            written[key.encode()] = None
            return
        needed_ms = _time(tail[-1]) - self._size_ms
        self._drop_chunks(key, needed_ms)
        del tail[: bisect_right(tail, needed_ms, key=_time)]
        while len(tail) > CHUNK_VALUES:
            chunk = tail[:CHUNK_VALUES]
            del tail[:CHUNK_VALUES]
            chunks.append(_time(chunk[-1]))
            written[_chunk_key(key, chunks[-1])] = _encode(chunk)
        written[key.encode()] = _encode((chunks, tail))

    def _drop_chunks(self, key: str, until_ms: int) -> None:
        chunks = self._histories[key].chunks
        expired = bisect_right(chunks, until_ms)
        self._removed.update((_chunk_key(key, last), None) for last in chunks[:expired])
        del chunks[:expired]

    def _new(self, chunks: list[int], tail: list[Value]) -> KeyHistory:
        return KeyHistory(SlidingAggregate(self._monoid, self._size_ms), chunks, tail)


def decode_tail(head: bytes | None) -> list[Value]:
    """Return the newest saved values of a key, after its chunks."""
    return [] if head is None else _decode(head)[1]


def _time(value: Value) -> int:
    return value[0]


def _chunk_key(key: str, last: int) -> bytes:
    return key_layout.SLIDING_VALUES + key_layout.encode_time(last) + key.encode()
