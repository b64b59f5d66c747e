"""Several shards restored side by side, as a person asks for it who sits before the machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from ..errors import StateError
from ..files.file_store import FileStore
from ..protocols import ShardIdentity
from .errors import BackupAbandoned, BackupError
from .fetch import Progress
from .inventory import ShardName, refuse_open
from .manifest import BackupId, Manifest
from .restore import install, restore_shard
from .shard import ShardBackups

SHARDS_AT_ONCE = 4
"""How many shards are restored at once; each fetches several files at once."""


def restore_in_parallel(
    place: FileStore,
    root: Path,
    shards: Sequence[ShardName],
    progress_of: Callable[[ShardName], Progress],
    only: BackupId | None = None,
) -> dict[ShardName, Manifest | StateError]:
    """Put backups in the place of shards' states. Return which, or why not; a shard that cannot be restored stays as it was.

    Args:
        place: where backups are kept.
        root: the folder of states.
        shards: which; none of them may be open.
        progress_of: returns what is told how far a shard's backup is fetched.
        only: take this backup; None for the newest good one of each.

    Raises:
        StateInUse: one of them is open; nothing was changed.
    """
    for name in shards:
        refuse_open(name.folder(root))
    stopped = threading.Event()

    def begin(name: ShardName) -> Manifest | StateError:
        try:
            return _restore(place, root, name, _until(stopped, progress_of(name)), only)
        except StateError as error:
            return error

    with ThreadPoolExecutor(SHARDS_AT_ONCE) as threads:
        try:
            return dict(zip(shards, threads.map(begin, shards), strict=True))
        except BaseException:
            stopped.set()  # Ctrl-C does not wait for what is being fetched
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _restore(place: FileStore, root: Path, name: ShardName, progress: Progress, only: BackupId | None) -> Manifest:
    backups, shard = ShardBackups(place, *name), name.folder(root)
    confirm = partial(refuse_open, shard)  # a worker may have been started meanwhile
    if only is not None:
        manifest = backups.read(only)
        install(backups, manifest, shard, progress, confirm)
        return manifest
    newest = backups.newest()
    if newest is not None:
        identity = ShardIdentity(name.processor, name.bucket, newest.identity.shape)
        newest = restore_shard(place, identity, shard, progress, confirm)
    if newest is None:
        raise BackupError(f"{name} has no good backup at {place.location}. Its state on this machine is as it was.")
    return newest


def _until(stopped: threading.Event, progress: Progress) -> Progress:
    def show(done_bytes: int, total_bytes: int) -> None:
        if stopped.is_set():
            raise BackupAbandoned("The restore was interrupted; nothing was changed.")
        progress(done_bytes, total_bytes)

    return show
