"""The context of an event: key, event time, watermark and timers."""

from __future__ import annotations

import msgspec

from ..errors import DeclarationError
from ..time import FOREVER_MS, NEVER_MS, Clock, is_duration_beside, wrong_unit_beside
from ..wording import is_encodable

Request = tuple[Clock, str, "int | None"] | None
"""A timer request: clock, tag, and time, where None cancels the timer. A request that is None drops the event as late."""


class Context(msgspec.Struct, frozen=True, gc=False):
    """The context of an event or a timer. It also sets and cancels timers.

    Args:
        key: the key of the event or the timer.
        event_time: the time of the event, or the time to which the timer was set (milliseconds since 1970, UTC).
        watermark: the low watermark of the shard just before the event: earlier events are late (milliseconds since 1970, UTC).
        requests: the timer requests so far; None if the processor has no `on_timer`.

    Examples:
        >>> context = Context("JFK", event_time=500, watermark=1_000, requests=[])
        >>> context.late
        True
        >>> context.timer(2_000, "departure")
    """

    key: str
    event_time: int
    watermark: int = NEVER_MS
    requests: list[Request] | None = None

    @property
    def late(self) -> bool:
        """Whether the event time is before the watermark."""
        return self.event_time < self.watermark

    def timer(self, at: int, tag: str = "", *, clock: Clock = Clock.EVENT) -> None:
        """Set a timer of this key. It replaces the key's timer with the same tag and clock.

        Args:
            at: when to fire (milliseconds since 1970, UTC). A timer in the past fires right after this event.
            tag: distinguishes the timers of a key.
            clock: event time or wall-clock time. A processor with wall-clock timers must declare `deterministic = False`.

        Raises:
            DeclarationError: the processor has no `on_timer`.
            TypeError: the time is no int, or the tag no str.
            ValueError: the time exceeds 64 bits, looks like seconds, microseconds, nanoseconds or a duration beside the event time, or the tag cannot be encoded.
        """
        if not isinstance(at, int):
            raise TypeError(
                f"{_timer(tag)} is set to {at!r}, which is no int. Give milliseconds since 1970, UTC, such as `context.event_time + 60_000`"
            )
        if not NEVER_MS <= at <= FOREVER_MS:
            raise ValueError(f"{_timer(tag)} is set to {at}, which exceeds 64 bits. Give milliseconds since 1970, UTC.")
        unit = wrong_unit_beside(at, self.event_time)
        if unit is not None:
            raise ValueError(
                f"{_timer(tag)} is set to {at}, which looks like {unit}. Give milliseconds since 1970, UTC."
            )
        if is_duration_beside(at, self.event_time):
            raise ValueError(
                f"{_timer(tag)} is set to {at}, which would be in 1970, decades before its event: it looks like a duration. Add it to a time, in "
                f"milliseconds: `context.event_time + {at:_}` is {at:,} ms after the event."
            )
        _expect_tag(tag)
        self._expected_requests().append((clock, tag, at))

    def cancel(self, tag: str = "", *, clock: Clock = Clock.EVENT) -> None:
        """Cancel the timer of this key with the tag and clock, if there is one.

        Raises:
            DeclarationError: the processor has no `on_timer`.
            TypeError: the tag is no str.
            ValueError: the tag cannot be encoded.
        """
        _expect_tag(tag)
        self._expected_requests().append((clock, tag, None))

    def drop_late(self) -> None:
        """Drop the event as late and count it.

        Raises:
            DeclarationError: the processor has no `on_timer`.
        """
        self._expected_requests().append(None)

    def without_timers(self) -> Context:
        """Return a copy without timers, for the user code of windows and joins."""
        return Context(self.key, self.event_time, self.watermark)

    def _expected_requests(self) -> list[Request]:
        if self.requests is None:
            raise DeclarationError(
                "The processor has no `on_timer`, so it cannot set timers. Define `on_timer(self, timer, state, context)` in a "
                "penstock.Stateful. Windows and joins set their own timers."
            )
        return self.requests


def _expect_tag(tag: object) -> None:
    """Raise TypeError or ValueError for a tag that cannot be saved."""
    if tag == "":
        return
    if not isinstance(tag, str):
        raise TypeError(f"The tag of a timer is {tag!r}, which is no str. Convert it, as in `str(tag)`")
    if not is_encodable(tag):
        raise ValueError(
            f"The tag of a timer is {tag!a}, which contains half a character, so it cannot be encoded in UTF-8"
        )


def _timer(tag: str) -> str:
    """Return the name of a timer, at the start of a sentence."""
    return f"The timer {tag!r}" if tag else "The timer"
