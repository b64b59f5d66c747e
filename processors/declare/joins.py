"""Joins: events of two categories that belong together, because they have one key and happen about the same time.

    left or right --> joined with those held of the other side that lie within --> held, until none can come that lies within
    low watermark passes that --> given alone, where it met none and is to be kept

A join is a stateful processor: what it holds is the key's state, and what ends the holding is a timer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from datetime import timedelta
from enum import Enum
from typing import Any, ClassVar, NamedTuple, final

from ..errors import DeclarationError
from ..time.timers import Timer
from ..time.watermarks import NEVER_MS
from ..time.windows import MILLISECOND
from .categories import AnyCategory
from .context import Context
from .join_inputs import declares, expect_declared, expect_told_apart
from .records import Record
from .stateful import Stateful


class JoinType(Enum):
    """What becomes of events that meet no other."""

    INNER = "inner"
    """They give nothing."""
    LEFT = "left"
    """Those of the left category are given alone."""
    OUTER = "outer"
    """Those of both are."""


class HeldEvent(NamedTuple):
    """An event that waits for others.

    Args:
        at: its event time.
        met: whether it was joined with one.
        event: itself.
    """

    at: int
    met: bool
    event: Any


Sides = tuple[tuple[HeldEvent, ...], tuple[HeldEvent, ...]]
"""What is held of the left category, and of the right one, as it came."""


class Join(Stateful):
    """Per key: events of the left and of the right category that happen about the same time.

    A right event lies within if it is at most `before` earlier and at most `after` later than the left one; of two for which that
    holds, `matches` may ask more. Each pair is given once, when the later of the two comes; an event that meets none, when the low
    watermark says that none will come. A late event is joined with what is still held. Both categories are keyed alike and have
    records of different types.

    Class attributes:
        left: a category.
        right: another.
        before: how much earlier than the left event the right one may be.
        after: how much later.
        how: what becomes of events that meet no other.
    """

    left: ClassVar[AnyCategory]
    right: ClassVar[AnyCategory]
    before: ClassVar[timedelta] = timedelta()
    after: ClassVar[timedelta] = timedelta()
    join_type: ClassVar[JoinType] = JoinType.INNER
    buffers_events: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if declares(cls, "left", "right"):
            cls.reads = (cls.left, cls.right)
            cls.state = tuple[
                tuple[tuple[int, bool, cls.left.record], ...],  # type: ignore[name-defined]  # known when it is made
                tuple[tuple[int, bool, cls.right.record], ...],  # type: ignore[name-defined]
            ]

    @abstractmethod
    def join(self, left: Any, right: Any, context: Context) -> Iterable[Record]:
        """Return, or yield, what a pair gives; or an event alone, where the other is None."""

    def matches(self, left: Any, right: Any) -> bool:  # noqa: ARG002 - by default nothing more is asked of them
        """Tell whether two events of a key that lie within belong together; by default all do.

        Those that do not are no pair: if they meet no other, they are events that meet none.
        """
        return True

    @final
    def process(self, event: Any, state: Any, context: Context) -> tuple[Sides, Iterable[Record]]:
        """Join an event with what is held, and hold it."""
        sides = _sides(state)
        is_left = type(event) is self.left.record
        mine, others = sides if is_left else sides[::-1]
        met = [
            self._lies_within(context.event_time, other.at, is_left=is_left)
            and self._meet(event, other.event, is_left=is_left)
            for other in others
        ]
        outputs = [
            output
            for other, meets in zip(others, met, strict=True)
            if meets
            for output in self._pair(event, other.event, context, is_left=is_left)
        ]
        others = tuple(other._replace(met=other.met or meets) for other, meets in zip(others, met, strict=True))
        mine = (*mine, HeldEvent(context.event_time, any(met), event))
        after = (mine, others) if is_left else (others, mine)
        context.timer(self._first_end(after))
        return after, outputs

    @final
    def on_timer(self, timer: Timer, state: Any, context: Context) -> tuple[Sides | None, Iterable[Record]]:
        """Let go of what nothing can meet any more."""
        now_ms = max(timer.at, context.watermark)
        ended: list[tuple[int, bool, HeldEvent]] = []
        kept: list[tuple[HeldEvent, ...]] = []
        for is_left, side in zip((True, False), _sides(state), strict=True):
            ended += [(one.at, is_left, one) for one in side if self._end(one, is_left=is_left) <= now_ms]
            kept.append(tuple(one for one in side if self._end(one, is_left=is_left) > now_ms))
        outputs = [
            output
            for _, is_left, one in sorted(ended, key=lambda end: end[:2])
            if not one.met and self._keeps(is_left=is_left)
            for output in self._pair(one.event, None, context, is_left=is_left)
        ]
        sides = (kept[0], kept[1])
        if not any(sides):
            return None, outputs
        context.timer(self._first_end(sides))
        return sides, outputs

    def _lies_within(self, mine: int, other: int, *, is_left: bool) -> bool:
        left, right = (mine, other) if is_left else (other, mine)
        return left - self._before_ms() <= right <= left + self._after_ms()

    def _meet(self, mine: Any, other: Any, *, is_left: bool) -> bool:
        return self.matches(mine, other) if is_left else self.matches(other, mine)

    def _pair(self, mine: Any, other: Any, context: Context, *, is_left: bool) -> Iterable[Record]:
        seen = context.without_timers()
        return self.join(mine, other, seen) if is_left else self.join(other, mine, seen)

    def _keeps(self, *, is_left: bool) -> bool:
        return self.join_type is JoinType.OUTER or (self.join_type is JoinType.LEFT and is_left)

    def _first_end(self, sides: Sides) -> int:
        return min(
            self._end(one, is_left=is_left) for is_left, side in zip((True, False), sides, strict=True) for one in side
        )

    def _end(self, one: HeldEvent, *, is_left: bool) -> int:
        """Return the watermark at which nothing can meet it any more."""
        return one.at + (self._after_ms() if is_left else self._before_ms()) + 1

    @classmethod
    def _before_ms(cls) -> int:
        return cls.before // MILLISECOND

    @classmethod
    def _after_ms(cls) -> int:
        return cls.after // MILLISECOND

    @classmethod
    def output_watermark_ms(cls, low_ms: int) -> int:
        """Return the earliest time of an event that may still be held: it may be in what comes."""
        return max(super().output_watermark_ms(low_ms) - max(cls._before_ms(), cls._after_ms()), NEVER_MS)

    @classmethod
    def check(cls) -> None:
        """Also: two categories that can be told apart, and a stretch of time."""
        expect_declared(cls, "left", "right")
        super().check()
        expect_told_apart(cls)
        if cls.before + cls.after < timedelta():
            raise DeclarationError(
                f"Join {cls.__name__}: nothing lies between {cls.before} before and {cls.after} after an event. One of them may be below "
                "zero, but not their sum."
            )


def _sides(state: Any) -> Sides:
    """Return what is held, as it was returned or saved."""
    left, right = state or ((), ())
    return tuple(HeldEvent(*one) for one in left), tuple(HeldEvent(*one) for one in right)
