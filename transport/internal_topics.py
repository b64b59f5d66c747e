"""The categories that Penstock itself keeps on a bus: whoever needs one first creates it."""

from __future__ import annotations

from contextlib import suppress

from .bus import Bus
from .category_spec import CategorySpec
from .errors import CategoryExists


def ensure(bus: Bus, *specs: CategorySpec) -> None:
    """Create the categories of these that are missing."""
    there = set(bus.catalog.names())
    for spec in specs:
        if spec.name not in there:
            with suppress(CategoryExists):  # another process may have been first
                bus.catalog.create(spec)
