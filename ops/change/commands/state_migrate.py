"""`penstock state migrate`: converts saved states to the declared type with a user's function."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from json import dumps
from typing import Annotated, Any

import typer

from ....processors import counted
from ....processors.declare import Processor, plan_of
from ....transport.tables import require_idle
from ...shell import (
    LINE_EVERY_S,
    AsJson,
    BackupLocation,
    Connection,
    OneTarget,
    Yes,
    audited,
    err,
    interruptible,
    note,
    only_processor,
    print_json,
    print_table,
    progress,
    with_option_groups,
)
from ..maintenance import (
    ConversionCounts,
    Example,
    MaintenanceEnvironment,
    MigrationPlan,
    ShardMigration,
    load_function,
    migration_examples,
    perform_migration,
    plan_migration,
    try_migration,
)

SHOWN_CHARACTERS = 60
INTERRUPTED = "Nothing was changed, unless all new states were built: then no worker starts until you repeat this command, which finishes it."


@audited("state migrate")
@with_option_groups
def migrate(
    target: OneTarget,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="FILE:FUNCTION",
            help="A function of a key and its state, in plain values, that returns the new state; None drops the key.",
        ),
    ],
    *,
    force: Annotated[bool, typer.Option("--force", help="Convert states that fit the declaration, too.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Call the function on all saved states and change nothing. Workers may run."),
    ] = False,
    yes: Yes = False,
    backups: BackupLocation,
    connection: Connection,
    json: AsJson = False,
) -> None:
    """Convert a processor's saved states to the type that it declares now. Stop its workers first.

    Example: penstock state migrate app.py:Totals --by upgrade.py:upgraded --backup backups --dry-run
    """
    processor, function = only_processor(target), load_function(by)
    bus = connection.open()
    if not dry_run:
        require_idle(processor, bus)  # before the confirmation
    environment = MaintenanceEnvironment(bus, connection.states, backups.open())
    plan = plan_migration(processor, environment, force=force)
    if not plan.shards:
        _report_nothing(processor, json=json)
        return
    if not json:
        _show(plan, [] if plan.is_continued else migration_examples(plan, environment, function))
    if dry_run:
        with _progress(plan) as report:
            counts = try_migration(plan, environment, function, report)
    else:
        if not yes:
            typer.confirm(f"Change the state of {processor.name}?", abort=True, err=True)
        with interruptible(INTERRUPTED), _progress(plan) as report:
            counts = perform_migration(plan, environment, function, report=report)
    if json:
        print_json(_describe(plan, counts, is_done=not dry_run))
    else:
        note(_result(plan, counts, backups.run_command(target), is_done=not dry_run))


def _report_nothing(processor: type[Processor], *, json: bool) -> None:
    plan = plan_of(processor)
    if json:
        print_json({"processor": processor.name, "to": plan.state_shape, "done": False, "keys": 0, "buckets": []})
        return
    note(
        f"All states of {processor.name}, on this machine and in the newest backups, are {plan.state_shape}, as declared. Nothing was "
        "changed. Use --force to convert them anyway."
    )


def _show(plan: MigrationPlan, examples: list[Example]) -> None:
    columns = ["bucket", "state", "at", "type", "entries", "new type"]
    print_table(columns, [_row(plan, shard) for shard in plan.shards])
    if examples:
        print_table(
            ["key", "state", "new state"], [[each.key, _short(each.before), _short(each.after)] for each in examples]
        )
    for line in _effects(plan):
        note(line)


def _row(plan: MigrationPlan, shard: ShardMigration) -> list[object]:
    new_type = "installed" if shard.is_done else plan_of(plan.processor).state_shape
    position = ", ".join(f"{offset:,}" for _, offset in sorted(shard.plan.reflects.items()))
    location = "local" if shard.plan.backup is None else f"backup {shard.plan.backup}"
    return [shard.bucket, location, position, shard.shape, shard.keys or "", new_type]


def _short(value: Any) -> str:
    text = "nothing" if value is None else dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} …"


def _effects(plan: MigrationPlan) -> Iterator[str]:
    if plan.is_continued:
        yield "An earlier attempt was interrupted. Its new states are used if all of them were built; otherwise, they are built again."
    caught_up = sum(shard.plan.caught_up for shard in plan.shards)
    if caught_up:
        yield (
            f"The states are about {counted(caught_up, 'event')} behind their group. Workers read these again to update the state, with the new code. If "
            "another machine has newer states, run this command there (--dir), or back them up first."
        )
    repeated = sum(shard.plan.repeated for shard in plan.shards)
    if repeated:
        yield f"The states are about {counted(repeated, 'event')} behind their group. Workers process these again, with outputs."
    missing = sum(shard.plan.missing for shard in plan.shards)
    if missing:
        yield f"About {counted(missing, 'event')} before the group's position will be missing from the at-most-once state."


def _result(plan: MigrationPlan, counts: ConversionCounts, run_command: str, *, is_done: bool) -> str:
    dropped = f" ({counts.dropped:,} of them dropped)" if counts.dropped else ""
    if not is_done:
        return f"The function fits {counted(counts.keys, 'key')}{dropped}. Nothing was changed."
    converted = (
        f"{counted(counts.keys, 'key')}{dropped}" if counts.keys or not plan.is_continued else "converted before"
    )
    return (
        f"The states of {plan.processor.name} are now {plan_of(plan.processor).state_shape}: {converted}. Deploy the processor again, or run it: "
        f"{run_command}"
    )


@contextmanager
def _progress(plan: MigrationPlan) -> Iterator[Callable[[int], None]]:
    """Show progress as a bar, or as a line at intervals without a terminal."""
    if not err.is_terminal:
        yield _Lines().add
        return
    with progress() as bars:
        bar = bars.add_task(plan.processor.name, total=plan.keys or None)
        yield lambda count: bars.advance(bar, count)


class _Lines:
    """Prints the number of entries at intervals."""

    def __init__(self) -> None:
        self._count = 0
        self._printed_s = time.monotonic()

    def add(self, count: int) -> None:
        """Count more entries."""
        self._count += count
        if time.monotonic() - self._printed_s >= LINE_EVERY_S:
            self._printed_s = time.monotonic()
            note(f"{self._count:,} entries so far.")


def _describe(plan: MigrationPlan, counts: ConversionCounts, *, is_done: bool) -> dict[str, Any]:
    return {
        "processor": plan.processor.name,
        "to": plan_of(plan.processor).state_shape,
        "done": is_done,
        "keys": counts.keys,
        "dropped": counts.dropped,
        "buckets": [_describe_shard(shard) for shard in plan.shards],
    }


def _describe_shard(shard: ShardMigration) -> dict[str, Any]:
    plan = shard.plan
    return {
        "bucket": shard.bucket,
        "from": shard.shape,
        "installed": shard.is_done,
        "backup": None if plan.backup is None else str(plan.backup),
        "reflects": plan.reflects,
        "caught_up": plan.caught_up,
        "repeated": plan.repeated,
        "missing": plan.missing,
    }
