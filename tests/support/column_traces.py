"""Everything that a stream leaves behind, in columns and event by event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import penstock as ps
from penstock.ops.kernel import Driver
from penstock.ops.kernel.loop import batch_intake, batch_sizer
from penstock.processors import PenstockError
from penstock.processors.declare import dead_letters_of, plan_of
from penstock.transport import Bucket

START_MS = 1_700_000_000_000


def traces_of_both(processor: type[ps.Processor], chunks: Sequence[Sequence[Any]]) -> tuple[list[Any], list[Any]]:
    """Return what a run leaves behind after each chunk of events or messages: in columns, and event by event."""
    by_event = _by_event(processor)
    # Several batches between two checkpoints, so that partials grow.
    with patch.object(batch_intake, "LEAST_COLUMNS", 1), patch.multiple(batch_sizer, FIRST_BATCH=5, MAX_GROWTH=1):
        return _traces(processor, chunks), _traces(by_event, chunks)


def _by_event(processor: type[ps.Processor]) -> type[ps.Processor]:
    """Return a processor that gets no columns."""
    by_event = type(processor.__name__, (processor,), {})

    kind: Any = type(plan_of(processor))

    class ByEvent(kind, of=by_event):  # type: ignore[misc, call-arg]  # a dynamic base
        """A plan without columns."""

        @property
        def stream_columns(self) -> None:
            return None

    return by_event


def _traces(processor: type[ps.Processor], chunks: Sequence[Sequence[Any]]) -> list[Any]:
    driver = Driver(processor, start_ms=START_MS + 60_000)
    [source] = plan_of(processor).sources
    found: list[Any] = []
    for chunk in chunks:
        try:
            driver.send(source, chunk)
        except PenstockError as error:
            found.append(f"{type(error).__name__}: {error}")
        found += [_messages(driver, category) for category in (*plan_of(processor).outputs, dead_letters_of(processor))]
        found.append(_states(driver, processor))
        metrics = driver.metrics(processor).counts()
        found.append({name: value for name, value in metrics.items() if isinstance(value, int)})
        worker = driver._workers[processor]
        found.append([(shard.number, shard.position, shard.operator.time.low_ms) for shard in worker.shards])
    return found


def _messages(driver: Driver, category: ps.Category[Any]) -> list[Any]:
    ends = driver.bus.describe(category.name).ends
    return [
        (number, message.offset(), message.key(), message.value(), message.timestamp(), message.headers())
        for number, end in sorted(ends.items())
        for message in driver.bus.slice(Bucket(category.name, number), 0, end)
    ]


def _states(driver: Driver, processor: type[ps.Processor]) -> list[Any]:
    folder = driver._states[processor]
    return [state.scan(b"", b"\xff" * 20, 10_000) for state in folder._shards.values()]
