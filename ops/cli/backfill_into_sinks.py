"""`penstock backfill --output sinks`: writes the batch to a folder, and its rows from there to the sinks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import date
from typing import TYPE_CHECKING

from ...processors.apps.apps import AppName
from ...processors.wording import counted
from .output import note, print_json, print_table, progress_steps
from .signals import interruptible

if TYPE_CHECKING:  # Arrow is slow to import, and most commands do without
    from ...transport.bus import Bus

SINKS = "sinks"


def backfill_into_sinks(
    app: AppName,
    bus: Bus,
    location: str,
    webhdfs: str | None,
    days: tuple[date, date],
    compute: Callable[[], object],
    *,
    json: bool,
) -> None:
    """Compute a batch, and write the rows of its sinks. A batch that an earlier run has begun to write is not computed again.

    Args:
        app: the app.
        bus: contains what was written.
        location: the batch's folder.
        webhdfs: for HDFS, the address of WebHDFS.
        days: the first and the last day.
        compute: runs the batch into the folder.
        json: whether to print JSON.
    """
    from ...backfill.outputs.sink_output import (  # noqa: PLC0415 - as above
        expect_writable,
        must_compute_rows,
        write_rows,
    )
    from ...backfill.warehouse.layout import Days  # noqa: PLC0415 - as above
    from ...backfill.warehouse.warehouse import open_warehouse  # noqa: PLC0415 - as above

    folder, span = open_warehouse(location, webhdfs), Days(*days)
    sinks = list({sink.name: sink for processor in app.load().processors for sink in processor.sinks()}.values())
    expect_writable(sinks)
    if must_compute_rows(bus, folder, sinks, span):
        compute()
    else:
        note(f"The rows of {span} in {location} are computed, and perhaps partly written. They are not computed again.")
    for sink in filter(lambda sink: sink.replaces_rows, sinks):
        note(f"{sink.name}: each row replaces the row of its key, also one that a worker has written since.")
    effect = "Repeat the command to write the other rows."
    with interruptible(effect), progress_steps() as show:
        done = [
            write_rows(bus, folder, sink, span, lambda name, rows, total: show(f"{name}: {rows} of {total}"))
            for sink in sinks
        ]
    if json:
        print_json([asdict(filled) for filled in done])
        return
    print_table(
        ("sink", "rows", "written before", "refused"),
        [(filled.sink, filled.rows, filled.written_before, filled.refused) for filled in done],
    )
    for filled in done:
        if filled.refused:
            note(
                f"{filled.sink} refused {counted(filled.refused, 'row')}, the first one because: {filled.reason} Refused rows are in {location} only."
            )
