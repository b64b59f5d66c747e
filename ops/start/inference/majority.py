"""The messages that have the format of a topic: most of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ....processors.declare import Message

Before = TypeVar("Before")
After = TypeVar("After")
MIN_SHARE = 0.9
"""A topic has a format other than plain JSON if at least this part of its messages have it. The declaration counts the others."""


def most(
    pairs: Sequence[tuple[Message, Before]], decode: Callable[[Message, Before], After | None]
) -> list[tuple[Message, After]]:
    """Return the messages whose content decodes, with the result; empty if they are less than `MIN_SHARE` of all."""
    decoded = [(message, after) for message, before in pairs if (after := decode(message, before)) is not None]
    return decoded if len(decoded) >= MIN_SHARE * len(pairs) else []
