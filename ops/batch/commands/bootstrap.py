"""`penstock bootstrap`: builds a stream processor's state in Spark."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from ....backfill.warehouse import open_warehouse
from ....processors import counted
from ....processors.apps import AppName
from ....state.files import open_file_store
from ...shell import (
    DEFAULT_FOLDER,
    NOW,
    AllowMissing,
    AsJson,
    Backup,
    Folder,
    Kafka,
    Master,
    Store,
    Warehouse,
    WebHdfs,
    audited,
    batch_progress,
    connect,
    interruptible,
    note,
    parse_day,
    print_json,
    print_table,
    warehouse_location,
)
from .backfill_into_store import BootstrapOptions, bootstrap_remote_store, has_remote_state

if TYPE_CHECKING:  # Spark is slow to import, and most commands do without
    from ....backfill.run import BootstrapResult


@audited("bootstrap")
def bootstrap(
    target: Annotated[
        str, typer.Argument(metavar="APP:PROCESSOR", help="One processor in an app, which is a file or module.")
    ],
    backup: Backup = None,
    store: Store = None,
    first: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="DAY",
            help="The first day of event time (UTC); the default is all days.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="now",
            help="now: continue from the end of the archive to the current end of the categories. The default is the archive alone.",
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace the state of a processor that has run before."),
    ] = False,
    allow_missing: AllowMissing = False,
    master: Master = "local[*]",
    kafka: Kafka = None,
    warehouse: Warehouse = None,
    webhdfs: WebHdfs = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Build a processor's state from the archive in Spark. `penstock run` then continues after the last archived event.

    The state is stored as backups, or in the remote store of an aggregator.

    Example: penstock bootstrap examples/flights/app.py:Scorer --backup backups
    """
    if until not in {None, NOW}:
        raise typer.BadParameter(f"--to {until} is invalid. Omit it for the archive alone, or use --to now.")
    app, bus = AppName.parse(target), connect(kafka, folder)
    archive = open_warehouse(warehouse_location(warehouse, folder), webhdfs)
    since = None if first is None else parse_day(first)
    options: BootstrapOptions = {"master": master, "overwrite": overwrite, "allow_missing": allow_missing}
    if has_remote_state(app):
        if until == NOW:
            raise typer.BadParameter(
                "--to now and a remote store exclude each other: the values of a store come from the archive."
            )
        bootstrap_remote_store(app, archive, bus, store, since, options, json=json)
        return
    if backup is None:
        raise typer.BadParameter(
            "Name the backup store with --backup or the environment variable PENSTOCK_BACKUP: a folder or hdfs://HOST:PORT/PATH."
        )
    from ....backfill.run import BootstrapTarget  # noqa: PLC0415 - Spark is slow to import, and most commands do without
    from ....backfill.run import bootstrap as build  # noqa: PLC0415 - as above

    effect = "The processor is unchanged. If its workers report an unfinished bootstrap, repeat this command."
    with interruptible(effect), batch_progress() as show:
        done = build(
            app,
            archive,
            BootstrapTarget(bus, open_file_store(backup, webhdfs), webhdfs),
            first=since,
            until_now=bus if until == NOW else None,
            progress=show,
            **options,
        )
    _show(done, f"penstock run {target} --backup {backup}", json=json)


def _show(done: BootstrapResult, run_command: str, *, json: bool) -> None:
    if json:
        print_json(asdict(done))
        return
    rows = [
        (shard.bucket, shard.events, shard.keys, decimal(shard.size_bytes), shard.backup, dumps(shard.position))
        for shard in done.shards
    ]
    print_table(("bucket", "events", "values", "size", "backup", "continues at"), rows)
    for text in done.notes:
        note(f"{text}.")
    if done.rejected:
        note(f"{counted(done.rejected, 'event')} rejected and skipped, as {done.processor} declares.")
    note(f"{done.processor} continues from there: {run_command}")
