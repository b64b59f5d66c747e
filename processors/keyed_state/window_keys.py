"""Where the state of a key's window is kept."""

from __future__ import annotations

from .key_layout import decode_time, encode_time


def encode_slot(key: str, start: int) -> bytes:
    """Return where the state of a key's window is kept: windows first, so that old ones lie together."""
    return encode_time(start) + key.encode()


def decode_slot(slot: bytes) -> tuple[str, int]:
    """Return the key and the start of the window kept at `slot`."""
    return slot[8:].decode(), decode_time(slot)
