"""The layout of a shard's saved state: users' states and the engine's entries, in one store and the same checkpoints.

key, or window start and key      a state, or the value of a window; neither begins with 0xFF
0xFF "b" key                      the numbers of the chunks of a key's buffered events, for joins
0xFF "B" number, key              such a chunk
0xFF "c" category                 the event time of an input
0xFF "e" time, key, tag           an event-time timer, sorted by its time
0xFF "E" key                      the event-time timers of a key
0xFF "h" time, identifier         a buffered event, or the partial of a key and time
0xFF "r" start, key               the due time of a pending early result
0xFF "s" name                     the last firing of a schedule
0xFF "t" time, key                a chunk of a key's history, for sliding windows
0xFF "w" … and 0xFF "W" …         wall-clock timers, as "e" and "E"
"""

from __future__ import annotations

from collections.abc import Iterable

ENGINE_PREFIX = b"\xff"
"""The prefix of the engine's entries; no other key begins with it."""

CHUNKS_OF = ENGINE_PREFIX + b"b"
CHUNKS = ENGINE_PREFIX + b"B"
EVENT_TIMES = ENGINE_PREFIX + b"c"
EVENT_TIMERS = ENGINE_PREFIX + b"e"
EVENT_TIMERS_OF = ENGINE_PREFIX + b"E"
BUFFERED_EVENTS = ENGINE_PREFIX + b"h"
EARLY_RESULTS = ENGINE_PREFIX + b"r"
SCHEDULES = ENGINE_PREFIX + b"s"
SLIDING_VALUES = ENGINE_PREFIX + b"t"
WALL_TIMERS = ENGINE_PREFIX + b"w"
WALL_TIMERS_OF = ENGINE_PREFIX + b"W"

_SIGN = 2**63
_END = b"\x00\x01"
_NUL = b"\x00\xff"


def encode_time(time_ms: int) -> bytes:
    """Return eight bytes that sort like the times."""
    return (time_ms + _SIGN).to_bytes(8, "big")


def decode_time(encoded: bytes) -> int:
    """Return the time in the first eight bytes."""
    return int.from_bytes(encoded[:8], "big") - _SIGN


def encode_pair(first: str, second: str) -> bytes:
    """Return bytes that sort like the pairs. The strings may contain any character."""
    return first.encode().replace(b"\x00", _NUL) + _END + second.encode()


def decode_pair(encoded: bytes) -> tuple[str, str]:
    """Return the pair."""
    first, _, second = encoded.partition(_END)
    return first.replace(_NUL, b"\x00").decode(), second.decode()


def encode_window_key(key: str, start: int) -> bytes:
    """Return the key of a window's state. The start comes first, so that windows of one time are adjacent."""
    return encode_time(start) + key.encode()


def encode_window_keys(slots: Iterable[tuple[str, int]]) -> list[bytes]:
    """Return the same for several keys and starts; faster, as few windows have many keys."""
    starts: dict[int, bytes] = {}
    encoded = []
    for key, start in slots:
        prefix = starts.get(start)
        if prefix is None:
            prefix = starts[start] = encode_time(start)
        encoded.append(prefix + key.encode())
    return encoded


def decode_window_key(encoded: bytes) -> tuple[str, int]:
    """Return the key and the start of a window."""
    return encoded[8:].decode(), decode_time(encoded)
