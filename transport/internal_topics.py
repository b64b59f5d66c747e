"""Creation of the categories that Penstock uses itself, on first use."""

from __future__ import annotations

from contextlib import suppress

from .bus import Bus
from .category_spec import CategorySpec
from .errors import CategoryExists


def create_missing_categories(bus: Bus, *specs: CategorySpec) -> None:
    """Create the missing categories."""
    existing = set(bus.catalog.names())
    for spec in specs:
        if spec.name not in existing:
            with suppress(CategoryExists):  # another process has just created it
                bus.catalog.create(spec)
