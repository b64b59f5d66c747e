"""`penstock compare`: whether stream and batch agree, where they do not and by how much."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...backfill.warehouse import open_warehouse
from ...processors.apps import AppName
from .options import (
    DEFAULT_FOLDER,
    AsJson,
    BatchOutput,
    First,
    Folder,
    Last,
    Master,
    OneDay,
    Target,
    Warehouse,
    WebHdfs,
    batch_output_of,
    warehouse_of,
)
from .output import as_json, err, note, out, table
from .times import days_of, shown_time

if TYPE_CHECKING:
    from ...backfill.compare import Comparison

FIELDS = 20
"""How many fields of a category are shown."""

_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def parse_share(text: str) -> float:
    """Return a share written as 0.01% as a part of 1."""
    match = _SHARE.fullmatch(text.strip())
    if match is None or float(match[1]) > 100:
        raise typer.BadParameter(f"{text!r} is not a share; write it in per cent, as 0.01%.")
    return float(match[1]) / 100


def compare(
    target: Target,
    first: First = None,
    last: Last = None,
    day: OneDay = None,
    output: BatchOutput = None,
    differences: Annotated[
        Path | None,
        typer.Option(
            "--differences", metavar="FILE", help="Write all differences there, as Parquet.", show_default=False
        ),
    ] = None,
    fail_over: Annotated[
        str,
        typer.Option(
            "--fail-over", metavar="SHARE", help="Exit with 1 only if more than this share of a category differs."
        ),
    ] = "0%",
    master: Master = "local[*]",
    warehouse: Warehouse = None,
    webhdfs: WebHdfs = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Compare the stream's archived output with the batch's, value by value; exit with 1 where they differ.

    Example: penstock compare examples/flights/app.py --from 2013-01-01 --to 2013-01-31

    Example: penstock compare examples/flights/app.py --day yesterday --fail-over 0.01% --differences differing.parquet
    """
    from ...backfill.compare import compare as compared  # noqa: PLC0415 - Spark is slow to import, and most commands do without

    days, allowed = days_of(first, last, day), parse_share(fail_over)
    with err.status("Comparing …"):
        found = compared(
            AppName.parse(target),
            open_warehouse(warehouse_of(warehouse, folder), webhdfs),
            batch_output_of(output, folder),
            *days,
            master=master,
            differences=differences,
        )
    if json:
        as_json([{**asdict(one), "share": one.share, "agrees": one.agrees} for one in found])
    else:
        _show(found)
    _conclude(found, allowed)


def _show(found: Sequence[Comparison]) -> None:
    rows = [
        (", ".join(c.processors), c.category, c.equal, c.only_stream, c.only_batch, c.different, f"{c.share:.4%}")
        for c in found
    ]
    table(("processor", "category", "equal", "only in stream", "only in batch", "different", "differ"), rows)
    for comparison in found:
        _show_fields(comparison)
        for example in comparison.examples:
            time = shown_time(example.event_time)
            out.out(f"{comparison.category}: {example.kind}, key {example.key}, {time}", highlight=False)
            out.out(f"  stream {example.stream}\n  batch  {example.batch}", highlight=False)


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
    table((f"field of {comparison.category}", *titles), rows)
    if len(comparison.fields) > FIELDS:
        note(f"… and {len(comparison.fields) - FIELDS:,} fields more of {comparison.category}.")


def _digits(number: float | None) -> str:
    return "" if number is None else f"{number:.6g}"


def _conclude(found: Sequence[Comparison], allowed: float) -> None:
    """Say what follows; exit with 1 where more differs than may."""
    for comparison in found:
        if comparison.note:
            note(comparison.note)
        if comparison.within_error:
            note(
                f"{comparison.category}: {comparison.within_error:,} of the different ones lie within the stated error."
            )
    differ = [comparison for comparison in found if not comparison.agrees]
    beyond = [comparison for comparison in differ if comparison.share > allowed]
    if beyond:
        note(f"Stream and batch differ in {', '.join(f'{c.category} ({c.share:.4%})' for c in beyond)}.")
        raise typer.Exit(1)
    if differ:
        note(
            f"Stream and batch differ in {', '.join(c.category for c in differ)}, by no more than {allowed:.4%} of the records each."
        )
    else:
        note("Stream and batch agree.")
