"""Which results of an app can be served, and how they follow from messages.

aggregator --results--> category --> key and window: one record
    stateless processors after it --> the same, with the records that they make of it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import inspect as shapes

from ....processors import DeclarationError, PenstockError, did_you_mean
from ....processors.apps import App
from ....processors.declare import (
    Aggregator,
    AnyCategory,
    KeyedProcessor,
    Processor,
    Stateful,
    Stateless,
    as_tuple,
    fields_of,
    find_field,
    is_async,
    plan_of,
    without_null,
)
from ....processors.time import GlobalWindow, Window
from .result_table import Result

_NUMBERS = (shapes.IntType, shapes.FloatType)
_ONLY_SLOT = 0
"""The slot of all results without windows."""


class NotServable(PenstockError):
    """The results of a processor do not follow from a category: declare an output, or query its store."""


@dataclass(frozen=True)
class ServedProcessor:
    """A processor with results that the query server answers for.

    Args:
        processor: its class.
        source: the aggregator or stateful processor whose output has one record for each key and window.
        steps: the stateless processors between them, in order; the last one is `processor`.
        upstream: the names of all processors of the app that the results depend on.
    """

    processor: type[Processor]
    source: type[Aggregator | Stateful]
    steps: tuple[type[Stateless], ...]
    upstream: frozenset[str]

    @property
    def name(self) -> str:
        """The name of the processor."""
        return self.processor.name

    @property
    def followed(self) -> AnyCategory:
        """The category that the server reads."""
        source: type[KeyedProcessor] = self.source
        return plan_of(source).outputs[0]

    @property
    def category(self) -> AnyCategory:
        """The category with the records of the answers."""
        return plan_of(self.processor).outputs[0]

    @property
    def is_windowed(self) -> bool:
        """Whether there is a result for each window of a key, not only a latest one."""
        return issubclass(self.source, Aggregator) and not isinstance(self.source.window, GlobalWindow)

    def slots_at(self, time_ms: int) -> list[int]:
        """Return the slots of the windows that contain a time.

        Raises:
            DeclarationError: the windows do not follow from a time.
        """
        if not issubclass(self.source, Aggregator) or plan_of(self.source).windows_follow_events:
            raise DeclarationError(
                f"The windows of {self.name} follow from the events of each key, so a time names none. Ask for a time span with from and to."
            )
        return list(self.source.window.assign([time_ms]).starts) if self.is_windowed else [_ONLY_SLOT]

    def spellings(self, key: str) -> Sequence[str]:
        """Return the keys that a user may mean: a computed key of one column is the JSON of a list, and the column alone means it, too."""
        if isinstance(self.followed.key, str):
            return (key,)
        return (key, msgspec.json.encode([key]).decode(), f"[{key}]")

    def results(self, records: Sequence[Any]) -> list[Result]:
        """Return the results of records of the followed category, in order.

        Raises:
            Exception: a stateless processor raised.
        """
        category = self.followed
        keyed = zip(category.keys_of(records), category.event_times_of(records), records, strict=True)
        return [Result(key, *self._place(time_ms), time_ms, self._answers(record)) for key, time_ms, record in keyed]

    def _place(self, time_ms: int) -> tuple[int, Window | None]:
        """Return the slot and the window of a result."""
        if not issubclass(self.source, Aggregator) or not self.is_windowed:
            return _ONLY_SLOT, None
        if plan_of(self.source).windows_follow_events:
            return time_ms, None
        starts = self.source.window.assign([time_ms]).starts
        start = time_ms if time_ms in starts else starts[0] if len(starts) == 1 else None
        return (time_ms, None) if start is None else (start, self.source.window.window(start))

    def _answers(self, record: Any) -> Sequence[Any]:
        records = (record,)
        for step in self._instances:
            records = tuple(made for each in records for made in step.process(each))
        return records

    @cached_property
    def _instances(self) -> list[Any]:
        return [step() for step in self.steps]

    @cached_property
    def numbers(self) -> Mapping[str, str]:
        """The numeric fields of the records, by name on the bus, with the name of their attribute; without key and event time."""
        return self._fields_of(_NUMBERS)

    @cached_property
    def texts(self) -> Sequence[str]:
        """The attributes of the fields with text, without the key."""
        return list(self._fields_of((shapes.StrType,)).values())

    def _fields_of(self, kinds: tuple[type[shapes.Type], ...]) -> dict[str, str]:
        category = self.category
        roles = {*category.key_fields, category.times.field, "window_start", "window_end"}
        return {
            name: field.name
            for name, field in fields_of(category.record).items()
            if name not in roles and isinstance(without_null(field.type)[0], kinds)
        }

    def weight(self, name: str | None) -> attrgetter[Any]:
        """Return the getter of the field that ranks records.

        Args:
            name: the field; None for the only numeric one.

        Raises:
            DeclarationError: there is no such numeric field, or several and none is named.
        """
        if name is None and len(self.numbers) == 1:
            [name] = self.numbers
        if name is None or name not in self.numbers:
            which = "needs a field to rank by" if name is None else f"has no numeric field {name!r}"
            raise DeclarationError(
                f"{self.name} {which}. Name one of these fields as `by`: {', '.join(self.numbers) or 'none'}.{did_you_mean(name or '', list(self.numbers))}"
            )
        return attrgetter(find_field(self.category.name, "by", self.category.record, name).attribute)


def served_processors(app: App, names: Iterable[str] = ()) -> list[ServedProcessor]:
    """Return the processors of an app whose results can be served.

    Args:
        app: the app.
        names: the processors to serve, by class name or declared name; without names, all aggregators, and the stateless processors after
            them.

    Raises:
        AppFileError: the app has no such processor.
        NotServable: a named processor has no results by key, or the app has no processor with results.
    """
    chosen = [app.processor(name) for name in names]
    if chosen:
        return [_served(app, processor) for processor in chosen]
    found = [served for processor in app.processors if isinstance(served := _find(app, processor), ServedProcessor)]
    aggregated = [each for each in found if issubclass(each.source, Aggregator)]
    if not aggregated:
        raise NotServable(
            f"App {app.name} has no aggregator with an output, so there are no results to serve. Nothing was started. Name a stateful processor "
            "after the app, or declare `writes` for an aggregator."
        )
    return aggregated


def _served(app: App, processor: type[Processor]) -> ServedProcessor:
    found = _find(app, processor)
    if isinstance(found, str):
        raise NotServable(f"{processor.name} cannot be served: {found} Nothing was started.")
    return found


def _find(app: App, processor: type[Processor]) -> ServedProcessor | str:
    """Return a processor with its source, or the reason why it has none."""
    source, steps = processor, list[type[Stateless]]()
    while issubclass(source, Stateless):
        if is_async(source.process):
            return f"{source.__name__} is asynchronous, and the server would wait for it."
        steps.insert(0, source)
        read = [category.name for category in plan_of(source).sources]
        writers = [each for each in app.processors if read[0] in [category.name for category in as_tuple(each.writes)]]
        if len(read) > 1 or len(writers) != 1:
            return "it does not read the results of one aggregator."
        [source] = writers
    if not issubclass(source, (Aggregator, Stateful)):
        return "only aggregators, stateful processors and stateless processors after them have results by key."
    reason = _unreadable(source, steps)
    if reason is not None:
        return reason
    return ServedProcessor(processor, source, tuple(steps), frozenset(_upstream(app, processor)))


def _unreadable(source: type[Aggregator | Stateful], steps: Sequence[type[Stateless]]) -> str | None:
    """Return the reason why the outputs of a source and the steps after it are no results by key; None if they are."""
    if any(len(as_tuple(each.writes)) != 1 or plan_of(each).sinks for each in (source, *steps)):
        return "each processor on the way must write exactly one category. `penstock query --store` reads a remote store without output."
    elsewhere = [
        category.cluster
        for each in (source, *steps)
        for category in plan_of(each).outputs
        if category.cluster is not None
    ]
    if elsewhere:
        return f"its results are on cluster {elsewhere[0]}, and the server reads the main cluster."
    if issubclass(source, Aggregator) and source.emit.differences:
        return "it writes differences instead of results. Remove `differences=True` from `emit`."
    return None


def _upstream(app: App, processor: type[Processor]) -> Iterable[str]:
    """Yield the names of a processor and of all processors before it."""
    yield processor.name
    read = {category.name for category in plan_of(processor).sources}
    for other in app.processors:
        if other is not processor and read & {category.name for category in plan_of(other).outputs}:
            yield from _upstream(app, other)
