"""Inputs outside the warehouse: the output of an earlier batch run, or files of another tool.

Such files have no buckets and offsets. Their events are in one bucket in order of event time, like events that the run itself writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...processors.declare.categories import AnyCategory
from ..errors import BackfillRefused
from ..warehouse.archive_settings import settings_of
from ..warehouse.layout import folder_of
from ..warehouse.listing import Listing
from ..warehouse.warehouse import Warehouse
from .coverage import WantedDays, check_coverage

ExternalInputs = Mapping[str, Warehouse]
"""Locations by category name. The empty name is the location of all other categories."""


def external_inputs(places: ExternalInputs, read: Iterable[AnyCategory]) -> dict[str, Warehouse]:
    """Return the location of each category that is read from outside the warehouse.

    Args:
        places: the requested locations.
        read: the categories that the run reads and does not write itself.

    Raises:
        BackfillRefused: a requested category is not read, is not at its location, or is an archived category there.
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
    if not Listing.of(place, name).all_files:
        raise BackfillRefused(
            f"{place.location} has no {name}. Nothing was started. Check that the location contains category=…/ds=… folders, "
            "and that the run that writes there has ended."
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
