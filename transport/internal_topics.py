"""Creation of the categories that Penstock uses itself, on first use."""

from __future__ import annotations

from contextlib import suppress

from .bus import Bus
from .category_spec import CategorySpec
from .errors import CategoryExists


def create_missing_categories(bus: Bus, *specs: CategorySpec) -> None:
    """Create those of the categories that are missing."""
    existing = set(bus.catalog.names())
    for spec in specs:
        if spec.name not in existing:
            with suppress(CategoryExists):  # another process created it meanwhile
                bus.catalog.create(spec)
