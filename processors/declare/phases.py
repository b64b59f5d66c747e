"""The two phases of an aggregator.

    input, in its own buckets --Partials--> <name>.partials, by group --the aggregator over PartialsOf(monoid)--> results

The first phase writes the partial of each group and window since the last checkpoint, exactly once, and keeps no totals. A partial has the last
millisecond of its window as event time. So the watermarks of the first phase are those of its input: the second phase completes each window
when the input has passed its end, and finds the partials late whose events are late.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache, cached_property
from typing import Any, ClassVar

from ..monoids import Monoid
from ..time import GlobalWindow, Tumbling, UpstreamWatermark, Window, WindowAssigner, WindowAssignment
from .aggregator import Aggregator, AggregatorPlan
from .categories import AnyCategory, Category, size_settings
from .emission import AtCheckpoint, OnLate
from .keys import KeyCodec
from .partitioner import Partitioner
from .plan import plan_of
from .processor import ErrorPolicy, Processor
from .records import Record
from .semantics import Semantics
from .stores import LocalStore
from .two_phase import TwoPhase

_PARTIALS_OF_GLOBAL_WINDOW = Tumbling(timedelta(hours=1))
"""The windows of the partials of a window that never ends. They have event times, and fall on days of the archive."""


class Partial(Record, frozen=True):
    """The partial of a group and a window since the last checkpoint of a shard.

    Args:
        key: the key of the group.
        at: the last millisecond of the window.
        partial: the encoded partial.
    """

    key: str
    at: int
    partial: bytes


class PartialsOf(Monoid[Any]):
    """A monoid whose observations are encoded partials of another one.

    Args:
        inner: the other monoid.
    """

    def __init__(self, inner: Monoid[Any]) -> None:
        self.inner = inner
        self.commutative = inner.commutative

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    def identity(self) -> Any:
        """Return the inner identity."""
        return self.inner.identity()

    def lift(self, observation: bytes) -> Any:
        """Return the decoded partial."""
        return self.inner.decode(observation)

    def combine(self, left: Any, right: Any) -> Any:
        """Return the combined inner partials."""
        return self.inner.combine(left, right)

    def value(self, partial: Any) -> Any:
        """Return the inner value."""
        return self.inner.value(partial)

    def dump(self, value: Any) -> Any:
        """Return the dumped inner partial."""
        return self.inner.dump(value)

    def load(self, dumped: Any) -> Any:
        """Return the loaded inner partial."""
        return self.inner.load(dumped)

    def same(self, left: Any, right: Any) -> bool:
        """Return the inner monoid's answer."""
        return self.inner.same(left, right)

    def within_error(self, left: Any, right: Any, /) -> bool | None:
        """Return the inner monoid's answer."""
        return self.inner.within_error(left, right)


class Partials(Aggregator):
    """The first phase of an aggregator. Created by `in_phases`, as a base of the aggregator's own class."""

    groups: ClassVar[TwoPhase]
    """The declaration, with the key of the groups."""

    def group_keys(self, category: AnyCategory, events: Sequence[Any]) -> list[str]:
        """Return the key of the group of each event."""
        keyed = self._keyed.get(category.name)
        if keyed is None:
            keyed = self._keyed[category.name] = _by_group(category, self.groups)
        return keyed.computed_keys_of(events)

    @cached_property
    def _keyed(self) -> dict[str, AnyCategory]:
        """The inputs by name, with the key of the groups as their key."""
        return {}

    def record_of(self, key: str, window: Window, partial: Any) -> Partial:
        """Return the record of a partial."""
        return Partial(key, window.end - 1, self.monoid.encode(partial))


class PartialsPlan(AggregatorPlan, of=Partials):
    """The plan of a `Partials`."""

    declaration: type[Partials]

    @property
    def checks_keys(self) -> bool:
        """False: a group may be in every bucket."""
        return False

    @property
    def key_name(self) -> str:
        """The name of the key of the groups."""
        return _by_group(self.sources[0], self.declaration.groups).key_name

    def output_watermark_ms(self, low_ms: int) -> int:
        """Return the low watermark: a partial of an incomplete window has a later event time."""
        return low_ms

    @property
    def state_shape(self) -> str:
        """The monoid, the windows and the key of the groups."""
        cls = self.declaration
        return f"{cls.monoid!r} in {cls.window!r} by {self.key_name}, in phases, not yet written"


class _Combining(Aggregator):
    """The second phase of an aggregator."""

    def observe(self, event: Any) -> bytes:
        """Return the encoded partial."""
        partial: bytes = event.partial
        return partial

    def windows_of(self, event_times: Sequence[int]) -> WindowAssignment:
        """Return the window that ends with each partial."""
        if isinstance(self.window, GlobalWindow):
            return self.window.assign(event_times)
        size_ms = self.window.window(0).end
        return WindowAssignment(range(len(event_times)), [at + 1 - size_ms for at in event_times])


def in_phases(processors: Iterable[type[Processor]]) -> list[type[Processor]]:
    """Return processors with both phases of each aggregator that declares two."""
    return [phase for processor in processors for phase in _phases_or_itself(processor)]


def _phases_or_itself(processor: type[Processor]) -> tuple[type[Processor], ...]:
    if issubclass(processor, Aggregator) and processor.two_phase is not None:
        return _phases_of(processor, processor.two_phase)
    return (processor,)


@cache
def _phases_of(aggregator: type[Aggregator], declared: TwoPhase) -> tuple[type[Partials], type[Aggregator]]:
    partials: Category[Partial] = Category(
        declared.partials or f"{aggregator.name}.partials",
        Partial,
        "key",
        "at",
        buckets=declared.buckets,
        settings=size_settings(plan_of(aggregator).sources),
    )
    return _first_phase(aggregator, declared, partials), _second_phase(aggregator, partials)


def _first_phase(aggregator: type[Aggregator], declared: TwoPhase, partials: Category[Partial]) -> type[Partials]:
    is_global = isinstance(aggregator.window, GlobalWindow)
    window: WindowAssigner = _PARTIALS_OF_GLOBAL_WINDOW if is_global else aggregator.window
    members: dict[str, Any] = {
        "__module__": aggregator.__module__,
        "__doc__": f"The first phase of {aggregator.__name__}.",
        "name": f"{aggregator.name}_partials",
        "two_phase": None,
        "groups": declared,
        "writes": partials,
        "window": window,
        "emit": AtCheckpoint(differences=True),
        "late": OnLate.INTO_WINDOW,
        "allowed_lateness": timedelta(),
        "max_output_delay": timedelta(),
        "store": LocalStore(),
        "estimates": {},
        "state_semantics": Semantics.EXACTLY_ONCE,
        "output_semantics": Semantics.EXACTLY_ONCE,  # a repeated partial would count its events twice
        "observe_columns": Aggregator.observe_columns,
        "columns": None,
    }
    is_sql = aggregator.__name__ == aggregator.name
    return type(f"{aggregator.__name__}{'_partials' if is_sql else 'Partials'}", (Partials, aggregator), members)


def _by_group(category: AnyCategory, declared: TwoPhase) -> AnyCategory:
    """Return a category with the key of the groups. It computes keys, and is not on the bus."""
    return replace(category, key=declared.key, key_codec=KeyCodec.TEXT, partitioner=Partitioner.MURMUR2)


def _second_phase(aggregator: type[Aggregator], partials: Category[Partial]) -> type[Aggregator]:
    members: dict[str, Any] = {
        "__module__": aggregator.__module__,
        "__doc__": aggregator.__doc__,
        "name": aggregator.name,
        "two_phase": None,
        "reads": partials,
        "monoid": PartialsOf(aggregator.monoid),
        "watermark": UpstreamWatermark(),
        "max_future": None,  # the end of a window is after its events
        "compaction_safe": False,
        "on_error": ErrorPolicy.STOP,  # the user's code has accepted the events
        "observe_columns": Aggregator.observe_columns,
        "columns": None,
    }
    return type(aggregator.__name__, (_Combining, aggregator), members)
