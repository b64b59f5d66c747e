"""The app of the benchmark of snapshots: six processors with three shuffles. The environment variable RUN begins all names."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import penstock as ps

BUCKETS = 2
STAGES = 6
RUN = os.environ.get("RUN", "run")


class Visit(ps.Record, frozen=True):
    """A visit, under the key of its next processor."""

    key: str
    at: ps.EventTime
    number: int


def visits(stage: int) -> ps.Category[Visit]:
    """Return the input of a stage, which is the output of the previous stage."""
    return ps.Category(f"{RUN}.{stage}", Visit, key="key", event_time="at", buckets=BUCKETS)


class _Shuffle:
    """Passes visits on under another key."""

    def process(self, event: Visit) -> list[Visit]:
        """Return a visit with another key."""
        return [Visit(f"k{event.number * 31 % 1_009}", event.at, event.number)]


class _Count:
    """Counts the visits of each key."""

    def process(self, event: Visit, state: int | None, context: ps.Context) -> tuple[int, list[Visit]]:
        """Count a visit, and pass it on."""
        return (state or 0) + 1, [event]


def _stage(number: int) -> type[Any]:
    bases: tuple[type[Any], ...] = (_Count, ps.Stateful) if number % 2 else (_Shuffle, ps.Stateless)
    return type(
        f"Stage{number}",
        bases,
        {
            **({"state": int} if number % 2 else {}),
            "output_semantics": ps.Semantics.EXACTLY_ONCE,
            "checkpoint": ps.CheckpointInterval(time=timedelta(seconds=0.5)),
            "name": f"{RUN}.stage{number}",
            "reads": visits(number),
            "writes": visits(number + 1),
            "__module__": __name__,
        },
    )


Stage0, Stage1, Stage2, Stage3, Stage4, Stage5 = map(_stage, range(STAGES))
