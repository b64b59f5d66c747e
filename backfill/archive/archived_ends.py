"""The offsets up to which a category is archived while archivers may be running."""

from __future__ import annotations

from ...transport import Bucket, Bus
from ..errors import BackfillRefused
from ..warehouse import Warehouse, bucket_notes
from .consumer_group import group_of


def archived_ends(bus: Bus, warehouse: Warehouse, category: str) -> dict[int, int]:
    """Return by bucket the offset before which every event is in the warehouse; without buckets that were never archived.

    This is the archiver's committed position. A new owner of the bucket may be rewriting files beyond it. If the position has expired, the
    next archiver starts at the first event in Kafka, so only files with earlier events are final.

    Raises:
        BackfillRefused: the warehouse does not confirm that it contains those events.
        MissingCategory: the category is not on the bus.
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
                f"{Bucket(category, number)}: the archiver has committed offset {end}, but the warehouse {warehouse.location} does not record "
                "that it contains all earlier events. Nothing was started. Check that this bus is archived to this warehouse. If so, run the "
                "archiver once (`penstock archive run`) to record its progress."
            )
    return ends
