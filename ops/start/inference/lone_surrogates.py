r"""Halves of characters in JSON.

JavaScript and Java write a text that was cut within an emoji as `"\ud83d"`, the first half of two. Such JSON has a shape, but no codec reads it.
"""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[^u])|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
"""An escape that stays: of both halves, or of another character, such as a backslash. Otherwise an escape of a half."""
_UNKNOWN = rb"\ufffd"
"""The escape of the character that stands for unknown ones."""


def without_halves(value: bytes) -> bytes:
    """Return JSON in which the unknown character replaces each half of one."""
    return _ESCAPES.sub(lambda escape: escape[1] or _UNKNOWN, value)
