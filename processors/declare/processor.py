"""What the three kinds have in common, and what may be chosen for each."""

from __future__ import annotations

import re
from abc import ABC
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, ClassVar, NamedTuple

from ..errors import DeclarationError
from ..time.watermarks import NEVER_MS, Confidence, Watermark
from ..time.windows import MILLISECOND
from ..validation import expect_types, validate_declaration
from .categories import AnyCategory, Category
from .dead_letter_limit import DeadLetterLimit
from .emission import OnLate
from .records import fields_of
from .semantics import Semantics


class ErrorPolicy(Enum):
    """What becomes of an event that cannot be processed."""

    DEAD_LETTER = "dead letter"
    """It goes, with its origin and the reason, to the processor's dead letters; the rest goes on."""
    STOP = "stop"
    """The worker saves what came before it and stops there."""


class ErrorAction(NamedTuple):
    """What becomes of an event for which its processor raised.

    Args:
        reason: what happened, in words.
        stops: whether the worker stops there.
        dropped: whether it is counted and left out, and no more is said of it.
        otherwise: what to declare for the others to go on where it stops.
    """

    reason: str
    stops: bool
    dropped: bool
    otherwise: str


@dataclass(frozen=True)
class CheckpointInterval:
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
        expect_types("Every(…)", self)
        if self.events < 1 or self.size_bytes < 1 or self.time <= timedelta():
            raise DeclarationError(f"{self}: a checkpoint every nothing. Each limit must be above zero.")


class Processor(ABC):
    """What the three kinds have in common; derive from one of them.

    Class attributes:
        reads: the category it reads, or several of the same number of buckets, keyed alike.
        writes: the category it writes; several of different record types; or () for none.
        name: what it is called on the bus (consumer group, dead letters) and on disk; by default the class's name in
            snake_case.
        output_semantics: how often an output appears, whatever dies.
        checkpoint: when a checkpoint is due.
        on_undecodable: what becomes of a message that does not decode.
        on_error: what becomes of an event for which the processor raises.
        on_missing_event_time: what becomes of a message without event time.
        max_future: how far an event time may lie ahead of the event's arrival on the bus; None for any distance, and for event
            times whose unit is not to be doubted.
        on_future_event: what becomes of an event further ahead, which would drag the watermark with it; and of one whose time lies outside of the
            years 1 to 9999 (without `max_future`: beyond 62 bits).
        dead_letter_limit: of how many events its worker stops instead of setting them aside; None for none.
        watermark: how the watermark of each bucket follows from the events that came; or `UpstreamWatermark()`, by those that write it.
        idle_after: after how long without an event (time of day) a bucket that is read to its end holds back others no more; None
            for never.
        outputs_behind: how far the event times of its outputs may lie behind its low watermark, or, for an aggregator, before the
            windows that are not complete; consumers' watermarks lie behind by that.

    Class attributes of those that keep state:
        state_semantics: how often an event counts in the state, whatever dies.
        key_check: whether the worker stops at an event that does not lie in the bucket of its key, as another partitioner or another key of
            the message may have put it; without that, a key whose events lie in several buckets has a state in each.
        deterministic: whether the same events in the same order always give the same state; False where it looks at the
            time, at random numbers or at something outside.
        latest_is_enough: whether the latest event of each key gives the same state as all of its events. A compacted category keeps no
            others, so a state that is lost can be built from it again only then.
    """

    reads: ClassVar[AnyCategory | tuple[AnyCategory, ...]]
    writes: ClassVar[AnyCategory | tuple[AnyCategory, ...]] = ()
    name: ClassVar[str]
    state_semantics: ClassVar[Semantics] = Semantics.EXACTLY_ONCE
    output_semantics: ClassVar[Semantics] = Semantics.AT_LEAST_ONCE
    key_check: ClassVar[bool] = True
    deterministic: ClassVar[bool] = True
    latest_is_enough: ClassVar[bool] = False
    checkpoint: ClassVar[CheckpointInterval] = CheckpointInterval()
    on_undecodable: ClassVar[ErrorPolicy] = ErrorPolicy.DEAD_LETTER
    on_error: ClassVar[ErrorPolicy] = ErrorPolicy.STOP
    on_missing_event_time: ClassVar[ErrorPolicy] = ErrorPolicy.STOP
    max_future: ClassVar[timedelta | None] = timedelta(days=1)
    on_future_event: ClassVar[ErrorPolicy] = ErrorPolicy.DEAD_LETTER
    dead_letter_limit: ClassVar[DeadLetterLimit | None] = DeadLetterLimit()
    watermark: ClassVar[Watermark] = Confidence()
    idle_after: ClassVar[timedelta | None] = timedelta(minutes=1)
    outputs_behind: ClassVar[timedelta] = timedelta()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__).lower()

    def open(self) -> None:  # noqa: B027 - most processors have nothing to load
        """Load what the processor needs, such as a dimension table; called once in each process, before any event."""

    def close(self) -> None:  # noqa: B027 - most processors hold nothing
        """Let go of what `open` took; called once in each worker, when it ends."""

    @classmethod
    def fate_of(cls, error: Exception) -> ErrorAction:
        """Return what becomes of an event for which it raised this."""
        reason = f"{cls.__name__} raised {type(error).__name__}: {error}"
        return ErrorAction(
            reason, cls.on_error is ErrorPolicy.STOP, dropped=False, otherwise="on_error = ErrorPolicy.DEAD_LETTER"
        )

    @classmethod
    def inputs(cls) -> tuple[AnyCategory, ...]:
        """Return the categories it reads."""
        return as_tuple(cls.reads)

    @classmethod
    def outputs(cls) -> tuple[AnyCategory, ...]:
        """Return the categories it writes."""
        return as_tuple(cls.writes)

    @classmethod
    def goes_by_time(cls) -> bool:
        """Whether what it does depends on its low watermark."""
        return False

    @classmethod
    def deletes_from(cls, category: AnyCategory) -> bool:  # noqa: ARG003 - it is a matter of the category for some
        """Whether a message of a category that has a key and no value says that something is gone; else it does not decode."""
        return False

    @classmethod
    def expects_keys(cls) -> bool:
        """Whether what it does is wrong where events of one key lie in several buckets."""
        return False

    @classmethod
    def rebuilds_from_latest(cls) -> bool:
        """Whether its state can be built again from the latest event of each key."""
        return cls.latest_is_enough

    @classmethod
    def answers_later(cls) -> bool:
        """Whether it writes something when no event comes: by timers, for windows that end, or of events that were held."""
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
        validate_declaration(cls, Processor)
        if not hasattr(cls, "reads") or not cls.inputs():
            raise DeclarationError(
                f"Processor {cls.__name__} reads nothing: declare `reads = some_category` on the class."
            )
        for category in cls.inputs() + cls.outputs():
            expect_category(cls, category)
        if len({category.buckets for category in cls.inputs()}) > 1:
            counts = ", ".join(f"{category.name} has {category.buckets}" for category in cls.inputs())
            raise DeclarationError(
                f"Processor {cls.__name__} reads categories that are not co-partitioned: {counts} buckets. Events of one "
                "key would meet in different buckets. Declare the same number, or bring one of them to it first (penstock.Repartition)."
            )
        records = [category.record for category in cls.outputs()]
        if len(set(records)) < len(records):
            raise DeclarationError(
                f"Processor {cls.__name__} writes several categories of the same record type: its outputs are told "
                "apart by their type. Derive a record type for each."
            )


class Remembering(Processor):
    """What the kinds have in common that keep state: what comes after its time may be too late for them.

    Class attributes:
        late: what becomes of events that come too late; a category, of the record type that the processor reads, takes them.
    """

    late: ClassVar[OnLate | AnyCategory]

    @classmethod
    def expects_keys(cls) -> bool:
        """Whether events are to lie in the bucket of their key."""
        return cls.key_check

    @classmethod
    def outputs(cls) -> tuple[AnyCategory, ...]:
        """Return the categories it writes, with that of late events."""
        return super().outputs() + ((cls.late,) if isinstance(cls.late, Category) else ())

    @classmethod
    def check(cls) -> None:
        """Also: a category of late events that can take them."""
        super().check()
        if isinstance(cls.late, Category) and any(category.record is not cls.late.record for category in cls.inputs()):
            raise DeclarationError(
                f"Processor {cls.__name__} sends late events to {cls.late.name}, which holds {cls.late.record.__name__}: it must hold "
                "the record that the processor reads."
            )


def expect_columns(cls: type[Processor], step: str, columns: tuple[str, ...] | None) -> None:
    """Raise DeclarationError for a step over columns where it cannot be told whose columns it is given, or names unknown ones."""
    if len(cls.inputs()) > 1 or len(cls.outputs()) > 1:
        raise DeclarationError(
            f"Processor {cls.__name__} has `{step}`, which takes the columns of one category and gives those of one, but it reads or writes "
            "several. Leave it out: the events are then taken one by one."
        )
    [category] = cls.inputs()
    known = fields_of(category.record)
    unknown = [name for name in columns or () if name not in known]
    if unknown:
        raise DeclarationError(
            f"Processor {cls.__name__}: `columns` names {', '.join(unknown)}, but {category.record.__name__} has only {', '.join(known)}."
        )


def as_tuple(categories: AnyCategory | tuple[AnyCategory, ...]) -> tuple[AnyCategory, ...]:
    """Return one category or several as several."""
    return categories if isinstance(categories, tuple) else (categories,)


def key_name(processor: type[Processor]) -> str:
    """Return what the events of a processor are keyed by, in words."""
    key = processor.inputs()[0].key
    return key if isinstance(key, str) else key.__qualname__


def expect_lateness(owner: type[Processor], allowed: timedelta) -> None:
    """Raise DeclarationError for an allowed lateness that is none, or longer than the bus keeps what comes in it."""
    if allowed < timedelta():
        raise DeclarationError(f"Processor {owner.__name__}: an allowed lateness of {allowed} is below zero.")
    for category in owner.inputs():
        if category.retention is not None and allowed > category.retention:
            raise DeclarationError(
                f"Processor {owner.__name__} allows a lateness of {allowed}, but the bus keeps events of {category.name} for "
                f"{category.retention}: a window that still takes events could not be built again from the bus. Allow less, or keep them "
                f"longer (`retention=…` of the category; None for ever)."
            )


def expect_category(owner: type[Processor], value: object) -> None:
    """Raise DeclarationError for what is no category."""
    if not isinstance(value, Category):
        raise DeclarationError(f"Processor {owner.__name__}: {value!r} is not a category.")
