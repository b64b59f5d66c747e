"""Hooks around a processor's methods, and a debugger that stops at a key's events or at errors."""

from __future__ import annotations

import pdb  # noqa: T100 - stopping in the debugger is what this is for
import sys
import traceback
from collections.abc import Callable, Collection
from typing import IO, Any, NamedTuple

from ....processors.declare import Aggregator, AnyCategory, Processor, Stateful, Stateless, plan_of
from ....processors.lookups import LookupJoin
from ....processors.time import Timer
from .shard_replay import ShardReplayer

SKIPPED = ["penstock.*", "penstock", "asyncio", "asyncio.*", "selectors", "contextlib", "weakref", "_weakrefset"]
"""Modules that the debugger does not step into: Penstock's and asyncio's."""


ARGUMENTS = {
    "process": ("event", "state", "context"),
    "on_timer": ("timer", "state", "context"),
    "join": ("event", "row"),
    "observe": ("event",),
    "result": ("key", "window", "value"),
}
"""The arguments of the methods."""


class DebuggerLeft(KeyboardInterrupt):
    """The user quit the debugger."""


class _Debugger(pdb.Pdb):
    """Remembers that the user quit; `runcall` alone would continue."""

    _is_left = False

    def set_quit(self) -> None:
        self._is_left = True
        super().set_quit()

    def expect_not_left(self) -> None:
        if self._is_left:
            raise DebuggerLeft


class Debugger:
    """Stops a replay in the debugger.

    Args:
        processor: the opened processor; its methods are hooked.
        keys: stop at events and timers of these keys.
        read: the input of the debugger.
        write: the output of the debugger.
    """

    def __init__(
        self,
        processor: Processor,
        keys: Collection[str],
        *,
        read: IO[str] | None = None,
        write: IO[str] | None = None,
    ) -> None:
        self._gives = next((kind for kind in (Stateful, Stateless) if isinstance(processor, kind)), None)
        self._keys = frozenset(keys)
        self._read = read or sys.stdin
        self._write = write or sys.stdout
        self.playing: ShardReplayer | None = None
        """The current shard."""
        hook_calls(processor, self._around)

    def _around(self, call: Call, make: Callable[[], Any]) -> Any:
        try:
            if call.key not in self._keys or (self.playing is not None and not self.playing.is_warm):
                return self._complete(make)
            self._say(call, f"{call.method} for key {call.key}")
            debugger = self._debugger()
            result = debugger.runcall(self._complete, make)
            debugger.expect_not_left()
        except Exception as error:
            self._look_at(call, error)
            raise
        return result

    def _look_at(self, call: Call, error: Exception) -> None:
        """Stop where an error was raised."""
        self._say(call, f"{call.method} raised {type(error).__name__}: {error}, for key {call.key}")
        trace = error.__traceback__
        while (
            trace is not None and trace.tb_next is not None and _is_ours(trace.tb_frame.f_globals.get("__name__", ""))
        ):
            trace = trace.tb_next
        self._write.write("".join(traceback.format_tb(trace)))
        debugger = self._debugger()
        debugger.reset()
        debugger.interaction(None, trace)  # as pdb.post_mortem does it
        debugger.expect_not_left()

    def _debugger(self) -> _Debugger:
        debugger = _Debugger(skip=SKIPPED, stdin=self._read, stdout=self._write, nosigint=True)
        debugger.use_rawinput = self._read is sys.stdin
        return debugger

    def _complete(self, make: Callable[[], Any]) -> Any:
        """Make a call, and read all of a generator's outputs, so that its code runs here and not later."""
        result = make()
        # No other code may run before the processor's own: the debugger would step into it.
        if self._gives is Stateless:
            return list(result)
        if self._gives is Stateful and type(result) is tuple and len(result) == 2:
            return result[0], list(result[1])
        return result

    def _timers_of(self, key: str) -> list[Timer]:
        return [] if self.playing is None else self.playing.timers_of(key)

    def _say(self, call: Call, what: str) -> None:
        lines = [
            f"> {what}",
            *(
                f"  {name} = {argument!r}"
                for name, argument in zip(ARGUMENTS[call.method], call.arguments, strict=False)
            ),
        ]
        lines += [f"  timer {timer.tag!r} by {timer.clock.value} at {timer.at}" for timer in self._timers_of(call.key)]
        self._write.write("\n".join(lines) + "\n")


def _is_ours(module: str) -> bool:
    return module == "penstock" or module.startswith("penstock.")


class Call(NamedTuple):
    """A call of a processor's method.

    Args:
        method: its name.
        key: its key.
        arguments: its arguments.
    """

    method: str
    key: str
    arguments: tuple[Any, ...]


CallHook = Callable[[Call, Callable[[], Any]], Any]
"""Receives a call and a function that makes it; returns the result of the call."""


def hook_calls(processor: Processor, around: CallHook) -> None:
    """Call a hook around each call of a processor's methods for events, timers or windows."""
    for method, key_of in _methods(processor).items():
        object.__setattr__(processor, method, _hooked(_hook_target(processor, method), method, key_of, around))


def _hook_target(processor: Processor, method: str) -> Any:
    """Return a method as a function that returns its result; an asynchronous method runs to its end."""
    original = getattr(processor, method)
    return processor.blocking(original) if isinstance(processor, Stateless) else original


def _hooked(original: Any, method: str, key_of: Callable[..., str], around: CallHook) -> Any:
    def called(*arguments: Any) -> Any:
        return around(Call(method, key_of(*arguments), arguments), lambda: original(*arguments))

    return called


def _methods(processor: Processor) -> dict[str, Callable[..., str]]:
    """Return the hooked methods, and functions that return the key of a call."""
    key_of = _KeyOf(processor)
    match processor:
        case LookupJoin():
            return {"join": key_of.event}
        case Stateless():
            return {"process": key_of.event}
        case Stateful():
            return {
                "process": key_of.context,
                **({"on_timer": key_of.context} if plan_of(processor).has_timers else {}),
            }
        case Aggregator():
            return {"observe": key_of.event, "result": key_of.first}
        case _:
            return {}


class _KeyOf:
    """Finds the key of a call from its arguments."""

    def __init__(self, processor: Processor) -> None:
        self._categories: dict[type, AnyCategory] = {
            record: category for category in plan_of(processor).sources for record in category.record_types
        }

    def event(self, event: Any, *_: Any) -> str:
        return self._categories[type(event)].keys_of([event])[0]

    def context(self, _event: Any, _state: Any, context: Any) -> str:
        return str(context.key)

    def first(self, key: str, *_: Any) -> str:
        return key


def only(processor: Processor, key: str) -> None:
    """Restrict a processor to the outputs of one key's events, timers and windows. It still processes all events.

    The key's outputs also depend on the watermark, and all events of the bucket move it.
    """

    def around(call: Call, make: Callable[[], Any]) -> Any:
        result = make()
        if call.key == key or call.method == "observe":
            return result
        match call.method, result:
            case "result", _:
                return None
            case (("process" | "on_timer"), (state, _)) if isinstance(processor, Stateful):
                return state, ()
            case _:
                return ()

    hook_calls(processor, around)
