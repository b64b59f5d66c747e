"""Output of `penstock replay`: records, differences by key, and a summary."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from json import dumps

from ....backfill.compare import Comparison, RecordPair, Sides
from ....processors import counted
from ....processors.declare import Processor
from ...shell import format_time, note, out, print_json, print_table
from ..replay import Output, ReplayCounts, as_record, line_of

EXAMPLES = 10
"""The number of differences to print for each category, without `--limit`."""
KEYS = 10


class OutputPrinter:
    """Prints outputs as they arrive, up to a limit.

    Args:
        limit: the number of outputs to print; None for all.
        json: whether to print lines of JSON.
    """

    def __init__(self, limit: int | None, *, json: bool) -> None:
        self._limit = limit
        self._json = json
        self._count = 0

    def add(self, output: Output) -> None:
        """Print an output."""
        self._count += 1
        if self._limit is not None and self._count > self._limit:
            return
        if self._json:
            sys.stdout.write(line_of(output).decode())
        else:
            record = as_record(output)
            out.out(
                f"{record.category}, by bucket {record.bucket}: {format_time(record.event_time)} {record.key} {_json_text(record.value)}",
                highlight=False,
            )

    def close(self) -> None:
        """Print the number of omitted outputs."""
        if self._limit is not None and self._count > self._limit:
            note(f"… and {counted(self._count - self._limit, 'more output')}.")


def show_summary(processor: type[Processor], counts: ReplayCounts, duration_s: float, *, json: bool) -> None:
    """Print the summary."""
    if json:
        print_json({"summary": {"processor": processor.name, **asdict(counts), "seconds": round(duration_s, 3)}})
    else:
        note(f"{processor.__name__}: {counts}, in {duration_s:.1f} s.")


def show_differences(
    against: str, found: Sequence[Comparison], open_windows: int, limit: int | None, *, json: bool
) -> None:
    """Print the differences between the replay's outputs and others.

    Args:
        against: the name of the other version, as the user wrote it.
        found: the comparisons.
        open_windows: the number of windows excluded because they received events after the range.
        limit: the number of differences to print for each category; None for a few.
        json: whether to print JSON.
    """
    if json:
        for comparison in found:
            print_json({"against": against, **comparison.described()})
        return
    sides = Sides(against, "the replay")
    columns = ["category", "equal", f"only in {sides.left}", f"only in {sides.right}", "different", "differ"]
    print_table(
        columns, [(c.category, c.equal, c.only_left, c.only_right, c.different, f"{c.share:.2%}") for c in found]
    )
    for comparison in found:
        _show_fields_and_keys(comparison)
        for pair in islice(comparison.examples, EXAMPLES if limit is None else limit):
            _show_pair(comparison.category, pair, sides)
    if open_windows:
        note(f"{counted(open_windows, 'window')} received events after the range. They were not compared.")
    for comparison in found:
        if comparison.within_error:
            note(
                f"{comparison.category}: {counted(comparison.within_error, 'different record')} within the stated error."
            )
    agree = all(comparison.agrees for comparison in found)
    note(f"The replay and {against} {'agree' if agree else 'differ'}.")


def _show_fields_and_keys(comparison: Comparison) -> None:
    fields = sorted(comparison.fields, key=lambda field: -field.differing)
    if fields:
        note(f"{comparison.category} differs in {', '.join(f'{f.field} ({f.differing:,})' for f in fields)}.")
    keys = comparison.examples_by_key()
    if keys:
        print_table([f"key of {comparison.category}", "differ"], list(islice(keys.items(), KEYS)))
        if len(keys) > KEYS:
            note(f"… and {counted(len(keys) - KEYS, 'more key')}.")


def _show_pair(category: str, pair: RecordPair, sides: Sides) -> None:
    out.out(
        f"{category}: {sides.kind_name(pair.kind)}, key {pair.key}, {format_time(pair.event_time)}",
        highlight=False,
    )
    width = max(len(sides.left), len("replay"))
    for name, record in ((sides.left, pair.left), ("replay", pair.right)):
        if record is not None:
            out.out(f"  {name:<{width}}  {_json_text(record)}", highlight=False)
    for field in pair.fields:
        out.out(f"  {field.field}: {field.left} -> {field.right}", highlight=False)


def _json_text(value: object) -> str:
    return dumps(value, ensure_ascii=False)
