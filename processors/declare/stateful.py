"""The kind that keeps a state, and timers, for each key."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, get_origin

import msgspec

from ..errors import DeclarationError
from ..time.timers import Timer
from ..validation import is_class
from .categories import AnyCategory, Category
from .context import Context
from .emission import OnLate
from .processor import ErrorPolicy, KeyedProcessor, key_name
from .records import Record, type_name
from .semantics import expect_pair

_BY = " by "
_IN = " in "
"""In the shape of an aggregator's state it stands before the key, in that of no type."""


class Stateful(KeyedProcessor):
    """Per key: state and events out. Events of one key come one after the other, in bus order.

    Class attributes:
        state: the type of a key's state: a frozen Record, or an immutable value such as a number, a str or a tuple.
        ordered: whether its events are held until the low watermark has passed them, and come in order of event time; those of one
            time in an order of their own, which is always the same. What it gives then depends on the events alone.
        late: of an ordered one, what becomes of events that come after the watermark: `OnLate.DROP`, which counts them, or a category
            of the input's record type, to which they go.
    """

    state: ClassVar[Any]
    buffers_events: ClassVar[bool] = False
    """Whether the state holds nothing but events, which fit since they were read; so it is with joins."""
    ordered: ClassVar[bool] = False
    late: ClassVar[OnLate | AnyCategory] = OnLate.DROP

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
    def uses_event_time(cls) -> bool:
        """Whether it may look at the watermark, or has timers: any may."""
        return True

    @classmethod
    def emits_without_input(cls) -> bool:
        """Whether it has timers, or holds events until their turn comes."""
        return cls.has_timers() or cls.ordered

    @classmethod
    def can_drop_late(cls) -> bool:
        """Whether an event may come too late for it: where its events come in order, or have windows."""
        return cls.ordered

    @classmethod
    def saved_type(cls) -> Any:
        """Return the type of what is saved of a key."""
        return cls.state

    @classmethod
    def map_states(cls, saved: Any, change: Callable[[Any], Any]) -> Any:
        """Return what is saved of a key with every state in it changed; None where nothing is left.

        Args:
            saved: what is saved, of whatever type the states in it are.
            change: gives what a state becomes; None for nothing.
        """
        return change(saved)

    @classmethod
    def state_shape(cls) -> str:
        """Return the type of a key's state, and what the key is."""
        return f"{type_name(cls.state)}{_BY}{key_name(cls)}"

    @classmethod
    def differs_only_in_state_type(cls, shape: str) -> bool:
        """Tell whether a shape is that of a processor such as this one, but for the type of a key's state."""
        theirs, ours = shape.partition(_BY), cls.state_shape().partition(_BY)
        return theirs[0] != ours[0] and theirs[1:] == ours[1:] and _IN not in theirs[0]

    @classmethod
    def check(cls) -> None:
        """Also: semantics that go together, and a state type that can be saved and not be changed behind the engine's back."""
        super().check()
        expect_pair(f"Stateful processor {cls.__name__}", cls.state_semantics, cls.output_semantics)
        if not hasattr(cls, "state"):
            raise DeclarationError(
                f"Stateful processor {cls.__name__}: declare `state = …`, the type of a key's state."
            )
        _check_order(cls)
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
            msgspec.msgpack.Decoder(cls.saved_type())
        except (TypeError, NameError) as error:
            raise DeclarationError(
                f"Stateful processor {cls.__name__}: state of type {cls.state!r} cannot be saved: {error}."
            ) from error


def _check_order(cls: type[Stateful]) -> None:
    """Raise DeclarationError where events cannot be delivered in order, or be late."""
    if cls.late is OnLate.INTO_WINDOW:
        raise DeclarationError(
            f"Stateful processor {cls.__name__} has no windows for late events to go into: `late` is penstock.OnLate.DROP or a category."
        )
    if isinstance(cls.late, Category) and not cls.can_drop_late():
        raise DeclarationError(
            f"Stateful processor {cls.__name__} takes its events as they come, so none is too late for it: declare `ordered = True`, or "
            "look at `context.late`."
        )
    if cls.ordered and cls.on_error is ErrorPolicy.DEAD_LETTER:
        raise DeclarationError(
            f"Stateful processor {cls.__name__}: in order, an event raises long after it was read, when its message is not at hand any "
            "more for a dead letter. Declare `on_error = penstock.ErrorPolicy.STOP`, or let `process` itself say what becomes of it."
        )
