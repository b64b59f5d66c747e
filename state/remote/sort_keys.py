"""Keys whose bytes sort as the values do that they stand for, so that a store can choose the larger one without decoding.

Numbers sort by their exact value, whether int (of any size) or float: what Python holds for equal has one key. Strings sort by
code point, as their UTF-8 does; tuples element by element. No key is the beginning of another, so that keys may follow one
another in a tuple, and complemented keys sort the other way round.
"""

from __future__ import annotations

import math
from typing import Any

from ...processors.monoids.equality import is_nan

_TUPLE_END, _NUMBER, _BYTES, _TEXT, _TUPLE = (bytes([tag]) for tag in (0x00, 0x10, 0x20, 0x30, 0x40))
_MINUS_INFINITY, _NEGATIVE, _ZERO, _POSITIVE, _INFINITY = (bytes([tag]) for tag in range(1, 6))
_COMPLEMENT = bytes(255 - byte for byte in range(256))
_EXPONENT_SHIFT = 2**31


class _NoOrder(Exception):
    """A value that has no place in an order that bytes could follow."""


def order_key(value: Any) -> bytes | None:
    """Return the value's key; None for what is not a number, str, bytes or a tuple of these, and for NaN."""
    try:
        return _key(value)
    except _NoOrder:
        return None


def reverse_order_key(value: Any) -> bytes | None:
    """Return a key that is the larger, the smaller the value is."""
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
    """Return the exponent of two, then the binary digits from the first 1 to the last; the denominator is a power of two."""
    digits = numerator.bit_length()
    exponent = digits - denominator.bit_length()
    whole_bytes = -(-digits // 8)
    from_the_left = (numerator << 8 * whole_bytes - digits).to_bytes(whole_bytes, "big")
    return (exponent + _EXPONENT_SHIFT).to_bytes(4, "big") + _ended(from_the_left.rstrip(b"\0"))


def _ended(data: bytes) -> bytes:
    # The end sorts below every continuation, a zero byte included.
    return data.replace(b"\0", b"\0\xff") + b"\0\x01"
