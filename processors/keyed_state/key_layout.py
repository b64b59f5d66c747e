"""The layout of a shard's state: keys' own state, and the engine's entries beside it, in the same store and checkpoints.

keys of states and slots of windows       as they are: text, or a window's start and text, neither of which begins with 0xFF
0xFF "c" category                         how far the event time of that input is
0xFF "e" time, key, tag                   a timer in event time, by when it is due
0xFF "E" key                              the same timers, by key
0xFF "h" time, what tells it apart         an event that is held, or what those of one time come to
0xFF "r" start, key                       an early result of a window that is pending, and when it is due
0xFF "t" time, key                        what is kept of a key up to a time, for windows that reach back to it
0xFF "w" … and 0xFF "W" …                 likewise for the time of day
"""

from __future__ import annotations

ENGINE_PREFIX = b"\xff"
"""The prefix of the engine's entries; no other key begins with it."""

EVENT_TIMES = ENGINE_PREFIX + b"c"
EVENT_TIMERS = ENGINE_PREFIX + b"e"
EVENT_TIMERS_OF = ENGINE_PREFIX + b"E"
BUFFERED_EVENTS = ENGINE_PREFIX + b"h"
EARLY_RESULTS = ENGINE_PREFIX + b"r"
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
    """Return bytes that sort like the pairs; any characters may occur."""
    return first.encode().replace(b"\x00", _NUL) + _END + second.encode()


def decode_pair(encoded: bytes) -> tuple[str, str]:
    """Return the pair."""
    first, _, second = encoded.partition(_END)
    return first.replace(_NUL, b"\x00").decode(), second.decode()


def encode_window_key(key: str, start: int) -> bytes:
    """Return the key of a window's state. The start comes first, so that windows of one time are adjacent."""
    return encode_time(start) + key.encode()


def decode_window_key(encoded: bytes) -> tuple[str, int]:
    """Return the key and the start of a window."""
    return encoded[8:].decode(), decode_time(encoded)
