"""The speed of restoring states from backups in a folder and in HDFS, beside a plain copy of the same files.

    python benchmarks/restore.py [--mb 1000] [--shards 4] [--rounds 3]

Builds states of random values, and backs them up to a folder and to an HDFS that it starts. A round restores all shards, as `penstock
state restore` does, and copies the same files plainly: from the folder with `shutil`, from HDFS by bare HTTP requests to WebHDFS. Each
ends when all files are synced to the disk. Files to read are first dropped from the system's cache. Prints MB/s, and the
ratio of the medians.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from rounds import medians, round_options

from penstock.ops.start.dev_services.services import running_hdfs
from penstock.processors.shard import StatePosition
from penstock.state import ShardIdentity
from penstock.state.backups import Manifest, ShardBackups, ShardName, claim, no_progress, restore_in_parallel
from penstock.state.backups.fetching import FETCH_THREADS
from penstock.state.backups.restore import SHARDS_AT_ONCE
from penstock.state.files import FileStore, open_file_store
from penstock.state.local import RocksShardState, RocksStateFolder

PROCESSOR = "restored"
VALUE_BYTES = 1_000
KEYS_AT_ONCE = 10_000
COPY_BYTES = 2**20
MB = 1_000_000


Take = Callable[[Path], None]
"""Brings all files to a folder."""


@dataclass(frozen=True)
class Place:
    """A place of backups.

    Args:
        store: the place.
        open: opens a file by its path for a plain copy.
        cached: the local folder with the bytes of its files, which are dropped from the system's cache.
    """

    store: FileStore
    open: Callable[[str], BinaryIO]
    cached: Path


def main() -> None:
    """Build, measure and print."""
    parser = round_options(__doc__, rounds=3)
    parser.add_argument("--mb", type=int, default=1_000, help="the size of all states")
    parser.add_argument("--shards", type=int, default=4, help="the number of shards")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, running_hdfs(Path(temporary) / "services") as endpoints:
        folder = Path(temporary)
        places = {"folder": _in_folder(folder / "backups"), "WebHDFS": _in_hdfs(endpoints, folder / "services")}
        for number in range(given.shards):
            _back_up(_build(folder / "built", number, given.mb * MB // given.shards), number, places)
        shutil.rmtree(folder / "built")
        measure(places, given.shards, given.rounds, folder / "restored")


def measure(places: dict[str, Place], shards: int, rounds: int, target: Path) -> None:
    """Restore and copy in turn, and print a row for each place."""
    print(f"{'from':<12}{'MB':>8}{'restored MB/s':>16}{'copied MB/s':>14}{'ratio':>8}")
    for name, place in places.items():
        manifests = [_newest(place, number) for number in range(shards)]
        size_bytes = sum(manifest.size_bytes for manifest in manifests)
        takes = (_restoring(place, shards), _copying(place, manifests))
        restored, copied = medians(takes, rounds, partial(_rate, place, size_bytes, target)).values()
        row = f"{size_bytes / MB:>8,.0f}{restored:>16,.0f}{copied:>14,.0f}{restored / copied:>8.2f}"
        print(f"{name:<12}{row}", flush=True)


def _rate(place: Place, size_bytes: int, target: Path, take: Take) -> float:
    """Return the MB/s of taking all files to a folder, which is removed."""
    _drop_cached(place.cached)
    began_s = time.perf_counter()
    take(target)
    took_s = time.perf_counter() - began_s
    taken_bytes = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    if taken_bytes != size_bytes:
        raise RuntimeError(f"{taken_bytes} bytes were taken from {place.store.location} instead of {size_bytes}.")
    shutil.rmtree(target)
    return size_bytes / MB / took_s


def _restoring(place: Place, shards: int) -> Take:
    def restore(target: Path) -> None:
        names = [ShardName(PROCESSOR, number) for number in range(shards)]
        for restored in restore_in_parallel(place.store, target, names, lambda _: no_progress).values():
            if not isinstance(restored, Manifest):
                raise restored

    return restore


def _copying(place: Place, manifests: list[Manifest]) -> Take:
    """Return a plain copy with as many threads as the restore uses."""

    def copy(target: Path) -> None:
        target.mkdir()
        with ThreadPoolExecutor(FETCH_THREADS * SHARDS_AT_ONCE) as threads:
            list(threads.map(lambda path: _copy(place.open(path), target), _paths(manifests)))

    return copy


def _copy(source: BinaryIO, folder: Path) -> None:
    with source, tempfile.NamedTemporaryFile(dir=folder, delete=False) as target:
        shutil.copyfileobj(source, target, COPY_BYTES)
        target.flush()
        os.fsync(target.fileno())


def _paths(manifests: list[Manifest]) -> Iterator[str]:
    for number, manifest in enumerate(manifests):
        backups = ShardBackups(open_file_store(Path()), PROCESSOR, number)
        yield from (backups.file_path(file.stored) for file in manifest.files)


def _newest(place: Place, number: int) -> Manifest:
    newest = ShardBackups(place.store, PROCESSOR, number).newest()
    if newest is None:
        raise RuntimeError(f"Shard {number} has no backup at {place.store.location}.")
    return newest


def _in_folder(folder: Path) -> Place:
    return Place(open_file_store(folder), lambda path: (folder / path).open("rb"), folder)


def _in_hdfs(endpoints: dict[str, str], services: Path) -> Place:
    store = open_file_store(f"{endpoints['rpc']}/backups", endpoints["webhdfs"])
    root = f"{endpoints['webhdfs']}/webhdfs/v1/backups"

    def opened(path: str) -> BinaryIO:
        found: BinaryIO = urllib.request.urlopen(f"{root}/{path}?op=OPEN")  # noqa: S310 - an address of this machine
        return found

    return Place(store, opened, services)


def _build(folder: Path, number: int, size_bytes: int) -> RocksShardState:
    """Return a state of random values, which cannot be compressed."""
    dice = random.Random(number)
    state = RocksStateFolder(folder).open(_identity(number))
    state.claim(_identity(number))
    for start in range(0, size_bytes // VALUE_BYTES, KEYS_AT_ONCE):
        keys = range(start, min(start + KEYS_AT_ONCE, size_bytes // VALUE_BYTES))
        changes: dict[bytes, bytes | None] = {b"%016d" % key: dice.randbytes(VALUE_BYTES) for key in keys}
        state.save_together(changes, StatePosition({"events": start}))
    return state


def _back_up(state: RocksShardState, number: int, places: dict[str, Place]) -> None:
    for name, place in places.items():
        snapshot = state.folder.parent / f"snapshot-{name}"
        state.snapshot(snapshot)
        claim(ShardBackups(place.store, PROCESSOR, number), _identity(number)).save(snapshot, state.position())
    state.close()


def _identity(number: int) -> ShardIdentity:
    return ShardIdentity(PROCESSOR, number, "bytes by number")


def _drop_cached(folder: Path) -> None:
    """Drop the files of a folder from the system's cache, so that each round reads them from the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    main()
