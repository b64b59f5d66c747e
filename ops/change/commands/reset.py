"""`penstock reset`: moves a processor's positions and its state to another position in its inputs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from ....processors import counted
from ....processors.apps import AppName
from ....processors.declare import Processor, plan_of
from ....transport import Bus
from ....transport.tables import require_idle
from ...dead_letters import effects_on_letters
from ...shell import (
    AsJson,
    BackupLocation,
    Connection,
    DryRun,
    OneTarget,
    Store,
    Yes,
    audited,
    note,
    only_processor,
    parse_start,
    print_json,
    print_table,
    with_option_groups,
)
from ..maintenance import (
    Edge,
    MaintenanceEnvironment,
    ResetMethod,
    ResetPlan,
    ResetTarget,
    ShardPlan,
    StatePolicy,
    expect_no_loop,
    parse_offsets,
    perform_reset,
    plan_reset,
)

_SHORT = {
    ResetMethod.NONE: "",
    ResetMethod.REBUILT: "rebuilt",
    ResetMethod.EMPTY: "empty",
    ResetMethod.SKIPPED: "kept",
}


@audited("reset")
@with_option_groups
def reset(
    target: OneTarget,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="POSITION",
            help='earliest, latest, a time of arrival ("2h ago", 2013-01-31T10:00), or offsets by bucket: 0=120,1=44.',
        ),
    ],
    *,
    state: Annotated[
        StatePolicy | None,
        typer.Option(
            help="The state at the new position. auto (default): the current state, a backup, or a state rebuilt from Kafka. empty: an empty "
            "state. keep: the current state, without the skipped events.",
            show_default=False,
        ),
    ] = None,
    store: Store = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    backups: BackupLocation,
    connection: Connection,
    json: AsJson = False,
) -> None:
    """Move a processor to another position in its inputs, with the matching state. Stop its workers first.

    Example: penstock reset examples/flights/app.py:Scorer --to "2h ago" --backup backups --dry-run
    """
    processor, bus = only_processor(target), connection.open()
    expect_no_loop(AppName.parse(target).load().loop_of(processor))
    if not dry_run:
        require_idle(processor, bus)  # before the confirmation
    environment = MaintenanceEnvironment(bus, connection.states, backups.open(), store)
    plan = plan_reset(processor, environment, _parse_target(to, processor), state)
    consumers = _consumers(AppName.parse(target), processor)
    if not json:
        _show(plan, consumers, bus)
    if not dry_run:
        if not yes:
            typer.confirm(f"Reset {processor.name}?", abort=True, err=True)
        perform_reset(plan, environment)
        if not json:
            note(f"{processor.name} is reset. Start it: {backups.run_command(target)}")
    if json:
        print_json(_describe(plan, consumers, is_done=not dry_run))


def _parse_target(text: str, processor: type[Processor]) -> ResetTarget:
    if text in {edge.value for edge in Edge}:
        return Edge(text)
    if "=" in text:
        return parse_offsets(text, [category.name for category in plan_of(processor).sources])
    try:
        start = parse_start(text, datetime.now(UTC))
    except typer.BadParameter as error:
        raise typer.BadParameter(f"{error.message} `earliest` and `latest` are the ends of the inputs.") from None
    if isinstance(start, int):
        raise typer.BadParameter(
            f"--to {text}: name the bucket of this offset, as 0={text}, or 0={text},1=… for several."
        )
    return start


def _consumers(app: AppName, processor: type[Processor]) -> list[str]:
    """Return the processors of the app that read this processor's outputs."""
    written = {category.name for category in plan_of(processor).outputs}
    others = app.whole.load().processors
    return [other.__name__ for other in others if written & {category.name for category in plan_of(other).inputs}]


def _show(plan: ResetPlan, consumers: list[str], bus: Bus) -> None:
    has_state = any(shard.method is not ResetMethod.NONE for shard in plan.shards)
    columns = ["bucket", "input", "from", "to", "repeated", "skipped"]
    columns += ["caught up", "state"] if has_state else []
    print_table(columns, [row for shard in plan.shards for row in _rows(shard, has_state=has_state)])
    for line in (*_effects(plan, consumers), *effects_on_letters(bus, plan.processor.name, plan.repeats)):
        note(line)


def _rows(shard: ShardPlan, *, has_state: bool) -> list[list[object]]:
    rows: list[list[object]] = []
    for index, (name, offset) in enumerate(sorted(shard.target.items())):
        counts: list[object] = [shard.repeated, shard.skipped] if index == 0 else ["", ""]
        row = [shard.bucket, name, shard.before[name], offset, *counts]
        if has_state:
            row += [shard.caught_up, _state(shard)] if index == 0 else ["", ""]
        rows.append(row)
    return rows


def _state(shard: ShardPlan) -> str:
    position = ", ".join(f"{offset:,}" for _, offset in sorted(shard.reflects.items()))
    if shard.method is ResetMethod.BACKUP:
        return f"backup {shard.backup} (at {position})"
    return f"kept (at {position})" if shard.method is ResetMethod.KEPT else _SHORT[shard.method]


def _effects(plan: ResetPlan, consumers: list[str]) -> list[str]:
    lines = [*_repetition(plan, consumers), *_skipping(plan)]
    if not lines:
        lines.append(f"{plan.processor.name} is already at this position, which is saved again.")
    if plan.caught_up:
        lines.append(f"To update the state, about {counted(plan.caught_up, 'event')} will be read, without outputs.")
    if plan.missing:
        lines.append(
            f"About {counted(plan.missing, 'event')} before the target will be missing from the at-most-once state."
        )
    return lines


def _repetition(plan: ResetPlan, consumers: list[str]) -> list[str]:
    outputs = ", ".join(plan.outputs())
    if not plan.repeated:
        return []
    if not outputs:
        return [f"About {counted(plan.repeated, 'event')} will be processed again. The processor writes no category."]
    readers = f" ({', '.join(consumers)})" if consumers else ""
    return [
        f"About {counted(plan.repeated, 'event')} will be processed again, with all outputs to {outputs}.",
        f"Readers of these outputs{readers} receive them twice, some as late events. Reset the readers too, so that each counts once.",
        f"Readers with an upstream watermark wait until {plan.processor.name} has caught up.",
    ]


def _skipping(plan: ResetPlan) -> list[str]:
    if not plan.skipped:
        return []
    without = {ResetMethod.EMPTY, ResetMethod.SKIPPED, ResetMethod.NONE}
    is_lost = any(shard.method in without for shard in plan.shards if shard.skipped)
    effect = "neither in outputs nor in the state" if is_lost else "in the state, and not in outputs"
    return [f"About {counted(plan.skipped, 'event')} will be skipped, and will be {effect}."]


def _describe(plan: ResetPlan, consumers: list[str], *, is_done: bool) -> dict[str, Any]:
    return {
        "processor": plan.processor.name,
        "operation": str(plan.kind),
        "done": is_done,
        "repeated": plan.repeated,
        "skipped": plan.skipped,
        "outputs": plan.outputs(),
        "consumers": consumers,
        "buckets": [_describe_shard(shard) for shard in plan.shards],
    }


def _describe_shard(shard: ShardPlan) -> dict[str, Any]:
    return {
        "bucket": shard.bucket,
        "from": shard.before,
        "to": shard.target,
        "repeated": shard.repeated,
        "skipped": shard.skipped,
        "caught_up": shard.caught_up,
        "missing": shard.missing,
        "state": shard.method.name.lower(),
        "reflects": shard.reflects,
        "backup": None if shard.backup is None else str(shard.backup),
    }
