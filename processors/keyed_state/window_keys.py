"""The keys of windows' states."""

from __future__ import annotations

from .key_layout import decode_time, encode_time


def encode_slot(key: str, start: int) -> bytes:
    """Return the key of a window's state. The start comes first, so that old windows are adjacent."""
    return encode_time(start) + key.encode()


def decode_slot(slot: bytes) -> tuple[str, int]:
    """Return the key and the start of a window."""
    return slot[8:].decode(), decode_time(slot)
