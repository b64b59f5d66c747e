"""What the windows to come need of the events before them, for each key, over saved state.

    value of a completed time --> the key's tail, saved under the key
    a tail that is too long   --> its beginning goes into chunks, saved beside, each written once
    a chunk, a tail           --> removed, when no window can reach back to it

So a checkpoint writes no more than a tail and what is new, however much lies in a window.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import msgspec

from ..keyed_state import key_layout
from ..keyed_state.changes import Changes, StateReader
from ..monoids import Monoid
from .sliding_aggregate import SlidingAggregate

CHUNK_VALUES = 64
"""How many values are in a chunk, and in a tail at most."""
CACHED_VALUES = 500_000
"""How many values a shard keeps decoded between checkpoints."""

Value = tuple[int, bytes]
"""An event time, and the encoded partial of what happened then."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[list[int], list[Value]]).decode
_decode_chunk = msgspec.msgpack.Decoder(list[Value]).decode


class KeyHistory(NamedTuple):
    """What is kept of a key.

    Args:
        trailing: all of it, merged as it is needed.
        chunks: the last time in each of its chunks, which names it.
        tail: what lies after them.
    """

    trailing: SlidingAggregate
    chunks: list[int]
    tail: list[Value]


class SlidingHistory:
    """The trails of a shard's keys.

    Args:
        monoid: how their values combine.
        size_ms: how far windows reach back.
        saved: the shard's state, with all that was drained so far.
    """

    def __init__(self, monoid: Monoid[Any], size_ms: int, saved: StateReader) -> None:
        self._monoid = monoid
        self._size_ms = size_ms
        self._saved = saved
        self._histories: dict[str, KeyHistory] = {}
        self._moved: set[str] = set()
        self._removed: Changes = {}

    def load(self, keys: Iterable[str]) -> None:
        """Read the trails of these keys, which all else then takes for read."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._histories]
        for key, head in zip(missing, self._saved.fetch([key.encode() for key in missing]), strict=True):
            self._histories[key] = self._begun(*(([], []) if head is None else _decode(head)))
        places = [(key, last) for key in missing for last in self._histories[key].chunks]
        for (key, _), chunk in zip(places, self._saved.fetch([_place(*place) for place in places]), strict=True):
            self._follow(key, _decode_chunk(cast("bytes", chunk)))
        for key in missing:
            self._follow(key, self._histories[key].tail)

    def _follow(self, key: str, values: Iterable[Value]) -> None:
        for time, encoded in values:
            self._histories[key].trailing.add(time, self._monoid.decode(encoded))

    def add(self, key: str, time: int, encoded: bytes) -> Any:
        """Keep the value of a key's next time; return that of the window up to there."""
        trail = self._histories[key]
        trail.tail.append((time, encoded))
        self._moved.add(key)
        return trail.trailing.add(time, self._monoid.decode(encoded))

    def holds(self, key: str) -> bool:
        """Whether anything is kept of a key."""
        return bool(self._histories[key].tail)

    def forget(self, key: str, until_ms: int) -> int | None:
        """Forget what lies up to a time, chunk by chunk; return up to when the next one lies, None where nothing is left."""
        trail = self._histories[key]
        self._moved.add(key)
        self._drop_chunks(key, until_ms)
        if trail.chunks:
            return trail.chunks[0]
        if _time(trail.tail[-1]) > until_ms:
            return _time(trail.tail[-1])
        self._histories[key] = self._begun([], [])
        return None

    def drain(self) -> Changes:
        """Hand over what changed since the last drain."""
        kept: Changes = {}
        for key in self._moved:
            self._shorten(key, kept)
        changes, self._removed = self._removed | kept, {}
        self._moved.clear()
        if sum(1 + len(trail.trailing) for trail in self._histories.values()) > CACHED_VALUES:
            self._histories.clear()
        return changes

    def _shorten(self, key: str, kept: Changes) -> None:
        """Drop what no window needs any more, and put the beginning of a long tail into chunks."""
        _, chunks, tail = self._histories[key]
        if not tail:
            kept[key.encode()] = None
            return
        needed_ms = _time(tail[-1]) - self._size_ms
        self._drop_chunks(key, needed_ms)
        del tail[: bisect_right(tail, needed_ms, key=_time)]
        while len(tail) > CHUNK_VALUES:
            chunk = tail[:CHUNK_VALUES]
            del tail[:CHUNK_VALUES]
            chunks.append(_time(chunk[-1]))
            kept[_place(key, chunks[-1])] = _encode(chunk)
        kept[key.encode()] = _encode((chunks, tail))

    def _drop_chunks(self, key: str, until_ms: int) -> None:
        chunks = self._histories[key].chunks
        done = bisect_right(chunks, until_ms)
        self._removed.update((_place(key, last), None) for last in chunks[:done])
        del chunks[:done]

    def _begun(self, chunks: list[int], tail: list[Value]) -> KeyHistory:
        return KeyHistory(SlidingAggregate(self._monoid, self._size_ms), chunks, tail)


def decode_tail(head: bytes | None) -> list[Value]:
    """Return the newest values of a key, as they are saved."""
    return [] if head is None else _decode(head)[1]


def _time(value: Value) -> int:
    return value[0]


def _place(key: str, last: int) -> bytes:
    return key_layout.SLIDING_VALUES + key_layout.encode_time(last) + key.encode()
