"""`penstock archive`: archives categories in the warehouse."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from ....backfill.warehouse import DayOf, open_warehouse
from ....processors import counted
from ....processors.apps import AppName, names_app
from ....processors.declare import AnyCategory
from ....processors.time import BoundedOutOfOrderness, Confidence, Watermark
from ....transport import elapsed_s
from ...kernel import ends_of, tune_memory
from ...shell import (
    DEFAULT_FOLDER,
    AsJson,
    BrokerWait,
    FailFast,
    Folder,
    Kafka,
    Warehouse,
    WebHdfs,
    connect,
    expect_main_cluster,
    format_time,
    note,
    parse_day,
    parse_span,
    print_json,
    print_table,
    progress,
    stop_on_signals,
    warehouse_location,
)

if TYPE_CHECKING:
    from ....backfill.archive import ArchiveMetrics, DayStatus

app = typer.Typer(help="Archive categories to the warehouse, as Parquet files by day.", no_args_is_help=True)

_ARCHIVE_THERE = "Archive it where --kafka is its cluster, with a declaration without `cluster`."

Archived = Annotated[
    str,
    typer.Argument(
        metavar="CATEGORY|APP", help="A category, or an app (a file or module) for all of its archived categories."
    ),
]


@app.callback()
def group() -> None:
    """Archive categories to the warehouse, as Parquet files by day."""


@app.command()
def run(
    target: Annotated[
        str, typer.Argument(metavar="APP", help="An app, as a file or module; all of its categories are archived.")
    ],
    only: Annotated[
        list[str] | None, typer.Option("--category", help="Archive this category only; repeatable.", show_default=False)
    ] = None,
    until_end: Annotated[bool, typer.Option("--until-end", help="Stop at the current end of the categories.")] = False,
    by: Annotated[
        DayOf, typer.Option("--by", help="The time that determines an event's day; fixed for each archive.")
    ] = DayOf.EVENT_TIME,
    confidence: Annotated[float, typer.Option(help="The share of events to wait for before a day is complete.")] = 0.99,
    behind: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="Instead of --confidence: the largest lateness of events, such as 10m or 2h.",
            show_default=False,
        ),
    ] = None,
    idle_after: Annotated[
        str, typer.Option(metavar="SPAN", help="Stop waiting for a bucket after this time without events.")
    ] = "1m",
    fail_fast: FailFast = False,
    warehouse: Warehouse = None,
    webhdfs: WebHdfs = None,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Archive an app's categories continuously. Without a broker, it waits.

    Example: penstock archive run examples/flights/app.py --until-end
    """
    from ....backfill.archive import Archiver, LatenessAllowance  # noqa: PLC0415 - Arrow is slow to import, and most commands do without

    declared = {category.name: category for category in AppName.parse(target).load().categories()}
    for name in only or ():
        if name not in declared:
            raise typer.BadParameter(f"{target} declares no category {name!r}; it has {', '.join(declared)}.")
    categories = [declared[name] for name in only] if only else _on_main_cluster(declared.values())
    expect_main_cluster(categories, "archived", _ARCHIVE_THERE)
    watermark: Watermark = Confidence(confidence) if behind is None else BoundedOutOfOrderness(parse_span(behind))
    allowance = LatenessAllowance(watermark, parse_span(idle_after))
    bus = connect(kafka, folder)
    targets = BrokerWait(fail_fast=fail_fast)(lambda: ends_of(categories, bus))
    location = warehouse_location(warehouse, folder)
    archiver = Archiver(bus, categories, open_warehouse(location, webhdfs), by=by, patience=allowance)
    started_s = elapsed_s()
    tune_memory()
    with stop_on_signals(archiver.stop), progress() as bars:
        bar = bars.add_task("archive", total=sum(targets.values()) if until_end else None)

        def finished(archiver: Archiver) -> bool:
            bars.update(bar, completed=archiver.metrics.events)
            return until_end and archiver.has_reached(targets)

        archiver.run(finished)
    if until_end and elapsed_s() - started_s < parse_span(idle_after).total_seconds():
        note(
            f"The run was shorter than --idle-after {idle_after}, so buckets without new events still delay the completion of days. "
            "No event is missing. If no more events arrive, run it again with --idle-after 0s; otherwise, leave `penstock archive run` running."
        )
    _show_metrics(archiver.metrics, location, json=json)


def _show_metrics(metrics: ArchiveMetrics, location: str, *, json: bool) -> None:
    if json:
        print_json(asdict(metrics))
        return
    note(f"Archived {counted(metrics.events, 'event')} to {location} in {counted(metrics.files, 'file')}.")
    if metrics.undecodable:
        note(
            f"Not in the warehouse: {counted(metrics.undecodable, 'message')} that cannot be decoded. Their bytes are still in Kafka."
        )


@app.command()
def status(
    target: Archived,
    warehouse: Warehouse = None,
    webhdfs: WebHdfs = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Show the archived days, the time when each was complete, and late additions.

    Example: penstock archive status examples/flights/app.py
    """
    from ....backfill.archive import archive_status  # noqa: PLC0415 - as in `run`
    from ....backfill.warehouse import settings_of  # noqa: PLC0415 - as in `run`

    archive = open_warehouse(warehouse_location(warehouse, folder), webhdfs)
    days_by_category = {name: archive_status(archive, name) for name in _names(target)}
    if json:
        print_json({name: [asdict(day) for day in days] for name, days in days_by_category.items()})
        return
    print_table(
        ("category", "day", "files", "events", "size", "complete since", "late additions"),
        [(name, *_row(day)) for name, days in days_by_category.items() for day in days],
    )
    for name, days in days_by_category.items():
        settings = settings_of(archive, name)
        if not days:
            note(f"{name}: nothing is archived in {archive.location}.")
        elif settings is not None:
            note(f"{name}: days are by {settings.by.value}.")


def _row(day: DayStatus) -> tuple[object, ...]:
    since = "" if day.complete_since_ms is None else format_time(day.complete_since_ms)
    late = sum(addition.events for addition in day.late)
    last = max((addition.last_arrived_ms for addition in day.late), default=None)
    return (
        day.day,
        day.files,
        day.events,
        decimal(day.size_bytes),
        since,
        "" if last is None else f"{late:,}, the last at {format_time(last)}",
    )


@app.command()
def compact(
    target: Archived,
    day: Annotated[
        list[str] | None,
        typer.Option(metavar="DAY", help="This day only, such as 2013-01-31; repeatable.", show_default=False),
    ] = None,
    before: Annotated[
        str | None, typer.Option(metavar="DAY", help="Days before this one only.", show_default=False)
    ] = None,
    warehouse: Warehouse = None,
    webhdfs: WebHdfs = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Merge the small files of complete days. Archivers may run; run only one compaction at a time.

    Example: penstock archive compact departures --before 2013-02-01
    """
    from ....backfill.archive import compact as compact_category  # noqa: PLC0415 - as in `run`
    from ....backfill.warehouse import settings_of  # noqa: PLC0415 - as in `run`

    archive = open_warehouse(warehouse_location(warehouse, folder), webhdfs)
    is_selected = _day_filter(day, before)
    names = [name for name in _names(target) if name == target or settings_of(archive, name) is not None]
    done = [(name, merged) for name in names for merged in compact_category(archive, name, is_selected)]
    if json:
        print_json([{"category": name, **asdict(merged)} for name, merged in done])
        return
    rows = [(name, each.day, each.bucket, each.files, each.events, decimal(each.size_bytes)) for name, each in done]
    print_table(("category", "day", "bucket", "files before", "events", "size now"), rows)
    note(f"Merged {counted(sum(merged.files for _, merged in done), 'file')} into {len(done):,}.")


def _on_main_cluster(categories: Iterable[AnyCategory]) -> list[AnyCategory]:
    """Return the categories on the main cluster, and report the others."""
    here = []
    for category in categories:
        if category.cluster is None:
            here.append(category)
        else:
            note(f"{category.name} is on cluster {category.cluster} and is not archived. {_ARCHIVE_THERE}")
    return here


def _day_filter(days: list[str] | None, before: str | None) -> Callable[[str], bool]:
    chosen = None if days is None else {str(parse_day(day)) for day in days}
    until = None if before is None else str(parse_day(before))
    return lambda day: (chosen is None or day in chosen) and (until is None or day < until)


def _names(target: str) -> list[str]:
    """Return the categories of an app, or the named category."""
    if not names_app(target):
        return [target]
    return [category.name for category in AppName.parse(target).load().categories()]
