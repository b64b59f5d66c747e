"""Options and behaviour that all kinds of processors share."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, overload

from ..errors import DeclarationError
from ..time import (
    Watermark,
)
from ..validation import expect_types
from ..wording import as_code
from .categories import AnyCategory, Category
from .dead_letter_limit import DeadLetterLimit
from .emission import OnLate
from .method_check import engine_method, expect_library_methods, expect_own_attribute
from .retries import Retry
from .semantics import Semantics
from .sinks import Sink

Destination: TypeAlias = AnyCategory | Sink
"""Where a processor writes outputs."""


class RecordSizes(Protocol):
    """Checks the sizes of output records while their event is known. Cheap for small ones."""

    def expect(self, category: AnyCategory, record: Any) -> None:
        """Raise ValueError if a record is larger than its category accepts."""
        ...


class ErrorPolicy(Enum):
    """What a worker does with an event that it cannot process."""

    DEAD_LETTER = "dead letter"
    """Write the event, its origin and the reason to the processor's dead letters, and continue."""
    STOP = "stop"
    """Save everything before the event, then stop."""


class ErrorAction(NamedTuple):
    """How to handle an event for which its processor raised.

    Args:
        reason: what happened, in words.
        stops: whether the worker stops at the event.
        dropped: whether the event is only counted, with neither a dead letter nor an error.
        alternative: the declaration that would let the worker continue.
    """

    reason: str
    stops: bool
    dropped: bool
    alternative: str


LEAST_PAUSE_S = 0.01
"""The least time between the beginnings of two adaptive checkpoints."""


@dataclass(frozen=True)
class CheckpointInterval:
    """When to save a checkpoint: as soon as one of the limits is reached.

    Args:
        events: the number of input events since the last checkpoint.
        size_bytes: the size of the input since the last checkpoint, in bytes.
        time: the time since the last checkpoint, if any event was read.
        adaptive: whether to begin earlier if results wait for checkpoints: after twice the time that the quicker one of the last two took. Then
            outputs that are not sent at once (exactly once, at most once, rows of sinks) arrive soon, and aggregators write more updates.

    Raises:
        DeclarationError: a limit is not greater than zero.

    Examples:
        >>> CheckpointInterval(time=timedelta(seconds=5)).events
        500000
    """

    events: int = 500_000
    size_bytes: int = 256 * 2**20
    time: timedelta = timedelta(seconds=1)
    adaptive: bool = False

    def __post_init__(self) -> None:
        expect_types("CheckpointInterval(…)", self)
        if self.events < 1 or self.size_bytes < 1 or self.time <= timedelta():
            raise DeclarationError(f"{self}: checkpoint limits must be greater than zero.")

    def after(self, saving_s: float) -> CheckpointInterval:
        """Return the limits for the next checkpoint, if saving takes this time in seconds."""
        if not self.adaptive:
            return self
        soon = timedelta(seconds=max(LEAST_PAUSE_S, 2 * saving_s))
        return replace(self, time=min(soon, self.time))


class Processor(ABC):
    """Options that all processors share. Derive from `Stateless`, `Stateful`, `Windowed`, `Aggregator` or a join instead.

    Class attributes:
        reads: the input category; or a tuple of categories with the same keys and the same number of buckets.
        feedback: those of the inputs through which outputs of the processor return to it, directly or through other processors: they close a loop.
        writes: the output category; a sink, such as `penstock.sinks.PostgresSink`; a tuple of both; or () for none. Each output goes to the
            category or sink of its type, or to the one that `To` names.
        name: the name on the bus (consumer group, dead letters) and on disk. Default: the name of the class in snake_case.
        output_semantics: how often each output appears after a failure.
        checkpoint: when to save a checkpoint.
        on_undecodable: what to do with a message that does not decode.
        on_error: what to do with an event for which the processor raises: an `ErrorPolicy`, or a `Retry` that tries again later.
        on_missing_event_time: what to do with a message without an event time.
        max_future: how far an event time may lie after the arrival of the event on the bus. None disables the check, and the check of the unit.
        on_future_event: what to do with an event further in the future, which would advance the watermark too far. Also applies to an
            event time outside the years 1 to 9999 (without `max_future`: beyond 62 bits).
        dead_letter_limit: the number of dead letters at which the worker stops; None for no limit.
        watermark: how to estimate the watermark of each bucket from its events; `UpstreamWatermark()` uses the watermarks of the writers. A dict
            from inputs to watermarks declares a watermark for each. An input without a declared one has `UpstreamWatermark()` if a processor of
            the app writes it, and `Confidence()` otherwise.
        idle_after: how long a fully read bucket may be silent (wall-clock time) before it no longer holds back the low watermark; None for
            no limit.
        close_after_silence: the silence of all inputs (wall-clock time) after which event time goes on with the clock, from the newest event time
            on, so that the last windows, sessions, timers and unmatched rows come. Events that arrive after that with earlier times are late.
            None: they wait for the next events.
        max_output_delay: how far the event time of an output may lie behind the low watermark, or, for an aggregator, before the first
            incomplete window. Watermarks of downstream processors stay behind by this time.
        trace_context: whether an output has the trace context (the headers `traceparent` and `tracestate`) of the event whose processing
            returned it; with `--traces`, the context of the event's span. For stateless and stateful processors without `ordered`.
        sql_query: the SQL query that the processor works for, as written; empty for a processor in Python.
        sql_by_event: why an SQL query is computed event by event, not in columns; empty for others.
        cloned_from: the processor that this one is a clone of, under another name and with other categories; None for all others.

    Class attributes of processors with state:
        state_semantics: how often each event counts in the state after a failure.
        key_check: whether the worker stops at an event that is not in the bucket of its key, such as one from a producer with another
            partitioner. Without the check, a key with events in several buckets has a separate state in each.
        deterministic: whether the same events in the same order always produce the same state. Declare False for code that uses the
            wall clock, random numbers or external data.
        compaction_safe: whether the latest event of each key produces the same state as all of its events. A lost state can only be rebuilt from
            a compacted category if it is True.
    """

    reads: ClassVar[AnyCategory | tuple[AnyCategory, ...]]
    feedback: ClassVar[AnyCategory | tuple[AnyCategory, ...]] = ()
    writes: ClassVar[Destination | tuple[Destination, ...]] = ()
    name: ClassVar[str]
    state_semantics: ClassVar[Semantics] = Semantics.EXACTLY_ONCE
    output_semantics: ClassVar[Semantics] = Semantics.AT_LEAST_ONCE
    key_check: ClassVar[bool] = True
    deterministic: ClassVar[bool] = True
    compaction_safe: ClassVar[bool] = False
    checkpoint: ClassVar[CheckpointInterval] = CheckpointInterval()
    on_undecodable: ClassVar[ErrorPolicy] = ErrorPolicy.DEAD_LETTER
    on_error: ClassVar[ErrorPolicy | Retry] = ErrorPolicy.STOP
    on_missing_event_time: ClassVar[ErrorPolicy] = ErrorPolicy.STOP
    max_future: ClassVar[timedelta | None] = timedelta(days=1)
    on_future_event: ClassVar[ErrorPolicy] = ErrorPolicy.DEAD_LETTER
    dead_letter_limit: ClassVar[DeadLetterLimit | None] = DeadLetterLimit()
    watermark: ClassVar[Watermark | Mapping[AnyCategory, Watermark] | None] = None
    idle_after: ClassVar[timedelta | None] = timedelta(minutes=1)
    close_after_silence: ClassVar[timedelta | None] = None
    max_output_delay: ClassVar[timedelta] = timedelta()
    trace_context: ClassVar[bool] = False
    sql_query: ClassVar[str] = ""
    sql_by_event: ClassVar[str] = ""
    cloned_from: ClassVar[type[Processor] | None] = None
    output_sizes: RecordSizes | None = None
    """The size limits of the categories, in a worker."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        expect_library_methods(cls)
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__).lower()

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute of the user's. One that the library uses is refused, in whichever method it is set."""
        expect_own_attribute(type(self), name)
        super().__setattr__(name, value)

    @engine_method
    def limit_outputs(self, sizes: RecordSizes) -> None:
        """Check the size of each output from now on, in a worker."""
        super().__setattr__("output_sizes", sizes)

    def open(self) -> Awaitable[None] | None:  # noqa: B027 - most processors have nothing to load
        """Load resources, such as a model. Called once per process, before the first event."""

    def close(self) -> Awaitable[None] | None:  # noqa: B027 - most processors have no resources
        """Release the resources of `open`. Called once per worker, at its end."""

    @engine_method
    def max_batch(self) -> int | None:
        """Return the greatest number of events of the next batch; None without a limit of its own."""
        return None


class KeyedProcessor(Processor):
    """Options that all processors with state share.

    Class attributes:
        late: what to do with late events: drop them, or write them to a category of the input's record type.
    """

    late: ClassVar[OnLate | AnyCategory]


@overload
def as_tuple(categories: AnyCategory | tuple[AnyCategory, ...]) -> tuple[AnyCategory, ...]: ...
@overload
def as_tuple(categories: Destination | tuple[Destination, ...]) -> tuple[Destination, ...]: ...
def as_tuple(categories: Destination | tuple[Destination, ...]) -> tuple[Destination, ...]:
    """Return one or several categories or sinks as a tuple."""
    return categories if isinstance(categories, tuple) else (categories,)


def expect_category(owner: type[Processor], value: object) -> None:
    """Raise DeclarationError if `value` is not a category."""
    if not isinstance(value, Category):
        advice = " Write several categories as a tuple, with parentheses." if isinstance(value, (list, set)) else ""
        if isinstance(value, type) and issubclass(value, Sink):
            advice = f" Did you mean an object, `{value.__name__}(…)`, instead of the class?"
        raise DeclarationError(
            f"Processor {owner.__name__}: {as_code(value)} is not a category. Nothing was read. Declare a penstock.Category.{advice}"
        )
