"""`penstock backfill --output bus`: writes the batch to a folder, and sends it from there to Kafka."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from ...processors.declare.apps import AppName
from .options import batch_output_of
from .output import as_json, note, steps, table
from .signals import breaking_off

if TYPE_CHECKING:  # Arrow is slow to import, and most commands do without
    from ...transport.bus import Bus

BUS = "bus"


def names_bus(output: str) -> bool:
    """Return whether an output is the bus: ``bus``, or ``bus:LOCATION`` with a folder."""
    return output.partition(":")[0] == BUS


def folder_before_bus(output: str, folder: Path) -> str:
    """Return the folder of the batch before it is sent."""
    return batch_output_of(output.partition(":")[2] or None, folder)


def into_bus(
    app: AppName,
    bus: Bus,
    location: str,
    webhdfs: str | None,
    days: tuple[date, date],
    compute: Callable[[], object],
    *,
    json: bool,
) -> None:
    """Compute a batch, unless its folder contains one that was partly sent; then send it.

    Args:
        app: the app.
        bus: the destination.
        location: the batch's folder.
        webhdfs: for HDFS, the address of WebHDFS.
        days: the first and the last.
        compute: runs the batch into the folder.
        json: whether to print JSON.
    """
    from ...backfill.outputs.bus_output import must_compute, send_batch  # noqa: PLC0415 - as above
    from ...backfill.warehouse.layout import Days  # noqa: PLC0415 - as above
    from ...backfill.warehouse.warehouse import open_warehouse  # noqa: PLC0415 - as above

    folder, asked = open_warehouse(location, webhdfs), Days(*days)
    written = {category.name: category for processor in app.load().processors for category in processor.outputs()}
    for name in written:
        bus.catalog.ends(name)  # a missing category is an error before anything is computed
    if must_compute(bus, folder, list(written.values()), asked):
        compute()
    else:
        note(f"The batch of {asked} in {location} was partly sent. It is not computed again.")
    says = "Sent records are in Kafka once. Repeat the command to send the rest."
    with breaking_off(says), steps() as show:
        done = [
            send_batch(bus, folder, category, asked, lambda name, sent, total: show(f"{name}: {sent} of {total}"))
            for category in written.values()
        ]
    if json:
        as_json([asdict(sent) for sent in done])
        return
    table(("category", "records", "sent before"), [(sent.category, sent.records, sent.sent_before) for sent in done])
    note("All records are in Kafka, each once.")
