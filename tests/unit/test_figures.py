"""The table of a worker's figures: each row is in every place that follows from it."""

from __future__ import annotations

from io import StringIO
from types import UnionType
from typing import Annotated, Any, get_args, get_type_hints

import pytest
from opentelemetry.sdk.resources import Resource
from rich.console import Console
from support.statuses import cluster_status, processor_status, shard_status, worker_status

from penstock.ops.kernel import Report, ShardReport
from penstock.ops.kernel.telemetry import Metrics
from penstock.ops.kernel.telemetry.exposition import WorkerCollector, exposition
from penstock.ops.serve.dashboard.site import COLUMNS
from penstock.ops.status import ClusterStatus, status_to_json
from penstock.ops.status.commands.status import layout_of
from penstock.ops.status.otlp_metrics import metrics_data
from penstock.ops.status.prometheus import metric_families
from penstock.processors import (
    RATES,
    TOTALS,
    Counts,
    Figure,
    ReportedFigures,
    ShardFigures,
    WorkerFigures,
    columns_of,
    rows_of,
    together,
)
from penstock.processors.declare import ALERT_METRICS

NO_FIGURES = {
    *("pid", "bucket", "started_ms", "at_ms", "low_ms", "last_checkpoint_ms"),  # names and times
    *("cpu_s", "idle_s", "blocked_s"),  # sums, from which observers compute cpu_cores and shares
    *("events_in", "events_out"),  # of a shard: from which observers compute rates
    "waits_s",  # of a wait, with its name
}
"""The numbers of a report that have no row."""


class MoreFigures(WorkerFigures, frozen=True, kw_only=True):
    """The figures of a worker, and a new one."""

    queue_age_s: Annotated[float | None, Figure("seconds since the oldest entry of the queue", max)] = None
    queue_length: Annotated[int, Figure("entries of the queue", sum)] = 0


def is_number(hint: object) -> bool:
    return bool({int, float} & {hint, *(get_args(hint) if isinstance(hint, UnionType) else ())})


@pytest.mark.parametrize("report", [Report, ShardReport, Counts])
def test_each_number_of_a_report_has_a_row(report: type) -> None:
    """Otherwise, users would not see it."""
    numbers = {name for name, hint in get_type_hints(report).items() if is_number(hint)}

    assert numbers - NO_FIGURES == {row.name for row in rows_of(report)} - NO_FIGURES
    assert numbers - NO_FIGURES


def test_a_worker_counts_what_it_reports() -> None:
    """Its report and its own metrics read the counts by name."""
    metrics = Metrics()

    assert [row.name for row in rows_of(Counts) if row.of(metrics) is None] == []


@pytest.mark.parametrize("kind", [ShardFigures, ReportedFigures, WorkerFigures, Counts])
def test_each_row_has_a_rule_and_a_default(kind: type) -> None:
    """Reports of earlier versions lack new figures, and a processor without workers has none."""
    assert [row.name for row in rows_of(kind) if row.over is None] == []
    assert kind()


def test_a_new_row_needs_no_other_code() -> None:
    """Its names and the figure of the processor follow from it. A figure that no worker knows has its default."""
    workers = [MoreFigures(queue_length=2), MoreFigures(queue_age_s=1.5, queue_length=3), MoreFigures(queue_age_s=0.5)]
    new = [row for row in rows_of(MoreFigures) if row not in rows_of(WorkerFigures)]

    assert [row.metric for row in new] == ["queue_age_seconds", "queue_length"]
    assert together(MoreFigures, workers) == MoreFigures(queue_age_s=1.5, queue_length=5)
    assert together(MoreFigures, []) == MoreFigures()


WORKERS = [row.name for row in rows_of(WorkerFigures)]
SHARDS = [row.name for row in rows_of(ShardFigures)]


def cluster() -> ClusterStatus:
    """Return the status of a processor with all figures: 1 of a gauge, 2 of a count, and 3 per second."""
    fields: dict[str, Any] = dict.fromkeys(WORKERS, 1)
    worker = worker_status(
        **fields,
        counts=Counts(**{row.name: 2 for row in rows_of(Counts)}),
        per_s=Counts(**{row.name: 3 for row in rows_of(Counts)}),
    )
    shard = shard_status(**dict.fromkeys(SHARDS, 1), backlog_events=9, lag_s=9.0)
    return cluster_status(processor_status(shard, workers=(worker,)))


def expected_metrics() -> set[str]:
    """Return the names of the metrics that follow from the table."""
    of_workers = [row.metric for row in (*rows_of(WorkerFigures), *RATES)]
    of_buckets = [row.metric for row in rows_of(ShardFigures)]
    return {
        *(f"penstock_{name}" for name in (*of_workers, *of_buckets, *(row.metric for row in TOTALS))),
        *(f"penstock_worker_{name}" for name in of_workers),
        *(f"penstock_bucket_{name}" for name in of_buckets),
    }


def test_each_row_is_a_metric_for_prometheus_and_otlp() -> None:
    exported = metrics_data(cluster(), Resource({})).resource_metrics[0].scope_metrics[0].metrics

    assert expected_metrics() - {family.name for family in metric_families(cluster()) if family.samples} == set()
    assert expected_metrics() - {metric.name for metric in exported} == set()


def test_alert_rules_may_name_each_row() -> None:
    names = {row.metric for row in (*rows_of(WorkerFigures), *rows_of(ShardFigures), *RATES, *TOTALS)}

    assert names - ALERT_METRICS.keys() == set()


def test_each_row_is_in_the_json_of_its_subject_and_of_the_processor() -> None:
    """The names are those of the rows."""
    [processor] = status_to_json(cluster())["processors"]
    [worker], [shard] = processor["workers"], processor["shards"]
    rates, totals = {row.name: 3 for row in RATES}, {row.name: 2 for row in TOTALS}
    of_workers, of_shards = dict.fromkeys(WORKERS, 1) | rates | totals, dict.fromkeys(SHARDS, 1)

    assert {name: worker.get(name) for name in of_workers} == of_workers
    assert {name: shard.get(name) for name in of_shards} == of_shards
    assert {name: processor.get(name) for name in of_workers | of_shards} == of_workers | of_shards


def test_each_count_is_a_counter_of_the_worker_itself() -> None:
    text = exposition(WorkerCollector(lambda: ("scorer", Metrics(events_in=5)))).text.decode()

    assert [row.name for row in rows_of(Counts) if f"penstock_worker_{row.name}_total" not in text] == []
    assert 'penstock_worker_events_in_total{processor="scorer"} 5.0' in text


@pytest.mark.parametrize(
    ("memory_bytes", "cpu_cores", "took_s", "shown"),
    [(850_000_000, 0.256, 0.012, ["12 ms", "850 MB", "0.26"]), (1_500, 0.0, 200.0, ["3 min", "1.5 kB", "0.0"])],
)
def test_tables_have_a_column_for_each_row_with_a_title(
    memory_bytes: int, cpu_cores: float, took_s: float, shown: list[str]
) -> None:
    """The dashboard gets the same titles. Values are in the unit that the name ends with."""
    console = Console(file=StringIO(), width=300, highlight=False)
    figures: dict[str, Any] = dict.fromkeys(WORKERS, 1)
    figures |= {"memory_bytes": memory_bytes, "cpu_cores": cpu_cores, "checkpoint_duration_s": took_s}
    worker = worker_status(**figures)
    shard = shard_status(**dict.fromkeys(SHARDS, 1))
    status = cluster_status(processor_status(shard, workers=(worker,)))
    console.print(layout_of(status, console, buckets=True, workers=True, everything=True))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    titles = [*columns_of(WorkerFigures).values(), *columns_of(ShardFigures).values()]

    assert [title for title in titles if f"  {title}  " not in text.replace("\n", "  ")] == []
    assert [value for value in shown if value not in text] == []
    assert titles == [title for columns in COLUMNS.values() for title in columns.values()]
