"""What `penstock backfill --output store` and `penstock bootstrap --store` do: fill aggregators' remote stores."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date
from json import dumps
from typing import TYPE_CHECKING

import typer

from ...processors.declare.apps import AppName
from ...processors.shard.checkpoints import is_remote
from .batch_progress import batch_progress
from .output import as_json, note, table
from .signals import breaking_off

if TYPE_CHECKING:  # Spark is slow to import, and most commands do without
    from ...backfill.run.store_backfill import StoreBackfillResult, StoreTarget
    from ...backfill.warehouse.warehouse import Warehouse
    from ...transport.bus import Bus


def keeps_remote_state(app: AppName) -> bool:
    """Tell whether the one processor that is named keeps its state in a remote store."""
    processors = app.load().processors
    return len(processors) == 1 and is_remote(processors[0])


def refill(
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
    """Replace the windows of some days, and say what was replaced."""
    from ...backfill.run.store_backfill import backfill_store  # noqa: PLC0415 - as above

    destination = _destination(bus, store)
    says = "Each value in the store is the one that was or the one that was computed; start it again for the rest."
    with breaking_off(says), batch_progress() as show:
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
    _tell(done, json=json)


def fill(
    app: AppName,
    warehouse: Warehouse,
    bus: Bus,
    store: str | None,
    first: date | None,
    *,
    master: str,
    overwrite: bool,
    allow_missing: bool,
    json: bool,
) -> None:
    """Fill the store of an aggregator that is to go on at the archive's end, and say what it has."""
    from ...backfill.run.store_backfill import bootstrap_store  # noqa: PLC0415 - as above

    destination = _destination(bus, store)
    says = "No worker opens what is not whole; start it again."
    with breaking_off(says), batch_progress() as show:
        done = bootstrap_store(
            app,
            warehouse,
            destination,
            first=first,
            master=master,
            overwrite=overwrite,
            allow_missing=allow_missing,
            progress=show,
        )
    _tell(done, json=json)
    if not json:
        note(f"{done.processor} goes on from there: penstock run {app.path}:{done.processor} --store …")


def _destination(bus: Bus, store: str | None) -> StoreTarget:
    from ...backfill.run.store_backfill import StoreTarget  # noqa: PLC0415 - as above

    if store is None:
        raise typer.BadParameter("Name the store with --store, or in the environment variable PENSTOCK_STORE.")
    return StoreTarget(bus, store)


def _tell(done: StoreBackfillResult, *, json: bool) -> None:
    if json:
        as_json(asdict(done))
        return
    rows = [(shard.bucket, shard.written, shard.removed, dumps(shard.position)) for shard in done.shards]
    table(("bucket", "values", "removed", "of events before"), rows)
    note(f"{done.processor}: {done.events:,} events{f'; {done.note}' if done.note else ''}.")
    if done.rejected:
        note(f"{done.rejected:,} events were left out, as {done.processor} asks.")
