"""`penstock state`: shows, verifies, restores and migrates states and their backups."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from ....processors import human_duration
from ....processors.apps import names_app
from ....processors.shard import StatePosition
from ....state import StateError
from ....state.backups import (
    LATE_INTERVALS,
    BackupCheck,
    BackupError,
    BackupId,
    Inspection,
    InventoryEntry,
    Manifest,
    ShardBackups,
    ShardName,
    backed_up_shards,
    inventory,
    local_shards,
    opened_backup,
    read_database,
    restore_in_parallel,
    state_inspector,
)
from ....state.backups import Progress as Fetched
from ....state.backups import verify as verify_shard
from ....state.files import FileStore, open_file_store
from ....state.local import RocksShardState
from ...look_back import diff, get
from ...shell import (
    DEFAULT_FOLDER,
    AsJson,
    Backup,
    Folder,
    WebHdfs,
    err,
    format_time,
    format_window,
    note,
    only_processor,
    print_error,
    print_facts,
    print_json,
    print_table,
    processor_name,
)
from .state_migrate import migrate

app = typer.Typer(help="Show, verify, restore and migrate states and their backups.", no_args_is_help=True)
Only = Annotated[
    str | None,
    typer.Argument(
        metavar="PROCESSOR",
        help="This processor only: its name, or APP:PROCESSOR.",
        show_default=False,
        callback=processor_name,
    ),
]
Buckets = Annotated[
    list[int] | None, typer.Option("--bucket", help="This bucket only; repeatable.", show_default=False)
]
Id = Annotated[
    str | None,
    typer.Option(
        "--backup-id", metavar="ID", help="A backup of a bucket, from `penstock state verify`.", show_default=False
    ),
]


@app.command()
def show(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROCESSOR | APP:PROCESSOR]",
            help="The name of a processor, for its states only; or with its app, for the content of its state.",
            show_default=False,
        ),
    ] = None,
    bucket: Buckets = None,
    key: Annotated[str | None, typer.Option(help="This key only.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(help="The number of values to show of each bucket.", min=0)] = 20,
    backup_id: Id = None,
    backup: Backup = None,
    webhdfs: WebHdfs = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """List the local states and the backups of shards. APP:PROCESSOR shows the saved position, keys, windows and values of a state. Workers may run.

    Example: penstock state show --backup hdfs://namenode:8020/backups

    Example: penstock state show examples/flights/app.py:Scorer --bucket 3 --key JFK
    """
    if target is not None and names_app(target):
        _inspect(target, bucket, key, limit, backup_id, backup, webhdfs, folder, json=json)
        return
    if (bucket, key, backup_id) != (None, None, None):
        raise typer.BadParameter(
            "--bucket, --key and --backup-id are for the content of a state, which its app decodes. Name the processor as APP:PROCESSOR."
        )
    _list(target, backup, webhdfs, folder, json=json)


def _list(processor: str | None, backup: str | None, webhdfs: str | None, folder: Path, *, json: bool) -> None:
    found = inventory(folder / "state", open_file_store(backup, webhdfs) if backup else None, processor)
    if processor and not found:
        raise StateError(
            f"There is no state of processor {processor!r}, neither in {folder / 'state'} nor at {backup or 'a backup store'}. "
            "`penstock state show` shows all processors."
        )
    if json:
        print_json(msgspec.to_builtins(found))
        return
    if backup and not any(shard.backups and shard.backups.count for shard in found):
        note(f"There are no backups at {backup}.")
    if not found:
        note(f"There are no states in {folder / 'state'}.")
        return
    columns = ["processor", "bucket", "position", "size", "keys", "used by"]
    print_table([*columns, "backups", "stored", "newest", "age", "backup position"], [_row(shard) for shard in found])
    for problem in filter(None, (shard.problem for shard in found)):
        print_error(problem)
    _warn_of_age(found)


@app.command()
def verify(
    processor: Only = None, bucket: Buckets = None, backup: Backup = None, webhdfs: WebHdfs = None, json: AsJson = False
) -> None:
    """Read all backups and compare them with their checksums; fail if a bucket has no intact backup.

    Example: penstock state verify --backup hdfs://namenode:8020/backups
    """
    store = _backup_store(backup, webhdfs)
    shards = _select(backed_up_shards(store), processor, bucket, store.location)
    with _byte_bars() as bars:
        found = {name: verify_shard(ShardBackups(store, *name), _bar(bars, name)) for name in shards}
    checks = [(name, check) for name in shards for check in found[name]]
    if json:
        print_json([_described(name, check) for name, check in checks])
    else:
        columns = ["processor", "bucket", "backup", "created", "size", "position", "result"]
        print_table(columns, [_check_row(name, check) for name, check in checks])
    _explain(checks)
    without = [name for name in shards if all(check.damages for check in found[name])]
    if without:
        print_error(f"No intact backup at {store.location} of {'; '.join(map(str, without))}.")
        raise typer.Exit(1)


@app.command()
def restore(
    processor: Annotated[str, typer.Argument(help="The processor's name, or APP:PROCESSOR.", callback=processor_name)],
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
    store = _backup_store(backup, webhdfs)
    shards = _select(backed_up_shards(store), processor, bucket, store.location)
    only = None if backup_id is None else _backup_of_one(backup_id, shards)
    started_s = time.monotonic()
    with _byte_bars() as bars:
        outcomes = restore_in_parallel(store, folder / "state", shards, partial(_bar, bars), only)
    restored = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Manifest)}
    _show_restored(restored, time.monotonic() - started_s, json=json)
    for outcome in outcomes.values():
        if isinstance(outcome, StateError):
            print_error(str(outcome))
    if len(restored) < len(shards):
        raise typer.Exit(1)


def _inspect(
    target: str,
    bucket: list[int] | None,
    key: str | None,
    limit: int,
    backup_id: str | None,
    backup: str | None,
    webhdfs: str | None,
    folder: Path,
    *,
    json: bool,
) -> None:
    processor, root = only_processor(target), folder / "state"
    inspect_state = state_inspector(processor, key, limit)
    if backup_id is not None:
        store = _backup_store(backup, webhdfs)
        shards = _select(backed_up_shards(store), processor.name, bucket, store.location)
        _show(shards[0], _inspect_backup(store, shards[0], _backup_of_one(backup_id, shards), inspect_state), json=json)
        return
    found = False
    for name in _select(local_shards(root), processor.name, bucket, str(root)):
        inspected = read_database(name.folder(root), inspect_state)
        found |= inspected is not None and bool(inspected.entries or inspected.pending or inspected.timers)
        _show(name, inspected, json=json)
    if key is not None and not found and not json:
        note(
            f"No state of key {key} was found. A state is removed when the processor returns None, and with its window."
        )


def _backup_store(location: str | None, webhdfs: str | None) -> FileStore:
    if location is None:
        raise BackupError(
            "No backup store is named. Name it with --backup LOCATION or the environment variable PENSTOCK_BACKUP."
        )
    return open_file_store(location, webhdfs)


def _select(shards: list[ShardName], processor: str | None, buckets: list[int] | None, where: str) -> list[ShardName]:
    """Return the named shards, if all of them exist."""
    found = [name for name in shards if processor in (None, name.processor)]
    missing = set(buckets or ()) - {name.bucket for name in found}
    if not found or missing:
        owner = f"processor {processor!r}" if processor else "any processor"
        missing_buckets = f", bucket {', '.join(map(str, sorted(missing)))}" if missing and found else ""
        available = ", ".join(sorted({name.processor for name in shards})) or "none"
        raise StateError(
            f"There is no state of {owner}{missing_buckets} in {where}. Nothing was changed. Available: {available}."
        )
    return [name for name in found if not buckets or name.bucket in buckets]


def _backup_of_one(text: str, shards: list[ShardName]) -> BackupId:
    if len(shards) > 1:
        raise typer.BadParameter("--backup-id names a backup of one bucket. Name that bucket with --bucket.")
    return BackupId.parse(text)


def _inspect_backup(
    store: FileStore, name: ShardName, backup: BackupId, inspect_state: Callable[[RocksShardState], Inspection]
) -> Inspection:
    backups = ShardBackups(store, *name)
    with _byte_bars() as bars, opened_backup(backups, backups.read(backup), _bar(bars, name)) as state:
        return inspect_state(state)


def _byte_bars() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    return Progress(*columns, console=err, disable=not err.is_terminal, transient=True)


def _bar(bars: Progress, name: ShardName) -> Fetched:
    bar = bars.add_task(str(name), total=None)
    return lambda done_bytes, total_bytes: bars.update(bar, completed=done_bytes, total=total_bytes)


def _row(shard: InventoryEntry) -> list[object]:
    local, backups = shard.local, shard.backups
    local_cells: list[object] = ["", "", "", ""]
    backup_cells: list[object] = ["", "", "", "", ""]
    if local is not None:
        local_cells = [
            str(local.position),
            decimal(local.size_bytes),
            local.keys,
            "a worker" if local.in_use else "",
        ]
    if backups is not None:
        backup_cells = [backups.count, decimal(backups.size_bytes), "", "none intact" if backups.count else "never", ""]
    if (
        backups is not None
        and backups.time_ms is not None
        and backups.position is not None
        and backups.age_s is not None
    ):
        age = f"{human_duration(backups.age_s)} ago" + ", late" * shard.late
        backup_cells[2:] = [format_time(backups.time_ms), age, str(backups.position)]
    return [shard.processor, shard.bucket, *local_cells, *backup_cells]


def _warn_of_age(found: list[InventoryEntry]) -> None:
    """Warn of local states with old backups."""
    late = [shard for shard in found if shard.late]
    without = [shard for shard in found if shard.local and shard.backups and shard.backups.newest is None]
    if late:
        note(
            f"Warning: the newest backup of {_named(late)} is more than {LATE_INTERVALS} intervals old, and the local state has changed "
            "since. Check that the worker runs with --backup, and read its log about the backup store."
        )
    if without:
        note(f"Warning: {_named(without)} has a local state and no intact backup.")


def _named(shards: list[InventoryEntry]) -> str:
    return "; ".join(str(ShardName(shard.processor, shard.bucket)) for shard in shards)


def _check_row(name: ShardName, check: BackupCheck) -> list[object]:
    cells: list[object] = ["", "", ""]
    if check.manifest is not None:
        manifest = check.manifest
        cells = [format_time(manifest.time_ms), decimal(manifest.size_bytes), str(manifest.position)]
    return [*name, str(check.backup), *cells, "damaged" if check.damages else "intact"]


def _described(name: ShardName, check: BackupCheck) -> dict[str, Any]:
    manifest = check.manifest
    return {
        "processor": name.processor,
        "bucket": name.bucket,
        "backup": str(check.backup),
        "good": not check.damages,
        "damages": check.damages,
        "time_ms": manifest and manifest.time_ms,
        "position": manifest and msgspec.to_builtins(manifest.position),
        "size_bytes": manifest and manifest.size_bytes,
    }


def _explain(checks: list[tuple[ShardName, BackupCheck]]) -> None:
    for name, check in checks:
        for damage in check.damages:
            note(f"{name}, backup {check.backup}: {damage}")
    if any(check.damages for _, check in checks):
        note(
            "A restore skips damaged backups and uses an older one. Remove the damaged files from the store: the next backup stores its files "
            "again."
        )


def _show_restored(restored: dict[ShardName, Manifest], duration_s: float, *, json: bool) -> None:
    if json:
        print_json([_described(name, BackupCheck(manifest.id, manifest, ())) for name, manifest in restored.items()])
        return
    for name, manifest in restored.items():
        note(f"{name}: backup {manifest.id} of {format_time(manifest.time_ms)}, at {manifest.position}.")
    size_bytes = sum(manifest.size_bytes for manifest in restored.values())
    note(f"Restored {decimal(size_bytes)} in {duration_s:.1f} s ({decimal(round(size_bytes / duration_s))}/s).")


def _show(name: ShardName, inspected: Inspection | None, *, json: bool) -> None:
    if inspected is None:
        return  # it was removed after the listing
    if json:
        print_json({"processor": name.processor, "bucket": name.bucket, **msgspec.to_builtins(inspected)})
        return
    lines: dict[str, object] = {"shard": name, "position": str(inspected.position)}
    if inspected.watermarks:
        lines["watermark"] = ", ".join(
            f"{input_} {format_time(at)}" for input_, at in sorted(inspected.watermarks.items())
        )
    if inspected.pending is not None:
        lines["prepared"] = (
            f"{inspected.pending.changes:,} changes from {StatePosition(inspected.pending.before)} to {inspected.pending.after}, "
            "until their checkpoint is completed or rolled back"
        )
    print_facts(lines)
    entries = [("saved", entry) for entry in inspected.entries]
    entries += [("prepared", entry) for entry in (inspected.pending.entries if inspected.pending else ())]
    print_table(
        ["", "key", "window", "value"],
        [
            [kind, entry.key, format_window(entry.window), dumps(entry.value, ensure_ascii=False, default=str)]
            for kind, entry in entries
        ],
    )
    if inspected.timers:
        print_table(
            ["timer by", "at", "key", "tag"],
            [[timer.clock.value, format_time(timer.at), key, timer.tag] for key, timer in inspected.timers],
        )


app.command("get")(get)
app.command("diff")(diff)
app.command("migrate")(migrate)
