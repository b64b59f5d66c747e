"""The three kinds of processors, as users declare them.

A processor stands between categories. What it reads, writes and promises is declared on the class, and what it does is
a pure function of its arguments; how its events arrive, where its state lives and who saves it is the engine's work.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, ClassVar, get_origin

import msgspec

from .categories import AnyCategory, Category
from .emission import AtCheckpoint, AtWatermark, Emission, OnLate
from .errors import DeclarationError
from .monoids import Monoid
from .records import Record, is_class
from .semantics import Semantics, expect_pair
from .stores import Local, Remote, Writing
from .timers import Clock, Timer
from .watermarks import NEVER_MS, Confidence, Watermark
from .windows import MILLISECOND, Ever, Window, Windowing


class OnBad(Enum):
    """What becomes of an event that cannot be processed."""

    DEAD_LETTER = "dead letter"
    """It goes, with its origin and the reason, to the processor's dead letters; the rest goes on."""
    STOP = "stop"
    """The worker saves what came before it and stops there."""


@dataclass(frozen=True)
class Every:
    """When a checkpoint is due: at whichever comes first.

    Args:
        events: after that many events.
        size_bytes: after that many bytes of input.
        time: after that long since the last one, if anything was read.
    """

    events: int = 500_000
    size_bytes: int = 256 * 2**20
    time: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        if self.events < 1 or self.size_bytes < 1 or self.time <= timedelta():
            raise DeclarationError(f"{self}: a checkpoint every nothing. Each limit must be above zero.")


Request = tuple[Clock, str, "int | None"]
"""A timer that a key asks for: by which clock, its tag, and when; None cancels it."""


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
        """
        self._asked().append((clock, tag, at))

    def cancel(self, tag: str = "", *, clock: Clock = Clock.EVENT) -> None:
        """Forget this key's timer of a tag; nothing where it has none."""
        self._asked().append((clock, tag, None))

    def _asked(self) -> list[Request]:
        if self.requests is None:
            raise DeclarationError(
                "A timer was set, and the processor does not say what is done when it fires: define `on_timer(self, timer, state, "
                "context)`."
            )
        return self.requests


class Processor(ABC):
    """What the three kinds have in common; derive from one of them.

    Class attributes:
        reads: the category it reads, or several of the same number of buckets, keyed alike.
        writes: the category it writes; several of different record types; or () for none.
        name: what it is called on the bus (consumer group, dead letters) and on disk; by default the class's name in
            snake_case.
        output_semantics: how often an output appears, whatever dies.
        checkpoint: when a checkpoint is due.
        undecodable: what becomes of a message that does not decode.
        raising: what becomes of an event for which the processor raises.
        untimed: what becomes of a message without event time.
        ahead_limit: how far an event time may lie ahead of the event's arrival on the bus; None for any distance, and for event
            times whose unit is not to be doubted.
        ahead: what becomes of an event further ahead, which would drag the watermark with it.
        watermark: how the watermark of each bucket follows from the events that came; or `Promised()`, by those that write it.
        idle_after: after how long without an event (time of day) a bucket that is read to its end holds back others no more; None
            for never.
        outputs_behind: how far the event times of its outputs may lie behind its low watermark, or, for an aggregator, before the
            windows that are not complete; consumers' watermarks lie behind by that.

    Class attributes of those that keep state:
        state_semantics: how often an event counts in the state, whatever dies.
        deterministic: whether the same events in the same order always give the same state; False where it looks at the
            time, at random numbers or at something outside.
    """

    reads: ClassVar[AnyCategory | tuple[AnyCategory, ...]]
    writes: ClassVar[AnyCategory | tuple[AnyCategory, ...]] = ()
    name: ClassVar[str]
    state_semantics: ClassVar[Semantics] = Semantics.EXACTLY_ONCE
    output_semantics: ClassVar[Semantics] = Semantics.AT_LEAST_ONCE
    deterministic: ClassVar[bool] = True
    checkpoint: ClassVar[Every] = Every()
    undecodable: ClassVar[OnBad] = OnBad.DEAD_LETTER
    raising: ClassVar[OnBad] = OnBad.STOP
    untimed: ClassVar[OnBad] = OnBad.STOP
    ahead_limit: ClassVar[timedelta | None] = timedelta(days=1)
    ahead: ClassVar[OnBad] = OnBad.DEAD_LETTER
    watermark: ClassVar[Watermark] = Confidence()
    idle_after: ClassVar[timedelta | None] = timedelta(minutes=1)
    outputs_behind: ClassVar[timedelta] = timedelta()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__).lower()

    def open(self) -> None:  # noqa: B027 - most processors have nothing to load
        """Load what the processor needs, such as a dimension table; called once in each process, before any event."""

    @classmethod
    def inputs(cls) -> tuple[AnyCategory, ...]:
        """Return the categories it reads."""
        return _as_tuple(cls.reads)

    @classmethod
    def outputs(cls) -> tuple[AnyCategory, ...]:
        """Return the categories it writes."""
        return _as_tuple(cls.writes)

    @classmethod
    def goes_by_time(cls) -> bool:
        """Whether what it does depends on its low watermark."""
        return False

    @classmethod
    def promised_ms(cls, low_ms: int) -> int:
        """Return the event time before which it will write nothing any more, at a low watermark (milliseconds since 1970, UTC)."""
        return max(low_ms - cls.outputs_behind // MILLISECOND, NEVER_MS)

    @classmethod
    def state_shape(cls) -> str | None:
        """Return what the bytes of saved state mean, in words: state is not opened under another. None: no state."""
        return None

    @classmethod
    def check(cls) -> None:
        """Raise DeclarationError, saying what to change, where the declaration cannot work."""
        if not hasattr(cls, "reads") or not cls.inputs():
            raise DeclarationError(
                f"Processor {cls.__name__} reads nothing: declare `reads = some_category` on the class."
            )
        for category in cls.inputs() + cls.outputs():
            _expect_category(cls, category)
        if len({category.buckets for category in cls.inputs()}) > 1:
            counts = ", ".join(f"{category.name} has {category.buckets}" for category in cls.inputs())
            raise DeclarationError(
                f"Processor {cls.__name__} reads categories that are not co-partitioned: {counts} buckets. Events of one "
                "key would meet in different buckets. Declare the same number, or repartition one of them first."
            )
        records = [category.record for category in cls.outputs()]
        if len(set(records)) < len(records):
            raise DeclarationError(
                f"Processor {cls.__name__} writes several categories of the same record type: its outputs are told "
                "apart by their type. Derive a record type for each."
            )


class Stateless(Processor):
    """Events in, events out; nothing is remembered."""

    @abstractmethod
    def process(self, event: Any) -> Iterable[Record]:
        """Return, or yield, the outputs of one event."""


class Stateful(Processor):
    """Per key: state and events out. Events of one key come one after the other, in bus order.

    Class attributes:
        state: the type of a key's state: a frozen Record, or an immutable value such as a number, a str or a tuple.
    """

    state: ClassVar[Any]

    @abstractmethod
    def process(self, event: Any, state: Any, context: Context) -> tuple[Any, Iterable[Record]]:
        """Return the key's next state and the event's outputs.

        Args:
            event: the event.
            state: what was returned for the key's last event; None at its first, and after None was returned.
            context: the key and the event time; timers are set there.
        """

    def on_timer(self, timer: Timer, state: Any, context: Context) -> tuple[Any, Iterable[Record]]:
        """Return the key's next state and outputs, when a timer of the key fires.

        Timers of one clock fire in order of time, then key, then tag, and never early; those in event time fire between two events,
        the same two whenever the bucket is read again.

        Args:
            timer: which one.
            state: the key's state.
            context: the key and the time that the timer was set to; further timers are set there, later than that.
        """
        raise DeclarationError(f"{type(self).__name__} has no on_timer (asked for {timer}, {state!r}, {context}).")

    @classmethod
    def has_timers(cls) -> bool:
        """Whether it says what is done when a timer fires."""
        return cls.on_timer is not Stateful.on_timer

    @classmethod
    def goes_by_time(cls) -> bool:
        """Whether it may look at the watermark, or has timers: any may."""
        return True

    @classmethod
    def state_shape(cls) -> str:
        """Return the type of a key's state, and what the key is."""
        return f"{getattr(cls.state, '__name__', cls.state)} by {_key_name(cls)}"

    @classmethod
    def check(cls) -> None:
        """Also: semantics that go together, and a state type that can be saved and not be changed behind the engine's back."""
        super().check()
        expect_pair(f"Stateful processor {cls.__name__}", cls.state_semantics, cls.output_semantics)
        if not hasattr(cls, "state"):
            raise DeclarationError(
                f"Stateful processor {cls.__name__}: declare `state = …`, the type of a key's state."
            )
        container = get_origin(cls.state) or cls.state
        if container in (list, dict, set):
            raise DeclarationError(
                f"Stateful processor {cls.__name__}: its state is a {container.__name__}, which can change after it was "
                "returned. Declare a frozen Record that holds one, and return a new one at each change."
            )
        if is_class(cls.state) and issubclass(cls.state, msgspec.Struct) and not cls.state.__struct_config__.frozen:
            raise DeclarationError(
                f"Stateful processor {cls.__name__}: {cls.state.__name__} can change after it was returned; declare it "
                f"as `class {cls.state.__name__}(ps.Record, frozen=True)`."
            )
        try:
            msgspec.msgpack.Decoder(cls.state)
        except (TypeError, NameError) as error:
            raise DeclarationError(
                f"Stateful processor {cls.__name__}: state of type {cls.state!r} cannot be saved: {error}."
            ) from error


class Aggregator(Processor):
    """Monoid processor: observations of events, combined per key and window.

    What it writes are updates, when `emit` says: the last record of one key and event time is the one that counts. Where `emit`
    asks for differences, all of them together are.

    Class attributes:
        monoid: how observations combine.
        window: the windows of event time; by default one that never ends.
        emit: when a window's result is written: `AtCheckpoint()`, or `AtWatermark()` when it is complete.
        late: what becomes of events that come when their windows are done: `OnLate.INTO_WINDOW`, where they never are;
            `OnLate.DROP`; or a category of the input's record type, to which they go.
        allowed_lateness: how long after a window is complete it still takes events, in event time.
        store: where its state is kept, `Local()` or `Remote(…)`.
    """

    monoid: ClassVar[Monoid[Any]]
    window: ClassVar[Windowing] = Ever()
    emit: ClassVar[Emission] = AtCheckpoint()
    late: ClassVar[OnLate | AnyCategory] = OnLate.INTO_WINDOW
    allowed_lateness: ClassVar[timedelta] = timedelta()
    store: ClassVar[Local | Remote] = Local()

    @classmethod
    def outputs(cls) -> tuple[AnyCategory, ...]:
        """Return the categories it writes: that of its results, if any, and that of late events."""
        return super().outputs() + ((cls.late,) if isinstance(cls.late, Category) else ())

    @classmethod
    def promised_ms(cls, low_ms: int) -> int:
        """Return where the earliest window begins that is not complete: all that it writes lies in its window."""
        return super().promised_ms(min(cls.window.spread([low_ms]).starts)) if low_ms > NEVER_MS else NEVER_MS

    @classmethod
    def goes_by_time(cls) -> bool:
        """Whether its windows are ever complete or done."""
        return cls.windows_end()

    @classmethod
    def windows_end(cls) -> bool:
        """Whether its windows are ever complete or done."""
        return isinstance(cls.emit, AtWatermark) or cls.late is not OnLate.INTO_WINDOW or cls.emit.differences

    def observe(self, event: Any) -> Any:
        """Return what the event adds, as the monoid's `lift` takes it; None where it adds nothing.

        By default the event itself.
        """
        return event

    def result(self, key: str, window: Window, value: Any) -> Record | None:
        """Return the record to write for a key and window, or None for no record.

        Args:
            key: the key.
            window: the window; give the record an event time that lies in it.
            value: the monoid's value of all observations so far.
        """
        raise DeclarationError(
            f"Aggregator {type(self).__name__} writes {type(self).writes!r} but has no `result` (asked for {key!r}, "
            f"{window}, {value!r}): define it, or declare `writes = ()`."
        )

    @classmethod
    def state_shape(cls) -> str:
        """Return the monoid, the windows, and what the key is."""
        what = f"{cls.monoid!r} in {cls.window!r} by {_key_name(cls)}"
        return f"{what}, not yet written" if cls.emit.differences else what

    @classmethod
    def check(cls) -> None:
        """Also: semantics that go together, a monoid, windows, and a result where there is output."""
        super().check()
        expect_pair(f"Aggregator {cls.__name__}", cls.state_semantics, cls.output_semantics)
        if not isinstance(getattr(cls, "monoid", None), Monoid):
            raise DeclarationError(f"Aggregator {cls.__name__}: declare `monoid = …`, such as `penstock.Count()`.")
        if cls.writes and cls.result is Aggregator.result:
            raise DeclarationError(
                f"Aggregator {cls.__name__} writes {_as_tuple(cls.writes)[0].name} but does not say what: define "
                "`result(self, key, window, value)`."
            )
        if len(_as_tuple(cls.writes)) > 1:
            raise DeclarationError(f"Aggregator {cls.__name__}: its results go to one category, not to several.")
        if cls.writes and cls.store == Remote(Writing.APPEND):
            raise DeclarationError(
                f"Aggregator {cls.__name__} writes its results to {_as_tuple(cls.writes)[0].name}, but appends to a remote store "
                "without reading it, so it never knows a result. Use Writing.READ_MERGE_WRITE, or declare `writes = ()` and ask the "
                "store with `penstock query`."
            )
        _check_ends(cls)


def _check_ends(cls: type[Aggregator]) -> None:
    """Raise DeclarationError where windows are to end that cannot, or events to be late that cannot be."""
    if cls.allowed_lateness < timedelta():
        raise DeclarationError(
            f"Aggregator {cls.__name__}: an allowed lateness of {cls.allowed_lateness} is below zero."
        )
    if cls.late is OnLate.INTO_WINDOW and cls.allowed_lateness:
        raise DeclarationError(
            f"Aggregator {cls.__name__} allows a lateness of {cls.allowed_lateness}, but does not say what becomes of later events: "
            "declare `late = penstock.OnLate.DROP`, or a category that they go to. As it is, all go into their windows, however late."
        )
    if not cls.windows_end():
        return
    if isinstance(cls.window, Ever) and not cls.emit == AtCheckpoint(differences=True):
        raise DeclarationError(
            f"Aggregator {cls.__name__}: its one window holds all of time, so it is never complete and no event is late for it. "
            "Declare a `window`, such as penstock.Tumbling(timedelta(hours=1))."
        )
    if isinstance(cls.store, Remote):
        raise DeclarationError(
            f"Aggregator {cls.__name__}: windows end where one shard alone knows all of them, and a remote store is shared. Keep the "
            "state local, or leave `emit` and `late` as they are and ask the store for the window with `penstock query`."
        )
    if isinstance(cls.emit, AtWatermark) and not cls.writes:
        raise DeclarationError(f"Aggregator {cls.__name__} writes at the watermark, but no category: declare `writes`.")
    if isinstance(cls.late, Category) and any(category.record is not cls.late.record for category in cls.inputs()):
        raise DeclarationError(
            f"Aggregator {cls.__name__} sends late events to {cls.late.name}, which holds {cls.late.record.__name__}: it must hold "
            "the record that the processor reads."
        )


def _as_tuple(categories: AnyCategory | tuple[AnyCategory, ...]) -> tuple[AnyCategory, ...]:
    return categories if isinstance(categories, tuple) else (categories,)


def _key_name(processor: type[Processor]) -> str:
    key = processor.inputs()[0].key
    return key if isinstance(key, str) else key.__qualname__


def _expect_category(owner: type[Processor], value: object) -> None:
    if not isinstance(value, Category):
        raise DeclarationError(f"Processor {owner.__name__}: {value!r} is not a category.")
