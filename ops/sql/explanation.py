"""Explanations of SQL files: the processors that their queries become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ...processors import counted, human_duration
from ...processors.apps import App, expect_processors, sql_app
from ...processors.declare import (
    Aggregator,
    AnyCategory,
    AtCheckpoint,
    Join,
    KeyedProcessor,
    OnLate,
    Partial,
    Partials,
    Processor,
    Stateful,
    Stateless,
    TableJoin,
    flat_fields,
    plan_of,
)
from ...processors.lookups import LookupJoin
from ...processors.sql import GROUP_KEY, Relation, SqlApp
from ...processors.time import GlobalWindow, Hopping, Session, Tumbling, WindowAssigner

_SPREAD = (
    "if a few groups have most of the events, write WITH (two_phase = true): workers then combine events before they write "
    "them under the key of the group"
)
_KINDS: dict[type[Processor], str] = {
    Partials: "first phase of an aggregator",
    Aggregator: "aggregator",
    Join: "join of two streams",
    TableJoin: "join with a table",
    LookupJoin: "join with a lookup table",
    Stateful: "first row of each key",
    Stateless: "stateless",
}
"""The names of the kinds of processors; of a subclass and its base, the subclass comes first."""


@dataclass(frozen=True)
class CategoryUse:
    """A category that a processor reads or writes.

    Args:
        name: its name on the bus.
        key: its key; None if the buckets of its events are unknown.
        buckets: its number of buckets.
        internal: whether the file declares no table for it.
        updates: whether a row of it replaces the earlier row of its key.
    """

    name: str
    key: str | None
    buckets: int
    internal: bool
    updates: bool

    def __str__(self) -> str:
        key = "without a key" if self.key is None else f"by {self.key}"
        notes = f"{', internal' if self.internal else ''}{', updates' if self.updates else ''}"
        return f"{self.name} {key}, {counted(self.buckets, 'bucket')}{notes}"


@dataclass(frozen=True)
class ExplainedProcessor:
    """A processor of an SQL file.

    Args:
        name: its name.
        kind: its kind.
        reads: the categories that it reads.
        writes: the categories that it writes.
        processing: whether it processes columns, or event by event and why; None for a kind that never has columns.
        lookup: the source of its rows; None unless it is a join with a lookup table.
        key: the key of its state; None without state.
        window: its windows; None without windows.
        emission: when it writes results; None for a processor that writes the outputs of each event.
        late: what happens to late events; None if no event is late.
        state: its state semantics; None without state.
        output: its output semantics.
        query: the query of the table for which it works, as written.
        advice: how to spread the events of large groups over more workers; None if the query cannot, or does.
    """

    name: str
    kind: str
    reads: tuple[CategoryUse, ...]
    writes: tuple[CategoryUse, ...]
    processing: str | None
    lookup: str | None
    key: str | None
    window: str | None
    emission: str | None
    late: str | None
    state: str | None
    output: str
    query: str
    advice: str | None

    def facts(self) -> Mapping[str, str]:
        """Return the lines of the plan by name, without empty ones."""
        named = {
            "reads": "; ".join(map(str, self.reads)),
            "processing": self.processing,
            "looks up": self.lookup,
            "writes": "; ".join(map(str, self.writes)),
            "key": self.key,
            "window": self.window,
            "results": self.emission,
            "late events": self.late,
            "state": self.state,
            "output": self.output,
            "query": self.query,
            "advice": self.advice,
        }
        return {name: value for name, value in named.items() if value is not None}


def explained(path: Path) -> list[ExplainedProcessor]:
    """Return the plans of the processors of an SQL file, upstream ones first.

    Raises:
        AppFileError: there is no query.
        DeclarationError: a statement is invalid, or a processor cannot work.
    """
    compiled = sql_app(path, path.stem)
    app = App.of(compiled.name or path.stem, compiled.processors)
    expect_processors(app, path)
    return [_plan(compiled, processor) for processor in app.processors]


def _plan(compiled: SqlApp, processor: type[Processor]) -> ExplainedProcessor:
    declared = {relation.category.name: relation for relation in compiled.relations.values()}
    is_keyed = issubclass(processor, KeyedProcessor)
    timing = _Timing.of(processor)
    return ExplainedProcessor(
        name=processor.name,
        kind=next(name for kind, name in _KINDS.items() if issubclass(processor, kind)),
        reads=tuple(_use(category, declared) for category in plan_of(processor).sources),
        writes=tuple(_use(category, declared) for category in plan_of(processor).outputs),
        processing=_processing(processor),
        lookup=str(processor.source) if issubclass(processor, LookupJoin) else None,
        key=_key(processor) if issubclass(processor, KeyedProcessor) else None,
        window=timing.window,
        emission=timing.emission,
        late=timing.late,
        state=processor.state_semantics.value if is_keyed else None,
        output=processor.output_semantics.value,
        query=processor.sql_query,
        advice=_SPREAD if processor.name in compiled.spreadable else None,
    )


class _Timing(NamedTuple):
    """The windows of a processor, when it writes results, and what happens to late events."""

    window: str | None = None
    emission: str | None = None
    late: str | None = None

    @staticmethod
    def of(processor: type[Processor]) -> _Timing:
        if issubclass(processor, Join):
            return _Timing(_range(processor))
        if issubclass(processor, Partials):
            return _Timing(_window(processor.window), "partials at each checkpoint")
        if issubclass(processor, Aggregator):
            return _Timing(_window(processor.window), _emission(processor), _late(processor))
        return _Timing()


def _use(category: AnyCategory, declared: Mapping[str, Relation]) -> CategoryUse:
    key, table = None if category.partitioner is None else category.key_name, declared.get(category.name)
    is_updated = table is not None and table.updates is not None
    return CategoryUse(category.name, key, category.buckets, internal=table is None, updates=is_updated)


def _processing(processor: type[Processor]) -> str | None:
    """Return whether a processor processes columns, or event by event and why."""
    if processor.sql_by_event:
        return f"event by event: {processor.sql_by_event}"
    if not plan_of(processor).has_columns_step:
        return None
    plan = plan_of(processor)
    for category in (*plan.sources, *(plan.outputs if issubclass(processor, Stateless) else ())):
        if category.codec != "json" or flat_fields(category.record) is None:
            messages = "fields of other types" if category.codec == "json" else "another format"
            return f"event by event: {category.name} has {messages} than JSON's texts, numbers and booleans; a backfill in columns"
    return "in columns"


def _key(processor: type[KeyedProcessor]) -> str:
    plan = plan_of(processor)
    key = plan.key_name
    is_group = key == GROUP_KEY or plan.inputs[0].record is Partial
    return f"{key}, the values of GROUP BY" if is_group else key


def _window(window: WindowAssigner) -> str | None:
    match window:
        case Tumbling(size):
            return f"tumbling, {human_duration(size.total_seconds())}"
        case Hopping(size, step):
            every = human_duration(step.total_seconds())
            return f"hopping, {human_duration(size.total_seconds())} every {every}"
        case Session(gap):
            return f"sessions with gaps of {human_duration(gap.total_seconds())}"
        case GlobalWindow():
            return None
    return str(window)


def _range(join: type[Join]) -> str:
    before, after = (human_duration(each.total_seconds()) for each in (join.before, join.after))
    return f"from {before} before to {after} after each event of {join.left.name}"


def _emission(aggregator: type[Aggregator]) -> str:
    emit = aggregator.emit
    if isinstance(emit, AtCheckpoint):
        return "updates at each checkpoint"
    if emit.early is None:
        return "at the end of the window"
    return f"updates every {human_duration(emit.early.total_seconds())}, and at the end of the window"


def _late(aggregator: type[Aggregator]) -> str | None:
    if isinstance(aggregator.window, GlobalWindow):
        return None
    return "dropped and counted" if aggregator.late is OnLate.DROP else "added to their window"
