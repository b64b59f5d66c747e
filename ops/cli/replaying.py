"""`penstock replay`: a processor over a piece of the past, beside the live one and without side effects."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer

from ...processors.declare.apps import AppName
from ...processors.declare.processor import Processor
from ...processors.shard.source_events import SourceEvents
from ...transport.bus import Bus
from ..replay.call_hooks import only
from ..replay.counts import ReplayCounts
from ..replay.debugger import Debugger
from ..replay.differences import compare
from ..replay.errors import ReplayStopped
from ..replay.event_source import Span
from ..replay.initial_state import Start
from ..replay.live_outputs import LiveComparison, Replayed, compare_with_live
from ..replay.output_collector import Give, OutputCollector
from ..replay.outputs import OutputRecord
from ..replay.pacing import paced
from ..replay.past_watermarks import past_watermarks
from ..replay.replay import Plays, Replay, ReplayCallbacks, ShardReplay, one_by_one, side_by_side
from ..replay.saved_test import Gathered, write_test
from ..replay.shard_replay import ShardReplayer
from ..replay.sinks import LinesFile, ScratchCategories
from ..replay.subprocess_replay import replay_in_subprocess
from ..replay.versions import version
from ..worker.preflight import expect_categories, opened
from .options import (
    DEFAULT_FOLDER,
    AsJson,
    Backup,
    Folder,
    Kafka,
    Warehouse,
    WebHdfs,
    connect,
    warehouse_of,
)
from .output import note, progress
from .replay_options import (
    buckets_of,
    expect_one_backup,
    parse_span_of,
    parse_speed,
    parse_state,
    past_of,
    span_options,
)
from .replayed import Screen, conclude, show_differences
from .root import handed_on
from .signals import breaking_off
from .states import one_processor

LIVE = "live"


@dataclass(frozen=True)
class Asked:
    """What is to be replayed.

    Args:
        app: the app file and the processor.
        processor: the processor.
        span: from when to when.
        start: with which state.
        key: only what comes of this key's events; None for all.
        numbers: the bucket numbers.
        is_part: whether only a key or some buckets were asked for.
    """

    app: AppName
    processor: type[Processor]
    span: Span
    start: Start
    key: str | None
    numbers: list[int]
    is_part: bool


def replay(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="APP:PROCESSOR", help="An app file and one processor of it.")],
    since: Annotated[
        str,
        typer.Option("--from", metavar="WHEN", help='When the first event arrived: "2h ago", a time, or an offset.'),
    ],
    until: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="WHEN", help="Up to when, itself not included; by default now.", show_default=False
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Only what comes of this key's events.", show_default=False)
    ] = None,
    bucket: Annotated[
        list[int] | None, typer.Option("--bucket", help="Only this bucket; may be repeated.", show_default=False)
    ] = None,
    state: Annotated[
        str, typer.Option("--state", metavar="at-start|empty|backup:ID", help="The state that it begins with.")
    ] = "at-start",
    source: Annotated[
        str,
        typer.Option(
            "--source", metavar="bus|warehouse", help="Where events are read; what is not archived, from the bus."
        ),
    ] = "bus",
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="live|FILE|GIT_REF",
            help="Show how the outputs differ from those of the live processor, or of another version; exit with 1 where they do.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="Write the outputs there, as JSON lines.", show_default=False),
    ] = None,
    scratch: Annotated[
        str | None,
        typer.Option(
            "--scratch",
            metavar="PREFIX",
            help="Write the outputs to new categories, PREFIX.CATEGORY for each.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=0, help="Show at most so many outputs, or differences.", show_default=False),
    ] = None,
    stop_at: Annotated[
        list[str] | None,
        typer.Option(
            "--break",
            metavar="KEY",
            help="Stop in the debugger at this key's events; may be repeated.",
            show_default=False,
        ),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Stop in the debugger where the processor raises.")] = False,
    save_as_test: Annotated[
        Path | None,
        typer.Option(
            "--save-as-test", metavar="FILE", help="Write a test with these events, for pytest.", show_default=False
        ),
    ] = None,
    speed: Annotated[
        str | None,
        typer.Option(
            "--speed", metavar="1x", help="As fast as it was, or 10x; by default as fast as can be.", show_default=False
        ),
    ] = None,
    from_earliest: Annotated[bool, typer.Option("--from-earliest", help="Leave out what the bus has dropped.")] = False,
    backup: Backup = None,
    warehouse: Warehouse = None,
    webhdfs: WebHdfs = None,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Run a processor over a piece of the past, beside the live one.

    It belongs to no group and works on a scratch state; nothing goes to the processor's categories, stores or backups. Rows of lookup joins are
    read where they are now. The same replay gives the same outputs.

    Example: penstock replay examples/flights/app.py:Scorer --from "2h ago" --to "1h ago"

    Example: penstock replay examples/flights/app.py:Scorer --from "2h ago" --against HEAD~1 --backup hdfs://namenode:8020/backups

    Example: penstock replay examples/flights/app.py:Scorer --from "2h ago" --key JFK-LAX --state empty --save-as-test test_lax.py
    """
    processor, bus = one_processor(target), connect(kafka, folder)
    # A comparison needs an end: two replays of a span that ends with what there is would not end at one place.
    until = until or ("now" if against is not None and not since.isdecimal() else None)
    asked = Asked(
        AppName(AppName.parse(target).path, processor.__name__),
        processor,
        parse_span_of(since, until, datetime.now(timezone.utc)),
        parse_state(state, backup, webhdfs),
        key,
        buckets_of(processor, key, bucket),
        is_part=key is not None or bool(bucket),
    )
    expect_one_backup(asked.start, asked.numbers)
    rate = None if speed is None else parse_speed(speed)
    options = [
        *handed_on(context),
        "--state",
        state,
        "--source",
        source,
        "--kafka",
        bus.settings.bootstrap,
        "--dir",
        str(folder),
    ]
    options += _given({"--backup": backup, "--webhdfs": webhdfs, "--warehouse": warehouse})
    options += ["--from-earliest"] * from_earliest
    expect_categories(processor, processor.inputs(), bus)
    began_s = time.monotonic()
    with breaking_off("What was to be written was not."), ExitStack() as around:
        theirs = _theirs(around, asked, against, options)
        running = around.enter_context(closing(opened(processor)))
        past = past_of(source, running, bus, warehouse_of(warehouse, folder), webhdfs, from_earliest=from_earliest)
        promises = around.enter_context(past_watermarks(running, bus))
        shards = Replay(running, past, asked.span, asked.start, asked.numbers, promises).shards()
        debugging = Debugger(running, stop_at or ()) if stop_at or debug else None
        if key is not None:
            only(running, key)
        screen = Screen(limit, json=json)
        gives = _sinks(around, asked, bus, output, scratch) or ([screen.give] if against is None else [])
        taking = OutputCollector(processor, key, gives, keeps=against is not None)
        with _saving(save_as_test, asked, since, until) as note_event:
            company = ReplayCallbacks(
                tell=note,
                watch=lambda seen: _all((taking.inputs.note, note_event), seen),
                playing=lambda playing: _follow(debugging, playing),
            )
            played = _played(around, shards, taking.counts, rate, company, quiet=debugging is not None)
            taking.all(around.enter_context(closing(played)))
    screen.close()
    differ = against is not None and _differ(asked, against, theirs, taking, bus, limit, json=json)
    conclude(processor, taking.counts, time.monotonic() - began_s, json=json)
    if differ:
        raise typer.Exit(1)


def _given(options: dict[str, str | Path | None]) -> list[str]:
    return [word for name, value in options.items() if value is not None for word in (name, str(value))]


def _theirs(around: ExitStack, asked: Asked, against: str | None, options: list[str]) -> list[OutputRecord] | None:
    """Return what another version gives; None where none is asked for."""
    if against is None or against == LIVE:
        return None
    other = around.enter_context(version(asked.app, against))
    options = [*options, *span_options(asked.span), *_given({"--key": asked.key})]
    if asked.is_part:
        options += [word for number in asked.numbers for word in ("--bucket", str(number))]
    note(f"Replaying {against} …")
    return replay_in_subprocess(other, options)


def _sinks(around: ExitStack, asked: Asked, bus: Bus, output: Path | None, scratch: str | None) -> list[Give]:
    """Return what takes the outputs, where they are not to be shown."""
    gives: list[Give] = []
    if output is not None:
        gives.append(around.enter_context(LinesFile(output)).give)
    if scratch is not None:
        gives.append(around.enter_context(ScratchCategories(asked.processor, scratch, bus)).give)
    return gives


@contextmanager
def _saving(path: Path | None, asked: Asked, since: str, until: str | None) -> Iterator[Callable[[SourceEvents], None]]:
    """Give what notes events for a test; it is written when the block ends, also with those up to one that the processor raised for."""
    gathered = Gathered(asked.key)
    if path is None:
        yield lambda _: None
        return
    try:
        yield gathered.note
    except ReplayStopped:
        _save(path, asked, gathered, since, until)
        raise
    _save(path, asked, gathered, since, until)


def _save(path: Path, asked: Asked, gathered: Gathered, since: str, until: str | None) -> None:
    count = write_test(path, asked.app.path, asked.processor, gathered, f"{since} to {until or 'now'}")
    note(f"{path} is a test with {count:,} events: run it with pytest.")


def _all(notes: Sequence[Callable[[SourceEvents], None]], seen: SourceEvents) -> None:
    for one in notes:
        one(seen)


def _follow(debugging: Debugger | None, playing: ShardReplayer) -> None:
    """Let the debugger know which shard is at work."""
    if debugging is not None:
        debugging.playing = playing


def _played(
    around: ExitStack,
    shards: Sequence[ShardReplay],
    counts: ReplayCounts,
    rate: float | None,
    company: ReplayCallbacks,
    *,
    quiet: bool,
) -> Plays:
    """Play the shards, with a bar that shows how far they are."""
    bars = progress()
    bars.disable = bars.disable or quiet
    around.enter_context(bars)
    bar = bars.add_task("Replaying", total=sum(one.end - one.start for shard in shards for one in shard.stretches))

    def advance() -> None:
        warming = f" (warming up: {counts.warmed_up:,})" if counts.warmed_up else ""
        bars.update(bar, completed=counts.events, description=f"Replaying{warming}")

    def play(shard: ShardReplay) -> Plays:
        return shard.play(counts, replace(company, advance=advance))

    if rate is None:
        return one_by_one(shards, play)
    return paced(side_by_side(shards, play), rate, monotonic_s=time.monotonic, sleep=time.sleep)


def _differ(
    asked: Asked,
    against: str,
    theirs: list[OutputRecord] | None,
    taking: OutputCollector,
    bus: Bus,
    limit: int | None,
    *,
    json: bool,
) -> bool:
    """Compare, and show how the replay differs; tell whether it does."""
    if theirs is None:
        found = compare_with_live(
            Replayed(asked.processor, taking.ours, taking.warming, taking.inputs, asked.is_part, asked.span.until_ms),
            bus,
        )
    else:
        found = LiveComparison(compare(asked.processor, theirs, taking.ours), 0)
    file = Path(against)
    named = "/".join(file.parts[-2:]) if file.suffix == ".py" else against
    show_differences(named, found.comparisons, found.open_windows, limit, json=json)
    return not all(comparison.agrees for comparison in found.comparisons)
