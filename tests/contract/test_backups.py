"""Backups of states are saved, restored and checked, in a folder and on HDFS."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from support.backups import (
    ME,
    ProcessEnded,
    WatchedFileStore,
    back_up,
    backups_at,
    halve,
    listing,
    path_of,
    restored_values,
    rewrite,
    table_of,
    tables_of,
)

from penstock.processors.shard import StatePosition
from penstock.state import Delta, FileStoreUnreachable, ShardIdentity
from penstock.state.backups import Manifest, ShardBackups, claim, fetching, newest_position, restore_shard, verify
from penstock.state.backups import writer as owning
from penstock.state.backups.manifest import BackupFile
from penstock.state.backups.restore import restore
from penstock.state.errors import ForeignState
from penstock.state.files import FileStore
from penstock.state.local import RocksShardState, RocksStateFolder, current, folder, opened_read_only, shard_folder


def test_a_restored_state_equals_what_was_saved(store: FileStore, state: RocksShardState, tmp_path: Path) -> None:
    """A restore returns values, position and a prepared delta under the same identity, and its owner can open it."""
    delta = Delta({"flights": 7}, StatePosition({"flights": 9}), {b"later": b"x", b"last": None})
    state.save({b"large %d" % number: os.urandom(100_000) for number in range(40)})
    state.prepare(delta)
    manifest = back_up(claim(backups_at(store), ME), state, tmp_path, 7)
    progress: list[tuple[int, int]] = []
    shard = shard_folder(tmp_path / "other", ME)
    found = restore_shard(store, ME, shard, lambda done, total: progress.append((done, total)))
    other = RocksStateFolder(tmp_path / "other").open(ME)

    assert found == manifest
    assert progress[-1] == (manifest.size_bytes, manifest.size_bytes)
    assert dict(other.items()) == dict(state.items())
    assert other.position() == StatePosition({"flights": 7}) == newest_position(store, ME)
    assert other.prepared() == delta
    other.close()


def test_a_restore_without_a_backup_restores_nothing(store: FileStore, tmp_path: Path) -> None:
    """A missing backup is not an error, and the restore creates no database."""
    shard = shard_folder(tmp_path, ME)

    assert newest_position(store, ME) is None
    assert restore_shard(store, ME, shard) is None
    assert restore(backups_at(store), tmp_path / "target") is None
    assert not list(tmp_path.rglob("CURRENT"))


def test_a_backup_stores_only_new_tables(store: FileStore, state: RocksShardState, tmp_path: Path) -> None:
    """The next owner of the same state does the same after a restart."""
    watched = WatchedFileStore(store)
    first = back_up(claim(backups_at(watched), ME), state, tmp_path, 1)
    owner = claim(backups_at(watched), ME)
    shared = back_up(owner, state, tmp_path)
    watched.requests.clear()
    second = back_up(owner, state, tmp_path, 2)
    tables = {path_of(store, table) for table in tables_of(second)}
    new_tables = tables - {path_of(store, table) for table in tables_of(shared)}

    assert {path_of(store, table) for table in tables_of(first)} == {
        path_of(store, table) for table in tables_of(shared)
    }
    assert new_tables
    assert {path for path in watched.stored() if path in tables} == new_tables


def test_a_table_is_hashed_once(store: FileStore, state: RocksShardState, tmp_path: Path) -> None:
    """A table never changes in an open database: the second backup does not read it."""
    owner = claim(backups_at(store), ME)
    back_up(owner, state, tmp_path)
    snapshot = tmp_path / "snapshot"
    state.snapshot(snapshot)
    table = max(snapshot.glob("*.sst"), key=lambda path: path.stat().st_size)
    content = table.read_bytes()
    table.unlink()  # the link, not the owner's file
    table.write_bytes(b"\0" * len(content))
    owner.save(snapshot, state.position())

    assert content in listing(store).values()
    assert (restored_values(store, tmp_path / "target") or {})[b"last"] == b"0"


def test_a_file_that_was_removed_from_the_store_is_stored_again(
    store: FileStore, state: RocksShardState, tmp_path: Path
) -> None:
    """The next backup replaces a missing or truncated file, although the owner stored it before."""
    owner = claim(backups_at(store), ME)
    tables = tables_of(back_up(owner, state, tmp_path))
    store.delete(path_of(store, tables[0]))
    store.write(path_of(store, tables[1]), [b"cut"])
    back_up(owner, state, tmp_path, 1)

    assert [verdict.damages for verdict in verify(backups_at(store))] == [(), ()]


@pytest.mark.parametrize("next_owner", [False, True])
@pytest.mark.parametrize("harm", [lambda whole: whole[:-9] + b"\0" * 9, lambda whole: b"\0" * len(whole)])
def test_a_backup_shares_no_file_with_different_content(
    harm: Callable[[bytes], bytes],
    next_owner: bool,
    store: FileStore,
    state: RocksShardState,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A file of the same size but different content is stored again by the same owner or the next, and the log reports it."""
    owner = claim(backups_at(store), ME)
    first = back_up(owner, state, tmp_path, 1)
    for table in tables_of(first):
        path = path_of(store, table)
        store.write(path, [harm(b"".join(store.read(path)))])
    second = back_up(claim(backups_at(store), ME) if next_owner else owner, state, tmp_path, 2)
    verdicts = {verdict.backup: verdict.damages for verdict in verify(backups_at(store))}

    assert {file.sha256 for file in tables_of(first)} & {file.sha256 for file in tables_of(second)}
    assert verdicts[second.id] == ()
    assert bool(verdicts[first.id]) == next_owner
    assert "its checksum does not match" in caplog.text
    assert (restored_values(store, tmp_path / "target") or {})[b"last"] == b"2"


def test_each_backup_verifies_a_part_of_a_large_state(
    monkeypatch: pytest.MonkeyPatch, watched: WatchedFileStore, state: RocksShardState, tmp_path: Path
) -> None:
    """It verifies the files first whose last verification is oldest, so all files are verified in turn."""
    owner = claim(backups_at(watched), ME)
    for number in range(3):
        manifest = back_up(owner, state, tmp_path, number)
    tables = {file.stored: file for file in tables_of(manifest)}
    monkeypatch.setattr(owning, "CHECKED_BYTES", max(file.size_bytes for file in manifest.files))
    turns: list[set[str]] = []
    for _ in range(2 * len(manifest.files)):
        watched.requests.clear()
        back_up(owner, state, tmp_path)
        turns.append(
            {path.rpartition("/")[2] for step, path in watched.requests if step == "read" and "/files/" in path}
        )

    assert all(len(turn) < len(manifest.files) for turn in turns)
    assert tables.keys() <= set().union(*turns)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_restore_succeeds_after_a_kill_at_any_step_of_another(
    when: str, monkeypatch: pytest.MonkeyPatch, watched: WatchedFileStore, state: RocksShardState, tmp_path: Path
) -> None:
    """The killed restore leaves a complete state, or a state that does not count, whatever files are beside it."""
    back_up(claim(backups_at(watched), ME), state, tmp_path, 7)
    monkeypatch.setattr(folder, "drop_folder", lambda _: None)  # a killed process cleans nothing up
    for number in count(1):
        shard, steps = shard_folder(tmp_path / f"{number}", ME), count(1)

        def step(*_: object, steps: count[int] = steps, number: int = number) -> None:
            if next(steps) == number:
                raise ProcessEnded

        setattr(watched, when, step)
        monkeypatch.setattr(fetching, "sync_folder", step)
        died = False
        try:
            restore_shard(watched, ME, shard, confirm=step)
        except ProcessEnded:
            died = True
        setattr(watched, when, lambda *_: None)
        monkeypatch.setattr(fetching, "sync_folder", lambda _: None)
        if current(shard) is None:
            assert restore_shard(watched, ME, shard) is not None
        with opened_read_only(current(shard) or shard) as found:
            assert dict(found.items())[b"last"] == b"7"
        if not died:
            break

    assert number > 4


Damage = Callable[[FileStore, Manifest, Manifest], None]


def _flip(store: FileStore, manifest: Manifest, before: Manifest) -> None:
    path = path_of(store, table_of(manifest, before))
    content = bytearray(b"".join(store.read(path)))
    content[len(content) // 2] ^= 1
    store.write(path, [bytes(content)])


def _cut(store: FileStore, manifest: Manifest, before: Manifest) -> None:
    path = path_of(store, table_of(manifest, before))
    store.write(path, [b"".join(store.read(path))[:-1]])


def _lose(store: FileStore, manifest: Manifest, before: Manifest) -> None:
    store.delete(path_of(store, table_of(manifest, before)))


def _alter(store: FileStore, manifest: Manifest, before: Manifest) -> None:
    rewrite(store, manifest, lambda content: content.replace(b'"flights":2', b'"flights":3'))


def _scramble(store: FileStore, manifest: Manifest, before: Manifest) -> None:
    rewrite(store, manifest, lambda content: bytes(byte ^ 0xFF for byte in content))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (_flip, r"\.sst\) was changed"),
        (_cut, r"\.sst\) has [\d,]+ of [\d,]+ bytes"),
        (_lose, r"\.sst\) is missing"),
        (halve, "manifest cannot be read"),
        (_alter, "checksum does not match"),
        (_scramble, "manifest cannot be read"),
    ],
)
def test_a_damaged_backup_is_replaced_by_the_previous_one(
    damage: Damage,
    expected: str,
    store: FileStore,
    state: RocksShardState,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Restore and check report the damage, and the restored state is complete."""
    owner = claim(backups_at(store), ME)
    before, manifest = back_up(owner, state, tmp_path, 1), back_up(owner, state, tmp_path, 2)
    damage(store, manifest, before)
    verdicts = verify(backups_at(store))
    values = restored_values(store, tmp_path / "target")

    assert (values or {})[b"last"] == b"1"
    assert [bool(verdict.damages) for verdict in verdicts] == [True, False]
    assert re.search(expected, verdicts[0].damages[0])
    assert re.search(expected, caplog.text)
    assert str(manifest.id) in caplog.text


def test_damaged_backups_alone_restore_nothing(store: FileStore, state: RocksShardState, tmp_path: Path) -> None:
    """No file of them remains in the shard's folder."""
    manifest = back_up(claim(backups_at(store), ME), state, tmp_path)
    store.delete(path_of(store, table_of(manifest)))
    shard = shard_folder(tmp_path / "other", ME)

    assert restore_shard(store, ME, shard) is None
    assert not list(shard.iterdir())


def test_a_manifest_cannot_name_files_outside_its_folder(
    store: FileStore, state: RocksShardState, tmp_path: Path
) -> None:
    """File names that RocksDB does not use are refused, even with a valid checksum."""
    manifest = back_up(claim(backups_at(store), ME), state, tmp_path)
    file = manifest.files[0]
    evil = BackupFile("../outside", file.size_bytes, file.sha256, file.epoch)
    forged = Manifest(1, ME, StatePosition(), 9, 9, 0, (evil,))
    store.write(backups_at(store).manifest_path(forged.id), [forged.encode()])
    found = restore(backups_at(store), tmp_path / "target")

    assert found == manifest
    assert not (tmp_path / "outside").exists()


def test_a_backup_of_a_different_state_layout_is_refused(
    store: FileStore, state: RocksShardState, tmp_path: Path
) -> None:
    """The restore refuses it before the download and changes nothing."""
    back_up(claim(backups_at(store), ME), state, tmp_path)
    shard = shard_folder(tmp_path / "other", ME)
    with pytest.raises(ForeignState, match="int by route"):
        restore_shard(store, ShardIdentity(ME.processor, ME.bucket, "int by route"), shard)

    assert not list(shard.glob("*"))


def test_a_failing_store_is_not_treated_as_empty(
    watched: WatchedFileStore, state: RocksShardState, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An unreadable file leads to an older backup; if no backup is readable, the restore fails with an error."""
    owner = claim(backups_at(watched), ME)
    before, manifest = back_up(owner, state, tmp_path, 1), back_up(owner, state, tmp_path, 2)
    unreadable = {path_of(watched, table_of(manifest, before))}

    def refuse(step: str, path: str) -> None:
        if step == "read" and path in unreadable:
            raise FileStoreUnreachable(f"{path} was not read: refused.")

    watched.before = refuse
    older = restored_values(watched, tmp_path / "target")
    unreadable.add(path_of(watched, table_of(before)))

    assert (older or {})[b"last"] == b"1"
    assert "refused" in caplog.text
    with pytest.raises(FileStoreUnreachable, match="refused"):
        restore(backups_at(watched), tmp_path / "target")


def test_one_broken_connection_does_not_restore_an_older_backup(
    watched: WatchedFileStore, state: RocksShardState, tmp_path: Path
) -> None:
    """The file is requested again, and its bytes are counted once."""
    manifest = back_up(claim(backups_at(watched), ME), state, tmp_path, 1)
    broken, progress = {path_of(watched, table_of(manifest))}, []

    def break_once(step: str, path: str) -> None:
        if step == "read" and path in broken:
            broken.discard(path)
            raise FileStoreUnreachable("broken")

    watched.after = break_once
    found = restore(backups_at(watched), tmp_path / "target", lambda done, _: progress.append(done))

    assert found == manifest
    assert max(progress) == manifest.size_bytes


def test_a_restore_continues_when_its_backup_is_replaced(
    watched: WatchedFileStore, state: RocksShardState, tmp_path: Path
) -> None:
    """The owner writes newer backups and removes the one in transfer: the restore uses a newer one."""
    backups = backups_at(watched)
    owner = claim(ShardBackups(watched.store, ME.processor, ME.bucket), ME)
    manifest = back_up(owner, state, tmp_path, 1)
    pending = [path_of(watched, manifest.files[0])]

    def replace(step: str, path: str) -> None:
        if step == "read" and pending and path == backups.manifest_path(manifest.id):
            pending.clear()
            back_up(owner, state, tmp_path, 2)
            for left in (*manifest.files, None):
                watched.store.delete(path_of(watched, left) if left else backups.manifest_path(manifest.id))
            back_up(owner, state, tmp_path, 3)

    watched.after = replace
    values = restored_values(watched, tmp_path / "target")

    assert (values or {})[b"last"] == b"3"
