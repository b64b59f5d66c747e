"""A standby copies the backups of other machines, and takes their states over from its copies."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from support.backups import ME, WaitUntil, WatchedFileStore, back_up, backups_at, path_of, table_of, tables_of

from penstock.ops.kernel.shards.backups import WorkerBackups
from penstock.processors.shard import StatePosition
from penstock.state import FileStoreUnreachable
from penstock.state.backups import StandbyCopies, claim, restore_shard, verify
from penstock.state.backups.writer import BackupWriter
from penstock.state.local import RocksShardState, RocksStateFolder, shard_folder

SOON = timedelta(milliseconds=20)


@pytest.fixture
def owner(watched: WatchedFileStore) -> BackupWriter:
    """The owner of the shard, on another machine."""
    return claim(backups_at(watched), ME)


@pytest.fixture
def copies(watched: WatchedFileStore, tmp_path: Path) -> StandbyCopies:
    """The copies of the standby."""
    return StandbyCopies(watched, tmp_path / "standby", ME.processor)


@pytest.fixture
def backups(watched: WatchedFileStore, tmp_path: Path) -> Iterator[WorkerBackups]:
    """The backups of a worker that is a standby."""
    with closing(WorkerBackups(watched, tmp_path / "standby", SOON)) as backups:
        backups.stand_by(lambda bucket: replace(ME, bucket=bucket), ME.processor)
        yield backups


def nothing() -> StatePosition:
    """Return the position of a machine without a state."""
    return StatePosition()


def fail(_step: str, path: str) -> None:
    """Refuse a request."""
    raise FileStoreUnreachable(f"{path} cannot be reached.")


def copied(copies: StandbyCopies, tmp_path: Path) -> StatePosition:
    """Make a database of the copy, and return its position."""
    manifest = restore_shard(copies.files, ME, shard_folder(tmp_path / "taken", ME), get=copies.link)
    assert manifest is not None
    with closing(RocksStateFolder(tmp_path / "taken").open(ME)) as state:
        assert dict(state.items())[b"last"] == b"%d" % state.position().offsets["flights"]
        assert state.position() == manifest.position
    return manifest.position


def takes_over(backups: WorkerBackups, state: RocksShardState, tmp_path: Path) -> None:
    """Open the shard on the standby; its state equals another one."""
    assert backups.refresh(ME, state.position(), threading.Event())
    with closing(RocksStateFolder(tmp_path / "standby").open(ME)) as taken:
        assert dict(taken.items()) == dict(state.items())
        assert taken.position() == state.position()


def test_a_standby_takes_over_although_the_backup_store_is_down(
    backups: WorkerBackups,
    owner: BackupWriter,
    watched: WatchedFileStore,
    state: RocksShardState,
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    """Its copy is complete, for a state of any size."""
    state.save({b"large %d" % number: os.urandom(100_000) for number in range(40)})
    back_up(owner, state, tmp_path, 1)
    standby = backups.standby
    assert standby is not None
    wait_until(lambda: standby.current == 1)
    watched.before = fail
    takes_over(backups, state, tmp_path)


def test_an_update_reads_only_new_files(
    copies: StandbyCopies, owner: BackupWriter, watched: WatchedFileStore, state: RocksShardState, tmp_path: Path
) -> None:
    """Without a newer backup, it reads no file."""
    first = back_up(owner, state, tmp_path, 1)
    assert copies.update(ME, nothing)
    second = back_up(owner, state, tmp_path, 2)
    watched.requests.clear()
    assert copies.update(ME, nothing)
    read = {path for step, path in watched.requests if step == "read"}
    assert path_of(watched, table_of(second, first)) in read
    assert not {path_of(watched, table) for table in tables_of(first)} & read
    assert copied(copies, tmp_path) == StatePosition({"flights": 2})
    watched.requests.clear()
    assert copies.update(ME, nothing)
    assert not [path for step, path in watched.requests if step == "read" and "files/" in path]


def test_a_takeover_uses_the_newest_backup(
    backups: WorkerBackups,
    owner: BackupWriter,
    state: RocksShardState,
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    """An older copy is completed first."""
    back_up(owner, state, tmp_path, 1)
    standby = backups.standby
    assert standby is not None
    wait_until(lambda: standby.current == 1)
    standby.close()
    back_up(owner, state, tmp_path, 2)
    takes_over(backups, state, tmp_path)


def test_a_machine_with_the_state_itself_keeps_no_copy(
    backups: WorkerBackups,
    owner: BackupWriter,
    watched: WatchedFileStore,
    state: RocksShardState,
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    """The copy disappears when the machine has the state open, and when its state is as new as the backup."""
    copy = tmp_path / "standby" / ME.processor / ".standby" / ME.processor / f"{ME.bucket:05d}"
    standby = backups.standby
    assert standby is not None
    back_up(owner, state, tmp_path, 1)
    wait_until(lambda: standby.current == 1)
    takes_over(backups, state, tmp_path)
    taken = RocksStateFolder(tmp_path / "standby").open(ME)
    backups.adopt(ME, taken)
    wait_until(lambda: not copy.exists())
    backups.release(ME)
    taken.close()
    wait_until(lambda: standby.current == 1)
    assert not copy.exists()


def test_a_damaged_backup_leaves_the_copy_as_it_is(
    copies: StandbyCopies, owner: BackupWriter, watched: WatchedFileStore, state: RocksShardState, tmp_path: Path
) -> None:
    """The copy of the backup before it remains whole, and the next intact backup replaces it."""
    first = back_up(owner, state, tmp_path, 1)
    copies.update(ME, nothing)
    second = back_up(owner, state, tmp_path, 2)
    watched.write(path_of(watched, table_of(second, first)), [b"changed"])
    with pytest.raises(Exception, match="checksum does not match"):
        copies.update(ME, nothing)
    assert copied(copies, tmp_path) == StatePosition({"flights": 1})
    assert verify(backups_at(copies.files))[0].damages == ()
    back_up(claim(backups_at(watched), ME), state, tmp_path, 3)
    copies.update(ME, nothing)
    assert copied(copies, tmp_path) == StatePosition({"flights": 3})


def test_an_incomplete_copy_is_not_used(
    backups: WorkerBackups, owner: BackupWriter, state: RocksShardState, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """The state is then restored from the backup store."""
    manifest = back_up(owner, state, tmp_path, 1)
    standby = backups.standby
    assert standby is not None
    wait_until(lambda: standby.current == 1)
    files = tmp_path / "standby" / ME.processor / ".standby" / ME.processor / f"{ME.bucket:05d}" / "files"
    (files / tables_of(manifest)[0].stored).unlink()
    takes_over(backups, state, tmp_path)


def test_a_taken_state_leaves_its_copy_unchanged(
    copies: StandbyCopies, owner: BackupWriter, state: RocksShardState, tmp_path: Path
) -> None:
    """Both share table files, which the database never changes when it writes or compacts."""
    back_up(owner, state, tmp_path, 1)
    copies.update(ME, nothing)
    assert copied(copies, tmp_path) == StatePosition({"flights": 1})
    with closing(RocksStateFolder(tmp_path / "taken").open(ME)) as taken:
        for number in range(20):
            taken.save({b"key %d" % key: os.urandom(1_000) for key in range(100)})
            taken.snapshot(tmp_path / f"flushed-{number}")
    assert verify(backups_at(copies.files))[0].damages == ()


def test_several_processes_of_a_machine_share_the_copies(
    owner: BackupWriter, watched: WatchedFileStore, state: RocksShardState, tmp_path: Path
) -> None:
    """Each sees the copies of the others whole, at every moment."""
    machine = tmp_path / "standby"
    with ThreadPoolExecutor(4) as threads:
        for number in range(1, 6):
            back_up(owner, state, tmp_path, number)
            updates = [
                threads.submit(StandbyCopies(watched, machine, ME.processor).update, ME, nothing) for _ in range(4)
            ]
            assert all(update.result() for update in updates)
            assert copied(StandbyCopies(watched, machine, ME.processor), tmp_path) == StatePosition({"flights": number})
