"""Snapshots and their place in the backup store.

.snapshots/<app>/<id>.json              a snapshot, with its checksum
<processor>/<bucket>/pins/<id>          the backup of a shard that it needs; see `state/backups/manifest.py`
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec

from ....processors import PenstockError
from ....state import FileMissing
from ....state.backups import BackupDamaged, BackupId, ShardBackups, damages_of, sealed, unsealed
from ....state.files import FileStore
from ....transport import Bucket
from ....transport.tables import ShardCut

FORMAT = 1
"""The version of the document; others are refused."""
_FOLDER = ".snapshots"
_TIME = "%Y%m%dT%H%M%S"
LEFT_AFTER = timedelta(days=1)
"""The age from which a snapshot that does not exist cannot be in progress; clocks may differ by less."""
_ID = re.compile(r"\d{8}T\d{6}-[0-9a-f]{4}")


class SnapshotError(PenstockError):
    """A snapshot cannot be taken, found or read; the app is unaffected."""


class SnapshotDamaged(SnapshotError):
    """A snapshot exists, but cannot be read: use another one."""


def new_id() -> str:
    """Return the id of a snapshot that begins now; later snapshots have greater ids."""
    return f"{datetime.now(UTC):{_TIME}}-{secrets.token_hex(2)}"


def began_ms(id_: str) -> int:
    """Return when a snapshot began (milliseconds since 1970, UTC), from its id, in whole seconds."""
    began = datetime.strptime(id_.partition("-")[0], _TIME).replace(tzinfo=UTC)
    return int(began.timestamp()) * 1000


class ProcessorCut(msgspec.Struct, frozen=True):
    """A processor in a snapshot.

    Args:
        inputs: its input categories.
        outputs: its output categories.
        shape: the type of its state; None without state.
        shards: its shards, by bucket number.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shape: str | None
    shards: dict[int, ShardCut]

    def positions(self) -> dict[Bucket, int]:
        """Return the position of the cut in each bucket of its inputs."""
        return {
            Bucket(name, number): offset
            for number, shard in self.shards.items()
            for name, offset in shard.position.offsets.items()
            if name in self.inputs
        }


class Snapshot(msgspec.Struct, frozen=True):
    """A consistent cut of an app: what each shard has processed, and what was on its way between them.

    A message of a category that one processor writes and another reads belongs to the cut if its offset is below the category's end here. If it
    is not below the reader's position as well, it is in flight.

    Args:
        format: the version of this document.
        app: the app's name.
        id: the snapshot's id.
        taken_ms: the time of the cut (milliseconds since 1970, UTC).
        waited_s: how long outputs waited for the cut.
        took_s: the time until everything was stored.
        processors: by name.
        ends: by output category and bucket, the first offset after the cut.
        is_scheduled: whether a schedule has taken it, and may delete it.
    """

    format: int
    app: str
    id: str
    taken_ms: int
    waited_s: float
    took_s: float
    processors: dict[str, ProcessorCut]
    ends: dict[str, dict[int, int]]
    is_scheduled: bool = False

    @property
    def taken(self) -> str:
        """The time of the cut, as text."""
        return datetime.fromtimestamp(self.taken_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

    @property
    def internal(self) -> set[str]:
        """The categories that one processor of the app writes and another reads."""
        read = {name for processor in self.processors.values() for name in processor.inputs}
        return read & self.ends.keys()

    def in_flight(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return the offsets in flight, by internal category and bucket: from the first unread one to the end."""
        found: dict[tuple[str, int], tuple[int, int]] = {}
        for processor in self.processors.values():
            for bucket, shard in processor.shards.items():
                for name in self.internal.intersection(processor.inputs):
                    begin, end = shard.position.offsets.get(name, 0), self.ends[name][bucket]
                    earlier = found.get((name, bucket), (begin, end))
                    found[name, bucket] = min(begin, earlier[0]), end
        return found

    def backups(self) -> Iterator[tuple[str, int, BackupId]]:
        """Yield the processor, bucket and backup of each shard with state."""
        for name, processor in self.processors.items():
            for bucket, shard in processor.shards.items():
                if shard.backup:
                    yield name, bucket, BackupId.parse(shard.backup)


_decode = msgspec.json.Decoder(Snapshot).decode


class SnapshotStore:
    """The snapshots in a backup store. Any thread.

    Args:
        store: the backup store.
    """

    def __init__(self, store: FileStore) -> None:
        self.store = store

    def apps(self) -> list[str]:
        """Return the names of apps with snapshots."""
        return sorted(name for name, size in self.store.list_folder(_FOLDER).items() if size is None)

    def ids(self, app: str) -> list[str]:
        """Return the ids of an app's snapshots, oldest first."""
        names = [name.removesuffix(".json") for name in self.store.list_folder(f"{_FOLDER}/{app}")]
        return sorted(name for name in names if _ID.fullmatch(name))

    def write(self, snapshot: Snapshot) -> None:
        """Store a snapshot, whose backups are stored and pinned."""
        self.store.write(_path(snapshot.app, snapshot.id), [sealed(msgspec.json.encode(snapshot))])

    def read(self, app: str, id_: str) -> Snapshot:
        """Return a snapshot.

        Raises:
            SnapshotDamaged: it cannot be read.
            SnapshotError: it is missing.
        """
        if not _ID.fullmatch(id_):  # it could be a path to another file
            raise self._missing(app, id_)
        try:
            return _decode(unsealed(b"".join(self.store.read(_path(app, id_)))))
        except FileMissing:
            raise self._missing(app, id_) from None
        except (BackupDamaged, msgspec.MsgspecError) as error:
            raise SnapshotDamaged(
                f"Snapshot {id_} of {app} at {self.store.location} cannot be read: {error}. Nothing was changed, and the app does not need it. Use another one of "
                f"`penstock snapshot show`, and delete this one: `penstock snapshot delete APP {id_}`."
            ) from error

    def _missing(self, app: str, id_: str) -> SnapshotError:
        ids, apps = self.ids(app), self.apps()
        if ids:
            existing = f"It has {', '.join(ids[-5:])}: see `penstock snapshot show`."
        elif apps:
            existing = f"The snapshots there are of {', '.join(apps)}."
        else:
            existing = "There are no snapshots at all: correct --backup, or take one with `penstock snapshot take`."
        return SnapshotError(f"{app} has no snapshot {id_} at {self.store.location}. Nothing was changed. {existing}")

    def readable(self, app: str, report: Callable[[str], None]) -> list[Snapshot]:
        """Return the snapshots of an app that can be read, oldest first.

        Args:
            app: the name of the app.
            report: receives the error of each other one.
        """
        found = []
        for id_ in self.ids(app):
            try:
                found.append(self.read(app, id_))
            except SnapshotError as error:
                report(str(error))
        return found

    def damages(self, snapshot: Snapshot) -> list[str]:
        """Return the missing and truncated parts of a snapshot's states; none if all are there. No content is read."""
        found = []
        for processor, bucket, backup in snapshot.backups():
            backups = ShardBackups(self.store, processor, bucket)
            try:
                damages = damages_of(backups.read(backup), backups.files())
            except BackupDamaged as error:
                damages = [str(error)]
            found += [f"{processor}, bucket {bucket}: {damage}" for damage in damages]
        return found

    def delete(self, app: str, id_: str) -> None:
        """Delete a snapshot. Its backups go with the next pruning, unless they are among the newest. May be repeated after a failure.

        Raises:
            SnapshotError: it is missing.
        """
        with suppress(SnapshotDamaged):  # what it pins is unknown; the next snapshot unpins it
            self.unpin(id_, {name: cut.shards for name, cut in self.read(app, id_).processors.items()})
        self.store.delete(_path(app, id_))

    def unpin_leftovers(self, shards: Mapping[str, Collection[int]]) -> None:
        """Unpin the backups of snapshots that do not exist, by processor and bucket: snapshots that began a day ago or earlier have failed."""
        existing = {id_ for app in self.apps() for id_ in self.ids(app)}
        recent = f"{datetime.now(UTC) - LEFT_AFTER:{_TIME}}"
        for processor, buckets in shards.items():
            for backups in (ShardBackups(self.store, processor, bucket) for bucket in buckets):
                for name in backups.pin_names():
                    if _ID.fullmatch(name) and name not in existing and name < recent:
                        backups.unpin(name)

    def unpin(self, id_: str, shards: Mapping[str, Mapping[int, object]]) -> None:
        """Unpin the backups of a snapshot, by processor and bucket. May be repeated."""
        for processor, buckets in shards.items():
            for bucket in buckets:
                ShardBackups(self.store, processor, bucket).unpin(id_)


def _path(app: str, id_: str) -> str:
    return f"{_FOLDER}/{app}/{id_}.json"
