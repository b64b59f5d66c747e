r"""The patterns of SCAN, with the rules of Redis: `*` any bytes, `?` one byte, `[a-c]` one of these bytes, `[^a]` another one, `\*` a star.

A pattern comes from a client, so matching must not take longer for a malicious one. A pattern of n bytes becomes a machine of n states, all of
which are the bits of one number: each byte of a key moves them by the same few operations, whatever the pattern is.

Source: Baeza-Yates and Gonnet, "A New Approach to Text Searching" (1992).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

MOST_PATTERN_BYTES = 1024
"""The longest pattern."""
_ALL = range(256)
_STAR, _ANY, _CLASS, _NOT, _END, _RANGE, _ESCAPE = b"*?[^]-\\"


class KeyPattern:
    """Matches keys, as `stringmatchlen` of Redis does.

    Args:
        pattern: at most `MOST_PATTERN_BYTES` bytes.
    """

    def __init__(self, pattern: bytes) -> None:
        self._moves = [0] * len(_ALL)  # for each byte, the states that it leaves for the next one
        self._stays = 0  # the states before a star, which any byte keeps
        state = 1
        for step in _steps(pattern):
            if step is None:
                self._stays |= state
                continue
            for byte in step:
                self._moves[byte] |= state
            state <<= 1
        self._end = state

    def matches(self, key: bytes) -> bool:
        """Return whether the pattern matches the whole key."""
        states, moves, stays = 1, self._moves, self._stays
        for byte in key:
            states = (states & moves[byte]) << 1 | states & stays
        return bool(states & self._end)


def _steps(pattern: bytes) -> Iterator[Iterable[int] | None]:
    """Yield the bytes that each step of a pattern accepts; None for a star."""
    at = 0
    while at < len(pattern):
        byte = pattern[at]
        if byte == _CLASS:
            accepted, at = _class(pattern, at + 1)
            yield accepted
            continue
        if byte == _ESCAPE and at + 1 < len(pattern):
            at += 1
            yield (pattern[at],)
        else:
            yield None if byte == _STAR else _ALL if byte == _ANY else (byte,)
        at += 1


def _class(pattern: bytes, at: int) -> tuple[set[int], int]:
    """Return the bytes of a class, which the end of the pattern closes too, and the place after it."""
    is_excluding = pattern[at : at + 1] == b"^"
    at += is_excluding
    named = set[int]()
    while at < len(pattern) and pattern[at] != _END:
        if pattern[at] == _ESCAPE and at + 1 < len(pattern):
            named.add(pattern[at + 1])
            at += 2
        elif at + 2 < len(pattern) and pattern[at + 1] == _RANGE:
            first, last = sorted((_signed(pattern[at]), _signed(pattern[at + 2])))
            named.update(value % 256 for value in range(first, last + 1))
            at += 3
        else:
            named.add(pattern[at])
            at += 1
    return (set(_ALL) - named if is_excluding else named), at + 1


def _signed(byte: int) -> int:
    """Return the value of a byte in the ranges of Redis, whose characters are signed on most machines: those beyond ASCII come before the others."""
    return byte - 256 * (byte > 127)
