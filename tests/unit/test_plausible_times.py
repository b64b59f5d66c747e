"""Workers and backfills reject the same events for their times, with the same words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some
from support.step_counts import counters

import penstock as ps
from penstock.backfill import BackfillFailed
from penstock.backfill.archive import archive_schema
from penstock.backfill.spark import ShippedApp
from penstock.backfill.steps import BatchStep
from penstock.backfill.warehouse import RecordColumns
from penstock.processors.apps import AppName
from penstock.processors.declare import Decoded
from penstock.processors.shard import AcceptedBatch, accept_batch
from penstock.processors.time import UNKNOWN_ARRIVAL_MS

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999
LARGEST_MS = 2**62


class Beat(ps.Record, frozen=True):
    """A beat."""

    at: ps.EventTime
    heart: str = "a"


beats = ps.Category("beats", Beat, key="heart", event_time="at", buckets=1)
kept = ps.Category("kept", Beat, key="heart", event_time="at", buckets=1)


class Limited(ps.Stateless):
    """Keeps beats that are not much later than their arrival."""

    reads, writes = beats, kept
    max_future: ClassVar[timedelta | None] = timedelta(days=1)

    def process(self, event: Beat) -> Iterable[Beat]:
        """Return the beat."""
        yield event


class Unlimited(Limited):
    """Keeps beats of all times."""

    max_future = None


class Stopping(Limited):
    """Stops at an implausible time."""

    on_future_event = ps.ErrorPolicy.STOP


EDGES = [FIRST_MS, LAST_MS, LARGEST_MS, -LARGEST_MS, NOW_MS + DAY_MS, DAY_MS, 0]
TIMES = some.sampled_from([edge + by for edge in EDGES for by in (-1, 0, 1)]) | some.integers(-(2**63), 2**63 - 1)
ARRIVALS = some.sampled_from([NOW_MS, 0, UNKNOWN_ARRIVAL_MS])


def step_of(processor: type[ps.Processor]) -> BatchStep:
    """Return a processor's step over the beats of this file."""
    return BatchStep(ShippedApp(AppName(Path(__file__))), processor.__name__, "beats", counters())


def archived(pairs: Sequence[tuple[int, int]]) -> pa.RecordBatch:
    """Return beats as a task reads them, by event time and arrival."""
    columns = RecordColumns(Beat)
    times, arrived = [at for at, _ in pairs], [arrived for _, arrived in pairs]
    marks: list[Any] = [[0] * len(pairs), range(len(pairs)), ["a"] * len(pairs), times, arrived]
    schema = archive_schema(columns)
    arrays = [*columns.arrays([Beat(at) for at in times]), *map(pa.array, marks)]
    return pa.RecordBatch.from_pydict(dict(zip(schema.names, arrays, strict=True)), schema=schema)


def accepted_by_worker(processor: ps.Processor, pairs: Sequence[tuple[int, int]]) -> AcceptedBatch:
    """Return the events that a worker accepts."""
    decoded = Decoded([Beat(at) for at, _ in pairs], range(len(pairs)), [])
    return accept_batch(decoded, beats, np.array([arrived for _, arrived in pairs], np.int64), processor)


def is_plausible(processor: ps.Processor, at: int, arrived: int) -> bool:
    """Return whether the documents promise that an event is processed."""
    if processor.max_future is None:
        return abs(at) <= LARGEST_MS
    return FIRST_MS <= at <= LAST_MS and (arrived == UNKNOWN_ARRIVAL_MS or at - arrived <= DAY_MS)


@pytest.fixture(scope="module", params=[Limited, Unlimited])
def step(request: pytest.FixtureRequest) -> BatchStep:
    """The step of a processor, which has imported this file."""
    step = step_of(request.param)
    assert isinstance(step.opened.processor, ps.Processor)
    return step


@settings(max_examples=60)
@given(pairs=some.lists(some.tuples(TIMES, ARRIVALS), min_size=1, max_size=6))
@example(pairs=[(NOW_MS, UNKNOWN_ARRIVAL_MS), (NOW_MS + 2 * DAY_MS, NOW_MS)])
def test_workers_and_backfills_accept_the_same_times(step: BatchStep, pairs: list[tuple[int, int]]) -> None:
    """An event without a recorded arrival is not too far ahead of it."""
    processor, before = step.opened.processor, step.counters.rejected.value
    of_worker = accepted_by_worker(processor, pairs)
    [of_batch] = step.accepted(iter([archived(pairs)]))
    expected = [at for at, pair in enumerate(pairs) if is_plausible(processor, *pair)]

    assert list(of_worker.at) == of_batch.column("_offset").to_pylist() == expected
    assert len(of_worker.rejected) == step.counters.rejected.value - before == len(pairs) - len(expected)


def test_a_worker_rejects_a_time_beyond_64_bits() -> None:
    """Messages of other programs contain such numbers; no array does."""
    accepted = accepted_by_worker(Unlimited(), [(2**70, NOW_MS), (NOW_MS, NOW_MS)])

    assert [event.reason for event in accepted.rejected] == [
        f"its event time, {2**70}, exceeds 62 bits, so no window or watermark around it could be saved"
    ]
    assert list(accepted.at) == [1]


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (NOW_MS * 1000, "is outside the years 1 to 9999; it looks like microseconds"),
        (
            NOW_MS + 2 * DAY_MS,
            "is 2 days, 0:00:00 ahead of its arrival, more than 1 day, 0:00:00 (`max_future`); probably",
        ),
    ],
)
def test_workers_and_backfills_stop_with_the_same_words(at: int, reason: str) -> None:
    """Both name the value, the rule that it breaks, and the probable cause."""
    pairs = [(NOW_MS, NOW_MS), (at, NOW_MS)]
    [rejected] = accepted_by_worker(Stopping(), pairs).rejected
    with pytest.raises(BackfillFailed) as failed:
        list(step_of(Stopping).accepted(iter([archived(pairs)])))

    assert rejected.stops
    assert reason in rejected.reason
    assert str(failed.value).startswith(
        f"beats/0 at offset 1: {rejected.reason}. The backfill stopped there, and none of Stopping's output was published."
    )
    assert f"(`{rejected.setting}`)" in str(failed.value)
