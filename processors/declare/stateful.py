"""Stateful processors: a state and timers per key."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Generic, get_origin

import msgspec
from msgspec import inspect as shapes

from ..errors import DeclarationError
from ..models import is_model, struct_of
from ..time import Cron, Firing, Interval, Schedule, Timer
from ..validation import is_library_class
from ..wording import as_code
from .categories import AnyCategory, Category
from .context import Context
from .emission import OnLate
from .method_check import Method, check_methods
from .plan import KeyedPlan
from .processor import ErrorPolicy, KeyedProcessor
from .records import class_within, type_name
from .semantics import Semantics, expect_pair
from .tombstones import expect_own_process
from .type_parameters import Event, Output, State, expect_argument

_BY = " by "
_METHODS = {
    "process": Method(("event", "state", "context"), "state, […]"),
    "on_timer": Method(("timer", "state", "context"), "state, […]"),
    "on_schedule": Method(("firing", "states"), "[…]", may_yield=True),
}
_IN = " in "
"""Separates the windows in the description of aggregator state; no type name contains it."""


class Stateful(KeyedProcessor, Generic[Event, State, Output]):
    """Maps the state of a key and an event to the next state and outputs. Events of one key arrive one at a time, in the order of their bucket.

    `Stateful[Event, State, Output]` names the record types and the type of the state for type checkers.

    Class attributes:
        state: the type of the state of a key: a Record, or a plain value such as an int or a tuple. A state with lists or dicts may be changed in
            place: it is decoded before each call and encoded after it, so each event costs time in proportion to its size.
        ordered: whether to buffer events until the low watermark passes them, and process them in the order of event time. Events with
            equal times then arrive in a fixed order, so outputs depend on the events alone.
        tombstones: whether `process` receives a message with a key and a null value, as a `Tombstone`; its event time is the message's
            timestamp. Otherwise, it does not decode.
        schedules: times of day at which `on_schedule` is called for each shard, by name: `penstock.Cron` or `penstock.Interval`. With
            `deterministic = False`.
        late: for ordered processors, what to do with late events: `OnLate.DROP`, or a category of the input's record type.

    Examples:
        >>> import penstock as ps
        >>> class Click(ps.Record, frozen=True):
        ...     user: str
        ...     at: int
        >>> class FirstClick(ps.Stateful):
        ...     clicks = ps.Category("clicks", Click, key="user", event_time="at")
        ...     reads, writes = clicks, ps.Category("first_clicks", Click, key="user", event_time="at")
        ...     state = int
        ...
        ...     def process(self, event, state, context):
        ...         return (state or 0) + 1, ([event] if state is None else [])
        >>> FirstClick().process(Click("ann", 5), 3, Context("ann", 5))
        (4, [])
    """

    state: ClassVar[Any]
    buffers_events: ClassVar[bool] = False
    """Whether the state contains only events, whose values were validated on reading. True for joins."""
    ordered: ClassVar[bool] = False
    tombstones: ClassVar[bool] = False
    schedules: ClassVar[Mapping[str, Schedule]] = MappingProxyType({})
    late: ClassVar[OnLate | AnyCategory] = OnLate.DROP

    @abstractmethod
    def process(self, event: Event, state: State | None, context: Context) -> tuple[State | None, Iterable[Output]]:
        """Return the next state of the key and the outputs of the event.

        Args:
            event: the event.
            state: the last returned state of the key; None before its first event, and after None was returned.
            context: the key, the event time and the timers.

        Returns:
            The next state, where None deletes the state of the key; and the outputs.
        """

    def on_timer(self, timer: Timer, state: State, context: Context) -> tuple[State | None, Iterable[Output]]:
        """Return the next state of the key and outputs when a timer fires.

        Timers of one clock fire in order of time, key and tag, never early. Event-time timers fire between the same two events whenever the
        bucket is read again.

        Args:
            timer: the timer.
            state: the state of the key.
            context: the key, the time of the timer, and further timers, which must be later.
        """
        raise DeclarationError(
            f"{type(self).__name__} does not define `on_timer`; it was called for {timer}, {state!r}, {context}."
        )

    def on_schedule(self, firing: Firing, states: Iterable[tuple[str, State]]) -> Iterable[Output]:
        """Return or yield outputs when a schedule fires.

        Each shard fires its schedules itself. The firing and its outputs belong to one checkpoint, so they are repeated or lost after a
        failure as the semantics define.

        Args:
            firing: the schedule, its time and the shard.
            states: each key of the shard that has a state, and the state, in order of keys. Iterate over it once, within this call.
        """
        raise DeclarationError(
            f"{type(self).__name__} does not define `on_schedule`; it was called for {firing}, {states}."
        )


class StatefulPlan(KeyedPlan, of=Stateful):
    """The plan of a `Stateful`."""

    declaration: type[Stateful[Any, Any, Any]]

    def reads_tombstones(self, category: AnyCategory) -> bool:  # noqa: ARG002 - of any input
        """Return whether the class declares it."""
        return self.declaration.tombstones

    @property
    def routes_outputs(self) -> bool:
        """True, unless late events are outputs of the same type as another output: only their type selects the category."""
        cls = self.declaration
        return not isinstance(cls.late, Category) or [one.record for one in self.outputs].count(cls.late.record) == 1

    @property
    def has_timers(self) -> bool:
        """Whether the class defines `on_timer`."""
        return self.declaration.on_timer is not Stateful.on_timer

    @property
    def uses_event_time(self) -> bool:
        """True: the code may read the watermark."""
        return True

    @property
    def emits_without_input(self) -> bool:
        """Whether it has timers or schedules, or buffers events."""
        cls = self.declaration
        return self.has_timers or bool(cls.schedules) or cls.ordered

    @property
    def can_drop_late(self) -> bool:
        """Whether events can be late: with `ordered`, or with windows."""
        return self.declaration.ordered

    @property
    def saved_type(self) -> Any:
        """The type of the saved value of a key."""
        return self.declaration.state

    def form_to_save(self, state: Any) -> Any:
        """Return a state as a value of the saved type."""
        return state

    def map_states(self, saved: Any, change: Callable[[Any], Any]) -> Any:
        """Return a saved value with `change` applied to every state in it; None if no state remains.

        Args:
            saved: the saved value of a key.
            change: maps a state to its replacement; None deletes it.
        """
        return change(saved)

    @property
    def state_shape(self) -> str:
        """The type of a state, and the key."""
        cls = self.declaration
        return f"{type_name(cls.state)}{_BY}{self.key_name}"

    def differs_only_in_state_type(self, shape: str) -> bool:
        """Return whether a state description matches this processor except for the type of the state."""
        theirs, ours = shape.partition(_BY), self.state_shape.partition(_BY)
        return theirs[0] != ours[0] and theirs[1:] == ours[1:] and _IN not in theirs[0]

    def _expect_retries(self) -> None:
        """Raise DeclarationError for windows and joins, and for semantics with which a waiting event could count twice or not at all."""
        cls = self.declaration
        if next(filter(is_library_class, cls.__mro__)) is not Stateful:
            super()._expect_retries()
        if {cls.state_semantics, cls.output_semantics} != {Semantics.EXACTLY_ONCE}:
            raise DeclarationError(
                f"Stateful processor {cls.__name__} retries events (`on_error = penstock.Retry(…)`), which needs state and outputs exactly once: with "
                "other semantics, an event that waits could be counted twice, or never. Nothing was read. Declare `output_semantics = "
                "penstock.Semantics.EXACTLY_ONCE` and keep `state_semantics`."
            )

    @property
    def result_form(self) -> str:
        """What `process` returns: the next state, and outputs."""
        return _METHODS["process"].returns

    def check(self) -> None:
        """Also check semantics, the methods, and that the state can be saved."""
        cls = self.declaration
        super().check()
        expect_own_process(cls)
        check_methods(cls, _METHODS)
        expect_pair(f"Stateful processor {cls.__name__}", cls.state_semantics, cls.output_semantics)
        if not hasattr(cls, "state"):
            raise DeclarationError(
                f"Stateful processor {cls.__name__} has no state type. Declare `state = …`, the type of the state of a key."
            )
        if not (isinstance(cls.state, type) or get_origin(cls.state)):
            raise DeclarationError(
                f"Stateful processor {cls.__name__}: `state = {as_code(cls.state)}` is no type. Nothing was read. Declare the type of the state of a key, "
                "such as `state = float`; before its first event, a key has the state None."
            )
        _check_order(self)
        _check_schedules(cls)
        expect_argument(cls, "State", cls.state, "`state`")
        try:
            _expect_encodable(self.saved_type)
        except (TypeError, NameError) as error:
            raise DeclarationError(
                f"Stateful processor {cls.__name__}: a state of type {as_code(cls.state)} cannot be saved: {error}. Declare a frozen "
                "Record or a plain type."
            ) from error


def _expect_encodable(kind: Any) -> None:
    """Raise TypeError for a type that cannot be encoded and decoded, and DeclarationError for a model that cannot."""
    msgspec.msgpack.Decoder(kind)
    foreign = class_within(shapes.type_info(kind), lambda found: not (is_model(found) and struct_of(found)))
    if foreign is not None:
        raise TypeError(f"{foreign.__name__} is neither a record nor a plain type")


def _check_schedules(cls: type[Stateful]) -> None:
    """Raise DeclarationError for schedules that cannot fire."""
    own = cls.on_schedule is not Stateful.on_schedule
    if own and not cls.schedules:
        raise DeclarationError(
            f"Stateful processor {cls.__name__} defines `on_schedule`, but no schedule fires. Nothing was read. Declare `schedules = "
            "{'daily': ps.Cron('0 6 * * *')}`."
        )
    if not cls.schedules:
        return
    given = dict[object, object](cls.schedules.items())
    if not all(isinstance(name, str) and name and isinstance(of, (Cron, Interval)) for name, of in given.items()):
        raise DeclarationError(
            f"Stateful processor {cls.__name__}: `schedules = {dict(cls.schedules)!r}` is no mapping of names to schedules. Nothing was read. "
            "Declare `schedules = {'daily': ps.Cron('0 6 * * *')}`, or a ps.Interval."
        )
    if not own:
        raise DeclarationError(
            f"Stateful processor {cls.__name__} declares schedules, but nothing to do when they fire. Nothing was read. Define `def "
            "on_schedule(self, firing, states):`, which returns outputs."
        )
    if is_library_class(next(base for base in cls.__mro__ if "process" in vars(base))):
        raise DeclarationError(
            f"{cls.__name__} declares schedules, but its kind keeps windows or events as its state. Nothing was read. Declare the schedules on a "
            "penstock.Stateful, which may read the same categories."
        )
    if cls.deterministic:
        raise DeclarationError(
            f"Stateful processor {cls.__name__}: schedules fire by the time of day, so reading the same events again may produce other outputs. "
            "Nothing was read. Declare `deterministic = False`; a changelog then preserves its state."
        )


def _check_order(plan: StatefulPlan) -> None:
    """Raise DeclarationError for invalid combinations of `ordered`, `late` and `on_error`."""
    cls = plan.declaration
    if cls.late is OnLate.INTO_WINDOW:
        raise DeclarationError(
            f"Stateful processor {cls.__name__} has no windows for late events. Declare `late` as penstock.OnLate.DROP or a category."
        )
    if isinstance(cls.late, Category) and not plan.can_drop_late:
        raise DeclarationError(
            f"Stateful processor {cls.__name__} processes events in order of arrival, so no event is late. Declare `ordered = True`, or "
            "check `context.late`."
        )
    if cls.tombstones and isinstance(cls.late, Category):
        raise DeclarationError(
            f"Stateful processor {cls.__name__}: a late tombstone is no record of {cls.late.name}. Nothing was read. Declare `late = "
            "penstock.OnLate.DROP`, or `tombstones = False`."
        )
    if cls.ordered and cls.trace_context:
        raise DeclarationError(
            f"Stateful processor {cls.__name__}: with `ordered`, an event is processed long after its message was read, so its trace context is not "
            "available. Nothing was read. Declare `trace_context = False`, or read the header into a field with penstock.metadata.Header."
        )
    if cls.ordered and cls.on_error is not ErrorPolicy.STOP:
        raise DeclarationError(
            f"Stateful processor {cls.__name__}: with `ordered`, an event is processed long after its message was read, so it can neither become a "
            "dead letter nor be retried. Declare `on_error = penstock.ErrorPolicy.STOP`, or handle the error in `process`."
        )
