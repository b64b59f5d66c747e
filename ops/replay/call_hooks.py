"""Taps: what is called around a processor's own methods, to see which key each call is for, and to change what comes of it.

They are set on the opened processor itself, so that the cores, which call it, are those that a worker runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...processors.declare.aggregator import Aggregator
from ...processors.declare.categories import AnyCategory
from ...processors.declare.processor import Processor
from ...processors.declare.stateful import Stateful
from ...processors.declare.stateless import Stateless
from ...processors.lookups import LookupJoin


class Call(NamedTuple):
    """A call of a processor's method.

    Args:
        method: its name.
        key: the key that it is for.
        arguments: what it is called with.
    """

    method: str
    key: str
    arguments: tuple[Any, ...]


CallHook = Callable[[Call, Callable[[], Any]], Any]
"""Is given a call and what makes it; returns what is to come of it."""


def hook_calls(processor: Processor, around: CallHook) -> None:
    """Have a tap called around each call of a processor's methods that are given events, timers or windows."""
    for method, key_of in _methods(processor).items():
        setattr(processor, method, _tapped(getattr(processor, method), method, key_of, around))


def _tapped(original: Any, method: str, key_of: Callable[..., str], around: CallHook) -> Any:
    def called(*arguments: Any) -> Any:
        return around(Call(method, key_of(*arguments), arguments), lambda: original(*arguments))

    return called


def _methods(processor: Processor) -> dict[str, Callable[..., str]]:
    """Return which methods are tapped, and how the key of a call is told."""
    key_of = _KeyOf(processor)
    match processor:
        case LookupJoin():
            return {"join": key_of.event}
        case Stateless():
            return {"process": key_of.event}
        case Stateful():
            return {"process": key_of.context, **({"on_timer": key_of.context} if processor.has_timers() else {})}
        case Aggregator():
            return {"observe": key_of.event, "result": key_of.first}
        case _:
            return {}


class _KeyOf:
    """Tells the key of a call from its arguments."""

    def __init__(self, processor: Processor) -> None:
        self._categories: dict[type, AnyCategory] = {c.record: c for c in processor.inputs()}

    def event(self, event: Any, *_: Any) -> str:
        return self._categories[type(event)].keys_of([event])[0]

    def context(self, _event: Any, _state: Any, context: Any) -> str:
        return str(context.key)

    def first(self, key: str, *_: Any) -> str:
        return key


def only(processor: Processor, key: str) -> None:
    """Let a processor give only what comes of one key's events, timers and windows. It still takes all events.

    So what the key's outputs depend on beside its own events is as it was: the watermark, which all events of its bucket move.
    """

    def around(call: Call, make: Callable[[], Any]) -> Any:
        given = make()
        if call.key == key or call.method == "observe":
            return given
        match call.method, given:
            case "result", _:
                return None
            case (("process" | "on_timer"), (state, _)) if isinstance(processor, Stateful):
                return state, ()
            case _:
                return ()

    hook_calls(processor, around)
