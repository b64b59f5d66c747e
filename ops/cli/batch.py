"""`penstock backfill` and `bootstrap`: the same processors in Spark, and state for the stream."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date
from enum import Enum
from json import dumps
from typing import Annotated

import typer
from rich.filesize import decimal

from ...backfill.warehouse import open_warehouse
from ...processors.apps import AppName
from ...state.backups.places import open_place
from .batch_progress import batch_progress
from .options import (
    DEFAULT_FOLDER,
    AllowMissing,
    AsJson,
    BatchOutput,
    First,
    Folder,
    Kafka,
    KafkaConfig,
    Master,
    OneDay,
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

NOW = "now"
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
    output: BatchOutput = None,
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
    says = "Categories that were complete are published; of all others nothing changed."
    with breaking_off(says), batch_progress() as show:
        results = run_backfill(
            AppName.parse(target),
            open_warehouse(warehouse_of(warehouse, folder), webhdfs),
            first=days[0],
            last=days[1],
            output=batch_output_of(output, folder),
            master=master,
            order=None if order is Ordering.FITTING else Order(order.value),
            chained=chained,
            overwrite=overwrite,
            until_now=connect(kafka, kafka_config, folder) if last == NOW else None,
            allow_missing=allow_missing,
            places={name: open_warehouse(place, webhdfs) for name, place in map(parse_input, inputs or ())},
            progress=show,
        )
    if json:
        as_json([asdict(result) for result in results])
        return
    rows = [(r.processor, r.kind, r.events_in, r.events_out, r.set_aside, round(r.seconds, 1)) for r in results]
    table(("processor", "kind", "events in", "out", "set aside", "seconds"), rows)
    for result in results:
        if result.note:
            note(f"{result.processor}: {result.note}.")
    note(f"Written to {batch_output_of(output, folder)}.")


def bootstrap(
    target: Annotated[str, typer.Argument(metavar="APP:PROCESSOR", help="One processor of an app file.")],
    backup: Annotated[
        str,
        typer.Option(
            "--backup",
            envvar="PENSTOCK_BACKUP",
            metavar="LOCATION",
            help="Where its workers look for backups: a folder, or hdfs://HOST:PORT/PATH.",
            show_default=False,
        ),
    ],
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
    """Build a processor's state from the archive, in Spark; `penstock run --backup` then goes on behind the last archived event.

    Example: penstock bootstrap examples/flights/app.py:Scorer --backup backups
    """
    if until not in {None, NOW}:
        raise typer.BadParameter(
            f"--to {until}: a state is built of all that is archived, or, with --to now, of the bus's events, too."
        )
    from ...backfill.bootstrap import Destination  # noqa: PLC0415 - Spark is slow to import, and most commands do without
    from ...backfill.bootstrap import bootstrap as build  # noqa: PLC0415 - as above

    app, bus = AppName.parse(target), connect(kafka, kafka_config, folder)
    with breaking_off("No position was set: the processor stands where it stood."), batch_progress() as show:
        done = build(
            app,
            open_warehouse(warehouse_of(warehouse, folder), webhdfs),
            Destination(bus, open_place(backup, webhdfs), webhdfs),
            first=None if first is None else parse_day(first),
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
