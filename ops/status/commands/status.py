"""`penstock status`: shows processors, their lag and problems."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ....processors import (
    UNKNOWN,
    ShardFigures,
    WorkerFigures,
    columns_of,
    counted,
    human_duration,
    human_duration_or_unknown,
    human_size,
)
from ....processors.apps import AppName
from ....transport import Bus
from ...deploy import deployed_processors
from ...kernel import OutageTracker, node_of
from ...shell import (
    DEFAULT_FOLDER,
    UNWRAPPED,
    AsJson,
    BrokerWait,
    FailFast,
    Folder,
    Kafka,
    connect,
    format_time,
    note,
    out,
    print_json,
    table_console,
    table_of,
)
from ..finding import Finding, Severity
from ..graph import GraphFormat, draw_graph
from ..observer import Observer
from ..servers import ServerStatus
from ..states import ProcessorState
from ..status import ClusterStatus, ProcessorStatus, ShardStatus, WorkerStatus
from ..status_json import status_to_json

Watched = Annotated[
    str | None,
    typer.Argument(
        metavar="[APP[:PROCESSOR]]",
        help="An app, as a file or module, or one processor in it; the default is all reporting processors.",
    ),
]
_DISPENSABLE_OF_PROCESSORS = ("held back by", "late", "saved", "backup", "event time (UTC)", "out/s", "in/s")
_DISPENSABLE_OF_BUCKETS = (*columns_of(ShardFigures).values(), "event time (UTC)", "out/s", "in/s")
_DISPENSABLE_OF_WORKERS = (
    *("process", "copies", "MB/s", "table", "version", "CPU", "checkpoint", "host", "out/s", "runs for"),
    *columns_of(WorkerFigures).values(),
)
"""The columns that a narrow terminal lacks, in the order in which they are left out."""
_WRAPPED = "buckets"
"""A column whose values may be long, and are wrapped."""
_Row: TypeAlias = dict[str, object]
"""The values of a row by column."""
_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


_ENDED = frozenset({ProcessorState.STOPPED, ProcessorState.PURGED})
"""The states into which only users bring a processor."""


def status(
    target: Watched = None,
    buckets: Annotated[bool, typer.Option("--buckets", help="Show each bucket.")] = False,
    workers: Annotated[bool, typer.Option("--workers", help="Show each worker.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", help="The interval with --watch.", min=0.5)
    ] = 2.0,
    everything: Annotated[
        bool, typer.Option("--all", help="Without an app: also show processors that were stopped or purged on purpose.")
    ] = False,
    graph: Annotated[
        GraphFormat | None,
        typer.Option(
            "--graph",
            help="Draw the processors and the categories between them instead, with rates and lag.",
            show_default=False,
        ),
    ] = None,
    fail_fast: FailFast = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Show processors and their progress, problems first. Without a broker, --watch waits.

    Example: penstock status examples/flights/app.py --watch

    Example: penstock status examples/flights/app.py --graph mermaid
    """
    if graph is not None:
        _draw(target, graph, connect(kafka, folder), folder)
        return
    bus, open_observer = connect(kafka, folder), observer_factory(target, folder)
    layout = partial(layout_of, buckets=buckets, workers=workers, everything=everything or target is not None)
    wait = BrokerWait(fail_fast=fail_fast or not watch)
    with closing(wait(lambda: open_observer(bus))) as observer, suppress(KeyboardInterrupt):
        if not watch:
            _show(observer.observe_once(time.sleep), layout, json=json)
        elif json or not out.is_terminal:
            for cluster in _clusters(observer, every):
                _show(cluster, layout, json=json)
        else:
            with Live(console=out, screen=True, auto_refresh=False) as live:
                for cluster in _clusters(observer, every):
                    live.update(layout(cluster, out), refresh=True)


def _draw(target: str | None, form: GraphFormat, bus: Bus, folder: Path) -> None:
    with closing(observer_factory(target, folder)(bus)) as observer:
        cluster = observer.observe()
    if not cluster.processors:
        note("No processor has reported within the last hour. With an app, its processors are drawn anyway.")
        return
    out.out(draw_graph(cluster.processors, form), highlight=False)


def observer_factory(target: str | None, folder: Path) -> Callable[[Bus], Observer]:
    """Return a function that opens observers of an app's processors, or of all reporting ones, with the deployments in a folder (`--dir`)."""
    deployed, outages = partial(deployed_processors, folder), OutageTracker()
    if target is None:
        return lambda bus: Observer.open(bus, deployed=deployed, outages=outages)
    from ...deploy import deployed_elsewhere  # noqa: PLC0415 - slow to import, and without an app not needed

    app = AppName.parse(target)
    nodes = list(map(node_of, app.load().processors))
    for deployment in deployed_elsewhere(folder, app.path, [node.name for node in nodes]):
        note(
            f"{deployment.name} is deployed from {deployment.app}, not from {app.path}: the figures below are those of that deployment. "
            f"{app.path} cannot run beside it unless one of the two processors gets another `name`."
        )
    return lambda bus: Observer.open(bus, nodes, include_others=False, deployed=deployed, outages=outages)


def _clusters(observer: Observer, every_s: float) -> Iterator[ClusterStatus]:
    while True:
        yield observer.observe()
        time.sleep(every_s)


def _show(cluster: ClusterStatus, layout: Callable[[ClusterStatus, Console], RenderableType], *, json: bool) -> None:
    if json:
        print_json(status_to_json(cluster))
    elif not cluster.processors and not cluster.servers:
        note("No processor has reported within the last hour. `penstock status APP` shows an app's processors anyway.")
    else:
        console = table_console()
        console.print(layout(cluster, console))


def layout_of(
    status: ClusterStatus, console: Console, *, buckets: bool, workers: bool, everything: bool
) -> RenderableType:
    """Return the status as text for a console, without the processors that users have ended unless `everything` is shown."""
    cluster = status if everything else status.without(_ENDED)
    parts: list[RenderableType] = [_findings(cluster.findings)]
    parts += _fitted(list(map(_processor, cluster.processors)), _DISPENSABLE_OF_PROCESSORS, console)
    if cluster.servers:
        parts += ["", _servers(cluster.servers)]
    if workers:
        parts += ["", *_fitted(_workers(cluster.processors), _DISPENSABLE_OF_WORKERS, console)]
    if buckets:
        rows = [_bucket(status, shard) for status in cluster.processors for shard in status.shards]
        parts += ["", *_fitted(rows, _DISPENSABLE_OF_BUCKETS, console)]
    hidden = len(status.processors) - len(cluster.processors)
    if hidden:
        ended = f"Not shown: {counted(hidden, 'processor')} that {'was' if hidden == 1 else 'were'} stopped or purged on purpose."
        parts.append(Text(f"{ended} See `penstock status --all`.", style="dim"))
    return Group(*parts)


def _findings(findings: tuple[Finding, ...]) -> RenderableType:
    if not findings:
        return Text("No findings.\n", style="green")
    lines = [
        f"[{_STYLES[finding.severity]}]{finding.kind:<13}[/] [bold]{escape(finding.processor)}[/]  {escape(finding.message)}"
        for finding in findings
    ]
    return Text.from_markup("\n".join(lines) + "\n")


def _processor(status: ProcessorStatus) -> _Row:
    saved_s, backup_s = status.worker_figures.checkpoint_age_s, status.shard_figures.backup_age_s
    return {
        "processor": status.node.name,
        "state": status.state.value,
        "workers": len(status.running_workers),
        "in/s": round(status.per_s.events_in),
        "out/s": round(status.per_s.events_out),
        "backlog (events)": UNKNOWN if status.backlog_events is None else status.backlog_events,
        "lag (time)": human_duration_or_unknown(status.lag_s) if status.backlog_events != 0 else "",
        "event time (UTC)": _time(status.low_watermark_ms),
        "held back by": _holder(status),
        "saved": _ago(saved_s),
        "backup": _ago(backup_s),
        "late": status.counts.late or "",
        "dropped": status.counts.dropped or "",
        "to retry": status.shard_figures.retries or "",
        "loop": "" if status.loop is None else str(status.loop),
        "dead letters": UNKNOWN if status.dead_letters is None else status.dead_letters or "",
    }


def _filled(rows: list[_Row]) -> Table:
    """Return a table of the non-empty columns."""
    columns = [name for name in rows[0] if any(row[name] != "" for row in rows)] if rows else []
    return table_of(columns, [[row[name] for name in columns] for row in rows])


def _fitted(rows: list[_Row], dispensable: Sequence[str], console: Console) -> Iterator[RenderableType]:
    """Yield a table of the non-empty columns, without some if the console is narrow, and then a line that names these."""
    omitted: list[str] = []
    for name in dispensable:
        if _fits(rows, console):
            break
        omitted += [name] * any(row[name] != "" for row in rows)
        rows = [{**row, name: ""} for row in rows]
    table = _filled(rows)
    if rows and _fits(rows, console):
        table.columns[0].no_wrap = True  # so that long values are wrapped, and not the names
    yield table
    if omitted:
        yield Text(f"A wider terminal and --json also show: {', '.join(omitted)}.", style="dim")


def _fits(rows: list[_Row], console: Console) -> bool:
    """Return whether a console shows rows without wrapping a header or a short value."""
    narrowed = [
        {name: str(value)[: len(name)] if name == _WRAPPED else value for name, value in row.items()} for row in rows
    ]
    unlimited = console.options.update_width(UNWRAPPED)
    return Measurement.get(console, unlimited, _filled(narrowed)).maximum <= console.width


def _servers(servers: tuple[ServerStatus, ...]) -> Table:
    return _filled(
        [
            {"server": each.name, "state": each.state.value, "version": each.label, "address": " ".join(each.urls)}
            for each in servers
        ]
    )


def _workers(processors: tuple[ProcessorStatus, ...]) -> list[_Row]:
    hosts = {worker.host for status in processors for worker in status.workers}
    rows = [_worker(status, worker) for status in processors for worker in status.workers]
    return [{**row, "host": ""} for row in rows] if len(hosts) == 1 else rows


def _worker(status: ProcessorStatus, worker: WorkerStatus) -> _Row:
    return {
        "worker": f"{status.node.name}/{worker.worker}",
        "host": worker.host,
        "process": str(worker.pid),
        "runs for": "ended" if worker.end_reason else human_duration((status.at_ms - worker.started_ms) / 1000),
        "version": worker.deployment.rpartition("@")[2],
        "buckets": " ".join(map(str, worker.buckets)),
        "in/s": round(worker.per_s.events_in),
        "MB/s": round(worker.per_s.bytes_in / 1e6, 2),
        "out/s": round(worker.per_s.events_out),
        "table": "" if worker.table is None else f"{counted(worker.table.rows, 'row')}, {worker.table.unread:,} behind",
        "copies": "" if worker.standby_shards is None else counted(worker.standby_shards, "shard"),
        "restarts": worker.restarts or "",
        **_columns(worker, WorkerFigures),
    }


def _bucket(status: ProcessorStatus, shard: ShardStatus) -> _Row:
    return {
        "shard": f"{status.node.name}/{shard.bucket}",
        "owner": shard.owner or "none",
        "in/s": round(shard.events_in_per_s),
        "out/s": round(shard.events_out_per_s),
        "backlog (events)": UNKNOWN if shard.backlog_events is None else shard.backlog_events,
        "lag (time)": human_duration_or_unknown(shard.lag_s) if shard.backlog_events != 0 else "",
        "event time (UTC)": _time(shard.low_watermark_ms),
        "": "catching up" if shard.catching_up else "idle" if shard.idle else shard.held_by,
        **_columns(shard, ShardFigures),
    }


def _columns(figures: object, kind: type) -> _Row:
    return {title: _text(name, getattr(figures, name)) for name, title in columns_of(kind).items()}


def _text(name: str, value: float | None) -> object:
    """Return a figure in the unit that its name ends with; empty if there is nothing to see."""
    if value is None or (value == 0 and isinstance(value, int)):
        return ""
    if name.endswith("_s"):
        return human_duration(value) if value >= 2 else f"{value * 1000:.0f} ms"
    if name.endswith("_bytes"):
        return human_size(value)
    return f"{value:.0%}" if name.endswith("_share") else round(value, 2)


def _ago(age_s: float | None) -> str:
    return "" if age_s is None else f"{human_duration(age_s)} ago"


def _time(time_ms: int | None) -> str:
    return "" if time_ms is None else format_time(time_ms)


def _holder(status: ProcessorStatus) -> str:
    """Return the shard with the lowest watermark and its input; the findings report the reason. Empty if neither shards nor events wait for it."""
    if not status.shards:
        return ""
    holder = status.slowest_shard
    if holder.held_by:
        return f"bucket {holder.bucket} ({re.split('[,:]', holder.held_by)[0]})"
    is_behind = status.backlog_events != 0 or len({shard.low_watermark_ms for shard in status.shards}) > 1
    return f"bucket {holder.bucket}" if status.low_watermark_ms is not None and is_behind else ""
