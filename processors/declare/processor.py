"""Options and behaviour that all kinds of processors share."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, overload

from ..errors import DeclarationError, UserCodeError
from ..monoids import Monoid
from ..time import (
    MILLISECOND,
    NEVER_MS,
    GlobalWindow,
    Hopping,
    Session,
    Sliding,
    Tumbling,
    UpstreamWatermark,
    Watermark,
)
from ..user_code import error_reason
from ..validation import did_you_mean, expect_types, is_library_class, validate_declaration
from ..wording import as_code, counted
from .categories import MAX_NAME, AnyCategory, Category, is_legal_name
from .dead_letter_limit import DeadLetterLimit
from .emission import AtCheckpoint, AtWatermark, OnLate
from .flat_records import flat_fields
from .input_watermarks import by_input, expect_silence, expect_watermarks
from .method_check import expect_library_methods, expect_own_attribute, expect_synchronous_resources
from .mutability import is_mutable
from .records import fields_of
from .retries import Retry, RetryChain, expect_retryable
from .semantics import Semantics
from .sinks import Sink, expect_repeatable, expect_sinks
from .stores import LocalStore, RemoteStore
from .two_phase import TwoPhase
from .type_parameters import Parameter, expect_argument, expect_outputs

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


class _Elsewhere(NamedTuple):
    """An option that only some kinds of processors have.

    Args:
        types: the types of its values; a user's own attribute of the same name rarely has one.
        effect: what its absence means.
        kinds: the kinds that have it.
    """

    types: tuple[type, ...]
    effect: str
    kinds: str


_OPTIONS_OF_KINDS = {
    "window": _Elsewhere(
        (GlobalWindow, Tumbling, Hopping, Session, Sliding),
        "its kind has no windows: the state of a key would never end",
        "penstock.Windowed or penstock.Aggregator",
    ),
    "concurrency": _Elsewhere(
        (int,), "its kind processes one event after the other", "penstock.Stateless with an `async def process`"
    ),
    "monoid": _Elsewhere((Monoid,), "its kind combines no observations", "penstock.Aggregator"),
    "emit": _Elsewhere(
        (AtCheckpoint, AtWatermark), "its kind writes outputs when it returns them", "penstock.Aggregator"
    ),
    "two_phase": _Elsewhere((TwoPhase,), "its kind combines no partials", "penstock.Aggregator"),
    "store": _Elsewhere((LocalStore, RemoteStore), "its kind has no choice of a store", "penstock.Aggregator"),
    "late": _Elsewhere((OnLate,), "for its kind no event is late", "penstock.Stateful, Windowed or Aggregator"),
    "tombstones": _Elsewhere((bool,), "its kind receives no tombstones", "penstock.Stateless or penstock.Stateful"),
    "ordered": _Elsewhere((bool,), "its kind processes events as they arrive", "penstock.Stateful"),
    "state": _Elsewhere((type,), "its kind keeps no state of this type", "penstock.Stateful"),
    "schedules": _Elsewhere((dict,), "its kind saves no state with its firings", "penstock.Stateful"),
}
_LONGEST_NAME = MAX_NAME - len(".dead_letter_marks")
"""The longest name of a processor: its categories have longer ones."""


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
    _retry_chain: ClassVar[RetryChain | None] = None
    _written_in_app: ClassVar[frozenset[str]] = frozenset()
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

    def limit_outputs(self, sizes: RecordSizes) -> None:
        """Check the size of each output from now on, in a worker."""
        super().__setattr__("output_sizes", sizes)

    def open(self) -> Awaitable[None] | None:  # noqa: B027 - most processors have nothing to load
        """Load resources, such as a model. Called once per process, before the first event."""

    def close(self) -> Awaitable[None] | None:  # noqa: B027 - most processors have no resources
        """Release the resources of `open`. Called once per worker, at its end."""

    @classmethod
    def error_action(cls, error: UserCodeError) -> ErrorAction:
        """Return how to handle an event for which the processor raised `error`."""
        reason = error_reason(cls.__name__, error, cls.result_form())
        return ErrorAction(
            reason, cls.on_error is ErrorPolicy.STOP, dropped=False, alternative=cls.dead_letter_setting()
        )

    @classmethod
    def dead_letter_setting(cls) -> str:
        """Return the declaration that sends events with errors to the dead letters, in the language of the processor."""
        return "WITH (on_error = 'dead_letter')" if cls.sql_query else "on_error = penstock.ErrorPolicy.DEAD_LETTER"

    @classmethod
    def result_form(cls) -> str:
        """Return what its method for events returns, as code for errors."""
        return "[…]"

    @classmethod
    def sources(cls) -> tuple[AnyCategory, ...]:
        """Return the categories that the processor declares in `reads`."""
        return as_tuple(cls.reads)

    @classmethod
    def feedback_inputs(cls) -> tuple[AnyCategory, ...]:
        """Return the sources that close a loop."""
        names = {category.name for category in as_tuple(cls.feedback)}
        return tuple(category for category in cls.sources() if category.name in names)

    @classmethod
    def input_watermarks(cls) -> Mapping[str, Watermark]:
        """Return the watermark of each source by its name. What circulates in a loop determines the watermark of a feedback input."""
        feedback = {category.name: UpstreamWatermark() for category in cls.feedback_inputs()}
        return by_input(cls.watermark, cls.sources(), cls._written_in_app) | feedback

    @classmethod
    def set_app(cls, processors: Iterable[type[Processor]]) -> None:
        """Record the processors of its app: an input that one of them writes has their watermark by default.

        Late events do not count, since they are behind the watermark; nor do categories on another cluster, which contains no watermarks.
        """
        cls._written_in_app = frozenset(
            category.name
            for processor in processors
            for category in as_tuple(processor.writes)
            if isinstance(category, Category) and category.cluster is None
        )

    @classmethod
    def estimated_by_default(cls) -> frozenset[str]:
        """Return the names of the sources without a declared watermark that no processor of the app writes."""
        return cls._undeclared_watermarks() - cls.upstream_inputs()

    @classmethod
    def _undeclared_watermarks(cls) -> frozenset[str]:
        """Return the names of the sources without a declared watermark."""
        if cls.watermark is not None and not isinstance(cls.watermark, Mapping):
            return frozenset()
        declared = {category.name for category in (*(cls.watermark or ()), *cls.feedback_inputs())}
        return frozenset(category.name for category in cls.sources()) - declared

    @classmethod
    def upstream_inputs(cls) -> frozenset[str]:
        """Return the names of the sources whose watermarks their writers determine."""
        return frozenset(
            name for name, watermark in cls.input_watermarks().items() if isinstance(watermark, UpstreamWatermark)
        )

    @classmethod
    def waits_for_upstream(cls) -> bool:
        """Return whether results follow from upstream watermarks: it declares them, or has them by default and waits for event time."""
        upstream = cls.upstream_inputs()
        is_declared = not upstream <= cls._undeclared_watermarks()
        return bool(upstream) and cls.uses_event_time() and (is_declared or cls.emits_without_input())

    @classmethod
    def inputs(cls) -> tuple[AnyCategory, ...]:
        """Return the categories that a worker reads: the sources, and the categories of events that wait for a retry."""
        return (*cls.sources(), *cls.retry_categories())

    @classmethod
    def retry_categories(cls) -> tuple[AnyCategory, ...]:
        """Return the categories of events that wait for a retry, by attempt."""
        chain = cls.retry_chain()
        return () if chain is None else chain.categories

    @classmethod
    def retry_chain(cls) -> RetryChain | None:
        """Return the retries of its events; None without any. The same object at each call, since batches recognise their category."""
        if not isinstance(cls.on_error, Retry):
            return None
        source, retry = cls.sources()[0], cls.on_error
        known: RetryChain | None = cls.__dict__.get("_retry_chain")
        if known is None or not known.is_of(cls.name, source, retry):
            known = RetryChain.of(cls.name, source, retry)
            cls._retry_chain = known
        return known

    @classmethod
    def retried_in(cls, category: AnyCategory, error: UserCodeError) -> AnyCategory | None:
        """Return where an event waits for its next attempt after an exception; None if there is none.

        Args:
            category: the category of the event.
            error: the exception.
        """
        chain = cls.retry_chain()
        return chain.next_after(category.name) if chain is not None and chain.retry.covers(error) else None

    @classmethod
    def destinations(cls) -> tuple[Destination, ...]:
        """Return the categories and sinks that the processor writes."""
        return as_tuple(cls.writes)

    @classmethod
    def outputs(cls) -> tuple[AnyCategory, ...]:
        """Return the categories that the processor writes."""
        return tuple(destination for destination in cls.destinations() if not isinstance(destination, Sink))

    @classmethod
    def outputs_can_change(cls) -> bool:
        """Return whether code that yields an output can change it when it continues."""
        return any(is_mutable(record) for destination in cls.destinations() for record in destination.record_types)

    @classmethod
    def sinks(cls) -> tuple[Sink, ...]:
        """Return the sinks that the processor writes."""
        return tuple(destination for destination in cls.destinations() if isinstance(destination, Sink))

    @classmethod
    def is_repeatable(cls) -> bool:
        """Return whether reading the events again produces the same state and the same outputs.

        It does if everything follows from the events of one bucket, in order. The interleaving of several inputs, idle inputs, upstream
        watermarks and the time of day differ each time.
        """
        follows_upstream = cls.uses_event_time() and bool(cls.upstream_inputs())
        is_by_clock = cls.close_after_silence is not None
        return cls.deterministic and len(cls.inputs()) == 1 and not follows_upstream and not is_by_clock

    @classmethod
    def written_categories(cls) -> tuple[AnyCategory, ...]:
        """Return the outputs, and the categories of events that wait for a retry."""
        return (*cls.outputs(), *cls.retry_categories())

    @classmethod
    def side_inputs(cls) -> tuple[AnyCategory, ...]:
        """Return the categories that each worker reads as a whole, beside its share of the inputs."""
        return ()

    @classmethod
    def uses_event_time(cls) -> bool:
        """Return whether the behaviour depends on the low watermark."""
        return False

    @classmethod
    def reads_tombstones(cls, category: AnyCategory) -> bool:  # noqa: ARG003 - it is a matter of the category for some
        """Return whether a message of `category` with a key and no value is a deletion. Otherwise, it does not decode."""
        return False

    @classmethod
    def stream_columns(cls) -> tuple[str, ...] | None:
        """Return the fields that workers pass to the processor as columns, by their names on the bus; None if it processes records."""
        return None

    @classmethod
    def checks_keys(cls) -> bool:
        """Return whether events of one key must be in one bucket."""
        return False

    @classmethod
    def is_compaction_safe(cls) -> bool:
        """Return whether the latest event of each key suffices to rebuild the state."""
        return cls.compaction_safe

    @classmethod
    def emits_without_input(cls) -> bool:
        """Return whether outputs may appear without an event: from timers, window ends or delayed events."""
        return False

    @classmethod
    def output_watermark_ms(cls, low_ms: int) -> int:
        """Return the watermark of the outputs at a low watermark: no later output has an earlier event time.

        Args:
            low_ms: the low watermark of the inputs (milliseconds since 1970, UTC).
        """
        return max(low_ms - cls.max_output_delay // MILLISECOND, NEVER_MS)

    @classmethod
    def state_shape(cls) -> str | None:
        """Return a description of the format of the saved state; None without state. A worker refuses state with another description."""
        return None

    @classmethod
    def check(cls) -> None:
        """Validate the declaration. Called before the first event.

        Raises:
            DeclarationError: the declaration cannot work; the message contains the fix.
        """
        validate_declaration(cls, Processor)
        if not any(
            is_library_class(base) for base in cls.__mro__ if base is not Processor and issubclass(base, Processor)
        ):
            raise DeclarationError(
                f"{cls.__name__} is derived from penstock.Processor, which is the base of all kinds and processes nothing. Nothing was read. Derive it from "
                "penstock.Stateless, Stateful, Windowed, Aggregator or a join."
            )
        if not is_legal_name(cls.name, _LONGEST_NAME):
            raise DeclarationError(
                f"Processor {cls.__name__}: its name {cls.name!r} cannot be part of the names of topics and folders. Nothing was read. Declare "
                f"`name = \"…\"` with only letters, digits, '.', '_' and '-', at most {_LONGEST_NAME}."
            )
        _expect_no_option_of_other_kinds(cls)
        if not hasattr(cls, "reads") or not cls.sources():
            raise DeclarationError(
                f"Processor {cls.__name__} has no input. Declare `reads = some_category` on the class."
            )
        for category in cls.sources() + cls.outputs() + as_tuple(cls.feedback):
            expect_category(cls, category)
        _expect_feedback_is_read(cls)
        expect_watermarks(cls.__name__, cls.watermark, cls.sources())
        expect_silence(cls.__name__, cls.close_after_silence, cls.idle_after)
        if isinstance(cls.on_error, Retry):
            expect_retryable(cls.__name__, cls.sources(), cls.on_error, has_sinks=bool(cls.sinks()))
            cls._expect_retries()
        if len({category.buckets for category in cls.sources()}) > 1:
            counts = ", ".join(
                f"{category.name} has {counted(category.buckets, 'bucket')}" for category in cls.sources()
            )
            raise DeclarationError(
                f"Processor {cls.__name__} reads categories that are not co-partitioned: {counts}. Events of one "
                "key would be in different buckets. Declare the same number of buckets, or add a penstock.Repartition before one input."
            )
        records = [record for destination in cls.destinations() for record in destination.record_types]
        if not cls.routes_outputs() and len(set(records)) < len(records):
            raise DeclarationError(
                f"Processor {cls.__name__} writes several categories of the same record type, but the type of an output "
                "selects its category. Derive a record type for each."
            )
        names = [destination.name for destination in cls.destinations()]
        if len(set(names)) < len(names):
            raise DeclarationError(
                f"Processor {cls.__name__} declares an output twice: {', '.join(names)}. Declare it once."
            )
        expect_sinks(cls)
        _expect_clusters(cls)
        _expect_type_parameters(cls)

    @classmethod
    def _expect_retries(cls) -> None:
        """Raise DeclarationError unless its kind can retry events with its semantics."""
        raise DeclarationError(
            f"Processor {cls.__name__} declares `on_error = penstock.Retry(…)`, but its kind cannot try an event again later. Nothing was read. Let a "
            "penstock.Stateless or penstock.Stateful make the call that may fail, and read its output here."
        )

    @classmethod
    def inputs_by_parameter(cls) -> Mapping[Parameter, Sequence[AnyCategory]]:
        """Return the inputs whose events each type parameter of its kind describes."""
        return {"Event": cls.sources()}

    @classmethod
    def min_batch(cls) -> int:
        """Return the number of events that take as long as one event: smaller batches would not be faster."""
        return 1

    def max_batch(self) -> int | None:
        """Return the greatest number of events of the next batch; None without a limit of its own."""
        return None

    @classmethod
    def routes_outputs(cls) -> bool:
        """Return whether its code may name the category of an output with `To`."""
        return False


class KeyedProcessor(Processor):
    """Options that all processors with state share.

    Class attributes:
        late: what to do with late events: drop them, or write them to a category of the input's record type.
    """

    late: ClassVar[OnLate | AnyCategory]

    @classmethod
    def checks_keys(cls) -> bool:
        """Return whether events of one key must be in one bucket."""
        return cls.key_check

    @classmethod
    def destinations(cls) -> tuple[Destination, ...]:
        """Return the categories and sinks that the processor writes, including the category of late events."""
        return super().destinations() + ((cls.late,) if isinstance(cls.late, Category) else ())

    @classmethod
    def check(cls) -> None:
        """Also check `open`, `close`, the partitioners of the inputs and the category of late events."""
        super().check()
        expect_synchronous_resources(cls)
        expect_repeatable(cls)
        if cls.checks_keys():
            _expect_partitioners(cls)
        if isinstance(cls.late, Category) and any(category.record != cls.late.record for category in cls.inputs()):
            raise DeclarationError(
                f"Processor {cls.__name__} sends late events to {cls.late.name}, a category of {cls.late.record_name}. Declare a category "
                "with the record type of the input."
            )


def _expect_feedback_is_read(cls: type[Processor]) -> None:
    """Raise DeclarationError for a feedback category that is no input."""
    read = {category.name for category in cls.sources()}
    unread = next((category.name for category in as_tuple(cls.feedback) if category.name not in read), None)
    if unread is not None:
        raise DeclarationError(
            f"Processor {cls.__name__} declares `feedback` with {unread}, which it does not read. Nothing was read. Add {unread} to its inputs, or remove it "
            "from `feedback`."
        )


def _expect_type_parameters(cls: type[Processor]) -> None:
    """Raise DeclarationError for type parameters that contradict the categories."""
    for parameter, categories in cls.inputs_by_parameter().items():
        for category in categories:
            expect_argument(cls, parameter, category.record, f"the input {category.name}")
    expect_outputs(cls, [record for destination in cls.destinations() for record in destination.record_types])


def _expect_clusters(cls: type[Processor]) -> None:
    """Raise DeclarationError if another cluster than the main one has an input or exactly-once outputs."""
    for category in (*cls.inputs(), *cls.side_inputs()):
        if category.cluster is not None:
            raise DeclarationError(
                f"Processor {cls.__name__} reads {category.name}, which is on cluster {category.cluster}. Inputs must be on the main cluster, which also "
                f"keeps the positions. Run {cls.__name__} with a configuration whose `kafka` is the cluster of its inputs, and declare `cluster` only "
                "for categories that it writes. For inputs on several clusters, copy one of them to the main cluster first, with a processor or a "
                "mirror."
            )
    elsewhere = next((category for category in cls.outputs() if category.cluster is not None), None)
    if elsewhere is not None and cls.output_semantics is Semantics.EXACTLY_ONCE:
        raise DeclarationError(
            f"Processor {cls.__name__} declares outputs exactly once, and writes {elsewhere.name} on cluster {elsewhere.cluster}. A Kafka transaction "
            "cannot include several clusters, so these outputs could be lost or repeated after a failure. Declare `output_semantics = "
            "penstock.Semantics.AT_LEAST_ONCE`, with keys by which readers recognise a repeated output. Or write to the main cluster exactly once, "
            f"and copy {elsewhere.name} with a mirror."
        )


def _expect_partitioners(cls: type[Processor]) -> None:
    """Raise DeclarationError if events of one key may be in different shards."""
    first, *others = cls.inputs()
    unknown = next((category.name for category in cls.inputs() if category.partitioner is None), None)
    if unknown is not None:
        raise DeclarationError(
            f"Processor {cls.__name__} has a state per key, but the partitioner of {unknown} is unknown (`partitioner=None`), so events of one key "
            f"may be in several buckets. Copy {unknown} to another category with a penstock.Repartition, and read that one. If each bucket should "
            "have a separate state, declare `key_check = False`."
        )
    for other in others:
        if other.partitioning != first.partitioning:
            raise DeclarationError(
                f"Processor {cls.__name__} reads {first.name} and {other.name}, which are not co-partitioned: their `partitioner` or `key_codec` "
                "differs, or their keys have different fields, or with KeyCodec.JSON or a schema registry the key is a str in one of them and an int in "
                "the other. Events of one key would be in different buckets. Copy one of them to another category with a penstock.Repartition, and read that one."
            )


def expect_columns(cls: type[Processor], step: str, columns: tuple[str, ...] | None) -> None:
    """Validate a columnar step: one input, at most one output, and existing fields.

    Raises:
        DeclarationError: one of these conditions fails.
    """
    if len(cls.sources()) > 1 or len(cls.outputs()) > 1:
        raise DeclarationError(
            f"Processor {cls.__name__} defines `{step}`, which needs one input and at most one output, but it reads or writes several categories. "
            f"Remove `{step}`; backfills then process event by event."
        )
    [category] = cls.sources()
    known = fields_of(category.record)
    unknown = [name for name in columns or () if name not in known]
    if unknown:
        raise DeclarationError(
            f"Processor {cls.__name__}: `columns` contains {', '.join(unknown)}, but {category.record_name} has only the fields "
            f"{', '.join(known)}.{did_you_mean(unknown[0], known)}"
        )


def needed_columns(category: AnyCategory, columns: tuple[str, ...] | None, *further: str) -> tuple[str, ...] | None:
    """Return the fields of an input that a columnar step needs in the stream, with the event time; None if it has no such columns.

    Args:
        category: the input.
        columns: the declared fields; None for all.
        further: other fields that are needed.
    """
    fields, time = flat_fields(category.record), category.times.column
    if fields is None or time is None:
        return None
    names = [field.name for field in fields] if columns is None else columns
    return tuple(dict.fromkeys([*names, *further, time]))


@overload
def as_tuple(categories: AnyCategory | tuple[AnyCategory, ...]) -> tuple[AnyCategory, ...]: ...
@overload
def as_tuple(categories: Destination | tuple[Destination, ...]) -> tuple[Destination, ...]: ...
def as_tuple(categories: Destination | tuple[Destination, ...]) -> tuple[Destination, ...]:
    """Return one or several categories or sinks as a tuple."""
    return categories if isinstance(categories, tuple) else (categories,)


def key_name(processor: type[Processor]) -> str:
    """Return the name of the key of a processor's events."""
    return processor.inputs()[0].key_name


def expect_lateness(owner: type[Processor], allowed: timedelta) -> None:
    """Raise DeclarationError if the allowed lateness is negative or exceeds the retention of an input."""
    if allowed < timedelta():
        raise DeclarationError(f"Processor {owner.__name__}: `allowed_lateness = {allowed}` must not be negative.")
    for category in owner.inputs():
        if category.retention is not None and allowed > category.retention:
            raise DeclarationError(
                f"Processor {owner.__name__} allows a lateness of {allowed}, but the bus keeps events of {category.name} for only "
                f"{category.retention}. A lost window could not be rebuilt from the bus. Declare a shorter `allowed_lateness`, or a longer "
                f"`retention` of the category (None forever)."
            )


def expect_category(owner: type[Processor], value: object) -> None:
    """Raise DeclarationError if `value` is not a category."""
    if not isinstance(value, Category):
        advice = " Write several categories as a tuple, with parentheses." if isinstance(value, (list, set)) else ""
        if isinstance(value, type) and issubclass(value, Sink):
            advice = f" Did you mean an object, `{value.__name__}(…)`, instead of the class?"
        raise DeclarationError(
            f"Processor {owner.__name__}: {as_code(value)} is not a category. Nothing was read. Declare a penstock.Category.{advice}"
        )


def _expect_no_option_of_other_kinds(cls: type[Processor]) -> None:
    """Raise DeclarationError for an option that this kind of processor would ignore."""
    options: set[str] = {
        name
        for base in cls.__mro__
        if issubclass(base, Processor) and is_library_class(base)
        for name in base.__annotations__
    }
    for name, option in _OPTIONS_OF_KINDS.items():
        if name not in options and isinstance(getattr(cls, name, None), option.types):
            raise DeclarationError(
                f"Processor {cls.__name__} declares `{name}`, but {option.effect}. Nothing was read. Derive it from {option.kinds}, or remove "
                f"the `{name}`."
            )
