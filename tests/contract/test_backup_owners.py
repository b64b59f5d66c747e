"""Owners of backups that are killed, fenced or paused leave complete backups."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from support.backups import (
    ME,
    Killed,
    WatchedFileStore,
    back_up,
    backups_at,
    halve,
    listing,
    newest_backup,
    path_of,
    put_back,
    restored_values,
    save_checkpoint,
)

from penstock.state.backups import BackupError, Manifest, Retention, claim, publish, verify
from penstock.state.backups.errors import BackupFenced
from penstock.state.backups.manifest import BackupFile
from penstock.state.backups.writer import BackupWriter
from penstock.state.files import FileStore
from penstock.state.local import RocksShardState


def test_a_kill_at_any_step_leaves_a_complete_backup(store: FileStore, state: RocksShardState, tmp_path: Path) -> None:
    """A kill before any write of claiming, saving or pruning leaves the previous backup or the new one, complete."""
    watched = WatchedFileStore(store)
    _claim_save_prune(watched, state, tmp_path, 0)
    last, kill = 0, 0
    while True:
        number = kill + 1
        watched.before, begun = _death_at(kill)
        died = _dies(partial(_claim_save_prune, watched, state, tmp_path, number))
        watched.before = WatchedFileStore.before
        found = int((restored_values(store, tmp_path / "target") or {})[b"last"])

        assert found in (last, number), f"killed before {begun[-1]}"
        assert not any(verdict.damages for verdict in verify(backups_at(store))), f"killed before {begun[-1]}"
        if not died:
            break
        last, kill = found, kill + 1

    assert kill > 6, "too few kills for a meaningful test"
    assert found == number
    assert len(backups_at(store).ids()) == 1
    assert set(backups_at(store).files()) == {file.stored for file in newest_backup(store).files}


def _death_at(number: int) -> tuple[Callable[[str, str], None], list[str]]:
    """Return a kill at the given write to the store, and the list of writes that started."""
    begun: list[str] = []

    def step(kind: str, path: str) -> None:
        if kind in ("write", "create", "delete"):
            begun.append(f"{kind} {path}")
            if len(begun) > number:
                raise Killed

    return step, begun


def _dies(work: Callable[[], None]) -> bool:
    try:
        work()
    except Killed:
        return True
    return False


def _claim_save_prune(store: FileStore, state: RocksShardState, folder: Path, number: int) -> None:
    owner = claim(backups_at(store), ME)
    back_up(owner, state, folder, number)
    owner.prune(Retention(1))


def test_a_killed_process_leaves_no_partial_backup(
    store: FileStore, state: RocksShardState, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """After SIGKILL within a table, a restore uses the earlier backup, and the next owner's pruning removes the rest."""
    back_up(claim(backups_at(store), ME), state, tmp_path, 1)
    state.save({b"large": os.urandom(20_000_000)})
    save_checkpoint(state, 2)
    state.snapshot(tmp_path / "snapshot")
    webhdfs = repr(request.getfixturevalue("hdfs")["webhdfs"]) if "hdfs" in store.location else None
    program = (
        "import os, signal, sys; sys.path.insert(0, 'tests')\n"
        "from pathlib import Path\n"
        "from support import backups as t\n"
        "from penstock.state.files.file_store import open_file_store\n"
        "from penstock.state.backups.writer import claim\n"
        "sizes = []\n"
        "def die(step, path):\n"
        "    sizes.append(step)\n"
        "    if sizes.count('chunk') > 8: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"store = t.WatchedFileStore(open_file_store({store.location!r}, {webhdfs}), after=die)\n"
        f"claim(t.backups_at(store), t.ME).save(Path({str(tmp_path / 'snapshot')!r}), {{'flights': 2}})\n"
    )
    root = Path(__file__).parents[2]
    died = subprocess.run([sys.executable, "-c", program], cwd=root, check=False, capture_output=True, text=True)
    left = [name for name in store.list_folder(f"{ME.processor}/{ME.bucket:05d}/files") if name.startswith(".")]
    values = restored_values(store, tmp_path / "target")
    owner = claim(backups_at(store), ME)
    back_up(owner, state, tmp_path)
    owner.prune(Retention(1))

    assert died.returncode == -signal.SIGKILL, died.stderr
    assert left
    assert (values or {})[b"last"] == b"1"
    assert set(backups_at(store).files()) == {file.stored for file in newest_backup(store).files}


def test_a_fenced_owner_writes_and_removes_nothing(store: FileStore, state: RocksShardState, tmp_path: Path) -> None:
    """The error names the current owner."""
    old = claim(backups_at(store), ME)
    back_up(old, state, tmp_path, 1)
    back_up(claim(backups_at(store), ME), state, tmp_path, 2)
    there = listing(store)
    save_checkpoint(state, 3)
    with pytest.raises(BackupFenced, match="owner 2 now makes"):
        back_up(old, state, tmp_path)
    with pytest.raises(BackupFenced, match="owner 2 now makes"):
        old.prune(Retention(1))

    assert listing(store) == there


def test_an_owner_whose_claim_the_store_has_lost_is_fenced_by_the_next_one(
    store: FileStore, state: RocksShardState, tmp_path: Path
) -> None:
    """Both claims have the same number, because the store was put back in between; the next owner's backups are the newest."""
    old = claim(backups_at(store), ME)
    for number in range(3):
        back_up(old, state, tmp_path, number)
    put_back(store, {})
    later = claim(backups_at(store), ME)
    manifest = back_up(later, state, tmp_path, 3)
    there = listing(store)
    with pytest.raises(BackupFenced, match="not the owner 1 whose claim the store has lost"):
        back_up(old, state, tmp_path, 4)
    with pytest.raises(BackupFenced):
        old.prune(Retention(1))

    assert listing(store) == there
    assert newest_backup(store) == manifest


def test_a_backup_whose_files_the_store_has_lost_is_not_published(
    store: FileStore, state: RocksShardState, tmp_path: Path
) -> None:
    """The store was put back to a copy that contains the owner's claim, but not yet the files."""
    owner = claim(backups_at(store), ME)
    copy = listing(store)
    state.snapshot(tmp_path / "snapshot")
    manifest = owner.store(tmp_path / "snapshot", state.position())
    put_back(store, copy)
    with pytest.raises(BackupError, match=r"before the backup was complete: .* is missing"):
        publish(backups_at(store), manifest)

    assert backups_at(store).ids() == []


@pytest.mark.parametrize("stored", ["one file", "all files"])
def test_an_owner_that_is_fenced_during_a_save_makes_no_backup(
    stored: str, watched: WatchedFileStore, state: RocksShardState, tmp_path: Path
) -> None:
    """The owner checks its epoch before each file and before the manifest."""
    old = claim(backups_at(watched), ME)
    state.snapshot(tmp_path / "snapshot")
    limit = 1 if stored == "one file" else len(list((tmp_path / "snapshot").iterdir()))

    def take_over(step: str, path: str) -> None:
        if step == "write" and len(watched.stored()) == limit:
            claim(backups_at(watched.store), ME)

    watched.after = take_over
    with pytest.raises(BackupFenced):
        old.save(tmp_path / "snapshot", state.position())

    assert backups_at(watched).ids() == []
    assert len(watched.stored()) == limit


@pytest.mark.parametrize("paused_at", [("list_folder", "/files"), ("delete", "")])
def test_a_paused_owner_removes_nothing_of_a_later_owner(
    paused_at: tuple[str, str], watched: WatchedFileStore, state: RocksShardState, tmp_path: Path
) -> None:
    """An owner that is fenced while it prunes continues to remove files; the later owner's backup of the same files stays complete."""
    old = claim(backups_at(watched), ME)
    for number in (1, 2):
        back_up(old, state, tmp_path, number)
    lost = back_up(old, state, tmp_path, 3)
    watched.store.delete(backups_at(watched).manifest_path(lost.id))  # its files no longer belong to a backup
    later: list[Manifest] = []

    def take_over(step: str, path: str) -> None:
        if step == paused_at[0] and path.endswith(paused_at[1]) and not later:
            later.append(back_up(claim(backups_at(watched.store), ME), state, tmp_path))

    watched.before = take_over
    old.prune(Retention(1))

    assert [manifest.id for manifest in later] == [newest_backup(watched).id]
    assert verify(backups_at(watched))[0].damages == ()
    assert (restored_values(watched, tmp_path / "target") or {})[b"last"] == b"3"


def test_the_last_owner_to_claim_is_the_only_owner(store: FileStore) -> None:
    """Concurrent claims receive different epochs, and only the last epoch may write."""
    owners: list[BackupWriter] = []
    threads = [threading.Thread(target=lambda: owners.append(claim(backups_at(store), ME))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = 0
    for owner in owners:
        try:
            owner.expect_ownership()
        except BackupFenced:
            refused += 1

    assert sorted(backups_at(store).claims()) == [1, 2, 3, 4, 5, 6]
    assert refused == 5


def test_an_emptied_store_receives_a_full_backup(store: FileStore, state: RocksShardState, tmp_path: Path) -> None:
    """The owner stores all files again, and the next owner's backups count as newer."""
    owner = claim(backups_at(store), ME)
    owner = claim(backups_at(store), ME)
    back_up(owner, state, tmp_path, 1)
    put_back(store, {})
    back_up(owner, state, tmp_path, 2)
    back_up(claim(backups_at(store), ME), state, tmp_path, 3)

    assert [verdict.damages for verdict in verify(backups_at(store))] == [(), ()]
    assert (restored_values(store, tmp_path / "target") or {})[b"last"] == b"3"


def test_a_store_that_was_put_back_to_an_older_copy_receives_backups(
    store: FileStore, state: RocksShardState, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The copy lacks the owner's claim; the owner claims again, and the next owner's backups count as newer."""
    back_up(claim(backups_at(store), ME), state, tmp_path, 1)
    copy = listing(store)
    owner = claim(backups_at(store), ME)
    back_up(owner, state, tmp_path, 2)
    put_back(store, copy)
    back_up(owner, state, tmp_path, 3)
    back_up(owner, state, tmp_path, 4)

    assert "newest claim" in caplog.text
    assert "was 1, before the claim 2" in caplog.text
    assert [verdict.damages for verdict in verify(backups_at(store))] == [(), (), ()]
    assert (restored_values(store, tmp_path / "target") or {})[b"last"] == b"4"
    later = claim(backups_at(store), ME)
    with pytest.raises(BackupFenced, match="owner 3 now makes"):
        back_up(owner, state, tmp_path, 5)
    back_up(later, state, tmp_path)


def test_pruning_keeps_the_last_intact_backups(store: FileStore, state: RocksShardState, tmp_path: Path) -> None:
    """Damaged backups do not count: of five backups, two of them damaged, the last two intact ones and all newer ones stay."""
    owner = claim(backups_at(store), ME)
    manifests = [back_up(owner, state, tmp_path, number) for number in range(5)]
    store.delete(path_of(store, _own_file(manifests, 3)))
    halve(store, manifests[2], manifests[1])
    owner.prune(Retention(2))

    good = [verdict.backup for verdict in verify(backups_at(store)) if not verdict.damages]
    assert good == [manifests[4].id, manifests[1].id]
    assert backups_at(store).ids() == [manifest.id for manifest in reversed(manifests[1:])]


def test_pruning_keeps_pinned_backups_until_they_are_unpinned(
    store: FileStore, state: RocksShardState, tmp_path: Path
) -> None:
    """All of their files stay, under later owners too."""
    owner = claim(backups_at(store), ME)
    manifests = [back_up(owner, state, tmp_path, number) for number in range(4)]
    backups_at(store).pin("snapshot", manifests[1].id)
    later = claim(backups_at(store), ME)
    manifests.append(back_up(later, state, tmp_path, 4))
    later.prune(Retention(1))
    kept = {verdict.backup: verdict.damages for verdict in verify(backups_at(store))}
    backups_at(store).unpin("snapshot")
    later.prune(Retention(1))

    assert kept == {manifests[4].id: (), manifests[1].id: ()}
    assert backups_at(store).ids() == [manifests[4].id]


def test_pruning_keeps_the_history_with_all_of_its_files(
    store: FileStore, state: RocksShardState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps the first of the day and of each hour since two hours ago, under later owners, too. Older backups go with their files."""
    now_ms, retention = [1_800_000_000_000], Retention(1, timedelta(hours=2))
    monkeypatch.setattr(time, "time_ns", lambda: now_ms[0] * 1_000_000)
    owner, made = claim(backups_at(store), ME), []
    for number in range(8):
        if number == 4:
            owner = claim(backups_at(store), ME)
        made.append(back_up(owner, state, tmp_path, number))
        owner.prune(retention)
        now_ms[0] += 40 * 60_000
    kept = {verdict.backup: verdict.damages for verdict in verify(backups_at(store))}

    assert kept == dict.fromkeys([made[each].id for each in (0, 3, 5, 6, 7)], ())
    assert set(backups_at(store).files()) == {file.stored for each in (0, 3, 5, 6, 7) for file in made[each].files}


def _own_file(manifests: list[Manifest], number: int) -> BackupFile:
    """Return a file that only one backup contains: RocksDB's own manifest differs each time."""
    return next(file for file in manifests[number].files if file.name.startswith("MANIFEST"))


def test_pruning_without_an_intact_backup_removes_nothing(
    store: FileStore, state: RocksShardState, tmp_path: Path
) -> None:
    """An operator may still recover the missing files."""
    owner = claim(backups_at(store), ME)
    manifests = [back_up(owner, state, tmp_path, number) for number in range(2)]
    for number in range(2):
        store.delete(path_of(store, _own_file(manifests, number)))
    there = listing(store)
    owner.prune(Retention(1))

    assert listing(store) == there


def test_pruning_removes_files_that_no_kept_backup_references(
    store: FileStore, state: RocksShardState, tmp_path: Path
) -> None:
    """The newest backup, its owner's claim and foreign files remain."""
    for number in range(3):
        owner = claim(backups_at(store), ME)
        back_up(owner, state, tmp_path, number)
    store.write(backups_at(store).file_path("README"), [b"not ours"])
    owner.prune(Retention(1))
    newest = newest_backup(store)

    assert backups_at(store).claims() == [3]
    assert set(backups_at(store).files()) == {file.stored for file in newest.files} | {"README"}
    assert backups_at(store).ids() == [newest.id]
