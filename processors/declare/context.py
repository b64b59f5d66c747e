"""What a stateful processor may know of the event at hand, and how it asks for timers."""

from __future__ import annotations

import msgspec

from ..errors import DeclarationError
from ..time.timers import Clock
from ..time.watermarks import FOREVER_MS, NEVER_MS

Request = tuple[Clock, str, "int | None"] | None
"""A timer that a key asks for: by which clock, its tag, and when, None to cancel it. Or None: the event is left out, as too late."""


class Context(msgspec.Struct, frozen=True, gc=False):
    """What a stateful processor may know of the event at hand beside the event, and how it sets timers.

    Args:
        key: the event's key, or that of the timer.
        event_time: of the event, or when the timer was to fire (milliseconds since 1970, UTC).
        watermark: the shard's low watermark just before the event: none earlier than this was expected any more.
        requests: the timers asked for so far; None where the processor has no `on_timer`.
    """

    key: str
    event_time: int
    watermark: int = NEVER_MS
    requests: list[Request] | None = None

    @property
    def late(self) -> bool:
        """Whether the event came after the watermark had passed it."""
        return self.event_time < self.watermark

    def timer(self, at: int, tag: str = "", *, clock: Clock = Clock.EVENT) -> None:
        """Set this key's timer of a tag, in place of one that it has.

        Args:
            at: when it is to fire, in milliseconds since 1970, UTC; one that lies in the past fires right after this event.
            tag: tells the timers of a key apart.
            clock: by which time. A processor that goes by the time of day is declared `deterministic = False`.

        Raises:
            DeclarationError: the processor has no `on_timer`.
            ValueError: a time that has more than 64 bits.
        """
        if not NEVER_MS <= at <= FOREVER_MS:
            raise ValueError(
                f"A timer {tag!r} at {at}: a time is a whole number of milliseconds since 1970, of 64 bits."
            )
        self._asked().append((clock, tag, at))

    def cancel(self, tag: str = "", *, clock: Clock = Clock.EVENT) -> None:
        """Forget this key's timer of a tag; nothing where it has none."""
        self._asked().append((clock, tag, None))

    def leave_out(self) -> None:
        """Count the event as one that came too late for what it was meant for, and is in nothing.

        Raises:
            DeclarationError: the processor has no `on_timer`.
        """
        self._asked().append(None)

    def without_timers(self) -> Context:
        """Return it for code whose timers are set by the engine alone."""
        return Context(self.key, self.event_time, self.watermark)

    def _asked(self) -> list[Request]:
        if self.requests is None:
            raise DeclarationError(
                "A timer was set, and nothing says what is done when it fires: define `on_timer(self, timer, state, context)` in a "
                "penstock.Stateful. Windows and joins set their own."
            )
        return self.requests
