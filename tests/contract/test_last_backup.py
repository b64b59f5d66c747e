"""The backup at the end of a run, on each file store."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path
from threading import Event

from support.backups import ME, StoreSwitch, WaitUntil, WatchedFileStore, newest_backup, save_checkpoint

from penstock.ops.kernel.shards.backups import WorkerBackups
from penstock.ops.kernel.shards.last_backup import LastBackup
from penstock.processors.shard import StatePosition
from penstock.state.backups import newest_position
from penstock.state.files import FileStore
from penstock.state.local import RocksShardState

RARELY, LIMIT_S = timedelta(days=1), 60.0


def test_the_final_state_is_backed_up_before_the_regular_backup_is_due(
    store: FileStore, state: RocksShardState, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """The worker may stop when the backup is stored, and not before."""
    with closing(WorkerBackups(store, tmp_path / "states", RARELY)) as backups:
        backups.adopt(ME, state)
        save_checkpoint(state, 7)
        last = LastBackup(backups, LIMIT_S)
        assert not last()
        wait_until(last)

    assert newest_position(store, ME) == StatePosition({"flights": 7})
    assert last.missing == []


def test_a_final_state_equal_to_the_newest_backup_is_not_stored_again(
    store: FileStore, state: RocksShardState, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """The worker may stop at once."""
    with closing(WorkerBackups(store, tmp_path / "states", RARELY)) as backups:
        backups.adopt(ME, state)
        save_checkpoint(state, 7)
        wait_until(LastBackup(backups, LIMIT_S))
        stored = newest_backup(store)
        wait_until(LastBackup(backups, LIMIT_S))

    assert newest_backup(store) == stored


def test_a_backup_that_has_begun_does_not_count(
    watched: WatchedFileStore, state: RocksShardState, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """It may lack the final state, which the next one contains."""
    began, stored = Event(), Event()

    def hold(_step: str, _path: str) -> None:
        began.set()
        stored.wait(60)

    with closing(WorkerBackups(watched, tmp_path / "states", RARELY)) as backups:
        backups.adopt(ME, state)
        wait_until(LastBackup(backups, LIMIT_S))
        save_checkpoint(state, 7)
        watched.before = hold
        backups.back_up_now()
        began.wait(60)
        save_checkpoint(state, 8)
        last = LastBackup(backups, LIMIT_S)
        last()
        stored.set()
        wait_until(last)

    assert newest_position(watched, ME) == StatePosition({"flights": 8})


def test_a_backup_that_takes_longer_than_the_limit_is_awaited(
    watched: WatchedFileStore, state: RocksShardState, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """The store does not fail, so the worker waits."""
    began, stored = Event(), Event()

    def hold(_step: str, _path: str) -> None:
        began.set()
        stored.wait(60)

    watched.before = hold
    with closing(WorkerBackups(watched, tmp_path / "states", RARELY)) as backups:
        backups.adopt(ME, state)
        save_checkpoint(state, 7)
        last = LastBackup(backups, limit_s=0.0)
        is_over = last()
        began.wait(60)
        is_over |= last()
        stored.set()
        wait_until(last)

    assert not is_over
    assert newest_position(watched, ME) == StatePosition({"flights": 7})


def test_a_worker_stops_after_the_limit_without_a_backup_of_the_final_state(
    watched: WatchedFileStore, state: RocksShardState, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """The shard without one is named."""
    watched.before = StoreSwitch()
    with closing(WorkerBackups(watched, tmp_path / "states", RARELY)) as backups:
        backups.adopt(ME, state)
        save_checkpoint(state, 7)
        last = LastBackup(backups, limit_s=0.5)
        wait_until(last)

    assert last.missing == [ME]
