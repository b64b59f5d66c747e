"""The debugger, where the events of a key are processed, or where a processor raises: with event, state and timers in hand."""

from __future__ import annotations

import pdb  # noqa: T100 - stopping in the debugger is what this is for
import sys
import traceback
from collections.abc import Callable, Collection
from typing import IO, Any

from ...processors.declare.processor import Processor
from ...processors.declare.stateful import Stateful
from ...processors.declare.stateless import Stateless
from ...processors.time.timers import Timer
from .call_hooks import Call, hook_calls
from .shard_replay import ShardReplayer

SKIPPED = ["penstock.*", "penstock"]
"""Whose code is not stepped through."""


ARGUMENTS = {
    "process": ("event", "state", "context"),
    "on_timer": ("timer", "state", "context"),
    "join": ("event", "row"),
    "observe": ("event",),
    "result": ("key", "window", "value"),
}
"""What the methods are called with."""


class DebuggerLeft(KeyboardInterrupt):
    """Somebody ended the replay in the debugger."""


class _Debugger(pdb.Pdb):
    """Remembers that somebody has left it: called as here, it would go on as if nothing had been."""

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
        processor: opened; it is tapped.
        keys: at whose events and timers of the span to stop.
        read: where commands are read.
        write: where the debugger writes.
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
        """The shard that is at work."""
        hook_calls(processor, self._around)

    def _around(self, call: Call, make: Callable[[], Any]) -> Any:
        try:
            if call.key not in self._keys or (self.playing is not None and not self.playing.is_warm):
                return self._complete(make)
            self._say(call, f"{call.method} for key {call.key}")
            debugger = self._debugger()
            given = debugger.runcall(self._complete, make)
            debugger.expect_not_left()
        except Exception as error:
            self._look_at(call, error)
            raise
        return given

    def _look_at(self, call: Call, error: Exception) -> None:
        """Stop where something was raised."""
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
        """Make a call with all that it gives, so that what a generator does is done here and not later."""
        given = make()
        # Nothing here may call code of others before the processor's own: it would be stepped into.
        if self._gives is Stateless:
            return list(given)
        if self._gives is Stateful and type(given) is tuple and len(given) == 2:
            return given[0], list(given[1])
        return given

    def _timers_of(self, key: str) -> list[Timer]:
        return [] if self.playing is None else self.playing.timers_of(key)

    def _say(self, call: Call, what: str) -> None:
        lines = [
            f"> {what}",
            *(f"  {name} = {it!r}" for name, it in zip(ARGUMENTS[call.method], call.arguments, strict=False)),
        ]
        lines += [f"  timer {timer.tag!r} by {timer.clock.value} at {timer.at}" for timer in self._timers_of(call.key)]
        self._write.write("\n".join(lines) + "\n")


def _is_ours(module: str) -> bool:
    return module == "penstock" or module.startswith("penstock.")
