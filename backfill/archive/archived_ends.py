"""Up to where a category is archived, bucket by bucket, however archivers go on meanwhile."""

from __future__ import annotations

from ...transport.bus import Bus
from ...transport.messages import Bucket
from ..errors import BackfillRefused
from ..warehouse.owners import bucket_notes
from ..warehouse.warehouse import Warehouse
from .category_archive import group_of


def archived_ends(bus: Bus, warehouse: Warehouse, category: str) -> dict[int, int]:
    """Return by bucket the offset before which every event is in the warehouse; without buckets that nobody has archived yet.

    It is the archiver's committed position. What files hold behind it a new owner of the bucket may just be writing anew. Where that
    position has expired, the next archiver begins at the first event on the bus: what lies before that event stays as it is.

    Raises:
        BackfillRefused: the warehouse does not say that it has those events.
        MissingCategory: it is not on the bus.
        WarehouseError: the warehouse does not answer.
    """
    committed = bus.catalog.committed(group_of(category), category)
    notes = bucket_notes(warehouse, category)
    ends: dict[int, int] = {}
    for number, start in bus.catalog.describe(category).starts.items():
        note = notes.get(number)
        noted = 0 if note is None else note.marks[-1].offset
        end = committed.get(number)
        if end is None:
            if note is not None:
                ends[number] = min(noted, start)
            continue
        ends[number] = end
        if noted < end:
            raise BackfillRefused(
                f"{Bucket(category, number)}: its archiver's position on this bus is {end}, and the warehouse {warehouse.location} does not say "
                "that it has the events before. Nothing was started. Look whether it is the warehouse that this bus is archived to; if it is, "
                "let the archiver run once (penstock archive run), which notes how far it is."
            )
    return ends
