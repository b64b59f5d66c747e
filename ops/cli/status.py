"""`penstock status` and `penstock graph`: show processors, their lag and problems."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ...processors.declare.apps import AppName
from ...transport.bus import Bus
from ..humanize import UNKNOWN, human_duration, human_duration_or_unknown
from ..monitoring.finding import Finding, Severity
from ..monitoring.graph import Drawing, drawn
from ..monitoring.observer import Observer
from ..monitoring.reports import node_of
from ..monitoring.status import ClusterStatus, ProcessorStatus, ShardStatus, WorkerStatus
from ..monitoring.status_json import described
from .options import DEFAULT_FOLDER, AsJson, Folder, Kafka, connect
from .output import as_json, note, out, tabular
from .times import shown_time
from .waiting import FailFast, Waiting

Watched = Annotated[
    str | None,
    typer.Argument(
        metavar="[APP[:PROCESSOR]]",
        help="An app file, or one processor in it; the default is all reporting processors.",
    ),
]
_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


def status(
    target: Watched = None,
    buckets: Annotated[bool, typer.Option("--buckets", help="Show each bucket.")] = False,
    workers: Annotated[bool, typer.Option("--workers", help="Show each worker.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", help="The interval with --watch.", min=0.5)
    ] = 2.0,
    fail_fast: FailFast = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Show processors and their progress, problems first. Without a broker, --watch waits.

    Example: penstock status examples/flights/app.py --watch
    """
    bus, observed = connect(kafka, folder), observing(target)
    waiting = Waiting(fail_fast=fail_fast or not watch)
    with closing(waiting(lambda: observed(bus))) as observer, suppress(KeyboardInterrupt):
        if not watch:
            _show(observer.look(), buckets=buckets, workers=workers, json=json)
        elif json or not out.is_terminal:
            for cluster in _clusters(observer, every):
                _show(cluster, buckets=buckets, workers=workers, json=json)
        else:
            with Live(console=out, screen=True, auto_refresh=False) as live:
                for cluster in _clusters(observer, every):
                    live.update(_laid_out(cluster, buckets=buckets, workers=workers), refresh=True)


def _observer(target: str | None, kafka: Any, folder: Any) -> Observer:
    return observer_of(target, connect(kafka, folder))


def observer_of(target: str | None, bus: Bus) -> Observer:
    """Return an observer of an app's processors, or of all reporting processors."""
    return observing(target)(bus)


def observing(target: str | None) -> Callable[[Bus], Observer]:
    """Return a function that makes such observers; the app is loaded once."""
    if target is None:
        return Observer
    nodes = list(map(node_of, AppName.parse(target).load().processors))
    return lambda bus: Observer(bus, nodes, others=False)


def _clusters(observer: Observer, every_s: float) -> Iterator[ClusterStatus]:
    while True:
        yield observer.look()
        time.sleep(every_s)


def _show(cluster: ClusterStatus, *, buckets: bool, workers: bool, json: bool) -> None:
    if json:
        as_json(described(cluster))
    elif not cluster.standings:
        note("No processor has reported within the last hour. `penstock status APP` shows an app's processors anyway.")
    else:
        out.print(_laid_out(cluster, buckets=buckets, workers=workers))


def _laid_out(cluster: ClusterStatus, *, buckets: bool, workers: bool) -> RenderableType:
    parts: list[RenderableType] = [_findings(cluster.findings), _processors(cluster.standings)]
    if workers:
        parts += ["", _workers(cluster.standings)]
    if buckets:
        parts += ["", _buckets(cluster.standings)]
    return Group(*parts)


def _findings(findings: tuple[Finding, ...]) -> RenderableType:
    if not findings:
        return Text("No findings.\n", style="green")
    lines = [
        f"[{_STYLES[finding.severity]}]{finding.kind:<13}[/] [bold]{escape(finding.processor)}[/]  {escape(finding.message)}"
        for finding in findings
    ]
    return Text.from_markup("\n".join(lines) + "\n")


def _processors(standings: tuple[ProcessorStatus, ...]) -> Table:
    return _filled([_processor(standing) for standing in standings])


def _processor(it: ProcessorStatus) -> dict[str, object]:
    saved = [worker.saved_s for worker in it.running if worker.saved_s is not None]
    return {
        "processor": it.node.name,
        "workers": len(it.running),
        "in/s": round(it.total("rate_in")),
        "out/s": round(it.total("rate_out")),
        "backlog (events)": UNKNOWN if it.behind is None else it.behind,
        "lag (time)": human_duration_or_unknown(it.behind_s) if it.behind != 0 else "",
        "event time (UTC)": _time(it.low_ms),
        "held back by": _holder(it) if it.shards and (it.low_ms is not None or it.holder.held_by) else "",
        "saved": f"{human_duration(max(saved))} ago" if saved else "",
        "backup": "" if it.backup_age_s is None else f"{human_duration(it.backup_age_s)} ago",
        "dead letters": UNKNOWN if it.dead_letters is None else it.dead_letters or "",
    }


def _filled(rows: list[dict[str, object]]) -> Table:
    """Return a table of the non-empty columns."""
    columns = [name for name in rows[0] if any(row[name] != "" for row in rows)] if rows else []
    return tabular(columns, [[row[name] for name in columns] for row in rows])


def _workers(standings: tuple[ProcessorStatus, ...]) -> Table:
    hosts = {worker.host for standing in standings for worker in standing.workers}
    rows = [_worker(standing, worker) for standing in standings for worker in standing.workers]
    return _filled([{**row, "host": ""} for row in rows] if len(hosts) == 1 else rows)


def _worker(standing: ProcessorStatus, worker: WorkerStatus) -> dict[str, object]:
    return {
        "worker": f"{standing.node.name}/{worker.worker}",
        "host": worker.host,
        "process": str(worker.pid),
        "runs for": "ended" if worker.ended else human_duration((standing.at_ms - worker.started_ms) / 1000),
        "version": worker.deployment.rpartition("@")[2],
        "buckets": " ".join(map(str, worker.buckets)),
        "in/s": round(worker.rate_in),
        "MB/s": round(worker.bytes_in / 1e6, 2),
        "out/s": round(worker.rate_out),
        "cpu": round(worker.cpu, 2),
        "MB": round(worker.memory_bytes / 1e6),
        "checkpoint": f"{worker.saving_s * 1000:.0f} ms",
        "restarts": worker.restarts or "",
    }


def _buckets(standings: tuple[ProcessorStatus, ...]) -> Table:
    return _filled([_bucket(standing, shard) for standing in standings for shard in standing.shards])


def _bucket(standing: ProcessorStatus, shard: ShardStatus) -> dict[str, object]:
    return {
        "shard": f"{standing.node.name}/{shard.bucket}",
        "owner": shard.owner or "nobody",
        "in/s": round(shard.rate_in),
        "out/s": round(shard.rate_out),
        "backlog (events)": UNKNOWN if shard.behind is None else shard.behind,
        "lag (time)": human_duration_or_unknown(shard.behind_s) if shard.behind != 0 else "",
        "event time (UTC)": _time(shard.low_ms),
        "": "catching up" if shard.catching_up else "idle" if shard.idle else shard.held_by,
        "backup": "" if shard.backup_age_s is None else f"{human_duration(shard.backup_age_s)} ago",
    }


def _time(time_ms: int | None) -> str:
    return "" if time_ms is None else shown_time(time_ms)


def _holder(standing: ProcessorStatus) -> str:
    holder = standing.holder
    return f"bucket {holder.bucket}" + (f", by {holder.held_by}" if holder.held_by else "")


def graph(
    target: Watched = None,
    form: Annotated[Drawing, typer.Option("--format", help="The format of the drawing.")] = Drawing.TEXT,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Draw the processors and the categories between them, with rates and lag.

    Example: penstock graph examples/flights/app.py --format mermaid
    """
    with closing(_observer(target, kafka, folder)) as observer:
        cluster = observer.look()
    if not cluster.standings:
        note("No processor has reported within the last hour. `penstock graph APP` draws an app's processors anyway.")
        return
    out.out(drawn(cluster.standings, form), highlight=False)
