"""Options of `penstock replay`, and their parsed values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ....backfill.warehouse import open_warehouse
from ....processors.declare import Processor, plan_of
from ....state.backups import BackupId
from ....transport import Bus
from ....transport.kafka import KafkaBus
from ...shell import BackupLocation, OptionGroup, parse_start
from ..replay import AtStart, BusEventSource, Empty, EventSource, FromBackup, PastRange, ReplayRefused, Start

_SPEED = re.compile(r"(\d+(?:\.\d+)?)\s*x")


@dataclass(frozen=True)
class Selection:
    """The events and the initial state of a replay.

    Args:
        span: the first and the last event.
        description: the span, as the user wrote it.
        start: the initial state.
        key: the only key to output; None for all.
        numbers: the bucket numbers.
        is_part: whether the user named a key or buckets.
    """

    span: PastRange
    description: str
    start: Start
    key: str | None
    numbers: list[int]
    is_part: bool


@dataclass(frozen=True)
class EventOptions(OptionGroup):
    """The events of a replay, and the state before the first of them."""

    since: Annotated[
        str,
        typer.Option("--from", metavar="WHEN", help='Arrival of the first event: "2h ago", a time, or an offset.'),
    ]
    until: Annotated[
        str | None,
        typer.Option("--to", metavar="WHEN", help="End of the span, excluded; the default is now.", show_default=False),
    ] = None
    key: Annotated[str | None, typer.Option("--key", help="Outputs of this key only.", show_default=False)] = None
    bucket: Annotated[
        list[int] | None, typer.Option("--bucket", help="Events of this bucket only; repeatable.", show_default=False)
    ] = None
    state: Annotated[str, typer.Option("--state", metavar="at-start|empty|backup:ID", help="The initial state.")] = (
        "at-start"
    )
    source: Annotated[
        str,
        typer.Option(
            "--source",
            metavar="bus|warehouse",
            help="The source of events; with warehouse, events that are not archived yet come from the bus.",
        ),
    ] = "bus"
    from_earliest: Annotated[bool, typer.Option("--from-earliest", help="Skip events that Kafka has deleted.")] = False

    def select(
        self, processor: type[Processor], backups: BackupLocation, *, default_until: str | None = None
    ) -> Selection:
        """Return the selection of these options."""
        until = self.until or default_until
        numbers = select_buckets(processor, self.key, self.bucket)
        selection = Selection(
            parse_replay_span(self.since, until, datetime.now(UTC)),
            f"{self.since} to {until or 'now'}",
            parse_initial_state(self.state, backups),
            self.key,
            numbers,
            is_part=self.key is not None or bool(self.bucket),
        )
        require_one_bucket(selection.start, numbers)
        return selection

    def open(self, processor: Processor, bus: Bus, warehouse: str, webhdfs: str | None) -> EventSource:
        """Return the source of the events."""
        match self.source:
            case "bus":
                return BusEventSource(processor, bus, from_earliest=self.from_earliest)
            case "warehouse":
                from ..replay import ArchiveEventSource  # noqa: PLC0415 - imports Arrow

                return ArchiveEventSource(processor, open_warehouse(warehouse, webhdfs), bus)
            case _:
                raise typer.BadParameter(f"--source {self.source} is unknown. Use bus or warehouse.")

    def forwarded(self, bus: KafkaBus, folder: Path, backups: BackupLocation, warehouse: str | None) -> list[str]:
        """Return the options with which another process replays the same events from the same state."""
        options = ["--state", self.state, "--source", self.source]
        options += ["--kafka", bus.settings.bootstrap, "--dir", str(folder)]
        options += set_options({"--backup": backups.backup, "--webhdfs": backups.webhdfs, "--warehouse": warehouse})
        return [*options, *(["--from-earliest"] if self.from_earliest else [])]


@dataclass(frozen=True)
class OutputOptions(OptionGroup):
    """The destination of a replay's outputs."""

    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="live|FILE|GIT_REF",
            help="Compare the outputs with those of the live processor or another version; exit with 1 if they differ.",
            show_default=False,
        ),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="Write the outputs to a file of JSON lines.", show_default=False),
    ] = None
    scratch: Annotated[
        str | None,
        typer.Option(
            "--scratch",
            metavar="PREFIX",
            help="Write the outputs to new categories named PREFIX.CATEGORY.",
            show_default=False,
        ),
    ] = None
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=0, help="The largest number of outputs or differences to show.", show_default=False
        ),
    ] = None
    save_as_test: Annotated[
        Path | None,
        typer.Option(
            "--save-as-test", metavar="FILE", help="Write a pytest test with these events.", show_default=False
        ),
    ] = None


@dataclass(frozen=True)
class PlaybackOptions(OptionGroup):
    """The speed and the breakpoints of a replay."""

    break_at: Annotated[
        list[str] | None,
        typer.Option(
            "--break", metavar="KEY", help="Stop in the debugger at events of this key; repeatable.", show_default=False
        ),
    ] = None
    debug: Annotated[bool, typer.Option("--debug", help="Stop in the debugger if the processor raises.")] = False
    speed: Annotated[
        str | None,
        typer.Option(
            "--speed",
            metavar="1x",
            help="1x for the original speed, 10x for ten times that; the default is as fast as possible.",
            show_default=False,
        ),
    ] = None

    @property
    def stops(self) -> bool:
        """Whether the replay may stop in the debugger."""
        return bool(self.break_at) or self.debug

    @property
    def rate(self) -> float | None:
        """Replayed seconds per second; None for as fast as possible."""
        return None if self.speed is None else parse_speed(self.speed)


def set_options(options: dict[str, str | None]) -> list[str]:
    """Return the options with a value, as words of a command line."""
    return [word for name, value in options.items() if value is not None for word in (name, value)]


def parse_speed(text: str) -> float:
    """Return replayed seconds per second."""
    match = _SPEED.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        raise typer.BadParameter(
            f"--speed {text!r} is invalid. Write 1x for the original speed, or 10x for ten times that."
        )
    return float(match[1])


def parse_replay_span(since: str, until: str | None, now: datetime) -> PastRange:
    """Return the span of --from and --to; without --to it ends with the last event."""
    start, end = parse_start(since, now), None if until is None else now if until == "now" else parse_start(until, now)
    if isinstance(start, int) and isinstance(end, int):
        is_empty = start >= end
    elif isinstance(start, datetime) and not isinstance(end, int):
        is_empty = start >= (end or now)
    elif end is None:
        is_empty = False
    else:
        raise typer.BadParameter("--from and --to must both be times, or both be offsets.")
    if is_empty:
        raise typer.BadParameter(f"--to must be later than --from: {since} to {until or 'now'} contains no events.")
    return PastRange(start, end)


def span_options(span: PastRange) -> list[str]:
    """Return a span as options, to the millisecond."""
    options = ["--from", _point(span.since)]
    return options if span.until is None else [*options, "--to", _point(span.until)]


def _point(point: datetime | int) -> str:
    if isinstance(point, int):
        return str(point)
    return point.astimezone(UTC).isoformat()


def parse_initial_state(text: str, backups: BackupLocation) -> Start:
    """Return the initial state of a replay."""
    kind, _, name = text.partition(":")
    if text == "empty":
        return Empty()
    store = backups.open()
    if text == "at-start":
        return AtStart(store)
    if kind != "backup" or not name:
        raise typer.BadParameter(f"--state {text} is unknown. Use at-start, empty, or backup:ID.")
    if store is None:
        raise ReplayRefused(
            f"--state {text} needs a backup store, and none is named. Nothing was read. Name it with --backup LOCATION or the environment "
            "variable PENSTOCK_BACKUP."
        )
    return FromBackup(store, BackupId.parse(name))


def select_buckets(processor: type[Processor], key: str | None, numbers: list[int] | None) -> list[int]:
    """Return the bucket numbers to replay: all, the named ones, or the bucket of a key if the partitioner is known."""
    category = plan_of(processor).inputs[0]
    buckets = category.buckets
    unknown = [number for number in numbers or () if not 0 <= number < buckets]
    if unknown:
        raise typer.BadParameter(
            f"{processor.__name__} has no bucket {unknown[0]}. Its inputs have buckets 0 to {buckets - 1}."
        )
    if key is None or category.partitioner is None:
        return sorted(set(numbers or range(buckets)))
    bucket = category.bucket_of(key)
    if numbers and bucket not in numbers:
        raise typer.BadParameter(f"Events of key {key} are in bucket {bucket}. Omit --bucket, or name that bucket.")
    return [bucket]


def require_one_bucket(start: Start, numbers: list[int]) -> None:
    """Raise BadParameter if several buckets would start from one backup."""
    if isinstance(start, FromBackup) and len(numbers) > 1:
        raise typer.BadParameter(
            "A backup contains one bucket. Name that bucket with --bucket, or one of its keys with --key."
        )
