"""Sort keys: bytes in the order of the values, so that a store can choose the larger value without decoding.

Numbers sort by exact value, whether int (of any size) or float; equal numbers have one key. Strings sort by code point, like their UTF-8;
tuples by element. No key is a prefix of another, so keys can be joined in a tuple, and complemented keys sort in reverse.
"""

from __future__ import annotations

import math
from typing import Any

from ...processors.monoids import is_nan

_TUPLE_END, _NUMBER, _BYTES, _TEXT, _TUPLE = (bytes([tag]) for tag in (0x00, 0x10, 0x20, 0x30, 0x40))
_MINUS_INFINITY, _NEGATIVE, _ZERO, _POSITIVE, _INFINITY = (bytes([tag]) for tag in range(1, 6))
_COMPLEMENT = bytes(255 - byte for byte in range(256))
_EXPONENT_SHIFT = 2**31


class _NoOrder(Exception):
    """The value cannot be sorted by bytes."""


def order_key(value: Any) -> bytes | None:
    """Return the key of a number, str, bytes, or tuple of these; None for NaN and other values."""
    try:
        return _key(value)
    except _NoOrder:
        return None


def reverse_order_key(value: Any) -> bytes | None:
    """Return a key that sorts in reverse."""
    key = order_key(value)
    return None if key is None else key.translate(_COMPLEMENT)


def _key(value: Any) -> bytes:
    if isinstance(value, (int, float)):
        return _NUMBER + _number(value)
    if isinstance(value, str):
        return _TEXT + _ended(value.encode())
    if isinstance(value, bytes):
        return _BYTES + _ended(value)
    if isinstance(value, tuple):
        return _TUPLE + b"".join(map(_key, value)) + _TUPLE_END
    raise _NoOrder


def _number(value: float) -> bytes:
    if value == 0:
        return _ZERO
    if is_nan(value):
        raise _NoOrder
    if value in (math.inf, -math.inf):
        return _INFINITY if value > 0 else _MINUS_INFINITY
    numerator, denominator = value.as_integer_ratio()
    magnitude = _magnitude(abs(numerator), denominator)
    return _POSITIVE + magnitude if value > 0 else _NEGATIVE + magnitude.translate(_COMPLEMENT)


def _magnitude(numerator: int, denominator: int) -> bytes:
    """Return the exponent of two, then the binary digits from the first 1 to the last. The denominator must be a power of two."""
    digits = numerator.bit_length()
    exponent = digits - denominator.bit_length()
    whole_bytes = -(-digits // 8)
    from_the_left = (numerator << 8 * whole_bytes - digits).to_bytes(whole_bytes, "big")
    return (exponent + _EXPONENT_SHIFT).to_bytes(4, "big") + _ended(from_the_left.rstrip(b"\0"))


def _ended(data: bytes) -> bytes:
    # The end sorts below every continuation, including a zero byte.
    return data.replace(b"\0", b"\0\xff") + b"\0\x01"
