"""`penstock state migrate`: states of another type made, by a function of the user's, into what is declared now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from json import dumps
from typing import Annotated, Any

import typer

from ...processors.declare.processor import Processor
from ...state.files.file_store import open_file_store
from ...transport.tables.maintenance_start import expect_idle
from ..maintenance.environment import Around
from ..maintenance.migration import Migration, ShardMigration, examples, perform_migration, plan_migration, try_out
from ..maintenance.state_conversion import ConversionCounts, Example
from ..maintenance.user_function import function_named
from .batch_progress import LINE_EVERY_S
from .options import DEFAULT_FOLDER, AsJson, Backup, Folder, Kafka, WebHdfs, connect
from .output import as_json, err, note, progress, table
from .signals import breaking_off
from .states import one_processor

SHOWN_CHARACTERS = 60
BROKEN_OFF = "Nothing was changed, unless all new states were made: then no worker starts until the same command is given again, and goes on."


def migrate(
    target: Annotated[str, typer.Argument(metavar="APP:PROCESSOR", help="One processor of an app file.")],
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="FILE:FUNCTION",
            help="What is given a key and its state, in plain values, and returns its new state; None drops the key.",
        ),
    ],
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also where all that is saved is as declared already.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only try the function on all that is saved, also beside workers that run."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    backup: Backup = None,
    webhdfs: WebHdfs = None,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Change what is saved of each key by a function, for a processor whose state is declared of another type. No worker of it may run.

    Example: penstock state migrate app.py:Totals --by upgrade.py:upgraded --backup backups --dry-run
    """
    processor, function = one_processor(target), function_named(by)
    bus = connect(kafka, folder)
    if not dry_run:
        expect_idle(processor, bus)  # before anybody is asked
    around = Around(bus, folder / "state", open_file_store(backup, webhdfs) if backup else None)
    planned = plan_migration(processor, around, anyway=anyway)
    if not planned.shards:
        _tell_nothing(processor, json=json)
        return
    if not json:
        _show(planned, [] if planned.goes_on else examples(planned, around, function))
    counts = ConversionCounts()
    if dry_run:
        with _bar(planned) as told:
            counts = try_out(planned, around, function, told)
    else:
        if not yes:
            typer.confirm(f"Change the state of {processor.name}?", abort=True, err=True)
        with breaking_off(BROKEN_OFF), _bar(planned) as told:
            counts = perform_migration(planned, around, function, told=told)
    if json:
        as_json(_described(planned, counts, done=not dry_run))
    else:
        note(_then(planned, counts, target, backup, done=not dry_run))


def _tell_nothing(processor: type[Processor], *, json: bool) -> None:
    if json:
        as_json({"processor": processor.name, "to": processor.state_shape(), "done": False, "keys": 0, "buckets": []})
        return
    note(
        f"All that is saved of {processor.name}, here and in its newest backups, is {processor.state_shape()} already, as it is declared: "
        "nothing was changed. To change the values all the same, give --anyway."
    )


def _show(planned: Migration, found: list[Example]) -> None:
    columns = ["bucket", "its state is", "at", "holds", "entries", "then"]
    table(columns, [_row(planned, shard) for shard in planned.shards])
    if found:
        table(["key", "its state", "becomes"], [[one.key, _short(one.before), _short(one.after)] for one in found])
    for said in _said(planned):
        note(said)


def _row(planned: Migration, shard: ShardMigration) -> list[object]:
    plan, then = shard.plan, "in place" if shard.is_done else planned.processor.state_shape()
    at = ", ".join(f"{offset:,}" for _, offset in sorted(plan.reflects.items()))
    where = "here" if plan.backup is None else f"backup {plan.backup}"
    return [shard.bucket, where, at, shard.shape, shard.keys or "", then]


def _short(value: Any) -> str:
    text = "nothing" if value is None else dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} …"


def _said(planned: Migration) -> Iterator[str]:
    if planned.goes_on:
        yield "An earlier try has died on the way. What it had made whole is used as it is; otherwise it is made anew."
    caught_up = sum(shard.plan.caught_up for shard in planned.shards)
    if caught_up:
        yield (
            f"States are about {caught_up:,} events behind their group, which its workers then read again for the state alone, in the code "
            "that they run then. If newer ones lie elsewhere, do this there (--dir), or have them backed up first."
        )
    again = sum(shard.plan.again for shard in planned.shards)
    if again:
        yield f"States are about {again:,} events behind their group, which its workers then process again, outputs included."
    missing = sum(shard.plan.missing for shard in planned.shards)
    if missing:
        yield f"About {missing:,} events before its group's position will be missing from the state, as state at most once allows."


def _then(planned: Migration, counts: ConversionCounts, target: str, backup: str | None, *, done: bool) -> str:
    name, shape = planned.processor.name, planned.processor.state_shape()
    dropped = f", of which {counts.dropped:,} are dropped" if counts.dropped else ""
    if not done:
        return f"The function fits {counts.keys:,} keys{dropped}. Nothing was changed."
    what = f"{counts.keys:,} keys{dropped}" if counts.keys or not planned.goes_on else "what was made before"
    goes_on = f"penstock run {target}" + (f" --backup {backup}" * bool(backup))
    return f"{name} holds {shape} now: {what}. Deploy it again, or: {goes_on}"


@contextmanager
def _bar(planned: Migration) -> Iterator[Callable[[int], None]]:
    """Give what is told of entries that were looked at; without a terminal, it says so now and then."""
    if not err.is_terminal:
        yield _Lines().add
        return
    with progress() as bars:
        bar = bars.add_task(planned.processor.name, total=planned.keys or None)
        yield lambda count: bars.advance(bar, count)


class _Lines:
    """Says how many entries were looked at, in a line, when it has not for a while."""

    def __init__(self) -> None:
        self._count = 0
        self._said_s = time.monotonic()

    def add(self, count: int) -> None:
        """Take so many more."""
        self._count += count
        if time.monotonic() - self._said_s >= LINE_EVERY_S:
            self._said_s = time.monotonic()
            note(f"{self._count:,} entries so far.")


def _described(planned: Migration, counts: ConversionCounts, *, done: bool) -> dict[str, Any]:
    return {
        "processor": planned.processor.name,
        "to": planned.processor.state_shape(),
        "done": done,
        "keys": counts.keys,
        "dropped": counts.dropped,
        "buckets": [_described_shard(shard) for shard in planned.shards],
    }


def _described_shard(shard: ShardMigration) -> dict[str, Any]:
    plan = shard.plan
    return {
        "bucket": shard.bucket,
        "from": shard.shape,
        "in_place": shard.is_done,
        "backup": None if plan.backup is None else str(plan.backup),
        "reflects": plan.reflects,
        "caught_up": plan.caught_up,
        "again": plan.again,
        "missing": plan.missing,
    }
