"""`penstock state get` and `penstock state diff`: states at past moments."""

from __future__ import annotations

from datetime import UTC, datetime
from json import dumps
from typing import Annotated

import msgspec
import typer

from ....processors import counted
from ....processors.declare import Processor
from ...shell import (
    AsJson,
    BackupLocation,
    Connection,
    OneTarget,
    Warehouse,
    format_window,
    interruptible,
    note,
    only_processor,
    parse_start,
    print_json,
    print_table,
    warehouse_location,
    with_option_groups,
)
from ..replay import AtStart, PastState, StateQuery, differences
from .replay_options import EventOptions, select_buckets

Source = Annotated[
    str,
    typer.Option("--source", metavar="bus|warehouse", help="The source of the events after the backup."),
]
Limit = Annotated[int, typer.Option("--limit", help="The number of values to show.", min=1)]


@with_option_groups
def get(
    target: OneTarget,
    key: Annotated[str, typer.Argument(help="The key.")],
    *,
    at: Annotated[str, typer.Option("--at", metavar="WHEN", help='The moment: "2h ago", or a time.')] = "0s ago",
    source: Source = "bus",
    limit: Limit = 20,
    backups: BackupLocation,
    connection: Connection,
    warehouse: Warehouse = None,
    json: AsJson = False,
) -> None:
    """Show the state of a key at a past moment: after all events that had arrived by then.

    It begins with the newest backup from before the moment, or with the first event, and replays the events between. Nothing is written.

    Example: penstock state get examples/flights/app.py:Scorer JFK-LAX --at "2h ago" --backup backups
    """
    processor = only_processor(target)
    query = _query(processor, key, source, backups, connection, warehouse, quiet=json)
    with interruptible("Nothing was changed."):
        states = query.at(_moment(at), limit)
    if json:
        print_json([_described(state) for state in states])
        return
    rows = [
        [state.number, entry.key, format_window(entry.window), _value(entry.value)]
        for state in states
        for entry in state.entries
    ]
    if rows:
        print_table(["bucket", "key", "window", "value"], rows)
    else:
        note(f"{processor.name} had no state of {key} then.")


@with_option_groups
def diff(
    target: OneTarget,
    *,
    since: Annotated[str, typer.Option("--from", metavar="WHEN", help='The earlier moment: "2h ago", or a time.')],
    until: Annotated[
        str, typer.Option("--to", metavar="WHEN", help="The later moment; the default is now.")
    ] = "0s ago",
    key: Annotated[str | None, typer.Option("--key", help="This key only.", show_default=False)] = None,
    source: Source = "bus",
    limit: Limit = 20,
    backups: BackupLocation,
    connection: Connection,
    warehouse: Warehouse = None,
    json: AsJson = False,
) -> None:
    """Show the values of a state that differ between two moments. Without --key, it reads both states whole.

    Example: penstock state diff examples/flights/app.py:Scorer --from "2h ago" --to "1h ago" --key JFK-LAX --backup backups
    """
    processor, earlier, later = only_processor(target), _moment(since), _moment(until)
    if earlier >= later:
        raise typer.BadParameter(f"--to must be later than --from: {since} to {until}.")
    query = _query(processor, key, source, backups, connection, warehouse, quiet=json)
    with interruptible("Nothing was changed."):
        found = differences(query.at(earlier), query.at(later))
    if json:
        for difference in found:
            print_json(msgspec.to_builtins(difference._asdict()))
        return
    rows = [[each.key, format_window(each.window), _value(each.before), _value(each.after)] for each in found]
    if rows:
        print_table(["key", "window", "before", "after"], rows[:limit])
    note(
        f"{counted(len(found), 'different value')}"
        + (f"; --limit {len(found)} shows all." if len(found) > limit else ".")
    )


def _query(
    processor: type[Processor],
    key: str | None,
    source: str,
    backups: BackupLocation,
    connection: Connection,
    warehouse: str | None,
    *,
    quiet: bool,
) -> StateQuery:
    bus, location = connection.open(), warehouse_location(warehouse, connection.folder)
    options = EventOptions(since="", source=source)
    return StateQuery(
        processor,
        bus,
        lambda running: options.open(running, bus, location, backups.webhdfs),
        AtStart(backups.open()),
        select_buckets(processor, key, None),
        key,
        _ignore if quiet else note,
    )


def _moment(text: str) -> datetime:
    moment = parse_start(text, datetime.now(UTC))
    if isinstance(moment, int):
        raise typer.BadParameter(f'{text} is not a time. Write "2h ago", or a time such as 2013-01-31T10:00.')
    return moment


def _described(state: PastState) -> dict[str, object]:
    return {
        "bucket": state.number,
        "replayed": state.replayed,
        "entries": [msgspec.to_builtins(entry) for entry in state.entries],
    }


def _value(value: object) -> str:
    return "" if value is None else dumps(value, ensure_ascii=False, default=str)


def _ignore(_: str) -> None:
    """Report nothing."""
