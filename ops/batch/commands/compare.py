"""`penstock compare`: compares the outputs of stream and batch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ....backfill.compare import STREAM_AND_BATCH, Sides
from ....backfill.warehouse import Days, open_warehouse
from ....processors import counted, human_duration
from ....processors.apps import AppName
from ....transport.kafka import KafkaBus
from ...shell import (
    DEFAULT_FOLDER,
    AllowMissing,
    AsJson,
    BatchOutput,
    First,
    Folder,
    Kafka,
    Last,
    Master,
    OneDay,
    Target,
    Warehouse,
    WebHdfs,
    batch_output_location,
    connect,
    err,
    format_time,
    interruptible,
    is_given,
    note,
    out,
    parse_days,
    print_json,
    print_table,
    warehouse_location,
)

if TYPE_CHECKING:
    from ....backfill.compare import Comparison, DifferenceExplanation

FIELDS = 20
"""The largest number of fields to show for a category."""

_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def parse_share(text: str) -> float:
    """Parse a percentage such as 0.01%, as a fraction."""
    match = _SHARE.fullmatch(text.strip())
    if match is None or float(match[1]) > 100:
        raise typer.BadParameter(f"{text!r} is not a percentage. Write it as 0.01%.")
    return float(match[1]) / 100


def compare(
    context: typer.Context,
    target: Target,
    first: First = None,
    last: Last = None,
    day: OneDay = None,
    output: BatchOutput = None,
    differences: Annotated[
        Path | None,
        typer.Option(
            "--differences", metavar="FILE", help="Write all differences to a Parquet file.", show_default=False
        ),
    ] = None,
    fail_over: Annotated[
        str,
        typer.Option(
            "--fail-over", metavar="SHARE", help="Exit with 1 only if more than this percentage of a category differs."
        ),
    ] = "0%",
    key: Annotated[
        str | None,
        typer.Option(
            "--explain",
            metavar="KEY",
            help="Instead of comparing, show this key's archived events and the outputs of stream and batch for them.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="With --explain: the largest number of events and outputs to show.")
    ] = 50,
    allow_missing: AllowMissing = False,
    master: Master = "local[*]",
    warehouse: Warehouse = None,
    webhdfs: WebHdfs = None,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Compare the stream's archived outputs with the batch's outputs; exit with 1 if they differ.

    APP@NAME compares the outputs of a clone with those of the original app instead, on Kafka, since the snapshot or for some days of event time.

    Example: penstock compare examples/flights/app.py --from 2013-01-01 --to 2013-01-31

    Example: penstock compare examples/flights/app.py --day yesterday --fail-over 0.01% --differences differing.parquet

    Example: penstock compare examples/flights/app.py:Ranker --day 2013-01-31 --explain UA

    Example: penstock compare examples/flights/app.py@staging
    """
    app, allowed = AppName.parse(target), parse_share(fail_over)
    if app.clone is not None:
        _expect_no_batch(context)
        found = _compared_clone(app, first, last, day, connect(kafka, folder))
        _report(found, allowed, json=json)
        return
    from ....backfill.compare import compare as compare_outputs  # noqa: PLC0415 - Spark is slow to import, and most commands do without
    from ....backfill.compare import explain  # noqa: PLC0415 - as above

    days = parse_days(first, last, day)
    archive = open_warehouse(warehouse_location(warehouse, folder), webhdfs)
    batch = batch_output_location(output, folder)
    if key is not None:
        explanation = explain(app, archive, open_warehouse(batch, webhdfs), key, Days(*days), limit=limit)
        _show_key(explanation, key, limit, json=json)
        return
    with interruptible("Nothing was compared."), err.status("Comparing …"):
        found = compare_outputs(
            app,
            archive,
            batch,
            *days,
            master=master,
            differences=differences,
            allow_missing=allow_missing,
            webhdfs=webhdfs,
        )
    _report(found, allowed, json=json)


def _expect_no_batch(context: typer.Context) -> None:
    """Refuse options that are for a comparison with a batch."""
    own = {"target", "first", "last", "day", "fail_over", "kafka", "folder", "json"}
    if any(is_given(context, name) for name in context.params.keys() - own):
        raise typer.BadParameter(
            "A clone is compared on Kafka, without Spark. Only --from, --to, --day, --fail-over and --json apply to it."
        )


def _compared_clone(
    name: AppName, first: str | None, last: str | None, day: str | None, bus: KafkaBus
) -> list[Comparison]:
    """Compare a clone with the original app."""
    from ...change import ComparedTimes, compare_clone  # noqa: PLC0415 - only for clones

    times = ComparedTimes()
    if (first, last, day) != (None, None, None):
        days = parse_days(first, last, day)
        since, until = (datetime.combine(one, time(), UTC) for one in (days[0], days[1] + timedelta(days=1)))
        times = ComparedTimes(since.timestamp() * 1000, until.timestamp() * 1000)
    with interruptible("Nothing was compared."), err.status("Comparing …"):
        return compare_clone(name.load(), bus, times, str(name.clone))


def _report(found: Sequence[Comparison], allowed: float, *, json: bool) -> None:
    if json:
        print_json([comparison.described() for comparison in found])
    else:
        show_comparisons(found)
    report_result(found, allowed)


def show_comparisons(found: Sequence[Comparison]) -> None:
    """Print the comparison of each category, by field, with examples."""
    rows = [
        (", ".join(c.processors), c.category, c.equal, c.only_left, c.only_right, c.different, f"{c.share:.4%}")
        for c in found
    ]
    sides = _sides(found)
    only = (f"only in {side}" for side in sides)
    print_table(("processor", "category", "equal", *only, "different", "differ"), rows)
    for comparison in found:
        _show_fields(comparison)
        for example in comparison.examples:
            time = format_time(example.event_time)
            kind = comparison.sides.kind_name(example.kind)
            out.out(f"{comparison.category}: {kind}, key {example.key}, {time}", highlight=False)
            width = max(map(len, sides))
            for side, record in zip(sides, (example.left, example.right), strict=True):
                out.out(f"  {side:<{width}} {record}", highlight=False)


def _show_fields(comparison: Comparison) -> None:
    if not comparison.fields:
        return
    rows = [
        (
            f.field,
            f.differing,
            *(_digits(number) for number in (f.greatest, f.mean, f.greatest_relative, f.mean_relative)),
            "" if f.beyond_error is None else f.beyond_error,
        )
        for f in comparison.fields[:FIELDS]
    ]
    titles = ("differing", "greatest", "mean", "greatest relative", "mean relative", "beyond stated error")
    print_table((f"field of {comparison.category}", *titles), rows)
    if len(comparison.fields) > FIELDS:
        note(f"… and {counted(len(comparison.fields) - FIELDS, 'more field')} of {comparison.category}.")


def _digits(number: float | None) -> str:
    return "" if number is None else f"{number:.6g}"


def _sides(found: Sequence[Comparison]) -> Sides:
    return found[0].sides if found else STREAM_AND_BATCH


def report_result(found: Sequence[Comparison], allowed: float) -> None:
    """Print the result; exit with 1 if more records differ than allowed."""
    for comparison in found:
        if comparison.note:
            note(comparison.note)
        if comparison.within_error:
            note(
                f"{comparison.category}: {comparison.within_error:,} of the different records are within the stated error."
            )
    sides = _sides(found)
    both = f"{sides.left.capitalize()} and {sides.right}"
    differ = [comparison for comparison in found if not comparison.agrees]
    beyond = [comparison for comparison in differ if comparison.share > allowed]
    if beyond:
        note(f"{both} differ in {', '.join(f'{c.category} ({c.share:.4%})' for c in beyond)}.")
        raise typer.Exit(1)
    if differ:
        note(
            f"{both} differ in {', '.join(c.category for c in differ)}, by at most {allowed:.4%} of the records of each."
        )
    else:
        note(f"{both} agree.")


def _show_key(found: DifferenceExplanation, key: str, limit: int, *, json: bool) -> None:
    if json:
        print_json(
            {
                "events": [event._asdict() for event in found.events],
                "more_events": found.more_events,
                "outputs": [
                    {"category": output.category, **output.pair.described(STREAM_AND_BATCH)} for output in found.outputs
                ],
                "more_outputs": found.more_outputs,
            }
        )
        return
    _show_events_and_outputs(found, key)
    for has_more, kind in ((found.more_events, "events"), (found.more_outputs, "outputs")):
        if has_more:
            note(f"Only the first {limit:,} {kind} are shown. Name fewer days, or increase --limit.")


def _show_events_and_outputs(found: DifferenceExplanation, key: str) -> None:
    rows = [
        (
            e.category,
            f"{e.bucket}@{e.offset}",
            format_time(e.arrived),
            format_time(e.event_time),
            _lag(e.behind_ms),
            e.record,
        )
        for e in found.events
    ]
    print_table((f"events of {key} in", "bucket@offset", "arrived", "event time", "behind its bucket", "record"), rows)
    outputs = [
        (
            category,
            format_time(pair.event_time),
            STREAM_AND_BATCH.kind_name(pair.kind),
            _record_text(pair.left),
            _record_text(pair.right),
        )
        for category, pair in found.outputs
    ]
    print_table((f"outputs of {key} in", "event time", "", "stream", "batch"), outputs)


def _lag(lag_ms: int) -> str:
    return human_duration(lag_ms / 1000) if lag_ms else ""


def _record_text(record: object) -> object:
    return "" if record is None else record
