"""The table of a worker's figures: one row for each. Reports, statuses, metrics, alert rules, OTLP, JSON and columns of tables follow from it.

measured --Counts, ShardFigures, ReportedFigures--> report --> status --rows_of--> Prometheus, OTLP, JSON, tables

A row is an annotated field. Its name ends with its unit, and its type contains None if the figure may be unknown. Its default is the value in reports of
earlier versions, and without workers. Code reads a figure as an attribute, which the type checker knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import attrgetter
from typing import Annotated, NamedTuple, TypeAlias, TypeVar, get_type_hints

import msgspec

Number: TypeAlias = int | float
F = TypeVar("F", bound=msgspec.Struct)

Combine: TypeAlias = Callable[[Iterable[Number]], Number]
"""Returns the figure of a processor from those of its workers or buckets: `sum`, `max` or `min`."""
_WORDS: dict[Combine, str] = {sum: "the sum", max: "the highest", min: "the lowest"}


class Figure(NamedTuple):
    """A row of the table.

    Args:
        help: its meaning for one worker or bucket, with the unit if the name does not say it; what a count counts, in the plural.
        over: how the processor's figure follows from all workers or buckets; None if the observer computes it.
        column: the title of its column in tables of workers or buckets; empty without one.
        total: of a count: the name of the processor's count since its workers started; empty without one.
        name: its name in JSON, which ends with its unit; `rows_of` notes it.
        attribute: the path to its value; `rows_of` notes it.
    """

    help: str
    over: Combine | None = None
    column: str = ""
    total: str = ""
    name: str = ""
    attribute: str = ""

    @property
    def metric(self) -> str:
        """The name of its metric, with the unit in full."""
        for unit, full in _UNITS.items():
            if self.name.endswith(unit):
                return self.name.removesuffix(unit) + full
        return self.name

    def of(self, subject: object) -> Number | None:
        """Return the value of its metric; None if it is unknown."""
        value: Number | None = attrgetter(self.attribute)(subject)
        return value / 1000 if value is not None and self.name.endswith("_ms") else value


_UNITS = {"_per_s": "_per_second", "_ms": "_seconds", "_s": "_seconds"}
"""The units at the ends of names, and of metrics. The first that fits counts."""


class Counts(msgspec.Struct, frozen=True):
    """The counts of a worker since its start, or their rates per second. Those of the same names in `Metrics` are measured."""

    events_in: Annotated[Number, Figure("events read", sum, total="events_in")] = 0
    events_out: Annotated[Number, Figure("records written", sum)] = 0
    bytes_in: Annotated[Number, Figure("bytes read", sum)] = 0
    bytes_out: Annotated[Number, Figure("bytes written", sum)] = 0
    late: Annotated[Number, Figure("events after the watermark", sum, total="late_events")] = 0
    dropped: Annotated[Number, Figure("late events that no window accepted", sum, total="dropped_events")] = 0
    unmatched: Annotated[Number, Figure("events dropped without a row in the lookup", sum)] = 0
    dead_letters: Annotated[Number, Figure("dead letters written", sum)] = 0
    checkpoints: Annotated[Number, Figure("checkpoints saved", sum)] = 0


class ShardFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a shard that its worker measures."""

    backup_age_s: Annotated[float | None, Figure("seconds since the newest backup", max, "backup")] = None
    retries: Annotated[int, Figure("events that wait for a retry; not part of the backlog", sum, "to retry")] = 0
    hot_key_share: Annotated[float | None, Figure("estimated share of the most frequent key, from 0 to 1", max)] = None
    state_bytes: Annotated[int | None, Figure("size of the state on the disk of its worker", sum, "state")] = None


class ReportedFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures that a worker measures itself."""

    checkpoint_duration_s: Annotated[float, Figure("seconds of the last checkpoint", max, "checkpoint")] = 0.0
    checkpoint_running_s: Annotated[float | None, Figure("seconds of the checkpoint in progress", max)] = None
    memory_bytes: Annotated[int, Figure("memory of the process", sum, "memory")] = 0
    disk_free_share: Annotated[float | None, Figure("free share of the disk with the state, from 0 to 1", min)] = None
    backup_interval_s: Annotated[float | None, Figure("seconds between two backups", max)] = None
    backup_outage_s: Annotated[float | None, Figure("seconds without an answer of the backup store", max)] = None
    standby_shards: Annotated[int | None, Figure("shards of other workers that are ready on the machine", sum)] = None


class WorkerFigures(ReportedFigures, frozen=True, kw_only=True):
    """The figures of a worker: its own, and the ones that follow from two reports and their times."""

    checkpoint_age_s: Annotated[float | None, Figure("seconds since the last checkpoint", max)] = None
    cpu_cores: Annotated[float, Figure("CPU cores in use", sum, "CPU")] = 0.0
    idle_share: Annotated[float | None, Figure("share of the time without events, from 0 to 1", max)] = None
    busy_share: Annotated[float | None, Figure("share of the time with events, from 0 to 1", max, "busy")] = None
    blocked_share: Annotated[
        float | None, Figure("share of the time until a checkpoint ended, from 0 to 1", max, "blocked")
    ] = None
    restarts: Annotated[int, Figure("restarts of the present version after failures in the last hour", sum)] = 0


@cache
def rows_of(kind: type) -> tuple[Figure, ...]:
    """Return the rows of a class and its bases in order."""
    hints = get_type_hints(kind, include_extras=True)
    rows = [(name, each) for name, hint in hints.items() for each in getattr(hint, "__metadata__", ())]
    return tuple(each._replace(name=name, attribute=name) for name, each in rows if isinstance(each, Figure))


def columns_of(kind: type) -> dict[str, str]:
    """Return the titles of the columns of a class, by the name of the figure."""
    return {row.name: row.column for row in rows_of(kind) if row.column}


def together(kind: type[F], members: Sequence[F]) -> F:
    """Return the figures of a processor from those of its workers or buckets; a figure that none of them knows has the default of its row."""
    known = {
        row: [value for each in members if (value := getattr(each, row.name)) is not None] for row in rows_of(kind)
    }
    return kind(**{row.name: row.over(values) for row, values in known.items() if row.over and values})


def _of_processor(kind: type, attribute: str, members: str) -> list[Figure]:
    return [
        row._replace(attribute=f"{attribute}.{row.name}", help=f"{row.help}; {_WORDS[row.over]} of all {members}")
        for row in rows_of(kind)
        if row.over
    ]


RATES = [
    row._replace(name=f"{row.name}_per_s", attribute=f"per_s.{row.name}", help=f"{row.help} per second")
    for row in rows_of(Counts)
]
"""The rates of the counts, of workers and of processors."""
TOTALS = [
    row._replace(name=row.total, attribute=f"counts.{row.name}", help=f"{row.help}, since the workers started")
    for row in rows_of(Counts)
    if row.total
]
"""The counts since the start of a worker, or of the workers of a processor."""
PROCESSOR_ROWS = [
    *_of_processor(ShardFigures, "shard_figures", "buckets"),
    *_of_processor(WorkerFigures, "worker_figures", "workers"),
    *RATES,
    *TOTALS,
]
"""The figures of a processor that follow from its buckets and workers."""
