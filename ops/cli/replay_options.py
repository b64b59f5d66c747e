"""What a user says of a replay, read: from when to when, with which state, which buckets, how fast."""

from __future__ import annotations

import re
from datetime import datetime, timezone

import typer

from ...backfill.warehouse.warehouse import open_warehouse
from ...processors.declare.partitioner import bucket_of
from ...processors.declare.processor import Processor
from ...state.backups.manifest import BackupId
from ...state.files.file_store import open_file_store
from ...transport.bus import Bus
from ..replay.archive_source import ArchiveEventSource
from ..replay.bus_source import BusEventSource
from ..replay.errors import ReplayRefused
from ..replay.event_source import EventSource, Span
from ..replay.initial_state import AtStart, Empty, FromBackup, Start
from .times import parse_start

_SPEED = re.compile(r"(\d+(?:\.\d+)?)\s*x")


def parse_speed(text: str) -> float:
    """Return how many seconds of the past pass in one."""
    match = _SPEED.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        raise typer.BadParameter(f"{text!r} is not a speed; write 1x for as fast as it was, or 10x.")
    return float(match[1])


def parse_span_of(since: str, until: str | None, now: datetime) -> Span:
    """Return the span that --from and --to name; without an end, it ends with what there is."""
    begin, end = parse_start(since, now), None if until is None else now if until == "now" else parse_start(until, now)
    if isinstance(begin, int) and isinstance(end, int):
        empty = begin >= end
    elif isinstance(begin, datetime) and not isinstance(end, int):
        empty = begin >= (end or now)
    elif end is None:
        empty = False
    else:
        raise typer.BadParameter("--from and --to are both times, or both offsets.")
    if empty:
        raise typer.BadParameter(
            f"From {since} to {until or 'now'} there is nothing: the end does not lie behind the beginning."
        )
    return Span(begin, end)


def span_options(span: Span) -> list[str]:
    """Return a span as the command line has it, to the millisecond."""
    options = ["--from", _point(span.since)]
    return options if span.until is None else [*options, "--to", _point(span.until)]


def _point(point: datetime | int) -> str:
    if isinstance(point, int):
        return str(point)
    return point.astimezone(timezone.utc).isoformat()


def parse_state(text: str, backup: str | None, webhdfs: str | None) -> Start:
    """Return the state that a replay begins with."""
    kind, _, name = text.partition(":")
    if text == "empty":
        return Empty()
    place = None if backup is None else open_file_store(backup, webhdfs)
    if text == "at-start":
        return AtStart(place)
    if kind != "backup" or not name:
        raise typer.BadParameter(f"{text!r} is no state to begin with: write at-start, empty, or backup:ID.")
    if place is None:
        raise ReplayRefused(
            "No place of backups is named. Nothing was read. Give --backup LOCATION or the environment variable PENSTOCK_BACKUP."
        )
    return FromBackup(place, BackupId.parse(name))


def buckets_of(processor: type[Processor], key: str | None, asked: list[int] | None) -> list[int]:
    """Return the bucket numbers that are replayed: of a key the one that it lives in."""
    buckets = processor.inputs()[0].buckets
    beyond = [number for number in asked or () if not 0 <= number < buckets]
    if beyond:
        raise typer.BadParameter(f"{processor.__name__} has no bucket {beyond[0]}: its inputs have 0 to {buckets - 1}.")
    if key is None:
        return sorted(set(asked or range(buckets)))
    home = bucket_of(key.encode(), buckets)
    if asked and home not in asked:
        raise typer.BadParameter(
            f"Events of key {key} lie in bucket {home}, which is not among those that are asked for."
        )
    return [home]


def expect_one_backup(start: Start, numbers: list[int]) -> None:
    """Refuse one backup for several buckets: it is of one."""
    if isinstance(start, FromBackup) and len(numbers) > 1:
        raise typer.BadParameter("A backup is of one bucket: name that with --bucket, or a --key that lives in it.")


def past_of(
    source: str, processor: Processor, bus: Bus, warehouse: str, webhdfs: str | None, *, from_earliest: bool
) -> EventSource:
    """Return where events are read."""
    match source:
        case "bus":
            return BusEventSource(processor, bus, from_earliest=from_earliest)
        case "warehouse":
            return ArchiveEventSource(processor, open_warehouse(warehouse, webhdfs), bus)
        case _:
            raise typer.BadParameter(f"{source!r} is no source of events: write bus or warehouse.")
