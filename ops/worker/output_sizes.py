"""Outputs that the bus would refuse are refused before anything that follows from them is saved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...transport.bus import CERTAINLY_FITS_BYTES, Bus, Outgoing, size_of
from ...transport.errors import MessageRefused


class OutputSizes:
    """Knows how large a category's messages may be. One thread.

    Args:
        bus: where the categories are; it is asked once for each that gets large messages.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._largest: dict[str, int] = {}

    def fitting(self, category: str, messages: Iterable[Outgoing]) -> Iterator[Outgoing]:
        """Give messages on.

        Raises:
            MessageRefused: one is larger than its category takes.
        """
        for message in messages:
            if size_of(message) > CERTAINLY_FITS_BYTES:
                self._expect_fit(category, size_of(message))
            yield message

    def _expect_fit(self, category: str, size: int) -> None:
        if category not in self._largest:
            self._largest[category] = self._bus.catalog.largest(category)
        if size > self._largest[category]:
            raise MessageRefused(
                f"An output for {category} has {size:,} bytes, and that category takes {self._largest[category]:,}. Nothing of its checkpoint was "
                "saved. Make the record smaller; or raise max.message.bytes of the category and message.max.bytes in [kafka-settings]. Then start "
                "the worker again."
            )
