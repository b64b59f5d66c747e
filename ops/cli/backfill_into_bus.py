"""`penstock backfill --output bus`: writes the batch to a folder, and sends it from there to Kafka."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import date
from typing import TYPE_CHECKING

from ...processors.apps.apps import AppName
from .options import expect_main_cluster
from .output import note, print_json, print_table, progress_steps
from .signals import interruptible

if TYPE_CHECKING:  # Arrow is slow to import, and most commands do without
    from ...transport.bus import Bus

BUS = "bus"


def backfill_into_bus(
    app: AppName,
    bus: Bus,
    location: str,
    webhdfs: str | None,
    days: tuple[date, date],
    compute: Callable[[], object],
    *,
    json: bool,
) -> None:
    """Compute a batch, and send it. A partly sent batch in the folder is not computed again.

    Args:
        app: the app.
        bus: the destination.
        location: the batch's folder.
        webhdfs: for HDFS, the address of WebHDFS.
        days: the first and the last day.
        compute: runs the batch into the folder.
        json: whether to print JSON.
    """
    from ...backfill.outputs.bus_output import must_compute, send_batch  # noqa: PLC0415 - as above
    from ...backfill.warehouse.layout import Days  # noqa: PLC0415 - as above
    from ...backfill.warehouse.warehouse import open_warehouse  # noqa: PLC0415 - as above

    folder, span = open_warehouse(location, webhdfs), Days(*days)
    written = {category.name: category for processor in app.load().processors for category in processor.outputs()}
    expect_main_cluster(
        written.values(),
        "filled by a backfill",
        "Write the result into a folder with `--output LOCATION`, and send it with a program of yours.",
    )
    for name in written:
        bus.catalog.ends(name)  # a missing category is an error before anything is computed
    if must_compute(bus, folder, list(written.values()), span):
        compute()
    else:
        note(f"The batch of {span} in {location} was partly sent. It is not computed again.")
    effect = "Sent records are in Kafka once. Repeat the command to send the rest."
    with interruptible(effect), progress_steps() as show:
        done = [
            send_batch(bus, folder, category, span, lambda name, sent, total: show(f"{name}: {sent} of {total}"))
            for category in written.values()
        ]
    if json:
        print_json([asdict(sent) for sent in done])
        return
    print_table(
        ("category", "records", "sent before"), [(sent.category, sent.records, sent.sent_before) for sent in done]
    )
    note("All records are in Kafka, each once.")
