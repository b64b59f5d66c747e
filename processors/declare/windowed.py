"""Windows of stateful processors: a state of its own for each key and window, until the window is complete.

    event --fold--> the states of the windows that it lies in
    low watermark passes the end of a window --complete--> outputs; after the lateness that is allowed, the state is gone

Like a join it is a stateful processor: the windows' states are the key's state, and what completes them is a timer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, ClassVar, NamedTuple, final

from ..errors import DeclarationError
from ..time.timers import Timer
from ..time.watermarks import NEVER_MS
from ..time.windows import MILLISECOND, GlobalWindow, Session, Sliding, Window, WindowAssigner
from .categories import Category
from .context import Context
from .processor import expect_lateness
from .records import Record
from .stateful import Stateful


class _Held(NamedTuple):
    """A window that something is known of, as it is saved."""

    start: int
    end: int
    state: Any


class Windowed(Stateful):
    """Per key and window: state and events out, and what follows when the window is complete.

    An event that comes when all its windows are done (complete, and `allowed_lateness` over) is in none: it is counted, or goes to the
    category that `late` names. Sessions want `ordered = True`: in order, a session only ever grows at its end.

    Class attributes:
        window: the windows of event time.
        state: the type of a key's state in one window.
        allowed_lateness: how long after a window is complete it still takes events, in event time.
    """

    window: ClassVar[WindowAssigner]
    allowed_lateness: ClassVar[timedelta] = timedelta()

    @abstractmethod
    def fold(self, event: Any, state: Any, window: Window, context: Context) -> tuple[Any, Iterable[Record]]:
        """Return the next state of the key in a window that the event lies in, and outputs.

        Args:
            event: the event; it is given once for each of its windows, the earliest first.
            state: what was returned for the last event of the key and window; None at its first.
            window: which one; a session as it is with this event.
            context: the key and the event time.
        """

    @abstractmethod
    def complete(self, state: Any, window: Window, context: Context) -> Iterable[Record]:
        """Return, or yield, what a window gives when the low watermark has passed its end; and again at each event that it takes later.

        Args:
            state: what was returned last; windows for which that was None are not asked.
            window: which one.
            context: the key, and the end of the window or the time of the event that came later.
        """

    @final
    def process(self, event: Any, state: Any, context: Context) -> tuple[Any, Iterable[Record]]:
        """Fold an event into the windows that still take it."""
        held = _held(state)
        windows = self._taking(context, held)
        if not windows:
            context.drop_late()
            return state, ((event,) if isinstance(self.late, Category) else ())
        outputs: list[Record] = []
        seen = context.without_timers()
        for window in windows:
            before = held.get(window.start)
            after, produced = self.fold(event, None if before is None else before.state, window, seen)
            outputs.extend(produced)
            self._keep(held, window, after, context)
            if after is not None and window.end <= context.watermark:
                outputs.extend(self.complete(after, window, seen))
        return _saved(held), outputs

    @final
    def on_timer(self, timer: Timer, state: Any, context: Context) -> tuple[Any, Iterable[Record]]:
        """Complete a window, or let go of it."""
        held = _held(state)
        window = held.get(int(timer.tag))
        if window is None:
            return _saved(held), ()  # its state was dropped from outside, which knows nothing of timers
        if timer.at >= window.end + self._allowed_ms():
            del held[window.start]
        else:
            context.timer(window.end + self._allowed_ms(), timer.tag)
        if timer.at > window.end:
            return _saved(held), ()
        return _saved(held), self.complete(window.state, Window(window.start, window.end), context.without_timers())

    def _taking(self, context: Context, held: dict[int, _Held]) -> list[Window]:
        """Return the windows that an event lies in and that are not done."""
        if isinstance(self.window, Session):
            return [_session(self.window, context.event_time, held)]
        windows = map(self.window.window, self.window.assign([context.event_time]).starts)
        return [window for window in windows if window.end + self._allowed_ms() > context.watermark]

    def _keep(self, held: dict[int, _Held], window: Window, state: Any, context: Context) -> None:
        """Note the state of a window, and when its turn is; of None, that there is nothing."""
        if state is None:
            held.pop(window.start, None)
            context.cancel(str(window.start))
            return
        held[window.start] = _Held(*window, state)
        is_complete = window.end <= context.watermark
        context.timer(window.end + (self._allowed_ms() if is_complete else 0), str(window.start))

    @classmethod
    def _allowed_ms(cls) -> int:
        return cls.allowed_lateness // MILLISECOND

    @classmethod
    def output_watermark_ms(cls, low_ms: int) -> int:
        """Return where the earliest window begins that is not complete: all that it gives is taken to lie in its window.

        Sessions have no such beginning: what they give is taken to have their ends as event times; if not, declare `max_output_delay`.
        """
        if low_ms == NEVER_MS or isinstance(cls.window, Session):
            return super().output_watermark_ms(low_ms)
        return super().output_watermark_ms(min(cls.window.assign([low_ms]).starts))

    @classmethod
    def saved_type(cls) -> Any:
        """Return the type of all that is known of a key: start, end and state of its windows."""
        return tuple[tuple[int, int, cls.state], ...]  # type: ignore[name-defined]  # known when it is declared

    @classmethod
    def map_states(cls, saved: Any, change: Callable[[Any], Any]) -> Any:
        """Return the windows of a key with the state of each changed; without those for which that is None."""
        windows = (_Held(start, end, change(state)) for start, end, state in saved)
        return tuple(window for window in windows if window.state is not None) or None

    @classmethod
    def can_drop_late(cls) -> bool:
        """Whether events come too late for something: for all their windows."""
        return True

    @classmethod
    def state_shape(cls) -> str:
        """Return the type of a key's state in a window, the windows, and what the key is."""
        return f"{super().state_shape()} in {cls.window!r}"

    @classmethod
    def check(cls) -> None:
        """Also: windows that are complete some time."""
        if not hasattr(cls, "window"):
            raise DeclarationError(
                f"Windowed processor {cls.__name__}: declare `window = …`, such as penstock.windows.Tumbling(timedelta(hours=1))."
            )
        super().check()
        if isinstance(cls.window, GlobalWindow):
            raise DeclarationError(
                f"Windowed processor {cls.__name__}: its one window holds all of time, so it is never complete. Derive from "
                "penstock.Stateful, whose state is that of all time, or declare windows that end."
            )
        if isinstance(cls.window, Sliding):
            raise DeclarationError(
                f"Windowed processor {cls.__name__}: each event lies in as many sliding windows as there are events in the next {cls.window.size}, "
                "and a state that is folded would have to be folded anew for each. Derive from penstock.Aggregator, whose monoid combines "
                "what they share."
            )
        expect_lateness(cls, cls.allowed_lateness)
        if cls.ordered and cls.allowed_lateness:
            raise DeclarationError(
                f"Windowed processor {cls.__name__}: in order, no event comes when its window is complete, so there is no lateness to allow. "
                "Let the `watermark` lie further behind, or leave `ordered` out."
            )
        if isinstance(cls.window, Session) and not cls.ordered:
            raise DeclarationError(
                f"Windowed processor {cls.__name__}: an event between two sessions would make them one, and how two states become one is "
                "not said. Declare `ordered = True`, so that a session only grows at its end; or derive from penstock.Aggregator, whose "
                "monoid combines them."
            )


def _session(window: Session, time: int, held: dict[int, _Held]) -> Window:
    """Return the session of an event that comes in order: the one that is open, or its own."""
    start = next(iter(held), time)
    return Window(start, time + window.gap_ms)


def _held(state: Any) -> dict[int, _Held]:
    """Return the windows of a key by their starts, as they were returned or saved."""
    return {start: _Held(start, end, of_window) for start, end, of_window in state or ()}


def _saved(held: dict[int, _Held]) -> tuple[_Held, ...] | None:
    """Return the windows of a key, the earliest first; None where there is none."""
    return tuple(held[start] for start in sorted(held)) or None
