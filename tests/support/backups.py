"""Backups of one shard: a watched file store, an open state, and its stored backups."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from penstock.processors.shard import StatePosition
from penstock.state import FileStoreUnreachable, ShardIdentity
from penstock.state.backups import BackupScheduler, Manifest, Retention, ShardBackups
from penstock.state.backups.manifest import BackupFile
from penstock.state.backups.restore import restore
from penstock.state.backups.writer import BackupWriter
from penstock.state.files import FileStore
from penstock.state.local import RocksShardState, opened_read_only

ME = ShardIdentity("scorer", 3, "float by route")
OFTEN = timedelta(milliseconds=100)

WaitUntil = Callable[[Callable[[], bool]], None]


class ProcessEnded(BaseException):
    """The process ended; its store's errors are not reported."""


class Killed(Exception):
    """The process is killed."""


@dataclass
class WatchedFileStore:
    """A file store with hooks before and after each step, which can wait, fail or act. It records the requests."""

    store: FileStore
    before: Callable[[str, str], None] = lambda _step, _path: None
    after: Callable[[str, str], None] = lambda _step, _path: None
    requests: list[tuple[str, str]] = field(default_factory=list)

    @property
    def location(self) -> str:
        return self.store.location

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        with self._step("write", path):
            self.store.write(path, self._watched(path, chunks))

    def create(self, path: str, content: bytes) -> bool:
        with self._step("create", path):
            return self.store.create(path, content)

    def read(self, path: str, start: int = 0) -> Iterator[bytes]:
        with self._step("read", path):
            yield from self.store.read(path, start)

    def list_folder(self, folder: str) -> dict[str, int | None]:
        with self._step("list_folder", folder):
            return self.store.list_folder(folder)

    def tags(self, folder: str) -> dict[str, str]:
        with self._step("tags", folder):
            return self.store.tags(folder)

    def delete(self, path: str) -> None:
        with self._step("delete", path):
            self.store.delete(path)

    def stored(self) -> list[str]:
        """Return the paths of the written files."""
        return [path for step, path in self.requests if step == "write"]

    def _watched(self, path: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            yield chunk
            self.after("chunk", path)

    @contextmanager
    def _step(self, step: str, path: str) -> Iterator[None]:
        self.requests.append((step, path))
        self.before(step, path)
        yield
        self.after(step, path)


def save_checkpoint(state: RocksShardState, number: int) -> None:
    """Save a checkpoint."""
    state.save_together(
        {b"last": b"%d" % number, b"key %d" % number: b"value" * 100}, StatePosition({"flights": number})
    )


def back_up(owner: BackupWriter, state: RocksShardState, folder: Path, number: int | None = None) -> Manifest:
    """Save a checkpoint if a number is given, and back up."""
    if number is not None:
        save_checkpoint(state, number)
    snapshot = folder / f"snapshot-{time.monotonic_ns()}"
    state.snapshot(snapshot)
    return owner.save(snapshot, state.position())


def backups_at(store: FileStore) -> ShardBackups:
    return ShardBackups(store, ME.processor, ME.bucket)


def restored_values(store: FileStore, target: Path) -> dict[bytes, bytes] | None:
    """Restore a backup and return its values, or None without a backup."""
    if restore(backups_at(store), target) is None:
        return None
    with opened_read_only(target) as state:
        values = dict(state.items())
        assert StatePosition({"flights": int(values[b"last"])}) == state.position()
    return values


def listing(store: FileStore, folder: str = "") -> dict[str, bytes]:
    """Return the content of each stored file by path."""
    found: dict[str, bytes] = {}
    for name, size in store.list_folder(folder).items():
        path = f"{folder}/{name}".lstrip("/")
        found |= listing(store, path) if size is None else {path: b"".join(store.read(path))}
    return found


def put_back(store: FileStore, copy: Mapping[str, bytes]) -> None:
    """Replace all stored files by those of a copy."""
    for path in listing(store):
        store.delete(path)
    for path, content in copy.items():
        store.write(path, [content])


def path_of(store: FileStore, file: BackupFile) -> str:
    return backups_at(store).file_path(file.stored)


def table_of(manifest: Manifest, but: Manifest | None = None) -> BackupFile:
    """Return an SST file of one backup that the other does not contain."""
    others = {file.stored for file in but.files} if but else set()
    return next(file for file in tables_of(manifest) if file.stored not in others)


def tables_of(manifest: Manifest) -> list[BackupFile]:
    return [file for file in manifest.files if file.name.endswith(".sst")]


def rewrite(store: FileStore, manifest: Manifest, change: Callable[[bytes], bytes]) -> None:
    path = backups_at(store).manifest_path(manifest.id)
    store.write(path, [change(b"".join(store.read(path)))])


def halve(store: FileStore, manifest: Manifest, before: Manifest) -> None:
    rewrite(store, manifest, lambda content: content[: len(content) // 2])


def newest_backup(store: FileStore) -> Manifest:
    newest = backups_at(store).newest()
    assert newest is not None
    return newest


@dataclass
class StoreSwitch:
    """A switch of a store: while it is off, each step fails."""

    on: bool = False

    def __call__(self, step: str, path: str) -> None:
        if not self.on:
            raise FileStoreUnreachable(f"{path} was not reached: the store is off.")


@contextmanager
def scheduled_backups(store: FileStore, state: RocksShardState, keep: int = 3) -> Iterator[BackupScheduler]:
    """Run a backup scheduler with a short interval for a state."""
    with closing(BackupScheduler(store, OFTEN, Retention(keep))) as scheduler:
        scheduler.adopt(ME, state)
        yield scheduler
