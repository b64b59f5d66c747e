"""The backup scheduler with a file store that is reachable, slow, broken or unavailable."""

from __future__ import annotations

import json
import re
import threading
import time
from contextlib import closing
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from support.backups import (
    ME,
    OFTEN,
    StoreSwitch,
    WaitUntil,
    WatchedFileStore,
    backups_at,
    listing,
    newest_backup,
    path_of,
    put_back,
    restored_values,
    save_checkpoint,
    scheduled_backups,
    table_of,
)

from penstock.ops.start.dev_services.services import LocalServices
from penstock.processors.shard import StatePosition
from penstock.state import ShardIdentity
from penstock.state.backups import BackupScheduler, Manifest, newest_position, verify
from penstock.state.files import FileStore, open_file_store
from penstock.state.local import RocksShardState

REMIND_EVERY_S = 1.0


def test_a_changing_state_is_backed_up_repeatedly(
    store: FileStore, state: RocksShardState, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """The scheduler removes old backups and leaves no snapshot beside the state."""
    with scheduled_backups(store, state, keep=1):
        for number in range(1, 4):
            save_checkpoint(state, number)
            wait_until(lambda number=number: newest_position(store, ME) == StatePosition({"flights": number}))  # type: ignore[misc]  # a default binds the loop's value
        wait_until(lambda: len(backups_at(store).ids()) == 1)

    assert (restored_values(store, tmp_path / "target") or {})[b"last"] == b"3"
    assert [path.name for path in state.folder.parent.iterdir()] == [state.folder.name]


def test_a_copy_is_stored_as_it_was_and_pinned(
    store: FileStore, state: RocksShardState, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """The state has changed since. Later backups are newer, and nothing remains beside the state."""
    with scheduled_backups(store, state, keep=1) as scheduler:
        save_checkpoint(state, 1)
        copy = scheduler.copy(ME, "snapshot")
        save_checkpoint(state, 2)
        pinned = copy.result(30)
        wait_until(lambda: newest_position(store, ME) == StatePosition({"flights": 2}))
        wait_until(lambda: len(backups_at(store).ids()) == 2)

    assert backups_at(store).read(pinned).position == StatePosition({"flights": 1})
    assert backups_at(store).pins() == {"snapshot": pinned}
    assert (restored_values(store, tmp_path / "target") or {})[b"last"] == b"2"
    assert [path.name for path in state.folder.parent.iterdir()] == [state.folder.name]


@pytest.mark.parametrize("stored", [False, True])
def test_a_given_up_copy_leaves_nothing(
    store: FileStore, state: RocksShardState, wait_until: WaitUntil, *, stored: bool
) -> None:
    """The copy may have been stored. Neither a pin nor a copy beside the state remains, and other snapshots keep theirs."""
    with scheduled_backups(store, state, keep=1) as scheduler:
        save_checkpoint(state, 1)
        needed, failed = scheduler.copy(ME, "needed"), scheduler.copy(ME, "failed")
        if stored:
            failed.result(30)
        scheduler.give_up(ME, "failed")
        pinned = needed.result(30)
        wait_until(lambda: backups_at(store).pins() == {"needed": pinned})
        save_checkpoint(state, 2)
        wait_until(lambda: newest_position(store, ME) == StatePosition({"flights": 2}))

    assert backups_at(store).pins() == {"needed": pinned}
    assert failed.done()
    assert [path.name for path in state.folder.parent.iterdir()] == [state.folder.name]


def test_a_copy_that_is_given_up_while_it_is_stored_is_unpinned(
    watched: WatchedFileStore, state: RocksShardState, wait_until: WaitUntil
) -> None:
    """The pin is written after the snapshot has failed."""
    with scheduled_backups(watched, state, keep=1) as scheduler:
        save_checkpoint(state, 1)
        watched.before = lambda _step, path: scheduler.give_up(ME, "failed") if path.endswith("/pins/failed") else None
        scheduler.copy(ME, "failed").result(30)
        wait_until(lambda: not backups_at(watched).pins())


def test_an_unchanged_state_is_not_backed_up_again(
    watched: WatchedFileStore, state: RocksShardState, wait_until: WaitUntil
) -> None:
    """Its backup does not age."""
    looked: list[float] = []
    position = state.position

    def counted() -> StatePosition:
        looked.append(time.monotonic())
        return position()

    state.position = counted  # type: ignore[method-assign]
    with scheduled_backups(watched, state) as keeper:
        wait_until(lambda: len(backups_at(watched.store).ids()) == 1)
        seen, seen_s = len(looked), time.monotonic()
        wait_until(lambda: len(looked) > seen + 5)
        age, passed_s = keeper.ages().by_shard[ME], time.monotonic() - seen_s

    assert len(backups_at(watched.store).ids()) == 1
    assert age.seconds < passed_s
    assert age.exists


@pytest.mark.parametrize("lost", ["all files", "all since a copy", "a table"])
def test_an_unchanged_state_is_backed_up_again_if_the_store_has_lost_its_backup(
    store: FileStore, state: RocksShardState, tmp_path: Path, wait_until: WaitUntil, lost: str
) -> None:
    """The store was emptied, or put back to an older copy, or lacks a file: a quiet shard is not left without an intact newest backup."""
    with scheduled_backups(store, state):
        wait_until(lambda: newest_position(store, ME) == StatePosition({"flights": 0}))
        copy = listing(store)
        save_checkpoint(state, 1)
        wait_until(lambda: newest_position(store, ME) == StatePosition({"flights": 1}))
        if lost == "a table":
            store.delete(path_of(store, table_of(newest_backup(store))))
        else:
            put_back(store, {} if lost == "all files" else copy)
        wait_until(lambda: newest_position(store, ME) == StatePosition({"flights": 1}))
        wait_until(lambda: verify(backups_at(store))[0].damages == ())

    assert (restored_values(store, tmp_path / "target") or {})[b"last"] == b"1"


def test_a_store_that_is_unavailable_at_the_start_is_retried(
    watched: WatchedFileStore,
    state: RocksShardState,
    wait_until: WaitUntil,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log reports the outage once, with the backup's age, and reports when all backups have caught up."""
    watched.before = switch = StoreSwitch()
    with scheduled_backups(watched, state) as keeper:
        wait_until(lambda: len(watched.requests) > 4)
        wait_until(lambda: "more than 3 intervals" in caplog.text)
        old = keeper.ages()
        switch.on = True
        wait_until(lambda: "have caught up" in caplog.text)
        wait_until(lambda: not keeper.ages().late)
        young = keeper.ages()

    assert old.late[ME] > 3 * OFTEN.total_seconds()
    assert young.by_shard[ME].exists
    assert (old.oldest_s, old.missing_backups) == (None, 1)
    assert (old.outage_s or 0.0) > 2 * OFTEN.total_seconds()
    assert young.outage_s is None
    assert (young.oldest_s, young.missing_backups) == (young.by_shard[ME].seconds, 0)
    assert len([text for text in caplog.messages if "are falling behind" in text]) == 1
    assert newest_position(watched, ME) == StatePosition({"flights": 0})


def test_late_backups_are_logged_rarely_and_their_end_with_the_duration(
    watched: WatchedFileStore,
    state: RocksShardState,
    wait_until: WaitUntil,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The number of log lines does not grow with the attempts, also if the store is only slow."""
    monkeypatch.setattr("penstock.state.backups.scheduler.REMIND_EVERY_S", REMIND_EVERY_S)
    slow, tries, began_s = threading.Event(), 20, time.monotonic()

    def logged(text: str) -> list[str]:
        return [message for message in caplog.messages if text in message]

    def take_long(step: str, path: str) -> None:
        if step == "write":
            slow.wait(1.0)

    watched.before = StoreSwitch()
    with scheduled_backups(watched, state):
        wait_until(lambda: len(watched.requests) > tries)
        wait_until(lambda: len(logged("more than 3 intervals")) >= 2)
        watched.before = StoreSwitch(on=True)
        wait_until(lambda: bool(logged("caught up. They were late for")))
        watched.before = take_long
        save_checkpoint(state, 1)
        late, ends = len(logged("more than 3 intervals")), len(logged("caught up. They were late for"))
        wait_until(lambda: len(logged("more than 3 intervals")) > late)
        slow.set()
        wait_until(lambda: len(logged("caught up. They were late for")) > ends)
        lines = len(logged("more than 3 intervals"))

    assert len(logged("are falling behind")) == 1
    assert lines <= 1 + (time.monotonic() - began_s) / REMIND_EVERY_S
    assert int(re.findall(r"late for (\d+) s", caplog.text)[0]) >= 1


def test_a_manifest_contains_the_backup_interval(
    watched: WatchedFileStore, state: RocksShardState, wait_until: WaitUntil
) -> None:
    """A manifest without an interval is valid, too."""
    with scheduled_backups(watched, state):
        wait_until(lambda: backups_at(watched).ids() != [])
    manifest = newest_backup(watched)
    content = json.loads(msgspec.json.encode(manifest))
    body = json.dumps({name: value for name, value in content.items() if name != "interval_s"})
    sealed = f'{{"checksum": "{sha256(body.encode()).hexdigest()}", "manifest": {body}}}'

    assert manifest.interval_s == OFTEN.total_seconds()
    assert Manifest.decode(sealed.encode()) == msgspec.structs.replace(manifest, interval_s=None)


def test_a_store_that_fails_during_a_backup_is_retried(
    watched: WatchedFileStore, state: RocksShardState, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """The files of the broken backup do not count as a backup, and the next backup is complete."""
    switch = StoreSwitch(on=True)

    def break_off(step: str, path: str) -> None:
        if step == "write" and len(watched.stored()) == 2:
            switch.on = False
        switch(step, path)

    watched.before = break_off
    with scheduled_backups(watched, state):
        wait_until(lambda: not switch.on)
        broken = backups_at(watched.store).ids()
        save_checkpoint(state, 1)
        watched.before = StoreSwitch(on=True)
        wait_until(lambda: newest_position(watched.store, ME) == StatePosition({"flights": 1}))

    assert broken == []
    assert [verdict.damages for verdict in verify(backups_at(watched))] == [()]
    assert (restored_values(watched, tmp_path / "target") or {})[b"last"] == b"1"


class Hanging:
    """Makes the second file's step hang until the test releases it, or for a minute."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.let_go = threading.Event()
        self.has_ended = False
        self.files = 0

    def __call__(self, step: str, path: str) -> None:
        self.files += step == "write"
        if step == "write" and self.files == 2:
            self.reached.set()
            self.let_go.wait(60)
            self.has_ended = True


def test_a_release_does_not_wait_for_a_store_that_hangs(
    watched: WatchedFileStore, state: RocksShardState, wait_until: WaitUntil
) -> None:
    """The state can be closed and moved at once; the scheduler aborts the running backup."""
    watched.before = hanging = Hanging()
    with closing(BackupScheduler(watched, OFTEN)) as keeper:
        keeper.adopt(ME, state)
        assert hanging.reached.wait(30)
        keeper.release(ME)
        waited = hanging.has_ended
        state.close()
        hanging.let_go.set()
        wait_until(lambda: len(list(state.folder.parent.iterdir())) == 1)

    assert not waited
    assert keeper.ages().by_shard == {}
    assert backups_at(watched).ids() == []
    assert len(watched.stored()) == 2


def test_a_release_waits_for_a_snapshot_in_progress(
    watched: WatchedFileStore, state: RocksShardState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the release returns, the scheduler does not touch the state."""
    begun, released = threading.Event(), threading.Event()
    order: list[str] = []
    snapshot = state.snapshot

    def slow(target: Path) -> None:
        begun.set()
        released.wait(0.5)  # true only before this function ends
        snapshot(target)
        order.append("snapshot made")

    monkeypatch.setattr(state, "snapshot", slow)
    with closing(BackupScheduler(watched, OFTEN)) as keeper:
        keeper.adopt(ME, state)
        assert begun.wait(30)
        keeper.release(ME)
        released.set()
        order.append("released")

    assert order == ["snapshot made", "released"]


def test_closing_abandons_a_request_that_hangs(watched: WatchedFileStore, state: RocksShardState) -> None:
    """Closing does not wait for its end; when the request returns later, the scheduler writes nothing more."""
    watched.before = hanging = Hanging()
    keeper = BackupScheduler(watched, OFTEN)
    keeper.adopt(ME, state)
    assert hanging.reached.wait(30)
    keeper.close()
    waited = hanging.has_ended
    hanging.let_go.set()
    next(thread for thread in threading.enumerate() if thread.name == "penstock-backups").join(30)

    assert not waited
    assert backups_at(watched).ids() == []
    assert len(watched.stored()) == 2


def test_the_older_of_two_schedulers_is_fenced(
    watched: WatchedFileStore, state: RocksShardState, wait_until: WaitUntil, caplog: pytest.LogCaptureFixture
) -> None:
    """The older one logs this and writes no more; its age of the shard shows it. The backups of the newer one continue."""
    with scheduled_backups(watched, state) as older:
        wait_until(lambda: backups_at(watched).ids() != [])
        with scheduled_backups(watched, state) as newer:
            wait_until(lambda: newest_backup(watched).epoch == 2)
            save_checkpoint(state, 1)
            wait_until(lambda: older.is_failing)
            wait_until(lambda: newest_position(watched, ME) == StatePosition({"flights": 1}))
            ages = newer.ages()
            assert list(older.ages().by_shard) == [ME]

    assert "owner 2 now makes" in caplog.text
    assert list(ages.by_shard) == [ME]
    assert newest_backup(watched).epoch == 2


def test_shards_are_spread_over_the_interval(watched: WatchedFileStore, state: RocksShardState) -> None:
    """Shards that were assigned together are due at different times, all within one interval."""
    with closing(BackupScheduler(watched, timedelta(hours=1))) as keeper:
        begun_s = time.monotonic()
        for bucket in range(20):
            keeper.adopt(ShardIdentity(ME.processor, bucket, ME.shape), state)
        dues_s = [shard.due_s - begun_s for shard in keeper._shards.values()]

    assert 0 <= min(dues_s) < max(dues_s) < 3601
    assert max(dues_s) - min(dues_s) > 600


def test_snapshots_of_killed_processes_are_removed(
    watched: WatchedFileStore, state: RocksShardState, wait_until: WaitUntil
) -> None:
    """Otherwise they would retain tables on the disk that the database no longer needs."""
    state.snapshot(state.folder.parent / ".backup-of-the-dead")
    with scheduled_backups(watched, state):
        wait_until(lambda: backups_at(watched).ids() != [])

    assert [path.name for path in state.folder.parent.iterdir()] == [state.folder.name]


def test_an_unexpected_error_ends_neither_the_scheduler_nor_other_backups(
    watched: WatchedFileStore,
    state: RocksShardState,
    tmp_path: Path,
    wait_until: WaitUntil,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log contains the stack trace, and the scheduler retries the shard."""
    errors = [ZeroDivisionError("of the store"), OSError("also")]

    def fail(step: str, path: str) -> None:
        if ME.processor in path and errors:
            raise errors.pop()

    watched.before = fail
    with scheduled_backups(watched, state):
        wait_until(lambda: backups_at(watched.store).ids() != [])

    assert "ZeroDivisionError: of the store" in caplog.text


def test_backups_catch_up_after_hdfs_restarts(
    state: RocksShardState, tmp_path: Path, wait_until: WaitUntil, caplog: pytest.LogCaptureFixture
) -> None:
    """A real HDFS stops while the state changes: backups catch up without help, and a restore returns the newest."""
    services = LocalServices(tmp_path / "services")
    endpoints = services.up(["hdfs"], lambda _: None)["hdfs"].endpoints
    try:
        store = open_file_store(f"{endpoints['rpc']}/backups", endpoints["webhdfs"])
        with scheduled_backups(store, state) as keeper:
            wait_until(lambda: newest_position(store, ME) == StatePosition({"flights": 0}))
            services.down(["hdfs"], lambda _: None)
            save_checkpoint(state, 1)
            wait_until(lambda: keeper.ages().by_shard[ME].seconds > 1.0)
            services.up(["hdfs"], lambda _: None)
            wait_until(lambda: newest_position(store, ME) == StatePosition({"flights": 1}))
            wait_until(lambda: "caught up" in caplog.messages[-1])
            wait_until(lambda: keeper.ages().by_shard[ME].seconds < 1.0)
        values = restored_values(store, tmp_path / "target")
    finally:
        services.down(["hdfs"], lambda _: None)

    assert (values or {})[b"last"] == b"1"
    assert "are falling behind" in caplog.text
