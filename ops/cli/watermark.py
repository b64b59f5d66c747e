"""`penstock watermark`: shows and sets the watermarks of categories."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import msgspec
import typer

from ...processors.errors import PenstockError
from ...processors.time.watermarks import NEVER_MS
from ...transport.tables.upstream_watermarks import WATERMARKS, WatermarkStatement, deletion_messages, watermarks_on
from ...transport.watermark_writer import WatermarkWriter
from .options import DEFAULT_FOLDER, AsJson, Folder, Kafka, connect
from .output import as_json, note, table
from .times import parse_time_ms, shown_time

app = typer.Typer(help="Show watermarks, and set those of categories with external writers.", no_args_is_help=True)


@app.command("set")
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
    with WatermarkWriter(connect(kafka, folder), category, injector) as injecting:
        injecting.advance(time_ms)
    note(f"The watermark of {category} by {injector} is {shown_time(time_ms)} UTC.")


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
    promises = watermarks_on(connect(kafka, folder))
    found = [
        (name, advance) for _, advance in sorted(promises.items()) for name in advance.ends if category in (None, name)
    ]
    if json:
        as_json([{"category": name, **msgspec.to_builtins(advance)} for name, advance in found])
        return
    if not found:
        note(f"There is no watermark for {category or 'any category'}.")
        return
    table(["category", "writer", "watermark", ""], [[name, *_shown(advance)] for name, advance in found])


def _shown(advance: WatermarkStatement) -> list[str]:
    return [f"{advance.promiser}/{advance.bucket}", _time(advance.watermark_ms), "idle" if advance.idle else ""]


def _time(time_ms: int | None) -> str:
    return "none" if time_ms in (None, NEVER_MS) else shown_time(time_ms)


@app.command()
def forget(
    promiser: Annotated[str, typer.Argument(help="A removed processor, or another writer.")],
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Remove all watermarks of a writer, so that no processor waits for it. A running writer sets them again.

    Example: penstock watermark forget old_filter
    """
    bus = connect(kafka, folder)
    places = [place for place in watermarks_on(bus) if place[0] == promiser]
    if not places:
        raise PenstockError(
            f"{promiser} has set no watermarks. Nothing was changed. `penstock watermark show` lists all writers."
        )
    with closing(bus.writer()) as writer:
        writer.send(WATERMARKS.name, deletion_messages(places))
        writer.flush()
    note(f"Removed {len(places)} watermarks of {promiser}. No processor waits for it now.")
