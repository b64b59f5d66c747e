"""Processors that take updates for events: an update replaces the earlier event of its key, and an aggregate or a list of rows contains both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..declare import Aggregator, AnyCategory, AtWatermark, OnLate, Partials, Processor, Stateless, TableJoin, plan_of


@dataclass(frozen=True)
class _Updates:
    """Where the updates in a category come from: the aggregator that writes them, or the compacted category with them."""

    source: type[Aggregator] | AnyCategory
    copier: type[Processor] | None = None

    def advice(self, reader: type[Processor]) -> str:
        """Return what the updates are, and what to declare instead."""
        through = "" if self.copier is None else f" {self.copier.name} passes them on."
        if isinstance(self.source, type):
            name = self.source.name
            return (
                f"whose events are updates: {name} writes a result again when it changes.{through} Each version counts, and their number depends on "
                f"checkpoints. To count each result once, declare `emit = penstock.AtWatermark()` and `late = penstock.OnLate.DROP` on {name}; to add up "
                "results, `emit = penstock.AtCheckpoint(differences=True)`."
            )
        name = "which" if self.copier is None else f"and {self.source.name}"
        return (
            f"{name} is compacted: an event replaces the earlier event of its key, and each version counts.{through} To use the latest event of each key, "
            "read it as the `table` of a penstock.TableJoin. If the latest event of each key produces the same result, declare `compaction_safe = True` on "
            f"{reader.name}."
        )


def counted_updates(processors: Iterable[type[Processor]], app: Iterable[type[Processor]]) -> Iterator[str]:
    """Yield a warning for each aggregator that reads updates, and for each sink without a key to which an aggregator appends them.

    Updates are the events of compacted categories and the changing results of aggregators, also after stateless processors and the streams of table joins
    have passed them on. An aggregator with `compaction_safe = True` declares that its results depend on the latest event of each key only.

    Args:
        processors: the processors to examine.
        app: all processors of their app.
    """
    updates = _updates_in(list(app))
    for processor in processors:
        if issubclass(processor, Aggregator) and not processor.compaction_safe:
            for category in plan_of(processor).inputs:
                if category.name in updates:
                    yield f"{processor.name} aggregates {category.name}, {updates[category.name].advice(processor)}"
        writers = [processor] if issubclass(processor, Aggregator) and _writes_updates(processor) else []
        passed_on = (updates[category.name].source for category in _passed_on(processor) if category.name in updates)
        writers += [source for source in passed_on if isinstance(source, type)]
        for sink in plan_of(processor).sinks:
            for writer in writers if sink.keeps_each_row else ():
                yield (
                    f"{processor.name} appends rows to {sink.name} that are updates: {writer.name} writes a result again when it changes. The sink keeps each "
                    "version, and their number depends on checkpoints. To append each result once, declare `emit = penstock.AtWatermark()` and "
                    f"`late = penstock.OnLate.DROP` on {writer.name}; to replace rows, write to a table with a `key`."
                )


def _updates_in(processors: list[type[Processor]]) -> dict[str, _Updates]:
    """Return the categories whose events are updates."""
    updates = {
        category.name: _Updates(category)
        for each in processors
        for category in plan_of(each).inputs
        if category.compacted
    }
    for each in processors:
        if issubclass(each, Aggregator) and _writes_updates(each):
            updates |= {category.name: _Updates(each) for category in plan_of(each).outputs}
    while more := {
        output.name: _Updates(updates[category.name].source, each)
        for each in processors
        for category in _passed_on(each)
        for output in plan_of(each).outputs
        if category.name in updates and output.name not in updates
    }:
        updates |= more
    return updates


def _passed_on(processor: type[Processor]) -> tuple[AnyCategory, ...]:
    """Return the inputs whose events a processor passes on one by one."""
    if issubclass(processor, TableJoin):
        return (processor.stream,)
    return plan_of(processor).inputs if issubclass(processor, Stateless) else ()


def _writes_updates(processor: type[Aggregator]) -> bool:
    if issubclass(processor, Partials) or processor.emit.differences:
        return False
    is_complete = isinstance(processor.emit, AtWatermark) and processor.emit.early is None
    return not (is_complete and processor.late is not OnLate.INTO_WINDOW)
