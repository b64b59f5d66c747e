"""`penstock bootstrap`: state for the stream, built in Spark."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from typing import Annotated

import typer
from rich.filesize import decimal

from ...backfill.warehouse.warehouse import open_warehouse
from ...processors.declare.apps import AppName
from ...state.files.file_store import open_file_store
from .batch_progress import batch_progress
from .into_store import fill, keeps_remote_state
from .options import (
    DEFAULT_FOLDER,
    AllowMissing,
    AsJson,
    Backup,
    Folder,
    Kafka,
    Master,
    Store,
    Warehouse,
    WebHdfs,
    connect,
    warehouse_of,
)
from .output import as_json, note, table
from .signals import breaking_off
from .times import NOW, parse_day


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
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Also where the processor has run before: what is built takes its state's place."
        ),
    ] = False,
    allow_missing: AllowMissing = False,
    master: Master = "local[*]",
    kafka: Kafka = None,
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
    app, bus = AppName.parse(target), connect(kafka, folder)
    archive = open_warehouse(warehouse_of(warehouse, folder), webhdfs)
    since = None if first is None else parse_day(first)
    if keeps_remote_state(app):
        if until == NOW:
            raise typer.BadParameter("--to now cannot go with a remote store: its values are those of the archive.")
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
    from ...backfill.run.bootstrap import BootstrapTarget  # noqa: PLC0415 - Spark is slow to import, and most commands do without
    from ...backfill.run.bootstrap import bootstrap as build  # noqa: PLC0415 - as above

    says = "The processor stands where it stood; should its workers say that a bootstrap was begun, give this command again."
    with breaking_off(says), batch_progress() as show:
        done = build(
            app,
            archive,
            BootstrapTarget(bus, open_file_store(backup, webhdfs), webhdfs),
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
    if done.rejected:
        note(f"{done.rejected:,} events were left out, as {done.processor} asks.")
    note(f"{done.processor} goes on from there: penstock run {target} --backup {backup}")
