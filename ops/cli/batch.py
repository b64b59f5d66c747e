"""`penstock backfill` and `bootstrap`: the same processors in Spark, and state for the stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from enum import Enum
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from ...backfill.warehouse import open_warehouse
from ...processors.apps import AppName
from ...state.backups.places import open_place
from .batch_progress import batch_progress
from .into_bus import folder_before_bus, into_bus, names_bus
from .into_store import fill, keeps_remote_state, refill
from .options import (
    DEFAULT_FOLDER,
    AllowMissing,
    AsJson,
    Backup,
    First,
    Folder,
    Kafka,
    KafkaConfig,
    Master,
    OneDay,
    Store,
    Target,
    Warehouse,
    WebHdfs,
    batch_output_of,
    connect,
    warehouse_of,
)
from .output import as_json, note, table
from .signals import breaking_off
from .times import days_of, parse_day

if TYPE_CHECKING:  # Spark is slow to import, and most commands do without
    from ...backfill.spark import NodeResult

NOW, STORE = "now", "store"
_Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        metavar="LOCATION|bus|store",
        help="Where the batch's output goes; by default the folder backfill in --dir. bus (or bus:LOCATION): from there to the processors' "
        "own categories. store: into the aggregator's remote store, in the place of what that has for these days.",
        show_default=False,
    ),
]
_DayOrNow = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="DAY|now",
        help="The last day, itself included; or now: where the archive ends, the rest is read from the bus, up to its end.",
        show_default=False,
    ),
]


class Ordering(Enum):
    """What may be asked for."""

    FITTING = "fitting"
    ARRIVAL = "arrival"
    EVENT_TIME = "event-time"


def parse_input(text: str) -> tuple[str, str]:
    """Return the category, empty for all, and the location that --input names."""
    name, equals, location = text.partition("=")
    if not equals or "/" in name:  # it is within the location
        return "", text
    if not name or not location:
        raise typer.BadParameter(f"{text!r} names no input; write CATEGORY=LOCATION, or LOCATION for all.")
    return name, location


def backfill(
    target: Target,
    first: First = None,
    last: _DayOrNow = None,
    day: OneDay = None,
    output: _Output = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what the output holds already.")] = False,
    order: Annotated[
        Ordering,
        typer.Option("--order", help="In which order the events come of processors whose result depends on it."),
    ] = Ordering.FITTING,
    chained: Annotated[
        bool,
        typer.Option(
            "--chained", help="Give each processor what those before it give in this run, not what is archived of it."
        ),
    ] = False,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="[CATEGORY=]LOCATION",
            help="Take an input, or all, from the output of an earlier backfill and not from the warehouse; may be repeated.",
            show_default=False,
        ),
    ] = None,
    allow_missing: AllowMissing = False,
    master: Master = "local[*]",
    store: Store = None,
    kafka: Kafka = None,
    kafka_config: KafkaConfig = None,
    warehouse: Warehouse = None,
    webhdfs: WebHdfs = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Run processors in Spark, each over its own archived input, for a range of days.

    Example: penstock backfill examples/flights/app.py --from 2013-01-01 --to 2013-01-31
    """
    from ...backfill.plans import Order  # noqa: PLC0415 - as below
    from ...backfill.spark import run_backfill  # noqa: PLC0415 - Spark is slow to import, and most commands do without

    days = days_of(first, str(date.max) if last == NOW else last, day)
    if output == STORE:
        _refuse_beside_store(
            {
                "--to now": last == NOW,
                "--order": order is not Ordering.FITTING,
                "--chained": chained,
                "--input": bool(inputs),
                "--overwrite": overwrite,
            }
        )
        refill(
            AppName.parse(target),
            open_warehouse(warehouse_of(warehouse, folder), webhdfs),
            connect(kafka, kafka_config, folder),
            store,
            days,
            master=master,
            allow_missing=allow_missing,
            json=json,
        )
        return
    to_bus = output is not None and names_bus(output)
    location = folder_before_bus(output, folder) if output and to_bus else batch_output_of(output, folder)

    def compute() -> list[NodeResult]:
        says = "Categories that were complete are published; of all others nothing changed."
        with breaking_off(says), batch_progress() as show:
            return run_backfill(
                AppName.parse(target),
                open_warehouse(warehouse_of(warehouse, folder), webhdfs),
                first=days[0],
                last=days[1],
                output=location,
                master=master,
                order=None if order is Ordering.FITTING else Order(order.value),
                chained=chained,
                overwrite=overwrite,
                until_now=connect(kafka, kafka_config, folder) if last == NOW else None,
                allow_missing=allow_missing,
                places={name: open_warehouse(place, webhdfs) for name, place in map(parse_input, inputs or ())},
                progress=show,
            )

    if to_bus:
        if last == NOW:
            raise typer.BadParameter(
                "--to now cannot go with --output bus, where it is noted by days what was sent: name the last."
            )
        into_bus(
            AppName.parse(target),
            connect(kafka, kafka_config, folder),
            location,
            webhdfs,
            days,
            compute if json else lambda: _tell(compute(), location, json=False),
            json=json,
        )
        return
    _tell(compute(), location, json=json)


def _tell(results: Sequence[NodeResult], location: str, *, json: bool) -> None:
    if json:
        as_json([asdict(result) for result in results])
        return
    rows = [(r.processor, r.kind, r.events_in, r.events_out, r.set_aside, round(r.seconds, 1)) for r in results]
    table(("processor", "kind", "events in", "out", "set aside", "seconds"), rows)
    for result in results:
        if result.note:
            note(f"{result.processor}: {result.note}.")
    note(f"Written to {location}.")


def _refuse_beside_store(given: dict[str, bool]) -> None:
    unfit = [name for name, is_given in given.items() if is_given]
    if unfit:
        raise typer.BadParameter(
            f"{', '.join(unfit)} cannot go with --output store: values are computed of the archived events that the store has counted, and "
            "replace what it has."
        )


def bootstrap(
    target: Annotated[str, typer.Argument(metavar="APP:PROCESSOR", help="One processor of an app file.")],
    backup: Backup = None,
    store: Store = None,
    first: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="DAY",
            help="The first day of event time (UTC) that counts; by default all.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="now",
            help="now: where the archive ends, the rest is read from the bus, up to its end; by default the archive alone.",
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Also where the processor has run before.")] = False,
    allow_missing: AllowMissing = False,
    master: Master = "local[*]",
    kafka: Kafka = None,
    kafka_config: KafkaConfig = None,
    warehouse: Warehouse = None,
    webhdfs: WebHdfs = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Build a processor's state from the archive, in Spark; `penstock run` then goes on behind the last archived event.

    The state becomes backups, or, of an aggregator with a remote store, what that store has.

    Example: penstock bootstrap examples/flights/app.py:Scorer --backup backups
    """
    if until not in {None, NOW}:
        raise typer.BadParameter(
            f"--to {until}: a state is built of all that is archived, or, with --to now, of the bus's events, too."
        )
    app, bus = AppName.parse(target), connect(kafka, kafka_config, folder)
    since = None if first is None else parse_day(first)
    if keeps_remote_state(app):
        if until == NOW:
            raise typer.BadParameter("--to now cannot go with a remote store: its values are those of the archive.")
        archive = open_warehouse(warehouse_of(warehouse, folder), webhdfs)
        fill(
            app,
            archive,
            bus,
            store,
            since,
            master=master,
            overwrite=overwrite,
            allow_missing=allow_missing,
            json=json,
        )
        return
    if backup is None:
        raise typer.BadParameter(
            "Name the place of backups with --backup, or in the environment variable PENSTOCK_BACKUP: a folder, or hdfs://HOST:PORT/PATH."
        )
    from ...backfill.bootstrap import Destination  # noqa: PLC0415 - Spark is slow to import, and most commands do without
    from ...backfill.bootstrap import bootstrap as build  # noqa: PLC0415 - as above

    with breaking_off("No position was set: the processor stands where it stood."), batch_progress() as show:
        done = build(
            app,
            open_warehouse(warehouse_of(warehouse, folder), webhdfs),
            Destination(bus, open_place(backup, webhdfs), webhdfs),
            first=since,
            master=master,
            overwrite=overwrite,
            until_now=bus if until == NOW else None,
            allow_missing=allow_missing,
            progress=show,
        )
    if json:
        as_json(asdict(done))
        return
    rows = [
        (shard.bucket, shard.events, shard.keys, decimal(shard.size_bytes), shard.backup, dumps(shard.position))
        for shard in done.shards
    ]
    table(("bucket", "events", "values", "size", "backup", "goes on at"), rows)
    for said in done.notes:
        note(f"{said}.")
    if done.set_aside:
        note(f"{done.set_aside:,} events were left out, as {done.processor} asks.")
    note(f"{done.processor} goes on from there: penstock run {target} --backup {backup}")
