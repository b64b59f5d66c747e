"""Late additions: events of complete days, recorded beside their files by bucket and segment."""

from __future__ import annotations

from collections.abc import Mapping

from ..warehouse.notes import Addition, Late, late_note, read_note, write_note
from ..warehouse.warehouse import Warehouse


class LateAdditions:
    """The late additions of one bucket. Several threads may record days, each day by one thread at a time.

    Args:
        warehouse: the warehouse.
        category: the category's name.
        bucket: the bucket's number.
        epoch: the owner.
        noted: the epoch of the previous owner's note by day.
    """

    def __init__(self, warehouse: Warehouse, category: str, bucket: int, epoch: int, noted: Mapping[str, int]) -> None:
        self._warehouse = warehouse
        self._category = category
        self._bucket = bucket
        self._epoch = epoch
        self._noted = dict(noted)

    def note(self, day: str, segment: int, addition: Addition | None) -> None:
        """Record a segment's additions to a day, in place of earlier ones; None for none."""
        before = self._noted.get(day)
        place = late_note(self._category, day, self._bucket, before or self._epoch)
        noted = read_note(self._warehouse, place, Late) or Late(self._bucket, ())
        additions = {one.segment: one for one in noted.additions if one.segment != segment}
        if addition is not None:
            additions[segment] = addition
        now = Late(self._bucket, tuple(additions[one] for one in sorted(additions)))
        if now == noted:
            return
        write_note(self._warehouse, late_note(self._category, day, self._bucket, self._epoch), now)
        self._noted[day] = self._epoch
        if before not in {None, self._epoch}:
            self._warehouse.delete(place)
