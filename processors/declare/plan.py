"""What the engine reads of a declared processor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from ..errors import DeclarationError, UserCodeError
from ..time import (
    MILLISECOND,
    NEVER_MS,
    UpstreamWatermark,
    Watermark,
)
from ..user_code import error_reason
from ..validation import is_library_class, validate_declaration
from ..wording import counted
from .categories import AnyCategory, Category, is_legal_name
from .declaration_checks import (
    LONGEST_NAME,
    expect_clusters,
    expect_feedback_is_read,
    expect_no_option_of_other_kinds,
    expect_partitioners,
    expect_type_parameters,
)
from .flat_records import flat_fields
from .input_watermarks import by_input, expect_silence, expect_watermarks
from .method_check import expect_synchronous_resources
from .mutability import is_mutable
from .processor import Destination, ErrorAction, ErrorPolicy, KeyedProcessor, Processor, as_tuple, expect_category
from .retries import Retry, RetryChain, expect_retryable
from .sinks import Sink, expect_repeatable, expect_sinks
from .type_parameters import Parameter

if TYPE_CHECKING:
    from .aggregator import Aggregator, AggregatorPlan
    from .stateful import Stateful, StatefulPlan
    from .stateless import Stateless, StatelessPlan

_PLAN = "__plan__"
"""The attribute of a declared class with its plan."""
_KINDS: dict[type[Processor], type[ProcessorPlan]] = {}
"""The plans of the kinds of processors."""


class ProcessorPlan:
    """What the engine reads of a declaration: it follows from the class attributes and the methods that a user writes, whose names are the user's otherwise.

    Each kind of processor has its own, derived with `of=` the kind. Get it from `plan_of`.

    Args:
        declaration: the class that the user has declared.
        written_in_app: the names of the categories that processors of its app write.
    """

    declaration: type[Processor]

    def __init__(self, declaration: type[Processor], written_in_app: frozenset[str] = frozenset()) -> None:
        self.declaration = declaration
        self._written_in_app = written_in_app
        self._retry_chain: RetryChain | None = None

    def __init_subclass__(cls, *, of: type[Processor]) -> None:
        super().__init_subclass__()
        _KINDS[of] = cls

    def for_class(self, declaration: type[Processor]) -> ProcessorPlan:
        """Return the plan of a class that is derived from this one."""
        return _kind_of(declaration)(declaration, self._written_in_app)

    def set_app(self, processors: Iterable[type[Processor]]) -> None:
        """Record the processors of its app: an input that one of them writes has their watermark by default.

        Late events do not count, since they are behind the watermark; nor do categories on another cluster, which contains no watermarks.
        """
        self._written_in_app = frozenset(
            category.name
            for processor in processors
            for category in as_tuple(processor.writes)
            if isinstance(category, Category) and category.cluster is None
        )

    def error_action(self, error: UserCodeError) -> ErrorAction:
        """Return how to handle an event for which the processor raised `error`."""
        cls = self.declaration
        reason = error_reason(cls.__name__, error, self.result_form)
        return ErrorAction(
            reason, cls.on_error is ErrorPolicy.STOP, dropped=False, alternative=self.dead_letter_setting
        )

    @property
    def dead_letter_setting(self) -> str:
        """The declaration that sends events with errors to the dead letters, in the language of the processor."""
        return (
            "WITH (on_error = 'dead_letter')"
            if self.declaration.sql_query
            else "on_error = penstock.ErrorPolicy.DEAD_LETTER"
        )

    @property
    def result_form(self) -> str:
        """What its method for events returns, as code for errors."""
        return "[…]"

    @property
    def sources(self) -> tuple[AnyCategory, ...]:
        """The categories that the processor declares in `reads`."""
        cls = self.declaration
        return as_tuple(cls.reads)

    @property
    def feedback_inputs(self) -> tuple[AnyCategory, ...]:
        """The sources that close a loop."""
        cls = self.declaration
        names = {category.name for category in as_tuple(cls.feedback)}
        return tuple(category for category in self.sources if category.name in names)

    @property
    def input_watermarks(self) -> Mapping[str, Watermark]:
        """The watermark of each source by its name. What circulates in a loop determines the watermark of a feedback input."""
        cls = self.declaration
        feedback = {category.name: UpstreamWatermark() for category in self.feedback_inputs}
        return by_input(cls.watermark, self.sources, self._written_in_app) | feedback

    @property
    def estimated_by_default(self) -> frozenset[str]:
        """The names of the sources without a declared watermark that no processor of the app writes."""
        return self._undeclared_watermarks - self.upstream_inputs

    @property
    def _undeclared_watermarks(self) -> frozenset[str]:
        """The names of the sources without a declared watermark."""
        cls = self.declaration
        if cls.watermark is not None and not isinstance(cls.watermark, Mapping):
            return frozenset()
        declared = {category.name for category in (*(cls.watermark or ()), *self.feedback_inputs)}
        return frozenset(category.name for category in self.sources) - declared

    @property
    def upstream_inputs(self) -> frozenset[str]:
        """The names of the sources whose watermarks their writers determine."""
        return frozenset(
            name for name, watermark in self.input_watermarks.items() if isinstance(watermark, UpstreamWatermark)
        )

    @property
    def waits_for_upstream(self) -> bool:
        """Whether results follow from upstream watermarks: it declares them, or has them by default and waits for event time."""
        upstream = self.upstream_inputs
        is_declared = not upstream <= self._undeclared_watermarks
        return bool(upstream) and self.uses_event_time and (is_declared or self.emits_without_input)

    @property
    def inputs(self) -> tuple[AnyCategory, ...]:
        """The categories that a worker reads: the sources, and the categories of events that wait for a retry."""
        return (*self.sources, *self.retry_categories)

    @property
    def retry_categories(self) -> tuple[AnyCategory, ...]:
        """The categories of events that wait for a retry, by attempt."""
        chain = self.retry_chain
        return () if chain is None else chain.categories

    @property
    def retry_chain(self) -> RetryChain | None:
        """The retries of its events; None without any. The same object at each call, since batches recognise their category."""
        cls = self.declaration
        if not isinstance(cls.on_error, Retry):
            return None
        source, retry = self.sources[0], cls.on_error
        if self._retry_chain is None or not self._retry_chain.is_of(cls.name, source, retry):
            self._retry_chain = RetryChain.of(cls.name, source, retry)
        return self._retry_chain

    def retried_in(self, category: AnyCategory, error: UserCodeError) -> AnyCategory | None:
        """Return where an event waits for its next attempt after an exception; None if there is none.

        Args:
            category: the category of the event.
            error: the exception.
        """
        chain = self.retry_chain
        return chain.next_after(category.name) if chain is not None and chain.retry.covers(error) else None

    @property
    def destinations(self) -> tuple[Destination, ...]:
        """The categories and sinks that the processor writes."""
        cls = self.declaration
        return as_tuple(cls.writes)

    @property
    def outputs(self) -> tuple[AnyCategory, ...]:
        """The categories that the processor writes."""
        return tuple(destination for destination in self.destinations if not isinstance(destination, Sink))

    @property
    def outputs_can_change(self) -> bool:
        """Whether code that yields an output can change it when it continues."""
        return any(is_mutable(record) for destination in self.destinations for record in destination.record_types)

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """The sinks that the processor writes."""
        return tuple(destination for destination in self.destinations if isinstance(destination, Sink))

    @property
    def is_repeatable(self) -> bool:
        """Whether reading the events again produces the same state and the same outputs.

        It does if everything follows from the events of one bucket, in order. The interleaving of several inputs, idle inputs, upstream
        watermarks and the time of day differ each time.
        """
        follows_upstream = self.uses_event_time and bool(self.upstream_inputs)
        is_by_clock = self.declaration.close_after_silence is not None
        return self.declaration.deterministic and len(self.inputs) == 1 and not follows_upstream and not is_by_clock

    @property
    def written_categories(self) -> tuple[AnyCategory, ...]:
        """The outputs, and the categories of events that wait for a retry."""
        return (*self.outputs, *self.retry_categories)

    @property
    def side_inputs(self) -> tuple[AnyCategory, ...]:
        """The categories that each worker reads as a whole, beside its share of the inputs."""
        return ()

    @property
    def uses_event_time(self) -> bool:
        """Whether the behaviour depends on the low watermark."""
        return False

    def reads_tombstones(self, category: AnyCategory) -> bool:  # noqa: ARG002 - it is a matter of the category for some
        """Return whether a message of `category` with a key and no value is a deletion. Otherwise, it does not decode."""
        return False

    @property
    def stream_columns(self) -> tuple[str, ...] | None:
        """The fields that workers pass to the processor as columns, by their names on the bus; None if it processes records."""
        return None

    @property
    def has_columns_step(self) -> bool:
        """Whether the class defines a method that processes many events as columns."""
        return False

    @property
    def checks_keys(self) -> bool:
        """Whether events of one key must be in one bucket."""
        return False

    @property
    def is_compaction_safe(self) -> bool:
        """Whether the latest event of each key suffices to rebuild the state."""
        return self.declaration.compaction_safe

    @property
    def emits_without_input(self) -> bool:
        """Whether outputs may appear without an event: from timers, window ends or delayed events."""
        return False

    def output_watermark_ms(self, low_ms: int) -> int:
        """Return the watermark of the outputs at a low watermark: no later output has an earlier event time.

        Args:
            low_ms: the low watermark of the inputs (milliseconds since 1970, UTC).
        """
        return max(low_ms - self.declaration.max_output_delay // MILLISECOND, NEVER_MS)

    @property
    def state_shape(self) -> str | None:
        """A description of the format of the saved state; None without state. A worker refuses state with another description."""
        return None

    def check(self) -> None:
        """Validate the declaration. Called before the first event.

        Raises:
            DeclarationError: the declaration cannot work; the message contains the fix.
        """
        cls = self.declaration
        validate_declaration(cls, Processor)
        if not any(
            is_library_class(base) for base in cls.__mro__ if base is not Processor and issubclass(base, Processor)
        ):
            raise DeclarationError(
                f"{cls.__name__} is derived from penstock.Processor, which is the base of all kinds and processes nothing. Nothing was read. Derive it from "
                "penstock.Stateless, Stateful, Windowed, Aggregator or a join."
            )
        if not is_legal_name(cls.name, LONGEST_NAME):
            raise DeclarationError(
                f"Processor {cls.__name__}: its name {cls.name!r} cannot be part of the names of topics and folders. Nothing was read. Declare "
                f"`name = \"…\"` with only letters, digits, '.', '_' and '-', at most {LONGEST_NAME}."
            )
        expect_no_option_of_other_kinds(cls)
        if not hasattr(cls, "reads") or not self.sources:
            raise DeclarationError(
                f"Processor {cls.__name__} has no input. Declare `reads = some_category` on the class."
            )
        for category in self.sources + self.outputs + as_tuple(cls.feedback):
            expect_category(cls, category)
        expect_feedback_is_read(self)
        expect_watermarks(cls.__name__, cls.watermark, self.sources)
        expect_silence(cls.__name__, cls.close_after_silence, cls.idle_after)
        if isinstance(cls.on_error, Retry):
            expect_retryable(cls.__name__, self.sources, cls.on_error, has_sinks=bool(self.sinks))
            self._expect_retries()
        if len({category.buckets for category in self.sources}) > 1:
            counts = ", ".join(
                f"{category.name} has {counted(category.buckets, 'bucket')}" for category in self.sources
            )
            raise DeclarationError(
                f"Processor {cls.__name__} reads categories that are not co-partitioned: {counts}. Events of one "
                "key would be in different buckets. Declare the same number of buckets, or add a penstock.Repartition before one input."
            )
        records = [record for destination in self.destinations for record in destination.record_types]
        if not self.routes_outputs and len(set(records)) < len(records):
            raise DeclarationError(
                f"Processor {cls.__name__} writes several categories of the same record type, but the type of an output "
                "selects its category. Derive a record type for each."
            )
        names = [destination.name for destination in self.destinations]
        if len(set(names)) < len(names):
            raise DeclarationError(
                f"Processor {cls.__name__} declares an output twice: {', '.join(names)}. Declare it once."
            )
        expect_sinks(self)
        expect_clusters(self)
        expect_type_parameters(self)

    def _expect_retries(self) -> None:
        """Raise DeclarationError unless its kind can retry events with its semantics."""
        cls = self.declaration
        raise DeclarationError(
            f"Processor {cls.__name__} declares `on_error = penstock.Retry(…)`, but its kind cannot try an event again later. Nothing was read. Let a "
            "penstock.Stateless or penstock.Stateful make the call that may fail, and read its output here."
        )

    @property
    def inputs_by_parameter(self) -> Mapping[Parameter, Sequence[AnyCategory]]:
        """The inputs whose events each type parameter of its kind describes."""
        return {"Event": self.sources}

    @property
    def min_batch(self) -> int:
        """The number of events that take as long as one event: smaller batches would not be faster."""
        return 1

    @property
    def routes_outputs(self) -> bool:
        """Whether its code may name the category of an output with `To`."""
        return False


class KeyedPlan(ProcessorPlan, of=KeyedProcessor):
    """The plan of a processor with state."""

    declaration: type[KeyedProcessor]

    @property
    def key_name(self) -> str:
        """The name of the key of its states."""
        return self.inputs[0].key_name

    @property
    def checks_keys(self) -> bool:
        """Whether events of one key must be in one bucket."""
        return self.declaration.key_check

    @property
    def destinations(self) -> tuple[Destination, ...]:
        """The categories and sinks that the processor writes, including the category of late events."""
        cls = self.declaration
        return super().destinations + ((cls.late,) if isinstance(cls.late, Category) else ())

    def check(self) -> None:
        """Also check `open`, `close`, the partitioners of the inputs and the category of late events."""
        cls = self.declaration
        super().check()
        expect_synchronous_resources(cls)
        expect_repeatable(self)
        if self.checks_keys:
            expect_partitioners(self)
        if isinstance(cls.late, Category) and any(category.record != cls.late.record for category in self.inputs):
            raise DeclarationError(
                f"Processor {cls.__name__} sends late events to {cls.late.name}, a category of {cls.late.record_name}. Declare a category "
                "with the record type of the input."
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
def plan_of(processor: type[Aggregator[Any, Any, Any]] | Aggregator[Any, Any, Any]) -> AggregatorPlan: ...
@overload
def plan_of(processor: type[Stateful[Any, Any, Any]] | Stateful[Any, Any, Any]) -> StatefulPlan: ...
@overload
def plan_of(processor: type[KeyedProcessor] | KeyedProcessor) -> KeyedPlan: ...
@overload
def plan_of(processor: type[Stateless[Any, Any]] | Stateless[Any, Any]) -> StatelessPlan: ...
@overload
def plan_of(processor: type[Processor] | Processor) -> ProcessorPlan: ...
def plan_of(processor: type[Processor] | Processor) -> ProcessorPlan:
    """Return the plan of a declared processor, or of an object of it: the same plan at each call."""
    declared = processor if isinstance(processor, type) else type(processor)
    plan: ProcessorPlan | None = getattr(declared, _PLAN, None)
    if plan is None or plan.declaration is not declared:  # its base's
        plan = _kind_of(declared)(declared) if plan is None else plan.for_class(declared)
        setattr(declared, _PLAN, plan)
    return plan


def _kind_of(processor: type[Processor]) -> type[ProcessorPlan]:
    return next((_KINDS[base] for base in processor.__mro__ if base in _KINDS), ProcessorPlan)
