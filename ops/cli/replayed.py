"""How `penstock replay` shows what came of it: outputs, differences by key, and a summary."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from json import dumps

from ...processors.declare.processor import Processor
from ..replay.counts import ReplayCounts
from ..replay.differences import DIFFERENT, ONLY_OURS, ONLY_THEIRS, Differing, ReplayComparison
from ..replay.outputs import Output, line_of, told
from .output import as_json, note, out, table
from .times import shown_time

EXAMPLES = 10
"""How many differences of a category are shown where nobody says how many."""
KEYS = 10


class Screen:
    """Shows outputs as they come, up to a limit.

    Args:
        limit: how many; None for all.
        json: as lines of JSON.
    """

    def __init__(self, limit: int | None, *, json: bool) -> None:
        self._limit = limit
        self._json = json
        self._given = 0

    def give(self, output: Output) -> None:
        """Show one."""
        self._given += 1
        if self._limit is not None and self._given > self._limit:
            return
        if self._json:
            sys.stdout.write(line_of(output).decode())
        else:
            one = told(output)
            out.out(
                f"{one.category}, by bucket {one.bucket}: {shown_time(one.event_time)} {one.key} {_shown(one.value)}",
                highlight=False,
            )

    def close(self) -> None:
        """Say what was left out."""
        if self._limit is not None and self._given > self._limit:
            note(f"… and {self._given - self._limit:,} outputs more.")


def conclude(processor: type[Processor], counts: ReplayCounts, took_s: float, *, json: bool) -> None:
    """Say what was done."""
    if json:
        as_json({"summary": {"processor": processor.name, **asdict(counts), "seconds": round(took_s, 3)}})
    else:
        note(f"{processor.__name__}: {counts}, in {took_s:.1f} s.")


def show_differences(
    against: str, found: Sequence[ReplayComparison], is_open: int, limit: int | None, *, json: bool
) -> None:
    """Show how the replay's outputs differ from others.

    Args:
        against: what the others are, as it was asked for.
        found: the comparison.
        is_open: how many windows were left out, since they went on after the span.
        limit: how many differences of each category to show; None for a few.
        json: as JSON.
    """
    if json:
        for one in found:
            as_json(_described(against, one))
        return
    columns = ["category", "equal", f"only in {against}", "only in the replay", "different", "differ"]
    table(columns, [_counted(one) for one in found])
    for one in found:
        _show_keys(one)
        for differing in islice(one.differing, EXAMPLES if limit is None else limit):
            _show_one(against, differing)
    if is_open:
        note(
            f"{is_open:,} windows went on after the span, so that the last of their updates says nothing about it: left out."
        )
    if any(one.differing for one in found):
        note(f"The replay and {against} differ.")
    else:
        note(f"The replay and {against} agree.")


def _counted(one: ReplayComparison) -> list[object]:
    total = one.equal + len(one.differing)
    share = len(one.differing) / total if total else 0.0
    return [one.category, one.equal, one.count(ONLY_THEIRS), one.count(ONLY_OURS), one.count(DIFFERENT), f"{share:.2%}"]


def _show_keys(one: ReplayComparison) -> None:
    fields = one.fields()
    if fields:
        note(f"{one.category} differs in {', '.join(f'{name} ({count:,})' for name, count in fields.items())}.")
    keys = one.keys()
    if keys:
        rows = list(islice(keys.items(), KEYS))
        table([f"key of {one.category}", "differ"], rows)
        if len(keys) > KEYS:
            note(f"… and {len(keys) - KEYS:,} keys more.")


def _show_one(against: str, one: Differing) -> None:
    out.out(
        f"{one.slot.category}: {one.kind_to(against)}, key {one.slot.key}, {shown_time(one.slot.event_time)}",
        highlight=False,
    )
    width = max(len(against), len("replay"))
    for name, record in ((against, one.theirs), ("replay", one.ours)):
        if record is not None:
            out.out(f"  {name:<{width}}  {_shown(record)}", highlight=False)
    for field in one.fields:
        out.out(f"  {field.field}: {field.stream} -> {field.batch}", highlight=False)


def _described(against: str, one: ReplayComparison) -> dict[str, object]:
    return {
        "against": against,
        "category": one.category,
        "equal": one.equal,
        "only_theirs": one.count(ONLY_THEIRS),
        "only_ours": one.count(ONLY_OURS),
        "different": one.count(DIFFERENT),
        "fields": one.fields(),
        "differing": [
            {
                "key": differing.slot.key,
                "event_time": differing.slot.event_time,
                "kind": differing.kind,
                "theirs": differing.theirs,
                "ours": differing.ours,
            }
            for differing in one.differing
        ],
    }


def _shown(value: object) -> str:
    return dumps(value, ensure_ascii=False)
