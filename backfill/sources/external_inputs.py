"""Inputs that are not taken from the warehouse, but from what an earlier batch run, or another tool, has written elsewhere.

Such files say nothing of buckets and offsets: their events lie in one bucket, where their event time says, as those do that are given in the
run itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...processors.declare.categories import AnyCategory
from ..errors import BackfillRefused
from ..warehouse.archive_settings import settings_of
from ..warehouse.layout import folder_of
from ..warehouse.listing import Listing
from ..warehouse.warehouse import Warehouse
from .coverage import WantedDays, covered

ExternalInputs = Mapping[str, Warehouse]
"""Where a category is taken from, by its name; by an empty name, all that have no other place."""


def taken(places: ExternalInputs, read: Iterable[AnyCategory]) -> dict[str, Warehouse]:
    """Return from where each category is taken that is not read from the warehouse.

    Args:
        places: what was asked for.
        read: the categories that the run reads and does not make itself.

    Raises:
        BackfillRefused: a category is asked for that is not read, is not where it is said to be, or is an archived one there.
        WarehouseError: one of the places.
    """
    names = {category.name for category in read}
    unread = sorted(places.keys() - names - {""})
    if unread:
        raise BackfillRefused(
            f"An input is named for {', '.join(unread)}, which no processor of this run reads from outside it. Nothing was started. It reads "
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
            f"{place.location}/{folder_of(name)} is an archive, whose events have their places on the bus. Nothing was started. Name it with "
            "--warehouse, so that they are read in their order."
        )
    if not Listing.of(place, name).all_files:
        raise BackfillRefused(
            f"{place.location} has nothing of {name}. Nothing was started. Look whether the location is the one with category=…/ds=… below it, "
            "and whether the run that was to write there has ended."
        )


def said_of(elsewhere: Mapping[str, Warehouse], wanted: Iterable[WantedDays]) -> dict[str, str]:
    """Return by category from where it is taken, and what is to be said of its days.

    Days without events are no gaps there: an output has none where nothing was written.

    Raises:
        BackfillRefused: a file is empty; nothing was started.
    """
    said: dict[str, str] = {}
    for one in wanted:
        name = one.category.name
        if name in elsewhere:
            days = covered(elsewhere[name], [one], allow_missing=True).get(name)
            said[name] = f"{name} is taken from {elsewhere[name].location}" + (f"; {days}" if days else "")
    return said
