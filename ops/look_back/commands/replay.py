"""`penstock replay`: runs a processor over past events, without effects on the live processor."""

from __future__ import annotations

import typer

from ....processors.apps import AppName
from ....processors.declare import plan_of
from ...shell import (
    AsJson,
    BackupLocation,
    Connection,
    OneTarget,
    Warehouse,
    forwarded_options,
    only_processor,
    warehouse_location,
    with_clusters,
    with_option_groups,
)
from .replay_options import EventOptions, OutputOptions, PlaybackOptions
from .replay_run import LIVE, ReplayRun


@with_option_groups
def replay(
    context: typer.Context,
    target: OneTarget,
    events: EventOptions,
    outputs: OutputOptions,
    playback: PlaybackOptions,
    backups: BackupLocation,
    connection: Connection,
    warehouse: Warehouse = None,
    json: AsJson = False,
) -> None:
    """Run a processor over past events, without effects on the live processor.

    A replay joins no consumer group and uses temporary state. It writes nothing to the processor's categories, stores or backups. Lookup joins
    read the current rows. The same replay produces the same outputs.

    Example: penstock replay examples/flights/app.py:Scorer --from "2h ago" --to "1h ago"

    Example: penstock replay examples/flights/app.py:Scorer --from "2h ago" --against HEAD~1 --backup hdfs://namenode:8020/backups

    Example: penstock replay examples/flights/app.py:Scorer --from "2h ago" --key JFK-LAX --state empty --save-as-test test_lax.py
    """
    processor, bus = only_processor(target), connection.open()
    is_open_ended = outputs.against is None or events.since.isdecimal()
    run = ReplayRun(
        AppName.parse(target).of(processor),
        processor,
        # A comparison needs an end, because two open-ended replays would end at different events.
        events.select(processor, backups, default_until=None if is_open_ended else "now"),
        events,
        outputs,
        playback,
        bus,
        with_clusters(bus, connection.kafka, plan_of(processor).outputs) if outputs.against == LIVE else bus,
        warehouse_location(warehouse, connection.folder),
        backups.webhdfs,
        [*forwarded_options(context), *events.forwarded(bus, connection.folder, backups, warehouse)],
        json,
    )
    if run.execute():
        raise typer.Exit(1)
