"""`penstock watermark` and `penstock status`: how far event time is, who holds it back, and setting it from outside."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import Annotated

import msgspec
import typer

from ...processors.apps import AppName
from ...processors.errors import PenstockError
from ...processors.watermarks import NEVER_MS
from ...transport.bus import Bus
from ...transport.injecting import Injector
from ...transport.promises import WATERMARKS, Promise, promises_on, taken_back
from ..watching.standing import Standing, standing_of
from .options import DEFAULT_FOLDER, AsJson, Folder, Kafka, Target, connect
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
    with Injector(connect(kafka, folder), category, injector) as injecting:
        injecting.promise(time_ms)
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
    promises = promises_on(connect(kafka, folder))
    found = [
        (name, promise) for _, promise in sorted(promises.items()) for name in promise.ends if category in (None, name)
    ]
    if json:
        as_json([{"category": name, **msgspec.to_builtins(promise)} for name, promise in found])
        return
    if not found:
        note(f"Nobody promises anything about {category or 'any category'}.")
        return
    table(["category", "promised by", "complete up to", ""], [[name, *_shown(promise)] for name, promise in found])


def _shown(promise: Promise) -> list[str]:
    return [f"{promise.promiser}/{promise.bucket}", _time(promise.watermark_ms), "idle" if promise.idle else ""]


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
    places = [place for place in promises_on(bus) if place[0] == promiser]
    if not places:
        raise PenstockError(
            f"{promiser} has promised nothing, so there is nothing to take back. `penstock watermark show` lists who has."
        )
    with closing(bus.writer()) as writer:
        writer.send(WATERMARKS.name, taken_back(places))
        writer.flush()
    note(f"Took back {len(places)} promises of {promiser}; nobody waits for it any more.")


def status(
    target: Target,
    buckets: Annotated[bool, typer.Option("--buckets", help="Show each bucket.")] = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Show how far an app's processors are: the events that are left, their event time, and the bucket that holds it back.

    Example: penstock status examples/flights/app.py
    """
    name = AppName.parse(target)
    bus = connect(kafka, folder)
    found = _standings(name, bus)
    if json:
        as_json([{**asdict(standing), "behind": standing.behind, "low_ms": standing.low_ms} for standing in found])
        return
    table(
        ["processor", "events left", "low watermark (UTC)", "held back by"],
        [[one.processor, one.behind, _time(one.low_ms), _holder(one)] for one in found],
    )
    if buckets:
        rows = [
            [
                f"{one.processor}/{shard.bucket}",
                shard.behind,
                _time(shard.low_ms),
                "idle" if shard.idle else shard.held_by,
            ]
            for one in found
            for shard in one.shards
        ]
        table(["shard", "events left", "low watermark (UTC)", ""], rows)


def _standings(name: AppName, bus: Bus) -> list[Standing]:
    promises = promises_on(bus)
    return [standing_of(processor, bus, promises) for processor in name.load().processors]


def _holder(standing: Standing) -> str:
    holder = standing.holder
    return f"bucket {holder.bucket}" + (f", by {holder.held_by}" if holder.held_by else "")
