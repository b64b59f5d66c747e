"""Who owns the archive of a bucket: claims, and the note of the owner that counts.

    gained from the group -> claim an epoch -> the group accepts a commit of this member -> the note and the files of that epoch

Epochs are unique, since a claim is created where there is none. They grow with ownership: an archiver claims after the group gave it the
bucket, and writes nothing under its epoch before the group has accepted a commit, which it refuses to former members. So an archiver
that was paused past its place in the group has the lower epoch, or one under which nothing was ever written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import WarehouseFileMissing
from .layout import Note, folder_of
from .notes import BucketNote, bucket_note, claim_note, decoded, epochs_among
from .warehouse import Warehouse

_TRIES = 10


@dataclass(frozen=True)
class Owners:
    """The owners of a category's buckets, present and former.

    Args:
        category: its name.
        claims: by bucket, the epochs that archivers have claimed, in order.
        notes: by bucket, the epochs of the owners that have noted anything, in order.
    """

    category: str
    claims: Mapping[int, list[int]]
    notes: Mapping[int, list[int]]

    @staticmethod
    def of(warehouse: Warehouse, category: str) -> Owners:
        """Look at a category's folder."""
        names = list(warehouse.list_folder(folder_of(category)))
        return Owners(category, epochs_among(names, "owner"), epochs_among(names, "bucket"))

    def newest(self, bucket: int) -> int:
        """Return the highest epoch of a bucket; 0 where it never had an owner."""
        return max(self.claims.get(bucket, [0])[-1], self.notes.get(bucket, [0])[-1])

    def noted(self, bucket: int) -> int:
        """Return the epoch of the note on a bucket that counts; 0 where there is none."""
        return self.notes.get(bucket, [0])[-1]

    def before(self, bucket: int, epoch: int) -> list[Note]:
        """Return the claims and notes of a bucket's earlier owners."""
        claims = [claim_note(self.category, bucket, old) for old in self.claims.get(bucket, ()) if old < epoch]
        return claims + [bucket_note(self.category, bucket, old) for old in self.notes.get(bucket, ()) if old < epoch]


def claim(warehouse: Warehouse, owners: Owners, bucket: int, above: int) -> int:
    """Claim to own a bucket; return an epoch that nobody else has, above all that there were.

    Args:
        warehouse: where it is.
        owners: looked at since the bucket was gained.
        bucket: which.
        above: the highest epoch among its files.
    """
    epoch = max(owners.newest(bucket), above) + 1
    while not warehouse.create(claim_note(owners.category, bucket, epoch), b"{}"):
        epoch += 1
    return epoch


def bucket_notes(warehouse: Warehouse, category: str) -> dict[int, BucketNote]:
    """Return the notes on a category's buckets that count, by bucket.

    Raises:
        WarehouseError: the warehouse, or a note is not readable.
    """
    return settled_notes(warehouse, category, only_settled=False)


def settled_notes(warehouse: Warehouse, category: str, *, only_settled: bool = True) -> dict[int, BucketNote]:
    """Return the notes of buckets that have one owner for certain: no later archiver claims to own them.

    An archiver that was paused may write a note on a bucket that it has lost. Its successor, who reads that note after its claim, may have
    read it earlier.
    """
    for _ in range(_TRIES - 1):
        owners = Owners.of(warehouse, category)
        try:
            return _notes(warehouse, owners, only_settled=only_settled)
        except WarehouseFileMissing:
            continue  # a later owner has replaced it since
    return _notes(warehouse, Owners.of(warehouse, category), only_settled=only_settled)


def _notes(warehouse: Warehouse, owners: Owners, *, only_settled: bool) -> dict[int, BucketNote]:
    return {
        bucket: note_of(warehouse, owners.category, bucket, epochs[-1])
        for bucket, epochs in owners.notes.items()
        if not only_settled or epochs[-1] == owners.newest(bucket)
    }


def note_of(warehouse: Warehouse, category: str, bucket: int, epoch: int) -> BucketNote:
    """Return an owner's note on its bucket.

    Raises:
        NotStored: there is none.
        WarehouseError: the warehouse, or it is not readable.
    """
    place = bucket_note(category, bucket, epoch)
    return decoded(warehouse.read(place), BucketNote, f"{warehouse.location}/{place.path}")
