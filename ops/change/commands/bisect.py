"""`penstock bisect`: the first event after which a condition on a state holds."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ....processors import counted
from ....processors.apps import AppName
from ....processors.monoids import to_json_value
from ....processors.sql import compile_condition
from ....processors.time import Timer
from ...shell import (
    AsJson,
    BackupLocation,
    Connection,
    OneTarget,
    format_time,
    interruptible,
    note,
    only_processor,
    print_facts,
    print_json,
    with_option_groups,
)
from ..clones import Cause, Search, expect_searchable, find_cause
from ..snapshots import SnapshotStore


@with_option_groups
def bisect(
    target: OneTarget,
    key: Annotated[str, typer.Option("--key", help="The key whose state went wrong.")],
    when: Annotated[
        str,
        typer.Option(
            "--when",
            metavar="CONDITION",
            help="An SQL condition on the fields of the state, or on `state` if it is a plain value.",
        ),
    ],
    *,
    backups: BackupLocation,
    connection: Connection,
    json: AsJson = False,
) -> None:
    """Find the first event after which a condition on the state of a key holds.

    Searches the app's snapshots for the last one in which it does not hold, and replays the events after it. Without snapshots, it replays from
    the first event. If the condition becomes false again, the event found is one of those after which it became true. Nothing is written.

    Example: penstock bisect examples/flights/app.py:Scorer --key UA --when "state > 100" --backup backups
    """
    processor = expect_searchable(only_processor(target))
    condition = compile_condition("--when", when, processor.state, "state")
    store = backups.open()
    search = Search(processor, key, condition, connection.open(), store, _quiet if json else note)
    snapshots = [] if store is None else SnapshotStore(store).readable(AppName.parse(target).whole.load().name, note)
    with interruptible("Nothing was changed."):
        cause = find_cause(search, snapshots)
    if cause is None:
        note(f"`{when}` does not hold for {key} after any event up to now.")
        raise typer.Exit(1)
    if json:
        print_json(_described(cause))
    else:
        _show(cause)


def _show(cause: Cause) -> None:
    place = f"{cause.category}/{cause.bucket}"
    print_facts(
        {
            "event": f"{place} at offset {cause.offset:,}" if cause.offset is not None else f"a timer in {place}",
            **({} if cause.arrived_ms is None else {"arrived": format_time(cause.arrived_ms)}),
            "record": _shown(cause.event),
            "state before": to_json_value(cause.before),
            "state after": to_json_value(cause.after),
            "replayed": counted(cause.replayed, "event"),
        }
    )
    if cause.offset is not None:
        note(
            f"See the messages around it: penstock category tail {cause.category} --bucket {cause.bucket} --from {cause.offset}"
        )


def _described(cause: Cause) -> dict[str, Any]:
    return {
        "category": cause.category,
        "bucket": cause.bucket,
        "offset": cause.offset,
        "arrived_ms": cause.arrived_ms,
        "event": _shown(cause.event),
        "before": to_json_value(cause.before),
        "after": to_json_value(cause.after),
        "replayed": cause.replayed,
    }


def _shown(event: Any) -> Any:
    return to_json_value(event._asdict() if isinstance(event, Timer) else event)


def _quiet(_: str) -> None:
    """Report nothing."""
