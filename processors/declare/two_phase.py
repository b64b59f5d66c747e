"""The declaration of aggregators in two phases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import DeclarationError
from ..validation import expect_types


@dataclass(frozen=True)
class TwoPhase:
    """Aggregate in the buckets of the input first, then combine the partials of each group in one place.

    Each worker writes one partial for each group, window and checkpoint, not one record for each event. A group with most of the events
    therefore uses all workers.

    Args:
        key: the key of the groups: the name of a field, a tuple of several names, or a function of the record. It differs from the key of the
            input, which determines the buckets.
        buckets: the number of buckets of the category with the partials.
        partials: the name of this category. Default: the name of the processor and `.partials`.

    Raises:
        DeclarationError: the number of buckets is less than 1.
    """

    key: str | tuple[str, ...] | Callable[[Any], str]
    buckets: int = 8
    partials: str | None = None

    def __post_init__(self) -> None:
        expect_types("TwoPhase(…)", self)
        if self.buckets < 1:
            raise DeclarationError(f"TwoPhase: `buckets={self.buckets}` must be at least 1.")
