"""Which of a shard's backups are superfluous, and what at the place no backup needs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .manifest import BackupId, Manifest
from .shard import damages_of

# Both match unfinished files, too; see `temporary_name`.
_FILE = re.compile(r"\.?[0-9a-f]{64}-(\d{8})(\.[^.]+\.tmp)?")
_TEMPORARY = re.compile(r"\.(\d{8})-\d{8}\.json\.[^.]+\.tmp")


@dataclass(frozen=True)
class StoredFiles:
    """What is at the place of one shard.

    Args:
        backups: whose manifests are there, newest first.
        manifests: those of them that can be read.
        files: sizes by the names they are stored under.
        others: further names beside the manifests.
        claims: the epochs of all owners.
    """

    backups: Sequence[BackupId]
    manifests: Sequence[Manifest]
    files: dict[str, int]
    others: Sequence[str]
    claims: Sequence[int]


@dataclass(frozen=True)
class Prunable:
    """What may go, in the order in which it has to: a manifest without its files would be a backup that is none.

    Args:
        manifests: oldest first.
        files: stored names.
        others: names beside the manifests.
        claims: epochs.
    """

    manifests: list[BackupId]
    files: list[str]
    others: list[str]
    claims: list[int]


def prunable(found: StoredFiles, epoch: int, keep: int) -> Prunable:
    """Return what an owner may remove so that the last `keep` good backups stay, and whatever is newer than these.

    Good is here a backup whose files are all there in their sizes. What a later owner stored is never among it.

    Args:
        found: what is there.
        epoch: the owner's.
        keep: at least 1.
    """
    good = [manifest.id for manifest in found.manifests if not damages_of(manifest, found.files)]
    oldest_kept = good[keep - 1] if len(good) >= keep else BackupId(0, 0)
    named = {file.stored for manifest in found.manifests if manifest.id >= oldest_kept for file in manifest.files}
    return Prunable(
        manifests=[backup for backup in reversed(found.backups) if backup < oldest_kept],
        files=[name for name in found.files if name not in named and _is_of(_FILE, name, epoch)],
        others=[name for name in found.others if _is_of(_TEMPORARY, name, epoch)],
        claims=[claim for claim in found.claims if claim < epoch],
    )


def _is_of(pattern: re.Pattern[str], name: str, epoch: int) -> bool:
    match = pattern.fullmatch(name)
    return match is not None and int(match[1]) <= epoch
