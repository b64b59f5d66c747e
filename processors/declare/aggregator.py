"""Aggregators: observations combined by a monoid, per key and window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from ..errors import DeclarationError, UserCodeError
from ..monoids import Count, Monoid
from ..time import NEVER_MS, GlobalWindow, Hopping, Session, Sliding, Tumbling, Window, WindowAssigner, WindowAssignment
from ..user_code import error_in_words, user_traceback
from ..validation import did_you_mean
from ..wording import as_code, counted
from .categories import AnyCategory, Category
from .declaration_checks import expect_columns, expect_lateness
from .emission import AtCheckpoint, AtWatermark, Emission, OnLate
from .method_check import Method, check_methods, engine_method
from .mutability import unshared
from .plan import KeyedPlan, needed_columns
from .processor import ErrorAction, KeyedProcessor, as_tuple
from .records import fields_of
from .semantics import Semantics, expect_pair
from .stores import LocalStore, RemoteStore, WriteMode
from .two_phase import TwoPhase
from .type_parameters import Event, Output, Value

if TYPE_CHECKING:
    import pyarrow as pa


_METHODS = {
    "observe": Method(("event",), "event"),
    "result": Method(("key", "window", "value"), "record"),
}


class Aggregator(KeyedProcessor, Generic[Event, Value, Output]):
    """Combines observations of events with a monoid, per key and window.

    `Aggregator[Event, Value, Output]` names the record types and the type of the monoid's value for type checkers.

    Results are updates: the last record of a key and event time replaces the ones before it. With `differences` in `emit`, results add up
    instead.

    Class attributes:
        monoid: how observations combine.
        window: the windows of event time. Default: one window that never ends.
        emit: when to write results: `AtCheckpoint()`, or `AtWatermark()` once a window is complete.
        late: what to do with events after the end of their windows: `OnLate.INTO_WINDOW` keeps all windows open, `OnLate.DROP` drops the
            events, and a category of the input's record type receives them.
        allowed_lateness: how long a complete window still accepts events, in event time.
        store: where the state is: `LocalStore()` or `RemoteStore(…)`.
        two_phase: aggregate in the buckets of the input first, then combine the partials of each group: `TwoPhase(key=…)`. For groups
            other than the keys of the input, of which few have most of the events. Default: in one phase, by the key of the input.
        estimates: for composite monoids, the monoid behind each estimated field of the results, such as
            `{"visitors": penstock.monoids.Distinct()}`. `penstock compare` accepts differences within their error. Not needed if the
            monoid itself is a sketch.
        columns: the fields that `observe_columns` needs, besides the key and the event time. Default: all. No other columns are read.

    Examples:
        >>> import penstock as ps
        >>> class Click(ps.Record, frozen=True):
        ...     page: str
        ...     at: int
        >>> class Clicks(ps.Record, frozen=True):
        ...     page: str
        ...     hour: int
        ...     clicks: int
        >>> class ClicksPerHour(ps.Aggregator):
        ...     reads = ps.Category("clicks", Click, key="page", event_time="at")
        ...     writes = ps.Category("clicks_per_hour", Clicks, key="page", event_time="hour")
        ...     monoid = ps.monoids.Count()
        ...     window = ps.windows.Tumbling(timedelta(hours=1))
        ...
        ...     def result(self, key, window, value):
        ...         return Clicks(key, window.start, value)
        >>> from penstock.testing import Driver
        >>> driver = Driver(ClicksPerHour)
    """

    monoid: ClassVar[Monoid[Any]]
    window: ClassVar[WindowAssigner] = GlobalWindow()
    emit: ClassVar[Emission] = AtCheckpoint()
    late: ClassVar[OnLate | AnyCategory] = OnLate.INTO_WINDOW
    allowed_lateness: ClassVar[timedelta] = timedelta()
    store: ClassVar[LocalStore | RemoteStore] = LocalStore()
    two_phase: ClassVar[TwoPhase | None] = None
    estimates: ClassVar[Mapping[str, Monoid[Any]]] = {}
    columns: ClassVar[tuple[str, ...] | None] = None

    def observe(self, event: Event) -> Any:
        """Return the observation of an event, for the monoid's `lift`; None for no observation.

        Default: the event itself.
        """
        return event

    def observe_columns(self, events: pa.RecordBatch) -> pa.Array[Any] | None:
        """Return the observations of many events as an Arrow array; None if they must be observed one by one.

        Workers and backfills call it instead of `observe` if it is defined.

        The array contains one observation per event, null for none; tuples are structs and dicts are maps. It must raise if `observe` raises for
        one of the events; a worker then calls `observe` for each of them, and a backfill ends. Both methods are compared on the first events of each
        shard or task. The key of the category must be a field.

        Args:
            events: one column per field, or per field in `columns`.
        """
        raise DeclarationError(
            f"Aggregator {type(self).__name__} does not define `observe_columns`; it was called for {counted(events.num_rows, 'event')}."
        )

    def result(self, key: str, window: Window, value: Value) -> Output | None:
        """Return the record to write for a key and window, or None for no record.

        Args:
            key: the key.
            window: the window; the event time of the record must lie inside it.
            value: the monoid's value of all observations so far, or since the last result with `differences`.
        """
        raise DeclarationError(
            f"Aggregator {type(self).__name__} writes {type(self).writes!r} but does not define `result`; it was called for {key!r}, "
            f"{window}, {value!r}. Define it, or declare `writes = ()`."
        )

    @engine_method
    def group_keys(self, category: AnyCategory, events: Sequence[Event]) -> Sequence[str]:
        """Return the key of the group of each event: the key of the category."""
        return category.keys_of_rows(events)

    @engine_method
    def windows_of(self, event_times: Sequence[int]) -> WindowAssignment:
        """Return the windows of each event time (milliseconds since 1970, UTC)."""
        return self.window.assign(event_times)

    @engine_method
    def record_of(self, key: str, window: Window, partial: Any) -> Any:
        """Return the record to write for the partial of a key and window: the `result` of its value."""
        return self.result(key, window, unshared(self.monoid.value(partial)))  # the partial is kept for later events


class AggregatorPlan(KeyedPlan, of=Aggregator):
    """The plan of an `Aggregator`."""

    declaration: type[Aggregator[Any, Any, Any]]

    def output_watermark_ms(self, low_ms: int) -> int:
        """Return the start of the first incomplete window: results lie inside their windows.

        For sessions, it assumes that results carry the end of the session; for sliding windows, the time of the last event. Otherwise declare
        `max_output_delay`.
        """
        cls = self.declaration
        if low_ms == NEVER_MS or self.windows_follow_events:
            return super().output_watermark_ms(low_ms)
        return super().output_watermark_ms(min(cls.window.assign([low_ms]).starts))

    @property
    def checks_keys(self) -> bool:
        """Whether events of one key must be in one bucket. A remote store with `WriteMode.APPEND` accepts them from any bucket."""
        return (
            super().checks_keys
            and self.declaration.two_phase is None
            and self.declaration.store != RemoteStore(WriteMode.APPEND)
        )

    @property
    def uses_event_time(self) -> bool:
        """Whether windows become complete or close."""
        return self.windows_end

    @property
    def is_repeatable(self) -> bool:
        """Whether results also depend on nothing but the events: early results and differences depend on checkpoints."""
        cls = self.declaration
        is_adjusted = isinstance(cls.emit, AtWatermark) and (cls.emit.differences or cls.emit.early is not None)
        return super().is_repeatable and not is_adjusted

    @property
    def emits_without_input(self) -> bool:
        """Whether windows become complete or close."""
        return self.windows_end

    @property
    def windows_follow_events(self) -> bool:
        """Whether the windows depend on the events of the key, as sessions and sliding windows do."""
        cls = self.declaration
        return isinstance(cls.window, (Session, Sliding))

    @property
    def windows_end(self) -> bool:
        """Whether windows become complete or close."""
        cls = self.declaration
        return (
            self.windows_follow_events
            or isinstance(cls.emit, AtWatermark)
            or cls.late is not OnLate.INTO_WINDOW
            or cls.emit.differences
        )

    @property
    def keeps_newest(self) -> bool:
        """Whether the last result of a key must be of its newest window: it replaces the earlier ones, in a compacted category or a table with a key."""
        cls = self.declaration
        replaces = (one.compacted if isinstance(one, Category) else one.replaces_rows for one in self.destinations)
        return not isinstance(cls.window, GlobalWindow) and not cls.emit.differences and any(replaces)

    @property
    def has_columns_step(self) -> bool:
        """Whether the class defines `observe_columns`."""
        return self.declaration.observe_columns is not Aggregator.observe_columns

    @property
    def counts_events(self) -> bool:
        """Whether the value is the number of events, whatever they are."""
        cls = self.declaration
        return type(cls.monoid) is Count and cls.observe is Aggregator.observe

    @property
    def stream_columns(self) -> tuple[str, ...] | None:
        """The fields that `observe_columns` needs, and the key; the key alone for the number of events."""
        key = self.sources[0].key
        by_key = isinstance(key, str) and self.declaration.group_keys is Aggregator.group_keys
        if not by_key or not (self.has_columns_step or self.counts_events):
            return None
        return needed_columns(self.sources[0], self.declaration.columns if self.has_columns_step else (), str(key))

    @property
    def state_shape(self) -> str:
        """The monoid, the windows and the key."""
        cls = self.declaration
        what = f"{cls.monoid!r} in {cls.window!r} by {self.key_name}"
        return f"{what}, not yet written" if cls.emit.differences else what

    def error_action(self, error: UserCodeError) -> ErrorAction:
        """Return how to handle an event whose observation the monoid does not accept, or for which the code of the class raised."""
        cls = self.declaration
        action = super().error_action(error)
        if user_traceback(error):
            return action
        reason = f"{cls.monoid!r} does not accept what {cls.__name__}.observe returned ({error_in_words(error)})"
        return action._replace(reason=reason)

    def check(self) -> None:
        """Also check semantics, monoid, windows, methods, estimates and columns."""
        cls = self.declaration
        super().check()
        check_methods(cls, _METHODS)
        expect_pair(f"Aggregator {cls.__name__}", cls.state_semantics, cls.output_semantics)
        monoid: object = getattr(cls, "monoid", None)
        if isinstance(monoid, type) and issubclass(monoid, Monoid):
            raise DeclarationError(
                f"Aggregator {cls.__name__} declares the class {monoid.__name__}, not a monoid. Nothing was read. Create one: `monoid = {monoid.__name__}(…)`."
            )
        if not isinstance(monoid, Monoid):
            raise DeclarationError(
                f"Aggregator {cls.__name__} {'has no monoid' if monoid is None else f'declares `monoid = {as_code(monoid)}`, which is no monoid'}. Nothing was "
                "read. Declare such as `monoid = penstock.monoids.Count()`."
            )
        if cls.writes and cls.result is Aggregator.result:
            raise DeclarationError(
                f"Aggregator {cls.__name__} writes {as_tuple(cls.writes)[0].name} but has no result. Define "
                "`result(self, key, window, value)`."
            )
        if len(as_tuple(cls.writes)) > 1:
            raise DeclarationError(
                f"Aggregator {cls.__name__} writes several categories or sinks. Declare one for its results."
            )
        if cls.writes and cls.store == RemoteStore(WriteMode.APPEND):
            raise DeclarationError(
                f"Aggregator {cls.__name__} writes results to {as_tuple(cls.writes)[0].name}, but WriteMode.APPEND never reads "
                "the results from the store. Use WriteMode.READ_MERGE_WRITE, or declare `writes = ()` and read the results with "
                "`penstock query`."
            )
        _expect_no_trace_context(cls)
        _expect_one_store(self)
        _check_ends(self)
        _check_estimates(cls)
        if cls.two_phase is not None:
            _check_phases(self, cls.two_phase)
        if self.has_columns_step:
            _check_columns(self)


def _check_phases(plan: AggregatorPlan, declared: TwoPhase) -> None:
    """Raise DeclarationError for an aggregator that cannot combine partials."""
    cls = plan.declaration
    if not isinstance(cls.window, (Tumbling, Hopping, GlobalWindow)):
        raise DeclarationError(
            f"Aggregator {cls.__name__} declares `two_phase` and {cls.window!r}. These windows depend on all events of a group, so partials of several buckets "
            "cannot be combined. Nothing was read. Declare tumbling or hopping windows, or remove `two_phase`."
        )
    if not cls.monoid.commutative:
        raise DeclarationError(
            f"Aggregator {cls.__name__} declares `two_phase`, but {cls.monoid!r} depends on the order of events, and partials of several buckets have "
            "none. Nothing was read. Choose a commutative monoid, or remove `two_phase`. For a monoid of your own, declare `commutative = True` if "
            "`combine(a, b)` equals `combine(b, a)`."
        )
    if isinstance(cls.late, Category):
        raise DeclarationError(
            f"Aggregator {cls.__name__} declares `two_phase`, and writes late events to {cls.late.name}. A partial no longer contains its events. Nothing was "
            "read. Declare `late = penstock.OnLate.DROP` or `penstock.OnLate.INTO_WINDOW`, or remove `two_phase`."
        )
    category = next((one for one in plan.sources if one.partitioner is not None and one.key == declared.key), None)
    if category is not None:
        raise DeclarationError(
            f"Aggregator {cls.__name__} declares `two_phase` by {category.key_name}, but this is the key of {category.name}: all events of a group are in one "
            f"bucket, so two phases would take longer than one. Nothing was read. Remove `two_phase`; or write {category.name} under another key, which "
            "spreads the events of a group."
        )


def _check_columns(plan: AggregatorPlan) -> None:
    """Raise DeclarationError if `observe_columns` cannot work on the input's columns."""
    cls = plan.declaration
    expect_columns(plan, "observe_columns", cls.columns)
    [category] = plan.sources
    if not isinstance(category.key, str):
        raise DeclarationError(
            f"Aggregator {cls.__name__} defines `observe_columns`, but the key of {category.name} is not one field. Remove "
            "`observe_columns`, or declare a field as the key."
        )


def _expect_one_store(plan: AggregatorPlan) -> None:
    """Raise DeclarationError for a remote state and an exactly-once sink, which no transaction includes both."""
    cls = plan.declaration
    if isinstance(cls.store, RemoteStore) and plan.sinks and cls.output_semantics is Semantics.EXACTLY_ONCE:
        raise DeclarationError(
            f"Aggregator {cls.__name__} keeps its state in a remote store, and writes {plan.sinks[0].name} exactly once, but no transaction includes "
            "both. Nothing was read. Declare a LocalStore; or write to a category exactly once, and let a stateless processor copy it to the "
            "sink exactly once."
        )


def _expect_no_trace_context(cls: type[Aggregator]) -> None:
    """Raise DeclarationError for an aggregator that declares `trace_context`."""
    if cls.trace_context:
        raise DeclarationError(
            f"Aggregator {cls.__name__}: a result comes from many events, so it has no single trace context. Nothing was read. Declare "
            "`trace_context = False`; the processors before it may still forward the context."
        )


def _check_estimates(cls: type[Aggregator]) -> None:
    """Raise DeclarationError for an estimate of an unknown field or without a monoid."""
    known = [name for category in as_tuple(cls.writes) for name in fields_of(category.record)]
    for name, monoid in cls.estimates.items():
        if name not in known or not isinstance(monoid, Monoid):
            raise DeclarationError(
                f"Aggregator {cls.__name__}: `estimates` maps {name!r} to {monoid!r}. It must map fields of the output records "
                f"({', '.join(known) or 'none'}) to monoids, such as penstock.monoids.Distinct().{did_you_mean(name, known)}"
            )


def _check_ends(plan: AggregatorPlan) -> None:
    """Raise DeclarationError for invalid combinations of windows, lateness, emission and store."""
    cls = plan.declaration
    expect_lateness(plan, cls.allowed_lateness)
    if cls.late is OnLate.INTO_WINDOW and cls.allowed_lateness:
        raise DeclarationError(
            f"Aggregator {cls.__name__} allows a lateness of {cls.allowed_lateness}, but accepts later events as well. Declare "
            "`late = penstock.OnLate.DROP`, or a category for late events."
        )
    if not plan.windows_end:
        return
    if isinstance(cls.window, GlobalWindow) and not cls.emit == AtCheckpoint(differences=True):
        raise DeclarationError(
            f"Aggregator {cls.__name__}: the global window never ends, so it is never complete and no event is late. "
            "Declare a `window`, such as penstock.windows.Tumbling(timedelta(hours=1))."
        )
    if isinstance(cls.store, RemoteStore):
        raise DeclarationError(
            f"Aggregator {cls.__name__}: windows cannot close in a remote store, which several shards share. Declare a LocalStore, "
            "or keep the defaults of `emit` and `late` and read the windows with `penstock query`."
        )
    if plan.windows_follow_events:
        _check_written_once(cls)
    if isinstance(cls.emit, AtWatermark) and not cls.writes:
        raise DeclarationError(f"Aggregator {cls.__name__} declares AtWatermark but no output. Declare `writes`.")


def _check_written_once(cls: type[Aggregator]) -> None:
    """Raise DeclarationError if sessions or sliding windows would be written more than once or incomplete."""
    is_session = isinstance(cls.window, Session)
    if cls.emit != AtWatermark():
        why = (
            "the bounds of a session are known only when it is complete"
            if is_session
            else "the events of a sliding window are known only when it is complete"
        )
        raise DeclarationError(
            f"Aggregator {cls.__name__}: {why}. Declare `emit = penstock.AtWatermark()`, without `early` and `differences`."
        )
    if cls.late is OnLate.INTO_WINDOW or cls.allowed_lateness:
        why = (
            "a late event would change or merge sessions that were already written"
            if is_session
            else "a late event would change sliding windows that were already written"
        )
        raise DeclarationError(
            f"Aggregator {cls.__name__}: {why}. Declare `late = penstock.OnLate.DROP` or a category for late events, and no `allowed_lateness`. "
            "To wait longer, declare a slower `watermark`."
        )
