"""Owners of archived buckets: claims, and the note that counts.

    assigned by the group -> claim an epoch -> the group accepts a commit of this member -> notes and files of that epoch

Epochs are unique, since a claim is created only if it does not exist. They grow with ownership: an archiver claims after the assignment,
and writes nothing under its epoch before the group has accepted a commit, which it refuses from former members. So an archiver that was
paused and lost its membership has either the lower epoch or no files under its epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..errors import WarehouseFileMissing
from .layout import Note, folder_of
from .notes import BucketNote, bucket_note, claim_note, decoded, epochs_among
from .warehouse import Warehouse

_TRIES = 10


@dataclass(frozen=True)
class Owners:
    """The present and former owners of a category's buckets.

    Args:
        category: its name.
        claims: the claimed epochs by bucket, in order.
        notes: the epochs of owners with a note by bucket, in order.
    """

    category: str
    claims: Mapping[int, list[int]]
    notes: Mapping[int, list[int]]

    @staticmethod
    def of(warehouse: Warehouse, category: str) -> Owners:
        """List a category's folder."""
        names = list(warehouse.list_folder(folder_of(category)))
        return Owners(category, epochs_among(names, "owner"), epochs_among(names, "bucket"))

    def newest(self, bucket: int) -> int:
        """Return the highest epoch of a bucket; 0 if it never had an owner."""
        return max(self.claims.get(bucket, [0])[-1], self.notes.get(bucket, [0])[-1])

    def noted(self, bucket: int) -> int:
        """Return the epoch of the note that counts; 0 without one."""
        return self.notes.get(bucket, [0])[-1]

    def before(self, bucket: int, epoch: int) -> list[Note]:
        """Return the claims and notes of a bucket's earlier owners."""
        claims = [claim_note(self.category, bucket, old) for old in self.claims.get(bucket, ()) if old < epoch]
        return claims + [bucket_note(self.category, bucket, old) for old in self.notes.get(bucket, ()) if old < epoch]


def claim(warehouse: Warehouse, owners: Owners, bucket: int, above: int) -> int:
    """Claim a bucket. Return a unique epoch above all earlier ones.

    Args:
        warehouse: the warehouse.
        owners: a listing since the bucket was assigned.
        bucket: its number.
        above: the highest epoch among its files.
    """
    epoch = max(owners.newest(bucket), above) + 1
    while not warehouse.create(claim_note(owners.category, bucket, epoch), b"{}"):
        epoch += 1
    return epoch


def bucket_notes(warehouse: Warehouse, category: str) -> dict[int, BucketNote]:
    """Return the notes that count, by bucket.

    Raises:
        WarehouseError: the warehouse failed, or a note is unreadable.
    """
    return _notes(warehouse, category, lambda _bucket, _owners: True)


def final_notes(warehouse: Warehouse, category: str) -> dict[int, BucketNote]:
    """Return the notes of buckets without a later claim.

    A paused archiver may write a note about a bucket that it has lost. Its successor reads that note after its own claim, but perhaps
    before the paused archiver writes it.
    """
    return _notes(warehouse, category, lambda bucket, owners: owners.noted(bucket) == owners.newest(bucket))


def _notes(warehouse: Warehouse, category: str, wanted: Callable[[int, Owners], bool]) -> dict[int, BucketNote]:
    for attempts_left in reversed(range(_TRIES)):
        owners = Owners.of(warehouse, category)
        try:
            return {
                bucket: note_of(warehouse, category, bucket, epochs[-1])
                for bucket, epochs in owners.notes.items()
                if wanted(bucket, owners)
            }
        except WarehouseFileMissing:
            if not attempts_left:
                raise
            # A later owner has replaced the note since the listing.
    raise AssertionError("the last attempt returns or raises")


def note_of(warehouse: Warehouse, category: str, bucket: int, epoch: int) -> BucketNote:
    """Return an owner's note about its bucket.

    Raises:
        WarehouseFileMissing: the note does not exist.
        WarehouseError: the warehouse failed, or the note is unreadable.
    """
    place = bucket_note(category, bucket, epoch)
    return decoded(warehouse.read(place), BucketNote, f"{warehouse.location}/{place.path}")
