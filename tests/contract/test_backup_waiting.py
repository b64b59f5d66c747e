"""A worker that waits for a backup, and reads of a database that its owner has open."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path

import pytest
from support.backups import (
    ME,
    OFTEN,
    StoreSwitch,
    WaitUntil,
    WatchedFileStore,
    back_up,
    backups_at,
)

from penstock.ops.kernel.shards.backups import WorkerBackups
from penstock.processors.shard import StatePosition
from penstock.state import Delta, FileStoreUnreachable, StateDamaged
from penstock.state.backups import BackupCanceled, claim, read_database
from penstock.state.files import FileStore
from penstock.state.local import RocksShardState, RocksStateFolder, current, opened_read_only, shard_folder

LOG_EVERY_S = 0.5


@contextmanager
def refreshing(
    store: FileStore, states: Path, dropped: threading.Event | None = None
) -> Iterator[tuple[WorkerBackups, Future[bool]]]:
    """Make a worker load, in its own thread, a state for which its group has committed offsets."""
    with closing(WorkerBackups(store, states, OFTEN)) as backups, ThreadPoolExecutor(1) as threads:
        refreshed = threads.submit(backups.refresh, ME, StatePosition({"flights": 1}), dropped or threading.Event())
        try:
            yield backups, refreshed
        finally:
            backups.close()


@pytest.mark.parametrize("begun", [False, True], ids=["no state", "an empty state"])
def test_a_missing_state_waits_for_its_backup_store_and_logs_rarely(
    begun: bool,
    watched: WatchedFileStore,
    state: RocksShardState,
    tmp_path: Path,
    wait_until: WaitUntil,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker logs at once and then rarely, later with advice; it does not log each attempt."""
    for name, value in {"RETRY_S": 0.01, "LOG_EVERY_S": LOG_EVERY_S, "LONG_WAIT_S": 0.6}.items():
        monkeypatch.setattr(f"penstock.ops.kernel.shards.backups.{name}", value)
    back_up(claim(backups_at(watched), ME), state, tmp_path, 1)
    if begun:
        RocksStateFolder(tmp_path / "other").open(ME).close()
    watched.before = switch = StoreSwitch()
    asked, began_s = len(watched.requests), time.monotonic()
    with refreshing(watched, tmp_path / "other") as (backups, refreshed):
        wait_until(lambda: len(watched.requests) > asked + 2)
        waiting = backups.waits.longest
        at_once = "waits for its backup" in caplog.text
        wait_until(lambda: "Repair the backup store, or name the one" in caplog.text)
        logged, waited_s = caplog.text.count("waits for its backup"), time.monotonic() - began_s
        switch.on = True
        refreshed.result(30)

    assert waiting is not None
    assert waiting.name == f"the backup of its state at {watched.location}"
    assert backups.waits.longest is None
    assert at_once
    assert logged <= 1 + waited_s / LOG_EVERY_S
    assert "has waited" in caplog.text
    with opened_read_only(current(shard_folder(tmp_path / "other", ME)) or Path()) as found:
        assert found.position() == StatePosition({"flights": 1})


@pytest.mark.parametrize("prepared", [False, True], ids=["saved", "prepared alone"])
def test_an_existing_state_does_not_wait_for_the_backup_store(
    prepared: bool, watched: WatchedFileStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It catches up from Kafka, or is already complete after its prepared checkpoint."""
    state = RocksStateFolder(tmp_path / "other").open(ME)
    if prepared:
        state.prepare(Delta({}, StatePosition({"flights": 1}), {b"key": b"value"}))
    else:
        state.save_together({b"key": b"value"}, StatePosition({"more": 1}))
    state.close()
    watched.before = StoreSwitch()
    with refreshing(watched, tmp_path / "other") as (_, refreshed):
        refreshed.result(30)

    assert "caught up from the bus" in caplog.text


def test_a_cancelled_restore_sends_no_more_requests(
    watched: WatchedFileStore, state: RocksShardState, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """The hanging request is the last one, however many files remain, and no partial state remains."""
    back_up(claim(backups_at(watched), ME), state, tmp_path, 1)
    reached, let_go = threading.Event(), threading.Event()

    def hang(step: str, path: str) -> None:
        if step == "read" and "/files/" in path:
            reached.set()
            let_go.wait(30)
            raise FileStoreUnreachable(f"{path} was not read: timeout.")

    watched.before = hang
    with refreshing(watched, tmp_path / "other") as (backups, refreshed):
        assert reached.wait(30)
        backups.close()
        asked = len(watched.requests)
        let_go.set()
        with pytest.raises(BackupCanceled, match="nothing was changed"):
            refreshed.result(30)

    assert len(watched.requests) - asked <= 8, "beyond the files that are fetched side by side"
    assert not list(shard_folder(tmp_path / "other", ME).glob("*"))


def test_a_revoked_shard_does_not_wait_for_the_backup_store(
    watched: WatchedFileStore, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """It does not delay the opening of shards that are still assigned."""
    watched.before, dropped = StoreSwitch(), threading.Event()
    with refreshing(watched, tmp_path / "other", dropped) as (_, refreshed):
        wait_until(lambda: watched.requests != [])
        dropped.set()
        with pytest.raises(BackupCanceled, match="not needed any more"):
            refreshed.result(30)


def test_an_inspection_is_repeated_while_the_owner_compacts(
    state: RocksShardState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table may disappear between listing and reading; permanent damage is reported."""
    errors = [StateDamaged("Can't access /000020.sst"), StateDamaged("Can't access /000021.sst")]

    @contextmanager
    def merging(folder: Path) -> Iterator[RocksShardState]:
        if errors:
            raise errors.pop()
        with opened_read_only(folder) as seen:
            yield seen

    monkeypatch.setattr(import_module(read_database.__module__), "opened_read_only", merging)
    position = read_database(state.folder.parent, RocksShardState.position)
    errors += [StateDamaged("again")] * 3

    assert position == StatePosition({"flights": 0})
    with pytest.raises(StateDamaged, match="again"):
        read_database(state.folder.parent, RocksShardState.position)


def test_restored_states_are_counted(store: FileStore, state: RocksShardState, tmp_path: Path) -> None:
    """The worker counts their size and time, too. A state that is not restored does not count."""
    manifest = back_up(claim(backups_at(store), ME), state, tmp_path, 1)
    with refreshing(store, tmp_path / "other") as (backups, refreshed):
        assert refreshed.result(timeout=60)
        assert not backups.refresh(ME, StatePosition({"flights": 1}), threading.Event())

    assert (backups.restores.states, backups.restores.bytes) == (1, manifest.size_bytes)
    assert backups.restores.seconds > 0
