"""`penstock reset`: a processor's positions, and its states with them, moved to another place in its input."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated, Any

import typer

from ...processors.declare.apps import AppName
from ...processors.declare.processor import Processor
from ...state.files.file_store import open_file_store
from ...transport.tables.maintenance_start import expect_idle
from ..maintenance.environment import Around
from ..maintenance.reset import Reset, perform, plan_reset
from ..maintenance.reset_plan import Policy, ResetMethod, ShardPlan
from ..maintenance.reset_target import Edge, ResetTarget, parse_offsets
from .options import DEFAULT_FOLDER, AsJson, Backup, Folder, Kafka, Store, WebHdfs, connect
from .output import as_json, note, table
from .times import parse_start

_SHORT = {
    ResetMethod.NONE: "",
    ResetMethod.REBUILT: "built anew",
    ResetMethod.EMPTY: "empty",
    ResetMethod.PASSED: "kept as it is",
}


def reset(
    target: Annotated[str, typer.Argument(metavar="APP:PROCESSOR", help="One processor of an app file.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="WHERE",
            help='earliest, latest, a time of arrival ("2h ago", 2013-01-31T10:00), or offsets by bucket: 0=120,1=44.',
        ),
    ],
    state: Annotated[
        Policy | None,
        typer.Option(
            help="Which state it goes on with: what the events before make (auto, the default: as it is, from a backup, or built again "
            "from the bus), none (empty), or as it is without the events that are passed over (keep).",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what it would do.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    backup: Backup = None,
    webhdfs: WebHdfs = None,
    store: Store = None,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Let a processor go on elsewhere in its input, with the state that belongs there. No worker of it may run.

    Example: penstock reset examples/flights/app.py:Scorer --to "2h ago" --backup backups --dry-run
    """
    app = AppName.parse(target)
    processor = _only(app)
    bus = connect(kafka, folder)
    if not dry_run:
        expect_idle(processor, bus)  # before anybody is asked
    around = Around(bus, folder / "state", open_file_store(backup, webhdfs) if backup else None, store)
    planned = plan_reset(processor, around, _target(to, processor), state)
    consumers = _consumers(app, processor)
    if not json:
        _show(planned, consumers)
    if not dry_run:
        if not yes:
            typer.confirm(f"Do this to {processor.name}?", abort=True, err=True)
        perform(planned, around)
        if not json:
            note(f"{processor.name} goes on from there: penstock run {target}" + (f" --backup {backup}" * bool(backup)))
    if json:
        as_json(_described(planned, consumers, done=not dry_run))


def _only(app: AppName) -> type[Processor]:
    found = app.load().processors
    if len(found) > 1:
        names = ", ".join(processor.__name__ for processor in found)
        raise typer.BadParameter(
            f"{app} has several processors, and each is reset by itself: name one of {names} as {app}:NAME."
        )
    return found[0]


def _target(text: str, processor: type[Processor]) -> ResetTarget:
    if text in {edge.value for edge in Edge}:
        return Edge(text)
    if "=" in text:
        return parse_offsets(text, [category.name for category in processor.inputs()])
    start = parse_start(text, datetime.now(timezone.utc))
    if isinstance(start, int):
        raise typer.BadParameter(
            f"--to {text}: an offset of which bucket? Write 0={text}, or 0={text},1=… for several."
        )
    return start


def _consumers(app: AppName, processor: type[Processor]) -> list[str]:
    """Return the processors of the app that read what this one writes."""
    written = {category.name for category in processor.outputs()}
    others = AppName(app.path).load().processors
    return [one.__name__ for one in others if written & {category.name for category in one.inputs()}]


def _show(planned: Reset, consumers: list[str]) -> None:
    has_state = any(shard.how is not ResetMethod.NONE for shard in planned.shards)
    columns = ["bucket", "input", "from", "to", "written again", "passed over"]
    columns += ["caught up", "state"] if has_state else []
    table(columns, [row for shard in planned.shards for row in _rows(shard, has_state=has_state)])
    for said in _said(planned, consumers):
        note(said)


def _rows(shard: ShardPlan, *, has_state: bool) -> list[list[object]]:
    rows: list[list[object]] = []
    for at, (name, offset) in enumerate(sorted(shard.target.items())):
        counted: list[object] = [shard.again, shard.passed] if at == 0 else ["", ""]
        row = [shard.bucket, name, shard.before[name], offset, *counted]
        if has_state:
            row += [shard.caught_up, _state(shard)] if at == 0 else ["", ""]
        rows.append(row)
    return rows


def _state(shard: ShardPlan) -> str:
    at = ", ".join(f"{offset:,}" for _, offset in sorted(shard.reflects.items()))
    if shard.how is ResetMethod.BACKUP:
        return f"backup {shard.backup} (at {at})"
    return f"kept (at {at})" if shard.how is ResetMethod.KEPT else _SHORT[shard.how]


def _said(planned: Reset, consumers: list[str]) -> list[str]:
    name, outputs = planned.processor.name, ", ".join(planned.outputs())
    said = []
    if planned.again:
        said.append(
            f"About {planned.again:,} events are processed again"
            + (f", and what they give is written again to {outputs}." if outputs else ", which writes to no category.")
        )
    if planned.again and outputs:
        readers = f" ({', '.join(consumers)})" if consumers else ""
        said.append(
            f"Who reads that{readers} gets it a second time, and, where its own event time has passed it, as late. It waits with its event "
            f"time for {name}, if it goes by promises. To have it count once there, too, reset the readers as well."
        )
    if planned.passed:
        left_out = any(
            shard.how in {ResetMethod.EMPTY, ResetMethod.PASSED, ResetMethod.NONE}
            for shard in planned.shards
            if shard.passed
        )
        said.append(
            f"About {planned.passed:,} events are passed over: nothing is written for them"
            + (", and they are in no state." if left_out else "; their state is kept up.")
        )
    caught_up = sum(shard.caught_up for shard in planned.shards)
    if caught_up:
        said.append(
            f"About {caught_up:,} events are read for the state alone, to catch up; nothing is written for them."
        )
    missing = sum(shard.missing for shard in planned.shards)
    if missing:
        said.append(
            f"About {missing:,} events before the target will be missing from the state, as state at most once allows."
        )
    if not (planned.again or planned.passed):
        said.append(f"{name} is there already, as far as events go.")
    return said


def _described(planned: Reset, consumers: list[str], *, done: bool) -> dict[str, Any]:
    return {
        "processor": planned.processor.name,
        "what": planned.what,
        "done": done,
        "again": planned.again,
        "passed": planned.passed,
        "outputs": planned.outputs(),
        "consumers": consumers,
        "buckets": [_described_shard(shard) for shard in planned.shards],
    }


def _described_shard(shard: ShardPlan) -> dict[str, Any]:
    return {
        "bucket": shard.bucket,
        "from": shard.before,
        "to": shard.target,
        "again": shard.again,
        "passed": shard.passed,
        "caught_up": shard.caught_up,
        "missing": shard.missing,
        "state": shard.how.name.lower(),
        "reflects": shard.reflects,
        "backup": None if shard.backup is None else str(shard.backup),
    }
