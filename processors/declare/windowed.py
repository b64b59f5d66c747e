"""Windowed stateful processors: a state per key and window.

    event --fold--> the states of its windows
    low watermark passes the end of a window --complete--> outputs; after the allowed lateness, the state is deleted

Like a join, it is a stateful processor: the state of a key contains its windows, and timers complete them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, ClassVar, Generic, NamedTuple, final

from ..errors import DeclarationError
from ..time import MILLISECOND, NEVER_MS, GlobalWindow, Session, Sliding, Timer, Window, WindowAssigner
from .categories import Category
from .context import Context
from .declaration_checks import expect_lateness
from .method_check import Method, check_methods
from .mutability import independent, unshared
from .stateful import Stateful, StatefulPlan
from .type_parameters import Event, Output, State

_METHODS = {
    "fold": Method(("event", "state", "window", "context"), "state, […]"),
    "complete": Method(("state", "window", "context"), "[…]", may_yield=True),
}


class _OpenWindow(NamedTuple):
    """An open window, as saved."""

    start: int
    end: int
    state: Any


class Windowed(Stateful[Event, Any, Output], Generic[Event, State, Output]):
    """Maintains a state per key and window, and produces outputs when a window is complete.

    `Windowed[Event, State, Output]` names the record types and the type of the state for type checkers.

    An event is late when all its windows are closed: complete, with `allowed_lateness` over. Late events are dropped and counted, or written
    to the category in `late`. Session windows require `ordered = True`, so that a session only grows at its end.

    Class attributes:
        window: the windows of event time.
        state: the type of the state of a key in one window.
        allowed_lateness: how long a complete window still accepts events, in event time.
    """

    window: ClassVar[WindowAssigner]
    allowed_lateness: ClassVar[timedelta] = timedelta()

    @abstractmethod
    def fold(
        self, event: Event, state: State | None, window: Window, context: Context
    ) -> tuple[State | None, Iterable[Output]]:
        """Return the next state of the key in a window, and outputs.

        Args:
            event: the event. `fold` is called once for each of its windows, the earliest first.
            state: the last returned state of the key in the window; None before the first event.
            window: the window; a session includes this event.
            context: the key and the event time.
        """

    @abstractmethod
    def complete(self, state: State, window: Window, context: Context) -> Iterable[Output]:
        """Return or yield the outputs of a complete window. Called when the low watermark passes the end, and again for each later event.

        Args:
            state: the last returned state; never None.
            window: the window.
            context: the key, and the end of the window or the time of the later event.
        """

    @final
    def process(self, event: Event, state: Any, context: Context) -> tuple[Any, Iterable[Any]]:
        """Fold an event into its open windows."""
        held = _held(state)
        windows = self._open_windows(context, held)
        if not windows:
            context.drop_late()
            return state, ((event,) if isinstance(self.late, Category) else ())
        outputs: list[Output] = []
        without_timers = context.without_timers()
        for window in windows:
            before = held.get(window.start)
            own_event = event if len(windows) == 1 else unshared(event)
            after, produced = self.fold(own_event, None if before is None else before.state, window, without_timers)
            outputs.extend(independent(produced))
            self._keep(held, window, after, context)
            if after is not None and window.end <= context.watermark:
                outputs.extend(independent(self.complete(unshared(after), window, without_timers)))
        return _saved(held), outputs

    @final
    def on_timer(self, timer: Timer, state: Any, context: Context) -> tuple[Any, Iterable[Output]]:
        """Complete a window, or delete its state."""
        held = _held(state)
        window = held.get(int(timer.tag))
        if window is None:
            return _saved(held), ()  # a maintenance operation deleted the state but not the timer
        if timer.at >= window.end + self._allowed_ms():
            del held[window.start]
        else:
            context.timer(window.end + self._allowed_ms(), timer.tag)
        if timer.at > window.end:
            return _saved(held), ()
        state = unshared(window.state)
        return _saved(held), self.complete(state, Window(window.start, window.end), context.without_timers())

    def _open_windows(self, context: Context, held: dict[int, _OpenWindow]) -> list[Window]:
        """Return the open windows of an event."""
        if isinstance(self.window, Session):
            return [_session(self.window, context.event_time, held)]
        windows = map(self.window.window, self.window.assign([context.event_time]).starts)
        return [window for window in windows if window.end + self._allowed_ms() > context.watermark]

    def _keep(self, held: dict[int, _OpenWindow], window: Window, state: Any, context: Context) -> None:
        """Store the state of a window and set its timer; None deletes both."""
        if state is None:
            held.pop(window.start, None)
            context.cancel(str(window.start))
            return
        held[window.start] = _OpenWindow(*window, state)
        is_complete = window.end <= context.watermark
        context.timer(window.end + (self._allowed_ms() if is_complete else 0), str(window.start))

    @classmethod
    def _allowed_ms(cls) -> int:
        return cls.allowed_lateness // MILLISECOND


class WindowedPlan(StatefulPlan, of=Windowed):
    """The plan of a `Windowed`."""

    declaration: type[Windowed[Any, Any, Any]]

    def output_watermark_ms(self, low_ms: int) -> int:
        """Return the start of the first incomplete window: outputs lie inside their windows.

        For sessions, it assumes that outputs carry the end of the session. Otherwise declare `max_output_delay`.
        """
        cls = self.declaration
        if low_ms == NEVER_MS or isinstance(cls.window, Session):
            return super().output_watermark_ms(low_ms)
        return super().output_watermark_ms(min(cls.window.assign([low_ms]).starts))

    @property
    def saved_type(self) -> Any:
        """The type of the saved windows of a key: start, end and state of each."""
        return tuple[tuple[int, int, self.declaration.state], ...]  # type: ignore[name-defined]  # a dynamic type

    def map_states(self, saved: Any, change: Callable[[Any], Any]) -> Any:
        """Return the saved windows of a key with `change` applied to each state."""
        windows = (_OpenWindow(start, end, change(state)) for start, end, state in saved)
        return tuple(window for window in windows if window.state is not None) or None

    @property
    def can_drop_late(self) -> bool:
        """True: an event is late when all its windows are closed."""
        return True

    @property
    def state_shape(self) -> str:
        """The type of a state, the key and the windows."""
        cls = self.declaration
        return f"{super().state_shape} in {cls.window!r}"

    def check(self) -> None:
        """Also check the windows."""
        cls = self.declaration
        if not hasattr(cls, "window"):
            raise DeclarationError(
                f"Windowed processor {cls.__name__}: no windows. Declare `window = …`, such as penstock.windows.Tumbling(timedelta(hours=1))."
            )
        super().check()
        check_methods(cls, _METHODS)
        if isinstance(cls.window, GlobalWindow):
            raise DeclarationError(
                f"Windowed processor {cls.__name__}: the global window never ends, so it is never complete. Derive from "
                "penstock.Stateful, or declare windows that end."
            )
        if isinstance(cls.window, Sliding):
            raise DeclarationError(
                f"Windowed processor {cls.__name__}: sliding windows would need a separate fold for each event in the next {cls.window.size}. "
                "Derive from penstock.Aggregator, whose monoid shares partial aggregates between windows."
            )
        expect_lateness(self, cls.allowed_lateness)
        if cls.ordered and cls.allowed_lateness:
            raise DeclarationError(
                f"Windowed processor {cls.__name__}: with `ordered`, no event arrives after its window is complete, so `allowed_lateness` has no effect. "
                "Remove it, or declare a slower `watermark`, or remove `ordered`."
            )
        if isinstance(cls.window, Session) and not cls.ordered:
            raise DeclarationError(
                f"Windowed processor {cls.__name__}: an event between two sessions merges them, but their states cannot be merged. Declare "
                "`ordered = True`, so that a session only grows at its end; or derive from penstock.Aggregator, whose monoid merges them."
            )


def _session(window: Session, time: int, held: dict[int, _OpenWindow]) -> Window:
    """Return the session of an event that arrives in order: the open session, or a new one."""
    start = next(iter(held), time)
    return Window(start, time + window.gap_ms)


def _held(state: Any) -> dict[int, _OpenWindow]:
    """Return the windows of a key by their starts."""
    return {start: _OpenWindow(start, end, of_window) for start, end, of_window in state or ()}


def _saved(held: dict[int, _OpenWindow]) -> tuple[_OpenWindow, ...] | None:
    """Return the windows of a key in order; None without windows."""
    return tuple(held[start] for start in sorted(held)) or None
