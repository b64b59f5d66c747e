"""`penstock watermark`: shows and sets the watermarks of categories."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import msgspec
import typer

from ....processors import PenstockError
from ....processors.time import NEVER_MS
from ....transport import WatermarkWriter
from ....transport.tables import WATERMARKS, WatermarkStatement, deletion_messages, watermarks_on
from ...shell import (
    DEFAULT_FOLDER,
    AsJson,
    Folder,
    Kafka,
    audited,
    connect,
    format_time,
    note,
    parse_time_ms,
    print_json,
    print_table,
)

app = typer.Typer(help="Show watermarks, and set the watermarks of external writers.", no_args_is_help=True)


@app.command("set")
@audited("watermark set")
def set_(
    category: Annotated[str, typer.Argument(help="The category.")],
    time: Annotated[str, typer.Argument(help="The event time up to which all events are written: an ISO time, UTC.")],
    injector: Annotated[
        str,
        typer.Option("--as", metavar="NAME", help="The name of the writer; of several, the lowest watermark counts."),
    ] = "injector",
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Set the watermark of a category: all earlier events are written. A watermark never goes back.

    Example: penstock watermark set flights 2013-02-01T00:00
    """
    time_ms = parse_time_ms(time)
    with WatermarkWriter(connect(kafka, folder), category, injector) as writer:
        writer.advance(time_ms)
    note(f"The watermark of {category} by {injector} is {format_time(time_ms)} UTC.")


@app.command()
def show(
    category: Annotated[str | None, typer.Argument(help="The category; the default is all.")] = None,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Show the watermarks of categories and their writers.

    Example: penstock watermark show flights
    """
    bus = connect(kafka, folder)
    watermarks = watermarks_on(bus)
    found = [
        (name, advance)
        for _, advance in sorted(watermarks.items())
        for name in advance.ends
        if category in (None, name)
    ]
    if category is not None and not found:
        bus.catalog.describe(category)  # an unknown category is an error
    if json:
        print_json([{"category": name, **msgspec.to_builtins(advance)} for name, advance in found])
        return
    if not found:
        note(f"There is no watermark for {category or 'any category'}.")
        return
    print_table(["category", "writer", "watermark", ""], [[name, *_cells(advance)] for name, advance in found])


def _cells(advance: WatermarkStatement) -> list[str]:
    return [f"{advance.writer}/{advance.bucket}", _time(advance.watermark_ms), "idle" if advance.idle else ""]


def _time(time_ms: int | None) -> str:
    return "none" if time_ms in (None, NEVER_MS) else format_time(time_ms)


@app.command()
@audited("watermark forget")
def forget(
    writer_name: Annotated[str, typer.Argument(metavar="WRITER", help="A removed processor, or another writer.")],
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Remove all watermarks of a writer, so that no processor waits for it. A running writer sets them again.

    Example: penstock watermark forget old_filter
    """
    bus = connect(kafka, folder)
    owners = [owner for owner in watermarks_on(bus) if owner[0] == writer_name]
    if not owners:
        raise PenstockError(
            f"{writer_name} has set no watermarks. Nothing was changed. `penstock watermark show` lists all writers."
        )
    with closing(bus.writer()) as writer:
        writer.send(WATERMARKS.name, deletion_messages(owners))
        writer.flush()
    note(f"Removed {len(owners)} watermarks of {writer_name}. No processor waits for it now.")
