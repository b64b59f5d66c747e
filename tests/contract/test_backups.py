"""What backups of shards' states promise, in a folder and on a real HDFS."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.ops.dev_services import LocalServices, running_hdfs
from penstock.ops.worker.backups import WorkerBackups
from penstock.state.backups import fetch
from penstock.state.backups import writer as owning
from penstock.state.backups.errors import BackupAbandoned, BackupError, BackupFenced, BackupStoreUnreachable, NotStored
from penstock.state.backups.inventory import look
from penstock.state.backups.manifest import Manifest, StoredFile
from penstock.state.backups.restore import restore, restore_shard
from penstock.state.backups.scheduler import BackupScheduler
from penstock.state.backups.shard import ShardBackups, newest_position
from penstock.state.backups.store import BackupStore, LocalBackupStore, open_backup_store
from penstock.state.backups.verification import verify
from penstock.state.backups.writer import BackupWriter, claim
from penstock.state.errors import ForeignState, StateDamaged
from penstock.state.local import folder
from penstock.state.local.folder import RocksStateFolder, current, shard_folder
from penstock.state.local.rocksdb import RocksShardState, viewed
from penstock.state.protocols import Delta, ShardIdentity

ME = ShardIdentity("scorer", 3, "float by route")
OFTEN = timedelta(milliseconds=100)
WaitUntil = Callable[[Callable[[], bool]], None]


class Ended(BaseException):
    """The process ended: nothing that is raised in its place is seen."""


class Killed(Exception):
    """The process dies here."""


@dataclass
class WatchedPlace:
    """A place that works, and does what it is told before or after each step: wait, fail, act. Knows what it was asked."""

    place: BackupStore
    before: Callable[[str, str], None] = lambda _step, _path: None
    after: Callable[[str, str], None] = lambda _step, _path: None
    asked: list[tuple[str, str]] = field(default_factory=list)

    @property
    def location(self) -> str:
        return self.place.location

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        with self._step("put", path):
            self.place.put(path, self._watched(path, chunks))

    def create(self, path: str, content: bytes) -> bool:
        with self._step("create", path):
            return self.place.create(path, content)

    def read(self, path: str) -> Iterator[bytes]:
        with self._step("read", path):
            yield from self.place.read(path)

    def contents(self, folder: str) -> dict[str, int | None]:
        with self._step("contents", folder):
            return self.place.contents(folder)

    def delete(self, path: str) -> None:
        with self._step("delete", path):
            self.place.delete(path)

    def stored(self) -> list[str]:
        """Return the paths of what was put."""
        return [path for step, path in self.asked if step == "put"]

    def _watched(self, path: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            yield chunk
            self.after("chunk", path)

    @contextmanager
    def _step(self, step: str, path: str) -> Iterator[None]:
        self.asked.append((step, path))
        self.before(step, path)
        yield
        self.after(step, path)


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A NameNode and a DataNode for all tests here; their addresses."""
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as endpoints:
        yield endpoints


@pytest.fixture(params=["folder", "hdfs"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> BackupStore:
    """Each implementation in turn, empty."""
    if request.param == "folder":
        return LocalBackupStore(tmp_path / "place")
    endpoints = request.getfixturevalue("hdfs")
    return open_backup_store(f"{endpoints['rpc']}/{tmp_path.name}", endpoints["webhdfs"])


@pytest.fixture
def folder_place(tmp_path: Path) -> WatchedPlace:
    """A watched folder."""
    return WatchedPlace(LocalBackupStore(tmp_path / "place"))


@pytest.fixture
def state(tmp_path: Path) -> Iterator[RocksShardState]:
    """An open state with something in it."""
    state = RocksStateFolder(tmp_path / "state").open(ME)
    go_on(state, 0)
    yield state
    state.close()


def go_on(state: RocksShardState, number: int) -> None:
    """Save a checkpoint."""
    state.save_together({b"last": b"%d" % number, b"key %d" % number: b"value" * 100}, {"flights": number})


def back_up(owner: BackupWriter, state: RocksShardState, folder: Path, number: int | None = None) -> Manifest:
    """Go on, where a number is given, and back up."""
    if number is not None:
        go_on(state, number)
    snapshot = folder / f"snapshot-{time.monotonic_ns()}"
    state.snapshot(snapshot)
    return owner.save(snapshot, state.position())


def backups_at(place: BackupStore) -> ShardBackups:
    return ShardBackups(place, ME.processor, ME.bucket)


def restored(place: BackupStore, target: Path) -> dict[bytes, bytes] | None:
    """Restore and read everything; None where there is nothing to restore."""
    if restore(backups_at(place), target) is None:
        return None
    with viewed(target) as state:
        values = dict(state.items())
        assert {"flights": int(values[b"last"])} == state.position()
    return values


def listing(place: BackupStore, folder: str = "") -> dict[str, bytes]:
    """Return all that is stored, by path."""
    found: dict[str, bytes] = {}
    for name, size in place.contents(folder).items():
        path = f"{folder}/{name}".lstrip("/")
        found |= listing(place, path) if size is None else {path: b"".join(place.read(path))}
    return found


def path_of(place: BackupStore, file: StoredFile) -> str:
    return backups_at(place).file_path(file.stored)


def table_of(manifest: Manifest, but: Manifest | None = None) -> StoredFile:
    """Return a table that is in one backup and not in the other."""
    others = {file.stored for file in but.files} if but else set()
    return next(file for file in _tables(manifest) if file.stored not in others)


# Places.


def test_a_file_appears_whole_and_is_replaced_at_once(place: BackupStore) -> None:
    """Also an empty one, and one in several chunks."""
    place.put("a/b/file", [b"first"])
    place.put("a/b/file", iter([b"sec", b"", b"ond"]))
    place.put("a/empty", [])

    assert listing(place) == {"a/b/file": b"second", "a/empty": b""}
    assert place.contents("a") == {"b": None, "empty": 0}


def test_a_file_that_is_not_written_to_its_end_does_not_appear(place: BackupStore) -> None:
    """The one of that name stays, what stopped the writing is passed on, and at most something aside is left."""

    def dying() -> Iterator[bytes]:
        yield b"x" * 3_000_000
        raise BackupAbandoned("told to stop")

    place.put("file", [b"first"])
    for path in ("file", "other"):
        with pytest.raises(BackupAbandoned, match="told to stop"):
            place.put(path, dying())

    assert {path: content for path, content in listing(place).items() if path[0] != "."} == {"file": b"first"}


def test_one_of_many_takes_a_name(place: BackupStore) -> None:
    """Of eight at once one is told True, and nobody afterwards."""
    answers: list[bool] = []
    start = threading.Barrier(8)

    def take(number: int) -> None:
        start.wait()
        answers.append(place.create("owners/1", b"%d" % number))

    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(answers) == [False] * 7 + [True]
    assert place.create("owners/1", b"later") is False
    assert place.contents("owners") == {"1": 1}


def test_what_is_not_there_is_told_apart(place: BackupStore) -> None:
    """A missing file is said to be missing, a missing folder is empty, and removing nothing is no error."""
    place.put("file", [b"x"])
    place.delete("file")
    place.delete("file")
    place.delete("no/such/file")
    with pytest.raises(NotStored, match="file"):
        next(place.read("file"))

    assert place.contents("no/such/folder") == {}
    assert place.contents("") == {}


def test_a_place_out_of_reach_is_named(tmp_path: Path) -> None:
    """Every call says what was not done, and that earlier backups are whole."""
    (tmp_path / "file").write_text("a file where the folder should be")
    for place in (
        LocalBackupStore(tmp_path / "file"),
        open_backup_store("hdfs://127.0.0.1:1/backups", "http://127.0.0.1:1"),
    ):
        calls: list[Callable[[], Any]] = [
            partial(place.put, "a/b", [b"x"]),
            partial(place.create, "a/b", b"x"),
            partial(lambda place: list(place.read("a/b")), place),
        ]
        for call in calls:
            with pytest.raises(BackupStoreUnreachable, match=r"was not .*Earlier backups are whole"):
                call()


def test_a_service_that_hangs_is_waited_for_no_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the connection and never answers."""
    monkeypatch.setattr("penstock.state.backups.hdfs_store.ANSWER_LIMIT_S", 0.2)
    begun_s = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        place = open_backup_store("hdfs://namenode/backups", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        for call in (partial(place.contents, ""), partial(place.put, "file", [b"x"]), partial(place.delete, "file")):
            with pytest.raises(BackupStoreUnreachable, match="Timeout"):
                call()

    assert time.monotonic() - begun_s < 5


class _Greeter(BaseHTTPRequestHandler):
    """A web server that is not HDFS's."""

    def _greet(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>Welcome</html>")

    do_GET = do_PUT = do_DELETE = _greet  # noqa: N815 - the names that the base class calls


def test_a_service_that_is_another_is_told() -> None:
    """An address that leads elsewhere gives our error, with that address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Greeter) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        place = open_backup_store("hdfs://namenode/backups", address)
        for call in (partial(place.contents, ""), partial(place.put, "file", [b"x"]), partial(place.create, "f", b"x")):
            with pytest.raises(BackupStoreUnreachable, match=address):
                call()
        server.shutdown()


@pytest.mark.parametrize("location", ["s3://bucket/backups", "hdfs://host:8020", "hdfs:///path"])
def test_a_location_that_cannot_be_is_refused(location: str) -> None:
    """Before anything is asked, with what to give instead."""
    with pytest.raises(BackupError, match="hdfs://host:port/path"):
        open_backup_store(location)


# Saving and restoring.


def test_a_restored_state_equals_what_was_saved(place: BackupStore, state: RocksShardState, tmp_path: Path) -> None:
    """Values, position and a prepared delta; under the same identity, opened as its own."""
    delta = Delta({"flights": 7}, {"flights": 9}, {b"later": b"x", b"last": None})
    state.save({b"large %d" % number: os.urandom(100_000) for number in range(40)})
    state.prepare(delta)
    manifest = back_up(claim(backups_at(place), ME), state, tmp_path, 7)
    told: list[tuple[int, int]] = []
    shard = shard_folder(tmp_path / "other", ME)
    found = restore_shard(place, ME, shard, lambda done, total: told.append((done, total)))
    other = RocksStateFolder(tmp_path / "other").open(ME)

    assert found == manifest
    assert told[-1] == (manifest.size_bytes, manifest.size_bytes)
    assert dict(other.items()) == dict(state.items())
    assert other.position() == {"flights": 7} == newest_position(place, ME)
    assert other.prepared() == delta
    other.close()


def test_nothing_to_restore(place: BackupStore, tmp_path: Path) -> None:
    """No backup is not an error, and leaves no database behind."""
    shard = shard_folder(tmp_path, ME)

    assert newest_position(place, ME) is None
    assert restore_shard(place, ME, shard) is None
    assert restore(backups_at(place), tmp_path / "target") is None
    assert not list(tmp_path.rglob("CURRENT"))


def test_only_new_tables_are_stored(place: BackupStore, state: RocksShardState, tmp_path: Path) -> None:
    """Also by the next owner of the same state, after it was closed and opened again."""
    watched = WatchedPlace(place)
    first = back_up(claim(backups_at(watched), ME), state, tmp_path, 1)
    owner = claim(backups_at(watched), ME)
    shared = back_up(owner, state, tmp_path)
    watched.asked.clear()
    second = back_up(owner, state, tmp_path, 2)
    tables = {path_of(place, table) for table in _tables(second)}
    new_tables = tables - {path_of(place, table) for table in _tables(shared)}

    assert {path_of(place, table) for table in _tables(first)} == {path_of(place, table) for table in _tables(shared)}
    assert new_tables
    assert {path for path in watched.stored() if path in tables} == new_tables


def _tables(manifest: Manifest) -> list[StoredFile]:
    return [file for file in manifest.files if file.name.endswith(".sst")]


def test_a_table_is_hashed_once(place: BackupStore, state: RocksShardState, tmp_path: Path) -> None:
    """In one open database a table never changes: the second backup does not read it."""
    owner = claim(backups_at(place), ME)
    back_up(owner, state, tmp_path)
    snapshot = tmp_path / "snapshot"
    state.snapshot(snapshot)
    table = max(snapshot.glob("*.sst"), key=lambda path: path.stat().st_size)
    content = table.read_bytes()
    table.unlink()  # the link, not the owner's file
    table.write_bytes(b"\0" * len(content))
    owner.save(snapshot, state.position())

    assert content in listing(place).values()
    assert (restored(place, tmp_path / "target") or {})[b"last"] == b"0"


def test_what_was_removed_from_the_place_is_stored_again(
    place: BackupStore, state: RocksShardState, tmp_path: Path
) -> None:
    """A missing or cut file mends with the next backup, although the owner stored it before."""
    owner = claim(backups_at(place), ME)
    tables = _tables(back_up(owner, state, tmp_path))
    place.delete(path_of(place, tables[0]))
    place.put(path_of(place, tables[1]), [b"cut"])
    back_up(owner, state, tmp_path, 1)

    assert [verdict.damages for verdict in verify(backups_at(place))] == [(), ()]


@pytest.mark.parametrize("next_owner", [False, True])
@pytest.mark.parametrize("harm", [lambda whole: whole[:-9] + b"\0" * 9, lambda whole: b"\0" * len(whole)])
def test_a_backup_shares_no_file_that_is_not_what_was_saved(
    harm: Callable[[bytes], bytes],
    next_owner: bool,
    place: BackupStore,
    state: RocksShardState,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Though it has its size: it is stored again, by the owner that stored it or by the next one, and that is said."""
    owner = claim(backups_at(place), ME)
    first = back_up(owner, state, tmp_path, 1)
    for table in _tables(first):
        path = path_of(place, table)
        place.put(path, [harm(b"".join(place.read(path)))])
    second = back_up(claim(backups_at(place), ME) if next_owner else owner, state, tmp_path, 2)
    verdicts = {verdict.backup: verdict.damages for verdict in verify(backups_at(place))}

    assert {file.sha256 for file in _tables(first)} & {file.sha256 for file in _tables(second)}
    assert verdicts[second.id] == ()
    assert bool(verdicts[first.id]) == next_owner
    assert "its checksum does not fit" in caplog.text
    assert (restored(place, tmp_path / "target") or {})[b"last"] == b"2"


def test_of_a_large_state_a_part_is_read_with_each_backup(
    monkeypatch: pytest.MonkeyPatch, folder_place: WatchedPlace, state: RocksShardState, tmp_path: Path
) -> None:
    """Those files come first that were read longest ago, so that each one's turn comes."""
    owner = claim(backups_at(folder_place), ME)
    for number in range(3):
        manifest = back_up(owner, state, tmp_path, number)
    tables = {file.stored: file for file in _tables(manifest)}
    monkeypatch.setattr(owning, "CHECKED_BYTES", max(file.size_bytes for file in manifest.files))
    turns: list[set[str]] = []
    for _ in range(2 * len(manifest.files)):
        folder_place.asked.clear()
        back_up(owner, state, tmp_path)
        turns.append({path.rpartition("/")[2] for step, path in folder_place.asked if step == "read"})

    assert all(len(turn) < len(manifest.files) for turn in turns)
    assert tables.keys() <= set().union(*turns)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_death_at_any_step_of_a_restore_is_made_good_by_the_next_one(
    when: str, monkeypatch: pytest.MonkeyPatch, folder_place: WatchedPlace, state: RocksShardState, tmp_path: Path
) -> None:
    """The dead one leaves a state that is whole, or none that counts, whatever lies beside it."""
    back_up(claim(backups_at(folder_place), ME), state, tmp_path, 7)
    monkeypatch.setattr(folder, "drop_folder", lambda _: None)  # the dead tidy nothing up
    for number in count(1):
        shard, steps = shard_folder(tmp_path / f"{number}", ME), count(1)

        def step(*_: object, steps: count[int] = steps, number: int = number) -> None:
            if next(steps) == number:
                raise Ended

        setattr(folder_place, when, step)
        monkeypatch.setattr(fetch, "sync_folder", step)
        died = False
        try:
            restore_shard(folder_place, ME, shard, confirm=step)
        except Ended:
            died = True
        setattr(folder_place, when, lambda *_: None)
        monkeypatch.setattr(fetch, "sync_folder", lambda _: None)
        if current(shard) is None:
            assert restore_shard(folder_place, ME, shard) is not None
        with viewed(current(shard) or shard) as found:
            assert dict(found.items())[b"last"] == b"7"
        if not died:
            break

    assert number > 4


Damage = Callable[[BackupStore, Manifest, Manifest], None]


def _flip(place: BackupStore, manifest: Manifest, before: Manifest) -> None:
    path = path_of(place, table_of(manifest, before))
    content = bytearray(b"".join(place.read(path)))
    content[len(content) // 2] ^= 1
    place.put(path, [bytes(content)])


def _cut(place: BackupStore, manifest: Manifest, before: Manifest) -> None:
    path = path_of(place, table_of(manifest, before))
    place.put(path, [b"".join(place.read(path))[:-1]])


def _lose(place: BackupStore, manifest: Manifest, before: Manifest) -> None:
    place.delete(path_of(place, table_of(manifest, before)))


def _rewrite(place: BackupStore, manifest: Manifest, change: Callable[[bytes], bytes]) -> None:
    path = backups_at(place).manifest_path(manifest.id)
    place.put(path, [change(b"".join(place.read(path)))])


def _halve(place: BackupStore, manifest: Manifest, before: Manifest) -> None:
    _rewrite(place, manifest, lambda content: content[: len(content) // 2])


def _alter(place: BackupStore, manifest: Manifest, before: Manifest) -> None:
    _rewrite(place, manifest, lambda content: content.replace(b'"flights":2', b'"flights":3'))


def _scramble(place: BackupStore, manifest: Manifest, before: Manifest) -> None:
    _rewrite(place, manifest, lambda content: bytes(byte ^ 0xFF for byte in content))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_flip, r"\.sst\) is not what was saved"),
        (_cut, r"\.sst\) has [\d,]+ of [\d,]+ bytes"),
        (_lose, r"\.sst\) is missing"),
        (_halve, "manifest cannot be read"),
        (_alter, "checksum does not fit"),
        (_scramble, "manifest cannot be read"),
    ],
)
def test_a_damaged_backup_gives_way_to_the_one_before(
    damage: Damage,
    said: str,
    place: BackupStore,
    state: RocksShardState,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The damage is said, by a restore and by a check, and the restored state is complete."""
    owner = claim(backups_at(place), ME)
    before, manifest = back_up(owner, state, tmp_path, 1), back_up(owner, state, tmp_path, 2)
    damage(place, manifest, before)
    verdicts = verify(backups_at(place))
    values = restored(place, tmp_path / "target")

    assert (values or {})[b"last"] == b"1"
    assert [bool(verdict.damages) for verdict in verdicts] == [True, False]
    assert re.search(said, verdicts[0].damages[0])
    assert re.search(said, caplog.text)
    assert str(manifest.id) in caplog.text


def test_only_damaged_backups_are_no_backup(place: BackupStore, state: RocksShardState, tmp_path: Path) -> None:
    """Nothing is restored, and nothing of it is left in the shard's folder."""
    manifest = back_up(claim(backups_at(place), ME), state, tmp_path)
    place.delete(path_of(place, table_of(manifest)))
    shard = shard_folder(tmp_path / "other", ME)

    assert restore_shard(place, ME, shard) is None
    assert not list(shard.iterdir())


def test_a_manifest_leads_out_of_no_folder(place: BackupStore, state: RocksShardState, tmp_path: Path) -> None:
    """Names of files that are none of RocksDB's are refused, though the checksum fits."""
    manifest = back_up(claim(backups_at(place), ME), state, tmp_path)
    file = manifest.files[0]
    evil = StoredFile("../outside", file.size_bytes, file.sha256, file.epoch)
    forged = Manifest(1, ME, {}, 9, 9, 0, (evil,))
    place.put(backups_at(place).manifest_path(forged.id), [forged.encode()])
    found = restore(backups_at(place), tmp_path / "target")

    assert found == manifest
    assert not (tmp_path / "outside").exists()


def test_a_backup_of_another_shape_is_refused(place: BackupStore, state: RocksShardState, tmp_path: Path) -> None:
    """Before it is fetched; nothing is changed."""
    back_up(claim(backups_at(place), ME), state, tmp_path)
    shard = shard_folder(tmp_path / "other", ME)
    with pytest.raises(ForeignState, match="int by route"):
        restore_shard(place, ShardIdentity(ME.processor, ME.bucket, "int by route"), shard)

    assert not list(shard.glob("*"))


def test_a_place_that_fails_is_not_taken_for_an_empty_one(
    folder_place: WatchedPlace, state: RocksShardState, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that cannot be read leads to an older backup; where none can be read, the restore says so and does not go on."""
    owner = claim(backups_at(folder_place), ME)
    before, manifest = back_up(owner, state, tmp_path, 1), back_up(owner, state, tmp_path, 2)
    unreadable = {path_of(folder_place, table_of(manifest, before))}

    def refuse(step: str, path: str) -> None:
        if step == "read" and path in unreadable:
            raise BackupStoreUnreachable(f"{path} was not read: refused.")

    folder_place.before = refuse
    older = restored(folder_place, tmp_path / "target")
    unreadable.add(path_of(folder_place, table_of(before)))

    assert (older or {})[b"last"] == b"1"
    assert "refused" in caplog.text
    with pytest.raises(BackupStoreUnreachable, match="refused"):
        restore(backups_at(folder_place), tmp_path / "target")


def test_one_broken_connection_does_not_lead_to_an_older_state(
    folder_place: WatchedPlace, state: RocksShardState, tmp_path: Path
) -> None:
    """A file is asked for again, and its bytes are counted once."""
    manifest = back_up(claim(backups_at(folder_place), ME), state, tmp_path, 1)
    broken, told = {path_of(folder_place, table_of(manifest))}, []

    def break_once(step: str, path: str) -> None:
        if step == "read" and path in broken:
            broken.discard(path)
            raise BackupStoreUnreachable("broken")

    folder_place.after = break_once
    found = restore(backups_at(folder_place), tmp_path / "target", lambda done, _: told.append(done))

    assert found == manifest
    assert max(told) == manifest.size_bytes


def test_a_restore_goes_on_when_its_backup_is_replaced_meanwhile(
    folder_place: WatchedPlace, state: RocksShardState, tmp_path: Path
) -> None:
    """The owner makes newer backups and removes the one that is being fetched: a newer one is restored."""
    backups = backups_at(folder_place)
    owner = claim(ShardBackups(folder_place.place, ME.processor, ME.bucket), ME)
    manifest = back_up(owner, state, tmp_path, 1)
    pending = [path_of(folder_place, manifest.files[0])]

    def replace(step: str, path: str) -> None:
        if step == "read" and pending and path == backups.manifest_path(manifest.id):
            pending.clear()
            back_up(owner, state, tmp_path, 2)
            for left in (*manifest.files, None):
                folder_place.place.delete(path_of(folder_place, left) if left else backups.manifest_path(manifest.id))
            back_up(owner, state, tmp_path, 3)

    folder_place.after = replace
    values = restored(folder_place, tmp_path / "target")

    assert (values or {})[b"last"] == b"3"


# Kills.


def test_a_kill_at_any_step_leaves_a_complete_backup(
    place: BackupStore, state: RocksShardState, tmp_path: Path
) -> None:
    """Before each write of claiming, saving and pruning: no backup is half there, and what is restored was saved before, or now."""
    watched = WatchedPlace(place)
    _claim_save_prune(watched, state, tmp_path, 0)
    last, kill = 0, 0
    while True:
        number = kill + 1
        watched.before, begun = _death_at(kill)
        died = _dies(partial(_claim_save_prune, watched, state, tmp_path, number))
        watched.before = WatchedPlace.before
        found = int((restored(place, tmp_path / "target") or {})[b"last"])

        assert found in (last, number), f"killed before {begun[-1]}"
        assert not any(verdict.damages for verdict in verify(backups_at(place))), f"killed before {begun[-1]}"
        if not died:
            break
        last, kill = found, kill + 1

    assert kill > 6, "it died too seldom to prove anything"
    assert found == number
    assert len(backups_at(place).ids()) == 1
    assert set(backups_at(place).files()) == {file.stored for file in _newest(place).files}


def _death_at(number: int) -> tuple[Callable[[str, str], None], list[str]]:
    """Return what dies at the given one of the steps that change the place, and the list of those that were begun."""
    begun: list[str] = []

    def step(kind: str, path: str) -> None:
        if kind in ("put", "create", "delete"):
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


def _claim_save_prune(place: BackupStore, state: RocksShardState, folder: Path, number: int) -> None:
    owner = claim(backups_at(place), ME)
    back_up(owner, state, folder, number)
    owner.prune(1)


def _newest(place: BackupStore) -> Manifest:
    newest = backups_at(place).newest()
    assert newest is not None
    return newest


def test_a_killed_process_leaves_no_half_file(
    place: BackupStore, state: RocksShardState, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """SIGKILL in the middle of a table: the earlier backup is restored, and the next owner's pruning removes what was left."""
    back_up(claim(backups_at(place), ME), state, tmp_path, 1)
    state.save({b"large": os.urandom(20_000_000)})
    go_on(state, 2)
    state.snapshot(tmp_path / "snapshot")
    webhdfs = repr(request.getfixturevalue("hdfs")["webhdfs"]) if "hdfs" in place.location else None
    program = (
        "import os, signal, sys; sys.path.insert(0, 'tests/contract'); sys.path.insert(0, 'tests')\n"
        "from pathlib import Path\n"
        "import test_backups as t\n"
        "sizes = []\n"
        "def die(step, path):\n"
        "    sizes.append(step)\n"
        "    if sizes.count('chunk') > 8: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"place = t.WatchedPlace(t.open_place({place.location!r}, {webhdfs}), after=die)\n"
        f"t.claim(t.backups_at(place), t.ME).save(Path({str(tmp_path / 'snapshot')!r}), {{'flights': 2}})\n"
    )
    root = Path(__file__).parents[2]
    died = subprocess.run([sys.executable, "-c", program], cwd=root, check=False, capture_output=True, text=True)
    left = [name for name in place.contents(f"{ME.processor}/{ME.bucket:05d}/files") if name.startswith(".")]
    values = restored(place, tmp_path / "target")
    owner = claim(backups_at(place), ME)
    back_up(owner, state, tmp_path)
    owner.prune(1)

    assert died.returncode == -signal.SIGKILL, died.stderr
    assert left
    assert (values or {})[b"last"] == b"1"
    assert set(backups_at(place).files()) == {file.stored for file in _newest(place).files}


# Ownership.


def test_a_fenced_owner_writes_nothing(place: BackupStore, state: RocksShardState, tmp_path: Path) -> None:
    """Neither a backup nor a removal; it is told who owns them now."""
    old = claim(backups_at(place), ME)
    back_up(old, state, tmp_path, 1)
    back_up(claim(backups_at(place), ME), state, tmp_path, 2)
    there = listing(place)
    go_on(state, 3)
    with pytest.raises(BackupFenced, match="owner 2 does"):
        back_up(old, state, tmp_path)
    with pytest.raises(BackupFenced, match="owner 2 does"):
        old.prune(1)

    assert listing(place) == there


@pytest.mark.parametrize("stored", ["one file", "all files"])
def test_an_owner_that_is_fenced_while_it_saves_makes_no_backup(
    stored: str, folder_place: WatchedPlace, state: RocksShardState, tmp_path: Path
) -> None:
    """It finds out before the next file, and before the manifest."""
    old = claim(backups_at(folder_place), ME)
    state.snapshot(tmp_path / "snapshot")
    limit = 1 if stored == "one file" else len(list((tmp_path / "snapshot").iterdir()))

    def take_over(step: str, path: str) -> None:
        if step == "put" and len(folder_place.stored()) == limit:
            claim(backups_at(folder_place.place), ME)

    folder_place.after = take_over
    with pytest.raises(BackupFenced):
        old.save(tmp_path / "snapshot", state.position())

    assert backups_at(folder_place).ids() == []
    assert len(folder_place.stored()) == limit


@pytest.mark.parametrize("paused_at", [("contents", "/files"), ("delete", "")])
def test_an_owner_that_was_paused_takes_nothing_from_a_later_one(
    paused_at: tuple[str, str], folder_place: WatchedPlace, state: RocksShardState, tmp_path: Path
) -> None:
    """Fenced in the middle of its pruning, it goes on to remove: the later owner's backup, of the same files, stays whole."""
    old = claim(backups_at(folder_place), ME)
    for number in (1, 2):
        back_up(old, state, tmp_path, number)
    lost = back_up(old, state, tmp_path, 3)
    folder_place.place.delete(backups_at(folder_place).manifest_path(lost.id))  # its files now belong to no backup
    later: list[Manifest] = []

    def take_over(step: str, path: str) -> None:
        if step == paused_at[0] and path.endswith(paused_at[1]) and not later:
            later.append(back_up(claim(backups_at(folder_place.place), ME), state, tmp_path))

    folder_place.before = take_over
    old.prune(1)

    assert [manifest.id for manifest in later] == [_newest(folder_place).id]
    assert verify(backups_at(folder_place))[0].damages == ()
    assert (restored(folder_place, tmp_path / "target") or {})[b"last"] == b"3"


def test_who_claims_last_owns(place: BackupStore) -> None:
    """Of many who claim at once each gets an epoch of its own, and only the last is not refused."""
    owners: list[BackupWriter] = []
    threads = [threading.Thread(target=lambda: owners.append(claim(backups_at(place), ME))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = 0
    for owner in owners:
        try:
            owner.expect_newest()
        except BackupFenced:
            refused += 1

    assert sorted(backups_at(place).claims()) == [1, 2, 3, 4, 5, 6]
    assert refused == 5


def test_an_emptied_place_is_begun_anew(place: BackupStore, state: RocksShardState, tmp_path: Path) -> None:
    """The owner stores everything again, and the next owner's backups count as newer."""
    owner = claim(backups_at(place), ME)
    owner = claim(backups_at(place), ME)
    back_up(owner, state, tmp_path, 1)
    for path in listing(place):
        place.delete(path)
    back_up(owner, state, tmp_path, 2)
    back_up(claim(backups_at(place), ME), state, tmp_path, 3)

    assert [verdict.damages for verdict in verify(backups_at(place))] == [(), ()]
    assert (restored(place, tmp_path / "target") or {})[b"last"] == b"3"


# Pruning.


def test_the_last_good_backups_stay(place: BackupStore, state: RocksShardState, tmp_path: Path) -> None:
    """Damaged ones are not counted: of five, two of them damaged, the last two good ones stay, and what is newer than these."""
    owner = claim(backups_at(place), ME)
    manifests = [back_up(owner, state, tmp_path, number) for number in range(5)]
    place.delete(path_of(place, _own_file(manifests, 3)))
    _halve(place, manifests[2], manifests[1])
    owner.prune(2)

    good = [verdict.backup for verdict in verify(backups_at(place)) if not verdict.damages]
    assert good == [manifests[4].id, manifests[1].id]
    assert backups_at(place).ids() == [manifest.id for manifest in reversed(manifests[1:])]


def _own_file(manifests: list[Manifest], number: int) -> StoredFile:
    """Return a file that is in one backup alone: RocksDB's own manifest differs each time."""
    return next(file for file in manifests[number].files if file.name.startswith("MANIFEST"))


def test_a_place_with_no_good_backup_loses_nothing_more(
    place: BackupStore, state: RocksShardState, tmp_path: Path
) -> None:
    """Perhaps somebody brings the missing files back."""
    owner = claim(backups_at(place), ME)
    manifests = [back_up(owner, state, tmp_path, number) for number in range(2)]
    for number in range(2):
        place.delete(path_of(place, _own_file(manifests, number)))
    there = listing(place)
    owner.prune(1)

    assert listing(place) == there


def test_files_that_no_kept_backup_names_go(place: BackupStore, state: RocksShardState, tmp_path: Path) -> None:
    """What is left is exactly the newest backup, its owner's claim, and what is not ours."""
    for number in range(3):
        owner = claim(backups_at(place), ME)
        back_up(owner, state, tmp_path, number)
    place.put(backups_at(place).file_path("README"), [b"not ours"])
    owner.prune(1)
    newest = _newest(place)

    assert backups_at(place).claims() == [3]
    assert set(backups_at(place).files()) == {file.stored for file in newest.files} | {"README"}
    assert backups_at(place).ids() == [newest.id]


# Looking.


def test_a_look_is_repeated_where_the_owner_merges_files(
    state: RocksShardState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table may be gone between its name and its content; damage that stays is told."""
    errors = [StateDamaged("Can't access /000020.sst"), StateDamaged("Can't access /000021.sst")]

    @contextmanager
    def merging(folder: Path) -> Iterator[RocksShardState]:
        if errors:
            raise errors.pop()
        with viewed(folder) as seen:
            yield seen

    monkeypatch.setattr("penstock.state.backups.inventory.viewed", merging)
    position = look(state.folder.parent, RocksShardState.position)
    errors += [StateDamaged("again")] * 3

    assert position == {"flights": 0}
    with pytest.raises(StateDamaged, match="again"):
        look(state.folder.parent, RocksShardState.position)


# The keeper.


@dataclass
class Switch:
    """A place's state of health: while it is off, every step fails."""

    on: bool = False

    def __call__(self, step: str, path: str) -> None:
        if not self.on:
            raise BackupStoreUnreachable(f"{path} was not reached: the place is off.")


@contextmanager
def keeping(place: BackupStore, state: RocksShardState, keep: int = 3) -> Iterator[BackupScheduler]:
    """Keep backups of the one state, often."""
    with closing(BackupScheduler(place, OFTEN, keep)) as keeper:
        keeper.adopt(ME, state)
        yield keeper


def test_a_state_that_goes_on_is_backed_up(
    place: BackupStore, state: RocksShardState, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """By itself, again and again; old backups go, and no snapshot stays beside the state."""
    with keeping(place, state, keep=1):
        for number in range(1, 4):
            go_on(state, number)
            wait_until(lambda number=number: newest_position(place, ME) == {"flights": number})  # type: ignore[misc]  # a default binds the loop's value
        wait_until(lambda: len(backups_at(place).ids()) == 1)

    assert (restored(place, tmp_path / "target") or {})[b"last"] == b"3"
    assert [path.name for path in state.folder.parent.iterdir()] == [state.folder.name]


def test_a_state_that_does_not_go_on_is_not_backed_up_again(
    folder_place: WatchedPlace, state: RocksShardState, wait_until: WaitUntil
) -> None:
    """And does not age: its backup is what it is."""
    looked: list[float] = []
    position = state.position

    def counted() -> dict[str, int]:
        looked.append(time.monotonic())
        return position()

    state.position = counted  # type: ignore[method-assign]
    with keeping(folder_place, state) as keeper:
        wait_until(lambda: len(backups_at(folder_place.place).ids()) == 1)
        seen = len(looked)
        wait_until(lambda: len(looked) > seen + 5)
        age = keeper.ages().of[ME]

    assert len(backups_at(folder_place.place).ids()) == 1
    assert age.seconds < 5 * OFTEN.total_seconds()
    assert age.known


def test_a_place_that_is_down_at_the_start_is_waited_for(
    folder_place: WatchedPlace,
    state: RocksShardState,
    wait_until: WaitUntil,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Told once, with the age; ages grow, then shrink; and it is told when all has caught up."""
    folder_place.before = switch = Switch()
    with keeping(folder_place, state) as keeper:
        wait_until(lambda: len(folder_place.asked) > 4)
        wait_until(lambda: "more than 3 intervals" in caplog.text)
        old = keeper.ages()
        switch.on = True
        wait_until(lambda: "caught up" in caplog.messages[-1])
        young = keeper.ages()

    assert old.late[ME] > 3 * OFTEN.total_seconds() > young.of[ME].seconds
    assert (old.oldest_s, old.without) == (None, 1)
    assert (young.oldest_s, young.without, young.late) == (young.of[ME].seconds, 0, {})
    assert len([text for text in caplog.messages if "do not keep up" in text]) == 1
    assert newest_position(folder_place, ME) == {"flights": 0}


def test_lateness_is_said_seldom_and_taken_back_with_how_long_it_was(
    folder_place: WatchedPlace,
    state: RocksShardState,
    wait_until: WaitUntil,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However often it is tried; also where the place answers and is merely slow."""
    monkeypatch.setattr("penstock.state.backups.scheduler.REMIND_EVERY_S", 1.0)
    slow, tries = threading.Event(), 20

    def said(text: str) -> list[str]:
        return [message for message in caplog.messages if text in message]

    def take_long(step: str, path: str) -> None:
        if step == "put":
            slow.wait(1.0)

    folder_place.before = Switch()
    with keeping(folder_place, state):
        wait_until(lambda: len(folder_place.asked) > tries)
        wait_until(lambda: len(said("more than 3 intervals")) == 2)
        folder_place.before = Switch(on=True)
        wait_until(lambda: len(said("caught up. They were behind for")) == 1)
        folder_place.before = take_long
        go_on(state, 1)
        wait_until(lambda: len(said("more than 3 intervals")) == 3)
        slow.set()
        wait_until(lambda: len(said("caught up. They were behind for")) == 2)

    assert len(said("do not keep up")) == 1
    assert int(re.findall(r"behind for (\d+) s", caplog.text)[0]) >= 1


def test_a_backup_says_how_often_they_are_made(
    folder_place: WatchedPlace, state: RocksShardState, wait_until: WaitUntil
) -> None:
    """In its manifest; one that does not say it is as good."""
    with keeping(folder_place, state):
        wait_until(lambda: backups_at(folder_place).ids() != [])
    manifest = _newest(folder_place)
    said = json.loads(msgspec.json.encode(manifest))
    body = json.dumps({name: value for name, value in said.items() if name != "interval_s"})
    sealed = f'{{"checksum": "{sha256(body.encode()).hexdigest()}", "manifest": {body}}}'

    assert manifest.interval_s == OFTEN.total_seconds()
    assert Manifest.decode(sealed.encode()) == msgspec.structs.replace(manifest, interval_s=None)


def test_a_place_that_goes_down_in_the_middle_is_waited_for(
    folder_place: WatchedPlace, state: RocksShardState, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """What was stored of the broken backup is no backup, and the next one is whole."""
    switch = Switch(on=True)

    def break_off(step: str, path: str) -> None:
        if step == "put" and len(folder_place.stored()) == 2:
            switch.on = False
        switch(step, path)

    folder_place.before = break_off
    with keeping(folder_place, state):
        wait_until(lambda: not switch.on)
        broken = backups_at(folder_place.place).ids()
        go_on(state, 1)
        folder_place.before = Switch(on=True)
        wait_until(lambda: newest_position(folder_place.place, ME) == {"flights": 1})

    assert broken == []
    assert [verdict.damages for verdict in verify(backups_at(folder_place))] == [()]
    assert (restored(folder_place, tmp_path / "target") or {})[b"last"] == b"1"


class Hanging:
    """Makes the second file's step hang until it is let go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.let_go = threading.Event()
        self.files = 0

    def __call__(self, step: str, path: str) -> None:
        self.files += step == "put"
        if step == "put" and self.files == 2:
            self.reached.set()
            self.let_go.wait(60)


def test_a_release_does_not_wait_for_a_place_that_hangs(
    folder_place: WatchedPlace, state: RocksShardState, wait_until: WaitUntil
) -> None:
    """The state can be closed and taken away at once; what was being stored is given up."""
    folder_place.before = hanging = Hanging()
    with closing(BackupScheduler(folder_place, OFTEN)) as keeper:
        keeper.adopt(ME, state)
        assert hanging.reached.wait(30)
        begun_s = time.monotonic()
        keeper.release(ME)
        took_s = time.monotonic() - begun_s
        state.close()
        hanging.let_go.set()
        wait_until(lambda: len(list(state.folder.parent.iterdir())) == 1)

    assert took_s < 0.1
    assert keeper.ages().of == {}
    assert backups_at(folder_place).ids() == []
    assert len(folder_place.stored()) == 2


def test_a_release_waits_for_a_snapshot_that_is_being_made(
    folder_place: WatchedPlace, state: RocksShardState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it has returned, the keeper does not touch the state."""
    begun, released = threading.Event(), threading.Event()
    order: list[str] = []
    snapshot = state.snapshot

    def slow(target: Path) -> None:
        begun.set()
        released.wait(0.5)  # which it is not, before this ends
        snapshot(target)
        order.append("snapshot made")

    monkeypatch.setattr(state, "snapshot", slow)
    with closing(BackupScheduler(folder_place, OFTEN)) as keeper:
        keeper.adopt(ME, state)
        assert begun.wait(30)
        keeper.release(ME)
        released.set()
        order.append("released")

    assert order == ["snapshot made", "released"]


def test_closing_leaves_a_request_that_hangs_behind(folder_place: WatchedPlace, state: RocksShardState) -> None:
    """Within the two seconds it is given; when it comes back, nothing more is written."""
    folder_place.before = hanging = Hanging()
    keeper = BackupScheduler(folder_place, OFTEN)
    keeper.adopt(ME, state)
    assert hanging.reached.wait(30)
    begun_s = time.monotonic()
    keeper.close()
    took_s = time.monotonic() - begun_s
    hanging.let_go.set()
    next(thread for thread in threading.enumerate() if thread.name == "penstock-backups").join(30)

    assert took_s < 3
    assert backups_at(folder_place).ids() == []
    assert len(folder_place.stored()) == 2


def test_of_two_keepers_the_older_is_fenced(
    folder_place: WatchedPlace, state: RocksShardState, wait_until: WaitUntil, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so, and leaves the shard to the newer one, whose backups go on."""
    with keeping(folder_place, state) as older:
        wait_until(lambda: backups_at(folder_place).ids() != [])
        with keeping(folder_place, state) as newer:
            wait_until(lambda: _newest(folder_place).epoch == 2)
            go_on(state, 1)
            wait_until(lambda: older.ages().of == {})
            wait_until(lambda: newest_position(folder_place, ME) == {"flights": 1})
            ages = newer.ages()

    assert "owner 2 does" in caplog.text
    assert list(ages.of) == [ME]
    assert _newest(folder_place).epoch == 2


def test_shards_are_spread_over_the_interval(folder_place: WatchedPlace, state: RocksShardState) -> None:
    """Those that were adopted together are not due together, and all within one interval."""
    with closing(BackupScheduler(folder_place, timedelta(hours=1))) as keeper:
        begun_s = time.monotonic()
        for bucket in range(20):
            keeper.adopt(ShardIdentity(ME.processor, bucket, ME.shape), state)
        dues_s = [shard.due_s - begun_s for shard in keeper._shards.values()]

    assert 0 <= min(dues_s) < max(dues_s) < 3601
    assert max(dues_s) - min(dues_s) > 600


def test_snapshots_of_killed_processes_are_removed(
    folder_place: WatchedPlace, state: RocksShardState, wait_until: WaitUntil
) -> None:
    """They would keep tables on the disk that the database itself needs no more."""
    state.snapshot(state.folder.parent / ".backup-of-the-dead")
    with keeping(folder_place, state):
        wait_until(lambda: backups_at(folder_place).ids() != [])

    assert [path.name for path in state.folder.parent.iterdir()] == [state.folder.name]


def test_an_unexpected_error_ends_neither_the_keeper_nor_other_backups(
    folder_place: WatchedPlace,
    state: RocksShardState,
    tmp_path: Path,
    wait_until: WaitUntil,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is told with its trace, and the shard is tried again."""
    errors = [ZeroDivisionError("of the place"), OSError("also")]

    def fail(step: str, path: str) -> None:
        if ME.processor in path and errors:
            raise errors.pop()

    folder_place.before = fail
    with keeping(folder_place, state):
        wait_until(lambda: backups_at(folder_place.place).ids() != [])

    assert "ZeroDivisionError: of the place" in caplog.text


# What a worker waits for.


@contextmanager
def refreshing(
    place: BackupStore, states: Path, dropped: threading.Event | None = None
) -> Iterator[tuple[WorkerBackups, Future[bool]]]:
    """Have a worker look for a state that its group has committed for; in a thread of its own."""
    with closing(WorkerBackups(place, states, OFTEN)) as backups, ThreadPoolExecutor(1) as threads:
        refreshed = threads.submit(backups.refresh, ME, {"flights": 1}, dropped or threading.Event())
        try:
            yield backups, refreshed
        finally:
            backups.close()


@pytest.mark.parametrize("begun", [False, True], ids=["no state", "an empty state"])
def test_a_missing_state_waits_for_its_place_and_says_so_seldom(
    begun: bool,
    folder_place: WatchedPlace,
    state: RocksShardState,
    tmp_path: Path,
    wait_until: WaitUntil,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At once, then now and then, after a while with what can be done; not at each try."""
    for name, value in {"ASK_AGAIN_S": 0.01, "SAY_EVERY_S": 0.5, "LONG_WAIT_S": 0.6}.items():
        monkeypatch.setattr(f"penstock.ops.worker.backups.{name}", value)
    back_up(claim(backups_at(folder_place), ME), state, tmp_path, 1)
    if begun:
        RocksStateFolder(tmp_path / "other").open(ME).close()
    folder_place.before = switch = Switch()
    asked = len(folder_place.asked)
    with refreshing(folder_place, tmp_path / "other") as (_, refreshed):
        wait_until(lambda: len(folder_place.asked) > asked + 2)
        at_once = [text for text in caplog.messages if "waits for its backup" in text]
        wait_until(lambda: "Mend the place, or name the one" in caplog.text)
        tries, said = len(folder_place.asked) - asked, caplog.text.count("waits for its backup")
        switch.on = True
        refreshed.result(30)

    assert len(at_once) == 1
    assert said < tries / 2
    assert "has waited" in caplog.text
    with viewed(current(shard_folder(tmp_path / "other", ME)) or Path()) as found:
        assert found.position() == {"flights": 1}


@pytest.mark.parametrize("prepared", [False, True], ids=["saved", "prepared alone"])
def test_a_state_that_is_here_waits_for_no_place(
    prepared: bool, folder_place: WatchedPlace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is caught up from the bus, or is so already by what its first checkpoint had prepared."""
    state = RocksStateFolder(tmp_path / "other").open(ME)
    if prepared:
        state.prepare(Delta({}, {"flights": 1}, {b"key": b"value"}))
    else:
        state.save_together({b"key": b"value"}, {"more": 1})
    state.close()
    folder_place.before = Switch()
    with refreshing(folder_place, tmp_path / "other") as (_, refreshed):
        refreshed.result(30)

    assert "caught up from the bus" in caplog.text


def test_whoever_stops_waiting_for_a_place_that_hangs_asks_it_no_more(
    folder_place: WatchedPlace, state: RocksShardState, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """The request it hangs in is its last, however many files there are, and no half restored state is left."""
    back_up(claim(backups_at(folder_place), ME), state, tmp_path, 1)
    reached, let_go = threading.Event(), threading.Event()

    def hang(step: str, path: str) -> None:
        if step == "read" and "/files/" in path:
            reached.set()
            let_go.wait(30)
            raise BackupStoreUnreachable(f"{path} was not read: timeout.")

    folder_place.before = hang
    with refreshing(folder_place, tmp_path / "other") as (backups, refreshed):
        assert reached.wait(30)
        backups.close()
        asked = len(folder_place.asked)
        let_go.set()
        with pytest.raises(BackupAbandoned, match="nothing was changed"):
            refreshed.result(30)

    assert len(folder_place.asked) - asked <= 8, "beyond the files that are fetched side by side"
    assert not list(shard_folder(tmp_path / "other", ME).glob("*"))


def test_a_shard_that_went_elsewhere_waits_for_no_place(
    folder_place: WatchedPlace, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """It does not keep those from being opened that are still wanted."""
    folder_place.before, dropped = Switch(), threading.Event()
    with refreshing(folder_place, tmp_path / "other", dropped) as (_, refreshed):
        wait_until(lambda: folder_place.asked != [])
        dropped.set()
        with pytest.raises(BackupAbandoned, match="Nobody waits"):
            refreshed.result(30)


def test_an_hdfs_that_stops_and_comes_back_is_waited_for(
    state: RocksShardState, tmp_path: Path, wait_until: WaitUntil, caplog: pytest.LogCaptureFixture
) -> None:
    """Stopped for real while the state goes on: backups catch up by themselves, and a restore gives the newest."""
    services = LocalServices(tmp_path / "services")
    endpoints = services.up(["hdfs"], lambda _: None)["hdfs"].endpoints
    try:
        place = open_backup_store(f"{endpoints['rpc']}/backups", endpoints["webhdfs"])
        with keeping(place, state) as keeper:
            wait_until(lambda: newest_position(place, ME) == {"flights": 0})
            services.down(["hdfs"], lambda _: None)
            go_on(state, 1)
            wait_until(lambda: keeper.ages().of[ME].seconds > 1.0)
            services.up(["hdfs"], lambda _: None)
            wait_until(lambda: newest_position(place, ME) == {"flights": 1})
            wait_until(lambda: "caught up" in caplog.messages[-1])
            wait_until(lambda: keeper.ages().of[ME].seconds < 1.0)
        values = restored(place, tmp_path / "target")
    finally:
        services.down(["hdfs"], lambda _: None)

    assert (values or {})[b"last"] == b"1"
    assert "do not keep up" in caplog.text
