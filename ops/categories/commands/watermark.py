"""`penstock watermark`: shows and sets the watermarks of categories."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import msgspec
import typer

from ....processors import PenstockError
from ....processors.time import NEVER_MS
from ....transport import Bus, WatermarkWriter
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
    category: Annotated[str | None, typer.Argument(help="The category.", show_default=False)] = None,
    time: Annotated[
        str | None,
        typer.Argument(help="The event time up to which all events are written: an ISO time, UTC.", show_default=False),
    ] = None,
    injector: Annotated[
        str,
        typer.Option("--as", metavar="NAME", help="The name of the writer; of several, the lowest watermark counts."),
    ] = "injector",
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Remove all watermarks of the writer instead, such as of a removed processor, so that no processor waits for it.",
        ),
    ] = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Set the watermark of a category: all earlier events are written. A watermark never goes back; --forget removes it.

    Example: penstock watermark set flights 2013-02-01T00:00

    Example: penstock watermark set --as old_filter --forget
    """
    if forget:
        if category is not None:
            raise typer.BadParameter(
                "--forget removes the watermarks of the writer that --as names, of all categories. Nothing was changed. Leave the category out."
            )
        _forget(connect(kafka, folder), injector)
        return
    if category is None or time is None:
        raise typer.BadParameter("A category and a time are missing. Nothing was changed. Write CATEGORY TIME.")
    time_ms = parse_time_ms(time)
    with WatermarkWriter(connect(kafka, folder), category, injector) as writer:
        writer.advance(time_ms)
    note(f"The watermark of {category} by {injector} is {format_time(time_ms)} UTC.")


def _forget(bus: Bus, name: str) -> None:
    """Remove all watermarks of a writer. A running writer sets them again."""
    owners = [owner for owner in watermarks_on(bus) if owner[0] == name]
    if not owners:
        raise PenstockError(
            f"{name} has set no watermarks. Nothing was changed. `penstock watermark show` lists all writers."
        )
    with closing(bus.writer()) as writer:
        writer.send(WATERMARKS.name, deletion_messages(owners))
        writer.flush()
    note(f"Removed {len(owners)} watermarks of {name}. No processor waits for it now.")


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
