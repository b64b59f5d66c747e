"""Inputs outside the warehouse: the output of an earlier batch run, or files of another tool.

Such files have no buckets and offsets. Their events are in one bucket in order of event time, like events that the run itself writes. Each has its
key and its event time in columns of their own, since tasks group and select events before they decode them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from ...processors.declare import AnyCategory
from ..errors import BackfillRefused
from ..warehouse import OUTPUT_MARKS, WRITERS, EventFile, Listing, Warehouse, folder_of, footer_of, settings_of
from .coverage import WantedDays, check_coverage

ExternalInputs = Mapping[str, Warehouse]
"""Locations by category name. The empty name is the location of all other categories."""


def external_inputs(places: ExternalInputs, read: Iterable[AnyCategory]) -> dict[str, Warehouse]:
    """Return the location of each category that is read from outside the warehouse.

    Args:
        places: the requested locations.
        read: the categories that the run reads and does not write itself.

    Raises:
        BackfillRefused: a requested category is not read, is not at its location, is an archived category there, or has files without keys and
            event times.
        WarehouseError: a location cannot be read.
    """
    names = {category.name for category in read}
    unknown = sorted(places.keys() - names - {""})
    if unknown:
        raise BackfillRefused(
            f"--input names {', '.join(unknown)}, which this run does not read from outside. Nothing was started. It reads "
            f"{', '.join(sorted(names)) or 'nothing'}."
        )
    found = {name: places.get(name, places.get("")) for name in sorted(names)}
    elsewhere = {name: place for name, place in found.items() if place is not None}
    for name, place in elsewhere.items():
        _expect_output(name, place)
    return elsewhere


def _expect_output(name: str, place: Warehouse) -> None:
    if settings_of(place, name) is not None:
        raise BackfillRefused(
            f"{place.location}/{folder_of(name)} is an archive, whose events have an order on the bus. Nothing was started. Pass it as "
            "--warehouse, so that they are read in this order."
        )
    listing = Listing.of(place, name)
    if not listing.all_files:
        raise BackfillRefused(
            f"{place.location} has no {name}. Nothing was started. Check that the location contains category=…/ds=… folders, "
            "and that the run that writes there has ended."
        )
    _expect_marks(place, listing)


def _expect_marks(place: Warehouse, listing: Listing) -> None:
    """Raise BackfillRefused for a file without the key and the event time of each event, such as of another tool."""

    def without(file: EventFile) -> list[str]:
        columns = footer_of(place, file, listing.sizes[file]).schema.to_arrow_schema().names
        return [mark for mark in OUTPUT_MARKS.names if mark not in columns]

    with ThreadPoolExecutor(WRITERS) as threads:
        for file, missing in zip(listing.all_files, threads.map(without, listing.all_files), strict=True):
            if missing:
                raise BackfillRefused(
                    f"{place.location}/{file.path} has no column {' and no column '.join(missing)}. Nothing was started, because the run would leave its events out. "
                    "Files of another tool need, beside the fields of the record, `_key` (text: the key of the event) and `_event_time` (int64: milliseconds since "
                    '1970, UTC). With pandas: `df["_key"] = df["id"].astype(str)` and `df["_event_time"] = df["at"].astype("datetime64[ms, UTC]").astype("int64")`.'
                )


def external_input_notes(elsewhere: Mapping[str, Warehouse], wanted: Iterable[WantedDays]) -> dict[str, str]:
    """Return a note by category: its location, and days that are missing or incomplete.

    Days without events are not gaps: an output has no files for days without records.

    Raises:
        BackfillRefused: a file is empty; nothing was started.
    """
    notes: dict[str, str] = {}
    for input_days in wanted:
        name = input_days.category.name
        if name in elsewhere:
            days = check_coverage(elsewhere[name], [input_days], allow_missing=True).get(name)
            notes[name] = f"{name} is read from {elsewhere[name].location}" + (f"; {days}" if days else "")
    return notes
