"""Pins of failed snapshots, in every file store."""

from __future__ import annotations

import msgspec
from support.backups import ME, backups_at

from penstock.ops.snapshots.snapshot import FORMAT, Snapshot, SnapshotStore, new_id
from penstock.state.backups.manifest import BackupId
from penstock.state.files.file_store import FileStore

OLD = "20200101T000000-000"


def test_only_leftovers_are_unpinned(store: FileStore) -> None:
    """Neither those of snapshots that exist, of any app, nor those that may be in progress."""
    snapshots, now = SnapshotStore(store), new_id()
    kept = Snapshot(FORMAT, "shop", f"{OLD}1", 0, 0.0, 0.0, {}, {})
    snapshots.write(kept)
    snapshots.write(msgspec.structs.replace(kept, app="other", id=f"{OLD}2"))
    for id_ in (f"{OLD}1", f"{OLD}2", f"{OLD}3", now):
        backups_at(store).pin(id_, BackupId(1, 1))
    snapshots.unpin_leftovers({ME.processor: [ME.bucket]})

    assert sorted(backups_at(store).pin_names()) == [f"{OLD}1", f"{OLD}2", now]
