"""Joins of two categories by key and event time.

    left or right --> joined with the buffered events of the other side --> buffered until no match is possible
    low watermark passes that time --> unmatched events are joined with None, depending on the join type

A join is a stateful processor: the buffers are the state of the key, and timers empty them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, ClassVar, Generic, NamedTuple, final

from ..errors import DeclarationError
from ..time.timers import Timer
from ..time.watermarks import NEVER_MS
from ..time.windows import MILLISECOND
from .categories import AnyCategory
from .context import Context
from .join_inputs import declares, expect_declared, expect_distinct_records
from .method_check import Method, check_methods
from .stateful import Stateful
from .type_parameters import Event, Output, Parameter, Row


class JoinType(Enum):
    """What a join does with unmatched events."""

    INNER = "inner"
    """Drop them."""
    LEFT = "left"
    """Join unmatched left events with None."""
    OUTER = "outer"
    """Join unmatched events of both sides with None."""


class BufferedEvent(NamedTuple):
    """A buffered event.

    Args:
        at: its event time (milliseconds since 1970, UTC).
        met: whether it has matched an event.
        event: the event.
    """

    at: int
    met: bool
    event: Any


Sides = tuple[tuple[BufferedEvent, ...], tuple[BufferedEvent, ...]]
"""The buffered events of the left and the right category, in order of arrival."""


class Join(Stateful[Any, Any, Output], Generic[Event, Row, Output]):
    """Joins events of two categories with the same key and close event times.

    `Join[Left, Right, Output]` names the types of `join` for type checkers, such as `Join[Order, Payment | None, Paid]` for a left join.

    A right event matches if it is at most `before` earlier and at most `after` later than the left event, and `matches` returns True. Each
    pair is joined once, when its second event arrives. An unmatched event is joined with None when the low watermark excludes a match. A late
    event is joined with the events that are still buffered. Both categories have the same keys and different record types.

    Class attributes:
        left: the left category.
        right: the right category.
        before: how much earlier than the left event the right event may be.
        after: how much later than the left event the right event may be.
        join_type: what to do with unmatched events. Default: `JoinType.INNER`.

    Examples:
        >>> import penstock as ps
        >>> class Order(ps.Record, frozen=True):
        ...     number: str
        ...     at: int
        >>> class Payment(Order, frozen=True):
        ...     cents: int
        >>> class Paid(ps.Join):
        ...     left = ps.Category("orders", Order, key="number", event_time="at")
        ...     right = ps.Category("payments", Payment, key="number", event_time="at")
        ...     writes = ps.Category("paid", Payment, key="number", event_time="at")
        ...     after = timedelta(hours=1)
        ...
        ...     def join(self, left, right, context):
        ...         yield right
        >>> Paid.check()
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
                tuple[tuple[int, bool, cls.left.record], ...],  # type: ignore[name-defined]  # a dynamic type
                tuple[tuple[int, bool, cls.right.record], ...],  # type: ignore[name-defined]
            ]

    @abstractmethod
    def join(self, left: Event, right: Row, context: Context) -> Iterable[Output]:
        """Return or yield the outputs of a pair. The missing side of an unmatched event is None."""

    def matches(self, left: Event, right: Any) -> bool:  # noqa: ARG002 - True for all pairs
        """Return whether two events of a key and of close times belong together. Default: True.

        Events without a match are unmatched, as if no other event had existed.
        """
        return True

    @final
    def process(self, event: Any, state: Any, context: Context) -> tuple[Sides, Iterable[Output]]:
        """Join an event with the buffered events, and buffer it."""
        sides = _sides(state)
        is_left = type(event) in self.left.record_types
        mine, others = sides if is_left else sides[::-1]
        met = [
            self._is_within(context.event_time, other.at, is_left=is_left)
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
        mine = (*mine, BufferedEvent(context.event_time, any(met), event))
        after = (mine, others) if is_left else (others, mine)
        context.timer(self._first_end(after))
        return after, outputs

    @final
    def on_timer(self, timer: Timer, state: Any, context: Context) -> tuple[Sides | None, Iterable[Output]]:
        """Remove the events that can no longer have a match."""
        now_ms = max(timer.at, context.watermark)
        ended: list[tuple[int, bool, BufferedEvent]] = []
        kept: list[tuple[BufferedEvent, ...]] = []
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

    def _is_within(self, mine: int, other: int, *, is_left: bool) -> bool:
        left, right = (mine, other) if is_left else (other, mine)
        return left - self._before_ms() <= right <= left + self._after_ms()

    def _meet(self, mine: Any, other: Any, *, is_left: bool) -> bool:
        return self.matches(mine, other) if is_left else self.matches(other, mine)

    def _pair(self, mine: Any, other: Any, context: Context, *, is_left: bool) -> Iterable[Output]:
        without_timers = context.without_timers()
        return self.join(mine, other, without_timers) if is_left else self.join(other, mine, without_timers)

    def _keeps(self, *, is_left: bool) -> bool:
        return self.join_type is JoinType.OUTER or (self.join_type is JoinType.LEFT and is_left)

    def _first_end(self, sides: Sides) -> int:
        return min(
            self._end(one, is_left=is_left) for is_left, side in zip((True, False), sides, strict=True) for one in side
        )

    def _end(self, one: BufferedEvent, *, is_left: bool) -> int:
        """Return the watermark from which the event can no longer have a match."""
        return one.at + (self._after_ms() if is_left else self._before_ms()) + 1

    @classmethod
    def _before_ms(cls) -> int:
        return cls.before // MILLISECOND

    @classmethod
    def _after_ms(cls) -> int:
        return cls.after // MILLISECOND

    @classmethod
    def output_watermark_ms(cls, low_ms: int) -> int:
        """Return the earliest event time of a buffered event, which an output may carry."""
        return max(super().output_watermark_ms(low_ms) - max(cls._before_ms(), cls._after_ms()), NEVER_MS)

    @classmethod
    def inputs_by_parameter(cls) -> Mapping[Parameter, Sequence[AnyCategory]]:
        """Return the two inputs."""
        return {"Event": (cls.left,), "Row": (cls.right,)}

    @classmethod
    def check(cls) -> None:
        """Also check the two categories and the time range."""
        expect_declared(cls, "left", "right")
        super().check()
        check_methods(
            cls,
            {
                "join": Method(("left", "right", "context"), "[…]", may_yield=True),
                "matches": Method(("left", "right"), "True"),
            },
        )
        expect_distinct_records(cls)
        if cls.before + cls.after < timedelta():
            raise DeclarationError(
                f"Join {cls.__name__}: no event can match, because `before` ({cls.before}) plus `after` ({cls.after}) is negative. One of them may be "
                "negative, but not their sum."
            )


def _sides(state: Any) -> Sides:
    """Return the buffers of a saved state."""
    left, right = state or ((), ())
    return tuple(BufferedEvent(*one) for one in left), tuple(BufferedEvent(*one) for one in right)
