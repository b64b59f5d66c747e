"""`penstock explain`: the inputs that led to an output, upstream through an app."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from ....processors import printable
from ....processors.apps import AppName
from ....processors.monoids import to_json_value
from ...shell import (
    AsJson,
    BackupLocation,
    Connection,
    OneTarget,
    Warehouse,
    format_time,
    interruptible,
    note,
    only_processor,
    out,
    parse_start,
    print_facts,
    print_json,
    warehouse_location,
    with_option_groups,
)
from ..replay import Contribution, Explanation, PastRange, Question, as_record, expect_explainable, plain
from .replay_options import EventOptions, parse_initial_state

SHOWN = 5
"""The number of inputs that are shown for a result of an aggregator."""


@with_option_groups
def explain(
    target: OneTarget,
    key: Annotated[str, typer.Argument(metavar="OUTPUT-KEY", help="The key of the output.")],
    *,
    at: Annotated[
        str, typer.Option("--at", metavar="WHEN", help="Explain the last output from before this moment.")
    ] = "0s ago",
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHEN",
            help="The earliest arrival of the inputs; the default is an hour before --at.",
            show_default=False,
        ),
    ] = None,
    state: Annotated[str, typer.Option("--state", metavar="at-start|empty", help="The state at --from.")] = "at-start",
    source: Annotated[str, typer.Option("--source", metavar="bus|warehouse", help="The source of the events.")] = "bus",
    backups: BackupLocation,
    connection: Connection,
    warehouse: Warehouse = None,
    json: AsJson = False,
) -> None:
    """Show which inputs led to the last output with a key, with the state before and after each, and upstream through the app.

    It replays the processor, and then each processor of the app that wrote the input. Nothing is written.

    Example: penstock explain examples/flights/app.py:Scorer JFK-LAX --at "10m ago" --backup backups
    """
    processor, bus = only_processor(target), connection.open()
    expect_explainable(processor)
    options = EventOptions(since="", source=source)
    location = warehouse_location(warehouse, connection.folder)
    question = Question(
        bus,
        lambda running: options.open(running, bus, location, backups.webhdfs),
        parse_initial_state(state, backups),
        _span(since, at),
        _ignore if json else note,
    )
    with interruptible("Nothing was written."):
        found = question.last_output(processor, lambda output: output.key == key)
        if found is None:
            note(
                f"{processor.name} wrote no output with key {key} in this range. --from with an earlier time may find one."
            )
            raise typer.Exit(1)
        others = AppName.parse(target).whole.load().processors
        steps = [found, *question.upstream(found, others)]
    if json:
        print_json([_described(step) for step in steps])
        return
    for step in steps:
        _show(step)


def _span(since: str | None, at: str) -> PastRange:
    now = datetime.now(UTC)
    until = parse_start(at, now)
    start = (
        until - timedelta(hours=1) if since is None and isinstance(until, datetime) else parse_start(since or "0", now)
    )
    if not isinstance(until, datetime) or not isinstance(start, datetime):
        raise typer.BadParameter('--at and --from are times: "2h ago", or such as 2013-01-31T10:00.')
    if start >= until:
        raise typer.BadParameter("--at must be later than --from.")
    return PastRange(start, until)


def _show(step: Explanation) -> None:
    output = as_record(step.output)
    facts: dict[str, object] = {
        "output": printable(f"{output.category} {output.key} {output.value}"),
        "written by": f"{step.processor.__name__}.{step.method}",
    }
    if step.method == "result":
        facts["value"] = printable(str(to_json_value(step.argument)))
        facts["events"] = f"{len(step.inputs)} in the range" + (
            f", the last {SHOWN}:" if len(step.inputs) > SHOWN else ":"
        )
    elif not step.inputs:
        facts["because of"] = printable(str(step.argument))
    for number, each in enumerate(step.inputs[-SHOWN:], 1):
        facts[f"event {number}" if len(step.inputs) > 1 else "event"] = printable(_line(each))
    if step.before is not None or step.after is not None:
        facts["state before"] = printable(str(to_json_value(step.before)))
        facts["state after"] = printable(str(to_json_value(step.after)))
    print_facts(facts)
    out.print()


def _line(each: Contribution) -> str:
    place = "" if each.place is None else f"{each.place}, arrived {format_time(each.place.arrived_ms)}: "
    return f"{place}{plain(each.event)}"


def _described(step: Explanation) -> dict[str, Any]:
    output = as_record(step.output)
    return {
        "processor": step.processor.name,
        "output": {"category": output.category, "key": output.key, "value": output.value},
        "method": step.method,
        "value": to_json_value(step.argument) if step.method == "result" else None,
        "timer": None if step.inputs or step.method != "on_timer" else str(step.argument),
        "before": to_json_value(step.before),
        "after": to_json_value(step.after),
        "inputs": [_input(each) for each in step.inputs],
    }


def _input(each: Contribution) -> dict[str, Any]:
    place = {} if each.place is None else each.place._asdict()
    return {**place, "event": plain(each.event)}


def _ignore(_: str) -> None:
    """Report nothing."""
