"""Processors that take columns: a hundred thousand events at a time, without a Python object for each.

What they give for the first events of each task is compared with what the same processor gives for them one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...processors.declare.aggregator import Aggregator
from ...processors.declare.stateless import Stateless
from ...processors.monoids.equality import alike
from ...processors.time.windows import Tumbling, WindowAssigner
from ..errors import BackfillFailed
from ..sources.files import Planned
from ..spark.batches import Batches
from ..warehouse.columns import EVENT_MARKS, Columns
from ..warehouse.layout import StoredFile
from .grouped_partials import Groups, partials_of, plain
from .step import Step

CHECKED_EVENTS = 200
"""How many events of a task are also taken one by one."""
COLUMNS_EVENTS = 100_000
"""How many events a processor is given at a time."""

T = TypeVar("T")


@dataclass(frozen=True)
class Reading:
    """What a task reads for a processor that takes columns.

    Args:
        step: whose.
        planned: which events.
        files: those that the task has.
    """

    step: Step
    planned: Planned
    files: Sequence[StoredFile]

    def mapped(self) -> Batches:
        """Give the outputs of a stateless processor."""
        processor = cast("Stateless", self.step.opened.processor)
        self._expect_same_outputs(processor)
        for batch in self._batches(_names(self.step, processor.columns, ())):
            given = self._asked(batch, processor.process_columns, processor.columns)
            for part in given.to_batches() if isinstance(given, pa.Table) else [given]:
                self.step.counters.events_out.add(part.num_rows)
                yield self.step.opened.rows.of_columns(part)

    def folded(self) -> Iterator[Folded]:
        """Give the partials of an aggregator, some events at a time."""
        processor = cast("Aggregator", self.step.opened.processor)
        self._expect_same_observations(processor)
        key, event_time = str(self.step.input.key), self.step.input.event_time
        for batch in self._batches(_names(self.step, processor.columns, (key, event_time))):
            observed = self._asked(batch, processor.observe_columns, processor.columns)
            there = pc.is_valid(observed)
            keys, times = (batch.column(name).filter(there) for name in (key, event_time))
            slots, rows, groups = _slots(processor.window, keys, times)
            observations = observed.filter(there)
            if rows is not None:
                observations = observations.take(rows)
            partials = partials_of(processor.monoid, observations, groups, len(slots))
            yield Folded(slots, partials, batch.column("_bucket")[0].as_py(), batch.column("_offset")[0].as_py())

    def _batches(self, names: Sequence[str]) -> Batches:
        for batch in self.step.taken(self.planned.read(self.files, names, COLUMNS_EVENTS)):
            self.step.counters.events_in.add(batch.num_rows)
            if batch.num_rows:
                yield batch

    def _asked(self, batch: pa.RecordBatch, ask: Callable[[pa.RecordBatch], T], names: Sequence[str] | None) -> T:
        """Ask the user's code."""
        columns = self.step.columns
        events = columns.filled(batch, columns.schema.names if names is None else names)
        try:
            return ask(events)
        except Exception as error:
            places = [
                f"{self.step.category}/{batch.column('_bucket')[at]} at offset {batch.column('_offset')[at]}"
                for at in (0, -1)
            ]
            raise BackfillFailed(
                f"{self.step.processor}.{ask.__name__} raised {type(error).__name__}: {error}, for the events from {places[0]} to {places[1]}. "
                "Nothing of its output was published. Mend it; or leave it out, and the events are taken one by one."
            ) from error

    def _first(self) -> pa.RecordBatch | None:
        """Return the first events, whole."""
        return next(self.step.taken(self.planned.read(self.files, self.step.fields, CHECKED_EVENTS)), None)

    def _expect_same_outputs(self, processor: Stateless) -> None:
        first = self._first()
        if first is None:
            return
        process = processor.for_batch(events := self.step.columns.records(first))
        one_by_one = [output for event in events for output in process(event)]
        given = self._asked(first, processor.process_columns, processor.columns)
        rows = pa.Table.from_batches([given]) if isinstance(given, pa.RecordBatch) else given
        at_once = self._records(rows)
        self._expect_same(at_once, one_by_one, "process_columns", "process")

    def _records(self, rows: pa.Table) -> list[Any]:
        [category] = self.step.opened.processor.outputs()
        columns = Columns(category.record)
        found = self.step.opened.rows
        return [one for part in rows.to_batches() for one in columns.records(found.own(found.of_columns(part)))]

    def _expect_same_observations(self, processor: Aggregator) -> None:
        first = self._first()
        if first is None:
            return
        one_by_one = list(map(processor.observe, self.step.columns.records(first)))
        at_once = plain(self._asked(first, processor.observe_columns, processor.columns))
        self._expect_same(at_once, one_by_one, "observe_columns", "observe")

    def _expect_same(self, at_once: Sequence[Any], one_by_one: Sequence[Any], of_columns: str, of_one: str) -> None:
        for left, right in zip(at_once, one_by_one, strict=False):
            if not (left == right or alike(left, right)):
                raise self._differ(f"{of_columns} gives {left!r} where {of_one} gives {right!r}")
        if len(at_once) != len(one_by_one):
            raise self._differ(
                f"{of_columns} gives {len(at_once)} for events for which {of_one} gives {len(one_by_one)}"
            )

    def _differ(self, how: str) -> BackfillFailed:
        return BackfillFailed(
            f"{self.step.processor}: {how}. They have to agree, or batch and stream do not. Nothing of its output was published; mend one of them."
        )


class Folded(NamedTuple):
    """Partials of some events.

    Args:
        slots: key and start of window of each.
        partials: of the same number.
        bucket: where the first of the events lay.
        offset: and at which offset.
    """

    slots: list[tuple[str, int]]
    partials: list[Any]
    bucket: int
    offset: int


def _names(step: Step, columns: Sequence[str] | None, besides: Sequence[str]) -> list[str]:
    """Return which columns are read."""
    wanted = step.columns.schema.names if columns is None else columns
    return list(dict.fromkeys([*wanted, *besides, *EVENT_MARKS]))


def _slots(
    window: WindowAssigner, keys: pa.Array[Any], times: pa.Array[Any]
) -> tuple[list[tuple[str, int]], pa.Array[Any] | None, Groups]:
    """Return the keys and windows there are, the events' rows where some lie in several windows, and the slot of each of those."""
    if isinstance(window, Tumbling):
        at = times.to_numpy()
        rows, starts = None, at - at % window.length_ms
    else:
        spread = window.spread(times.to_numpy().tolist())
        rows, starts = pa.array(spread.rows, pa.int64()), np.array(spread.starts, np.int64)
    encoded = (keys if rows is None else keys.take(rows)).dictionary_encode()
    names = encoded.dictionary.cast(pa.string()).to_pylist()
    begins, begin = np.unique(starts, return_inverse=True)
    pairs, groups = np.unique(encoded.indices.to_numpy().astype(np.int64) * len(begins) + begin, return_inverse=True)
    beginnings = begins.tolist()
    slots = [(names[pair // len(begins)], beginnings[pair % len(begins)]) for pair in pairs.tolist()]
    return slots, rows, groups.astype(np.int64)
