"""Damaged snapshots, and pins of failed ones, in every file store."""

from __future__ import annotations

import msgspec
import pytest
from support.backups import ME, backups_at

from penstock.ops.change.snapshots.snapshot import FORMAT, Snapshot, SnapshotError, SnapshotStore, new_id
from penstock.state.backups import BackupId
from penstock.state.files import FileStore

OLD = "20200101T000000-000"


def test_only_leftovers_are_unpinned(store: FileStore) -> None:
    """Pins of existing snapshots of any app, and of snapshots that may be in progress, remain."""
    snapshots, now = SnapshotStore(store), new_id()
    kept = Snapshot(FORMAT, "shop", f"{OLD}1", 0, 0.0, 0.0, {}, {})
    snapshots.write(kept)
    snapshots.write(msgspec.structs.replace(kept, app="other", id=f"{OLD}2"))
    for id_ in (f"{OLD}1", f"{OLD}2", f"{OLD}3", now):
        backups_at(store).pin(id_, BackupId(1, 1))
    snapshots.unpin_leftovers({ME.processor: [ME.bucket]})

    assert sorted(backups_at(store).pin_names()) == [f"{OLD}1", f"{OLD}2", now]


def test_a_damaged_snapshot_is_reported_and_deleted(store: FileStore) -> None:
    """The others are listed, and what it pins is unpinned as after a failed one."""
    snapshots, kept = SnapshotStore(store), Snapshot(FORMAT, "shop", f"{OLD}1", 0, 0.0, 0.0, {}, {})
    snapshots.write(kept)
    snapshots.write(msgspec.structs.replace(kept, id=f"{OLD}2"))
    store.write(f".snapshots/shop/{OLD}2.json", [b"torn"])
    backups_at(store).pin(f"{OLD}2", BackupId(1, 1))
    reports: list[str] = []
    assert snapshots.readable("shop", reports.append) == [kept]
    snapshots.delete("shop", f"{OLD}2")
    snapshots.unpin_leftovers({ME.processor: [ME.bucket]})

    assert (snapshots.ids("shop"), list(backups_at(store).pin_names())) == ([f"{OLD}1"], [])
    [report] = reports
    assert f"Snapshot {OLD}2 of shop" in report
    assert "cannot be read" in report


def test_a_missing_snapshot_is_an_error_that_names_others(store: FileStore) -> None:
    """The id, the app or the store may be wrong. An id is not a path."""
    snapshots = SnapshotStore(store)
    with pytest.raises(SnapshotError, match="no snapshots at all: correct --backup"):
        snapshots.read("shop", f"{OLD}1")
    snapshots.write(Snapshot(FORMAT, "shop", f"{OLD}1", 0, 0.0, 0.0, {}, {}))

    with pytest.raises(SnapshotError, match=f"no snapshot {OLD}2 .* It has {OLD}1"):
        snapshots.delete("shop", f"{OLD}2")
    for id_ in (f"{OLD}1", f"../shop/{OLD}1"):
        with pytest.raises(SnapshotError, match="The snapshots there are of shop"):
            snapshots.read("other", id_)
