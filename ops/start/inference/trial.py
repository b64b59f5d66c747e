"""Decodes a sample with the declaration that was inferred from it, as a worker would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....processors import PenstockError, counted
from ....processors.declare import AnyCategory, Category, Message, split_messages
from ....transport.codecs import Codecs
from ....transport.memory import MemoryBus


def outcome_of(code: str, messages: Sequence[Message]) -> str:
    """Return how many messages the declaration decodes and the first failure, as a sentence; empty without a failure.

    Args:
        code: the module, whose texts from messages are quoted.
        messages: the sample; null values are deletions and are not counted.
    """
    category = _declared(code)
    if category is None:
        return ""
    present = [message for message in messages if message.value()]
    failures = _failures(category, present)
    if not failures:
        return ""
    first = min(failures)
    message, decoded = present[first], len(present) - len(failures)
    return (
        f" It decodes {decoded:,} of {counted(len(present), 'message')}; first failure: offset {message.offset()} of bucket {message.partition()}: "
        f"{_one_line(failures[first])}."
    )


def _declared(code: str) -> AnyCategory | None:
    """Return the category of a module; None if it needs a module that users generate, or a service."""
    names: dict[str, Any] = {"__name__": "inferred"}
    try:
        exec(compile(code, "inferred.py", "exec", dont_inherit=True), names)  # noqa: S102 - our own code
    except (ImportError, KeyError, PenstockError):
        return None
    return next(value for value in names.values() if isinstance(value, Category))


def _failures(category: AnyCategory, messages: Sequence[Message]) -> dict[int, str]:
    """Return the reasons of the messages that do not decode or have no event time, by their index."""
    codec = Codecs(MemoryBus()).of(category)
    found: dict[int, str] = {}
    for index, message in enumerate(messages):
        decoded = codec.decode(split_messages(codec, [message]))
        if decoded.bad:
            found[index] = decoded.bad[0].reason
            continue
        try:
            category.event_times_of(decoded.events)
        except Exception as error:  # noqa: BLE001 - whatever the function of the event time raises
            found[index] = f"no event time: {error}"
    return found


def _one_line(reason: str) -> str:
    """Return a reason that can be in the docstring of a module: it can contain texts of messages."""
    return ascii(reason)[1:-1].replace('"', "'").rstrip(".")
