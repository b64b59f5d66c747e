"""Pruning: which backups and files of a shard may be deleted."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .manifest import BackupId, Manifest
from .retention import Retention
from .shard import damages_of

# Both match unfinished files, too; see `temporary_name`.
_FILE = re.compile(r"\.?[0-9a-f]{64}-(\d{8})(\.[^.]+\.tmp)?")
_TEMPORARY = re.compile(r"\.(\d{8})-\d{8}\.json\.[^.]+\.tmp")


@dataclass(frozen=True)
class StoredFiles:
    """The files of one shard in a store.

    Args:
        backups: the ids of the stored manifests, newest first.
        manifests: the readable manifests.
        files: the sizes of stored files by name.
        others: further names beside the manifests.
        claims: the epochs of all owners.
        pinned: the backups that snapshots need.
    """

    backups: Sequence[BackupId]
    manifests: Sequence[Manifest]
    files: dict[str, int]
    others: Sequence[str]
    claims: Sequence[int]
    pinned: Collection[BackupId] = ()


@dataclass(frozen=True)
class Prunable:
    """Files to delete, in this order: a manifest must go before its files.

    Args:
        manifests: oldest first.
        files: names of stored files.
        others: names beside the manifests.
        claims: epochs.
    """

    manifests: list[BackupId]
    files: list[str]
    others: list[str]
    claims: list[int]


def prunable(found: StoredFiles, epoch: int, retention: Retention) -> Prunable:
    """Return what an owner may delete. The retained intact backups stay, everything newer than the last of the newest ones, and pinned backups.

    A backup is intact here if all its files exist in their sizes. Files of later owners are never deleted.

    Args:
        found: the stored files.
        epoch: the owner's.
        retention: which backups are kept.
    """
    good = [manifest for manifest in found.manifests if not damages_of(manifest, found.files)]
    keep = retention.newest
    oldest_kept = good[keep - 1].id if len(good) >= keep else BackupId(0, 0)
    retained = retention.kept(good) | set(found.pinned)
    kept = {backup for backup in found.backups if backup >= oldest_kept or backup in retained}
    named = {file.stored for manifest in found.manifests if manifest.id in kept for file in manifest.files}
    return Prunable(
        manifests=[backup for backup in reversed(found.backups) if backup not in kept],
        files=[name for name in found.files if name not in named and _is_of(_FILE, name, epoch)],
        others=[name for name in found.others if _is_of(_TEMPORARY, name, epoch)],
        claims=[claim for claim in found.claims if claim < epoch],
    )


def _is_of(pattern: re.Pattern[str], name: str, epoch: int) -> bool:
    match = pattern.fullmatch(name)
    return match is not None and int(match[1]) <= epoch
