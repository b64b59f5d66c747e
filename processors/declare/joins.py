"""Joins of two categories by key and event time.

    left or right --> joined with the buffered events of the other side --> buffered until no match is possible
    low watermark passes that time --> unmatched events are joined with None, depending on the join type

A join is a stateful processor: the buffers are the state of the key, and timers empty them. They are sorted by event time, so that an event
costs time in proportion to the buffered events that it may match, not to all of them.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, Generic, final

from ..errors import DeclarationError
from ..time import MILLISECOND, NEVER_MS, Timer
from .categories import AnyCategory
from .context import Context
from .join_buffers import Arrival, BufferedEvent, BufferedSide, Buffers, time_of
from .join_inputs import declares, expect_declared, expect_distinct_records
from .method_check import Method, check_methods
from .mutability import independent, is_mutable, unshared
from .stateful import Stateful, StatefulPlan
from .type_parameters import Event, Output, Parameter, Row


class JoinType(Enum):
    """What a join does with unmatched events."""

    INNER = "inner"
    """Drop them."""
    LEFT = "left"
    """Join unmatched left events with None."""
    OUTER = "outer"
    """Join unmatched events of both sides with None."""


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
        >>> from penstock.testing import Driver
        >>> driver = Driver(Paid)
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
    def process(self, event: Any, state: Buffers | None, context: Context) -> tuple[Buffers, Iterable[Output]]:
        """Join an event with the buffered events, and buffer it."""
        buffers, time = _buffers_in(state), context.event_time
        is_left = type(event) in self.left.record_types
        others, before_ms, after_ms = (
            (buffers.right.events, self._before_ms(), self._after_ms())
            if is_left
            else (buffers.left.events, self._after_ms(), self._before_ms())
        )
        begin = bisect_left(others, time - before_ms, key=time_of)
        end = bisect_right(others, time + after_ms, begin, key=time_of)
        met = self._matching(event, others, range(begin, end), is_left=is_left)
        without_timers = context.without_timers()
        outputs = [
            output for at in met for output in self._pair(event, others[at].event, without_timers, is_left=is_left)
        ]
        own = BufferedEvent(time, bool(met), event)
        context.timer(min(self._end(one, is_left=of_left) for one, of_left in [(own, is_left), *_firsts(buffers)]))
        first_matched = [at for at in met if not others[at].met] if self._keeps(is_left=not is_left) else ()
        return buffers.after(Arrival(is_left, own, first_matched)), outputs

    @final
    def on_timer(
        self, timer: Timer, state: Buffers | None, context: Context
    ) -> tuple[Buffers | None, Iterable[Output]]:
        """Remove the events that can no longer have a match."""
        buffers, now_ms = _buffers_in(state), max(timer.at, context.watermark)
        ended: list[tuple[int, bool, BufferedEvent]] = []
        for is_left, side in _sides(buffers):
            count = bisect_right(side.events, now_ms - self._wait_ms(is_left=is_left), key=time_of)
            ended += [(one.at, is_left, one) for one in side.remove_first(count)]
        without_timers = context.without_timers()
        outputs = [
            output
            for _, is_left, one in sorted(ended, key=lambda end: end[:2])
            if not one.met and self._keeps(is_left=is_left)
            for output in self._pair(one.event, None, without_timers, is_left=is_left)
        ]
        remaining = _firsts(buffers)
        if not remaining:
            return None, outputs
        context.timer(min(self._end(one, is_left=is_left) for one, is_left in remaining))
        return buffers, outputs

    def _matching(self, event: Any, others: Sequence[BufferedEvent], near: range, *, is_left: bool) -> Sequence[int]:
        """Return the indices of the events of close times that match an event."""
        matches = self.matches
        if type(self).matches is Join.matches:
            return near
        if self._can_change:
            own = (unshared(event) for _ in near)
            candidates = [(at, mine, unshared(others[at].event)) for at, mine in zip(near, own, strict=True)]
            return [at for at, mine, other in candidates if (matches(mine, other) if is_left else matches(other, mine))]
        if is_left:
            return [at for at in near if matches(event, others[at].event)]
        return [at for at in near if matches(others[at].event, event)]

    @cached_property
    def _can_change(self) -> bool:
        """Whether user code can change an event, so that each call gets a copy."""
        return is_mutable(self.left.record) or is_mutable(self.right.record)

    def _pair(self, mine: Any, other: Any, context: Context, *, is_left: bool) -> Iterable[Output]:
        if self._can_change:
            mine, other = unshared(mine), unshared(other)
        return independent(self.join(mine, other, context) if is_left else self.join(other, mine, context))

    def _keeps(self, *, is_left: bool) -> bool:
        return self.join_type is JoinType.OUTER or (self.join_type is JoinType.LEFT and is_left)

    def _end(self, one: BufferedEvent, *, is_left: bool) -> int:
        """Return the watermark from which the event can no longer have a match."""
        return one.at + self._wait_ms(is_left=is_left)

    def _wait_ms(self, *, is_left: bool) -> int:
        return (self._after_ms() if is_left else self._before_ms()) + 1

    @classmethod
    def _before_ms(cls) -> int:
        return cls.before // MILLISECOND

    @classmethod
    def _after_ms(cls) -> int:
        return cls.after // MILLISECOND


class JoinPlan(StatefulPlan, of=Join):
    """The plan of a `Join`."""

    declaration: type[Join[Any, Any, Any]]

    def form_to_save(self, state: Buffers) -> Any:
        """Return the buffered events of both sides that are saved with the key."""
        return state.left.newest, state.right.newest

    def output_watermark_ms(self, low_ms: int) -> int:
        """Return the earliest event time of a buffered event, which an output may carry."""
        cls = self.declaration
        return max(super().output_watermark_ms(low_ms) - max(cls._before_ms(), cls._after_ms()), NEVER_MS)

    @property
    def inputs_by_parameter(self) -> Mapping[Parameter, Sequence[AnyCategory]]:
        """The two inputs."""
        cls = self.declaration
        return {"Event": (cls.left,), "Row": (cls.right,)}

    def check(self) -> None:
        """Also check the two categories and the time range."""
        cls = self.declaration
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


def _buffers_in(state: Buffers | None) -> Buffers:
    return Buffers(BufferedSide([]), BufferedSide([])) if state is None else state.settled()


def _sides(buffers: Buffers) -> tuple[tuple[bool, BufferedSide], ...]:
    return (True, buffers.left), (False, buffers.right)


def _firsts(buffers: Buffers) -> list[tuple[BufferedEvent, bool]]:
    """Return the first event of each side, and whether it is a left one."""
    return [(side.events[0], is_left) for is_left, side in _sides(buffers) if side.events]
