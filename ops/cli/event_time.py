"""`penstock watermark`: what is promised about event time, and setting it from outside."""

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

app = typer.Typer(
    help="Look at watermarks, and set those of categories that are written from outside.", no_args_is_help=True
)


@app.command("set")
def set_(
    category: Annotated[str, typer.Argument(help="The category.")],
    time: Annotated[str, typer.Argument(help="All events before this time are on the bus: an ISO time, UTC.")],
    injector: Annotated[
        str, typer.Option("--as", metavar="NAME", help="Who promises; where several do, the least counts.")
    ] = "injector",
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Promise that all events of a category before a time are on the bus. It never goes back.

    Example: penstock watermark set flights 2013-02-01T00:00
    """
    time_ms = parse_time_ms(time)
    with WatermarkWriter(connect(kafka, folder), category, injector) as injecting:
        injecting.advance(time_ms)
    note(f"{injector} promises: {category} is complete up to {shown_time(time_ms)} UTC.")


@app.command()
def show(
    category: Annotated[str | None, typer.Argument(help="The category; by default all.")] = None,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Show what is promised about categories, and by whom.

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
        note(f"Nobody promises anything about {category or 'any category'}.")
        return
    table(["category", "promised by", "complete up to", ""], [[name, *_shown(advance)] for name, advance in found])


def _shown(advance: WatermarkStatement) -> list[str]:
    return [f"{advance.promiser}/{advance.bucket}", _time(advance.watermark_ms), "idle" if advance.idle else ""]


def _time(time_ms: int | None) -> str:
    return "nothing yet" if time_ms in (None, NEVER_MS) else shown_time(time_ms)


@app.command()
def forget(
    promiser: Annotated[str, typer.Argument(help="A processor that is removed for good, or an injector.")],
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Take a promiser's promises back: nobody waits for it any more. If it still works, it promises again.

    Example: penstock watermark forget old_filter
    """
    bus = connect(kafka, folder)
    places = [place for place in watermarks_on(bus) if place[0] == promiser]
    if not places:
        raise PenstockError(
            f"{promiser} has promised nothing, so there is nothing to take back. `penstock watermark show` lists who has."
        )
    with closing(bus.writer()) as writer:
        writer.send(WATERMARKS.name, deletion_messages(places))
        writer.flush()
    note(f"Took back {len(places)} promises of {promiser}; nobody waits for it any more.")
