"""`penstock backfill --output store` and `penstock bootstrap --store`: write to aggregators' remote stores."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date
from json import dumps
from typing import TYPE_CHECKING, TypedDict

import typer

from ....processors import counted
from ....processors.apps import AppName
from ....processors.shard import is_remote
from ...shell import batch_progress, interruptible, note, print_json, print_table

if TYPE_CHECKING:  # Spark is slow to import, and most commands do without
    from ....backfill.run import StoreBackfillResult, StoreTarget
    from ....backfill.warehouse import Warehouse
    from ....transport import Bus


class BootstrapOptions(TypedDict):
    """Options of both kinds of bootstrap."""

    master: str
    overwrite: bool
    allow_missing: bool


def has_remote_state(app: AppName) -> bool:
    """Return whether an app name refers to one processor with remote state."""
    processors = app.load().processors
    return len(processors) == 1 and is_remote(processors[0])


def backfill_store_days(
    app: AppName,
    warehouse: Warehouse,
    bus: Bus,
    store: str | None,
    days: tuple[date, date],
    *,
    master: str,
    allow_missing: bool,
    json: bool,
) -> None:
    """Replace the values of some days in a remote store, and print the changes."""
    from ....backfill.run import backfill_store  # noqa: PLC0415 - as above

    destination = _destination(bus, store)
    effect = "Each value in the store is either the old or the new one. Repeat the command to finish."
    with interruptible(effect), batch_progress() as show:
        done = backfill_store(
            app,
            warehouse,
            destination,
            first=days[0],
            last=days[1],
            master=master,
            allow_missing=allow_missing,
            progress=show,
        )
    _show_result(done, json=json)


def bootstrap_remote_store(
    app: AppName,
    warehouse: Warehouse,
    bus: Bus,
    store: str | None,
    first: date | None,
    options: BootstrapOptions,
    *,
    json: bool,
) -> None:
    """Fill a remote store from the archive, and print its content."""
    from ....backfill.run import bootstrap_store  # noqa: PLC0415 - as above

    destination = _destination(bus, store)
    effect = "The store is incomplete, and no worker uses it. Repeat the command."
    with interruptible(effect), batch_progress() as show:
        done = bootstrap_store(
            app,
            warehouse,
            destination,
            first=first,
            progress=show,
            **options,
        )
    _show_result(done, json=json)
    if not json:
        note(f"{done.processor} continues from there: penstock run {app.path}:{done.processor} --store …")


def _destination(bus: Bus, store: str | None) -> StoreTarget:
    from ....backfill.run import StoreTarget  # noqa: PLC0415 - as above

    if store is None:
        raise typer.BadParameter("Name the store with --store or the environment variable PENSTOCK_STORE.")
    return StoreTarget(bus, store)


def _show_result(done: StoreBackfillResult, *, json: bool) -> None:
    if json:
        print_json(asdict(done))
        return
    rows = [(shard.bucket, shard.written, shard.removed, dumps(shard.position)) for shard in done.shards]
    print_table(("bucket", "values", "removed", "of events before"), rows)
    note(f"{done.processor}: {counted(done.events, 'event')}{f'; {done.note}' if done.note else ''}.")
    if done.rejected:
        note(f"{counted(done.rejected, 'event')} rejected and skipped, as {done.processor} declares.")
