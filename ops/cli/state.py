"""`penstock state`: shows, verifies, restores and migrates states and their backups."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from json import dumps
from typing import Annotated, Any

import msgspec
import typer
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from ...processors.shard.position import StatePosition
from ...state.backups.backup_age import LATE_INTERVALS
from ...state.backups.decoded_state import Inspection, inspection
from ...state.backups.errors import BackupError
from ...state.backups.fetch import Progress as Fetched
from ...state.backups.inventory import (
    InventoryEntry,
    ShardName,
    backed_up_shards,
    inventory,
    local_shards,
    read_database,
)
from ...state.backups.manifest import BackupId, Manifest
from ...state.backups.restore import opened_backup, restore_in_parallel
from ...state.backups.shard import ShardBackups
from ...state.backups.verification import BackupCheck
from ...state.backups.verification import verify as verify_shard
from ...state.errors import StateError
from ...state.files.file_store import FileStore, open_file_store
from ...state.local.rocksdb import RocksShardState
from ..humanize import human_duration
from .options import DEFAULT_FOLDER, AsJson, Backup, Folder, WebHdfs, one_processor
from .output import as_json, complain, err, facts, note, table
from .times import shown_time, shown_window

app = typer.Typer(help="Show, verify, restore and migrate states and their backups.", no_args_is_help=True)

Only = Annotated[str | None, typer.Argument(metavar="PROCESSOR", help="This processor only.", show_default=False)]
Buckets = Annotated[
    list[int] | None, typer.Option("--bucket", help="This bucket only; repeatable.", show_default=False)
]
Id = Annotated[
    str | None,
    typer.Option(
        "--backup-id", metavar="ID", help="A backup of a bucket, from `penstock state verify`.", show_default=False
    ),
]


@app.command("list")
def list_(
    processor: Only = None,
    backup: Backup = None,
    webhdfs: WebHdfs = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """List the local states and the backups of shards.

    Example: penstock state list --backup hdfs://namenode:8020/backups
    """
    found = inventory(folder / "state", open_file_store(backup, webhdfs) if backup else None, processor)
    if processor and not found:
        raise StateError(
            f"There is no state of a processor {processor!r}, neither in {folder / 'state'} nor at {backup or 'a backup store'}. "
            "`penstock state list` shows all processors."
        )
    if json:
        as_json(msgspec.to_builtins(found))
        return
    columns = ["processor", "bucket", "position", "size", "keys", "used by"]
    table([*columns, "backups", "stored", "newest", "age", "backup position"], [_listed(shard) for shard in found])
    for problem in filter(None, (shard.problem for shard in found)):
        complain(problem)
    _warn_of_age(found)


@app.command()
def verify(
    processor: Only = None, bucket: Buckets = None, backup: Backup = None, webhdfs: WebHdfs = None, json: AsJson = False
) -> None:
    """Read all backups and compare them with their checksums; fail if a bucket has no intact backup.

    Example: penstock state verify --backup hdfs://namenode:8020/backups
    """
    place = _place(backup, webhdfs)
    shards = _chosen(backed_up_shards(place), processor, bucket, place.location)
    with _byte_bars() as bars:
        found = {name: verify_shard(ShardBackups(place, *name), _bar(bars, name)) for name in shards}
    verdicts = [(name, verdict) for name in shards for verdict in found[name]]
    if json:
        as_json([_described(name, verdict) for name, verdict in verdicts])
    else:
        columns = ["processor", "bucket", "backup", "made", "size", "position", "is"]
        table(columns, [_judged(name, verdict) for name, verdict in verdicts])
    _explain(verdicts)
    without = [name for name in shards if all(verdict.damages for verdict in found[name])]
    if without:
        complain(f"No intact backup at {place.location} of {'; '.join(map(str, without))}.")
        raise typer.Exit(1)


@app.command()
def restore(
    processor: Annotated[str, typer.Argument(help="The processor's name.")],
    bucket: Buckets = None,
    backup_id: Id = None,
    backup: Backup = None,
    webhdfs: WebHdfs = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Replace local states by their newest intact backups. Stop the workers on this machine first.

    Example: penstock state restore scorer --backup hdfs://namenode:8020/backups
    """
    place = _place(backup, webhdfs)
    shards = _chosen(backed_up_shards(place), processor, bucket, place.location)
    only = None if backup_id is None else _backup_of_one(backup_id, shards)
    begun_s = time.monotonic()
    with _byte_bars() as bars:
        outcomes = restore_in_parallel(place, folder / "state", shards, partial(_bar, bars), only)
    restored = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Manifest)}
    _tell_restored(restored, time.monotonic() - begun_s, json=json)
    for outcome in outcomes.values():
        if isinstance(outcome, StateError):
            complain(str(outcome))
    if len(restored) < len(shards):
        raise typer.Exit(1)


@app.command()
def inspect(
    target: Annotated[str, typer.Argument(metavar="APP:PROCESSOR", help="One processor in an app file.")],
    bucket: Buckets = None,
    key: Annotated[str | None, typer.Option(help="This key only.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(help="The number of values to show of each bucket.", min=0)] = 20,
    backup_id: Id = None,
    backup: Backup = None,
    webhdfs: WebHdfs = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Show the saved position, keys, windows and values of a state. Workers may run.

    Example: penstock state inspect examples/flights/app.py:Scorer --bucket 3 --key JFK
    """
    processor, root = one_processor(target), folder / "state"
    see = inspection(processor, key, limit)
    if backup_id is not None:
        place = _place(backup, webhdfs)
        shards = _chosen(backed_up_shards(place), processor.name, bucket, place.location)
        _show(shards[0], _seen_in_backup(place, shards[0], _backup_of_one(backup_id, shards), see), json=json)
        return
    for name in _chosen(local_shards(root), processor.name, bucket, str(root)):
        _show(name, read_database(name.folder(root), see), json=json)


def _place(location: str | None, webhdfs: str | None) -> FileStore:
    if location is None:
        raise BackupError(
            "No backup store is named. Name it with --backup LOCATION or the environment variable PENSTOCK_BACKUP."
        )
    return open_file_store(location, webhdfs)


def _chosen(known: list[ShardName], processor: str | None, buckets: list[int] | None, where: str) -> list[ShardName]:
    """Return the named shards, if all of them exist."""
    found = [name for name in known if processor in (None, name.processor)]
    missing = set(buckets or ()) - {name.bucket for name in found}
    if not found or missing:
        what = f"processor {processor!r}" if processor else "any processor"
        which = f", bucket {', '.join(map(str, sorted(missing)))}" if missing and found else ""
        there = ", ".join(sorted({name.processor for name in known})) or "none"
        raise StateError(f"There is no state of {what}{which} in {where}. Available: {there}.")
    return [name for name in found if not buckets or name.bucket in buckets]


def _backup_of_one(text: str, shards: list[ShardName]) -> BackupId:
    if len(shards) > 1:
        raise typer.BadParameter("--backup-id names a backup of one bucket. Name that bucket with --bucket.")
    return BackupId.parse(text)


def _seen_in_backup(
    place: FileStore, name: ShardName, wanted: BackupId, see: Callable[[RocksShardState], Inspection]
) -> Inspection:
    backups = ShardBackups(place, *name)
    with _byte_bars() as bars, opened_backup(backups, backups.read(wanted), _bar(bars, name)) as state:
        return see(state)


def _byte_bars() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    return Progress(*columns, console=err, disable=not err.is_terminal, transient=True)


def _bar(bars: Progress, name: ShardName) -> Fetched:
    bar = bars.add_task(str(name), total=None)
    return lambda done_bytes, total_bytes: bars.update(bar, completed=done_bytes, total=total_bytes)


def _listed(shard: InventoryEntry) -> list[object]:
    local, kept = shard.local, shard.kept
    here: list[object] = ["", "", "", ""]
    there: list[object] = ["", "", "", "", ""]
    if local is not None:
        here = [
            str(local.position),
            decimal(local.size_bytes),
            local.keys,
            "a worker" if local.in_use else "",
        ]
    if kept is not None:
        there = [kept.count, decimal(kept.size_bytes), "", "none intact" if kept.count else "never", ""]
    if kept is not None and kept.time_ms is not None and kept.position is not None and kept.age_s is not None:
        age = f"{human_duration(kept.age_s)} ago" + ", late" * shard.late
        there[2:] = [shown_time(kept.time_ms), age, str(kept.position)]
    return [shard.processor, shard.bucket, *here, *there]


def _warn_of_age(found: list[InventoryEntry]) -> None:
    """Warn of local states with old backups."""
    late = [shard for shard in found if shard.late]
    without = [shard for shard in found if shard.local and shard.kept and shard.kept.newest is None]
    if late:
        note(
            f"Warning: the newest backup of {_named(late)} is more than {LATE_INTERVALS} intervals old, and the local state has changed "
            "since. Check that the worker runs with --backup, and read its log about the backup store."
        )
    if without:
        note(f"Warning: {_named(without)} has a local state and no intact backup.")


def _named(shards: list[InventoryEntry]) -> str:
    return "; ".join(str(ShardName(shard.processor, shard.bucket)) for shard in shards)


def _judged(name: ShardName, verdict: BackupCheck) -> list[object]:
    made: list[object] = ["", "", ""]
    if verdict.manifest is not None:
        manifest = verdict.manifest
        made = [shown_time(manifest.time_ms), decimal(manifest.size_bytes), str(manifest.position)]
    return [*name, str(verdict.backup), *made, "damaged" if verdict.damages else "intact"]


def _described(name: ShardName, verdict: BackupCheck) -> dict[str, Any]:
    manifest = verdict.manifest
    return {
        "processor": name.processor,
        "bucket": name.bucket,
        "backup": str(verdict.backup),
        "good": not verdict.damages,
        "damages": verdict.damages,
        "time_ms": manifest and manifest.time_ms,
        "position": manifest and msgspec.to_builtins(manifest.position),
        "size_bytes": manifest and manifest.size_bytes,
    }


def _explain(verdicts: list[tuple[ShardName, BackupCheck]]) -> None:
    for name, verdict in verdicts:
        for damage in verdict.damages:
            note(f"{name}, backup {verdict.backup}: {damage}")
    if any(verdict.damages for _, verdict in verdicts):
        note(
            "A restore skips damaged backups and uses an older one. Remove the damaged files from the store: the next backup stores its files "
            "again."
        )


def _tell_restored(restored: dict[ShardName, Manifest], took_s: float, *, json: bool) -> None:
    if json:
        as_json([_described(name, BackupCheck(manifest.id, manifest, ())) for name, manifest in restored.items()])
        return
    for name, manifest in restored.items():
        note(f"{name}: backup {manifest.id} of {shown_time(manifest.time_ms)}, at {manifest.position}.")
    size_bytes = sum(manifest.size_bytes for manifest in restored.values())
    note(f"Restored {decimal(size_bytes)} in {took_s:.1f} s ({decimal(round(size_bytes / took_s))}/s).")


def _show(name: ShardName, seen: Inspection | None, *, json: bool) -> None:
    if seen is None:
        return  # removed since it was listed
    if json:
        as_json({"processor": name.processor, "bucket": name.bucket, **msgspec.to_builtins(seen)})
        return
    known: dict[str, object] = {"shard": name, "position": str(seen.position)}
    if seen.watermarks:
        known["watermark"] = ", ".join(f"{input_} {shown_time(at)}" for input_, at in sorted(seen.watermarks.items()))
    if seen.pending is not None:
        known["prepared"] = (
            f"{seen.pending.changes:,} changes from {StatePosition(seen.pending.before)} to {seen.pending.after}, "
            "until their checkpoint is completed or rolled back"
        )
    facts(known)
    shown = [("saved", entry) for entry in seen.entries]
    shown += [("prepared", entry) for entry in (seen.pending.entries if seen.pending else ())]
    table(
        ["", "key", "window", "value"],
        [
            [kind, entry.key, shown_window(entry.window), dumps(entry.value, ensure_ascii=False, default=str)]
            for kind, entry in shown
        ],
    )
    if seen.timers:
        table(
            ["timer by", "at", "key", "tag"],
            [[timer.clock.value, shown_time(timer.at), key, timer.tag] for key, timer in seen.timers],
        )
