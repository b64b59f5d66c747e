"""The watermark of a category that an external program writes."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import final

from ..processors import PenstockError
from ..processors.time import format_time
from .bus import Bus
from .internal_topics import create_missing_categories
from .kafka import KafkaBus, KafkaSettings
from .tables import WATERMARKS, WatermarkStatement, watermark_messages, watermarks_on


class WatermarkWentBack(PenstockError):
    """A new watermark is earlier than the present one, which consumers have used already."""


@final
class WatermarkWriter:
    """Publishes the watermark of a category that an external program writes. A context manager, for one thread.

    If several programs write a category, each needs a watermark writer with its own name. The least watermark counts.

    Args:
        bus: the bus of the category.
        category: the category's name.
        name: the name of the watermark writer.

    Raises:
        MissingCategory: the category is missing.
    """

    def __init__(self, bus: Bus, category: str, name: str = "injector") -> None:
        self._bus = bus
        self._category = category
        self._name = f"{name}:{category}"
        bus.catalog.ends(category)
        create_missing_categories(bus, WATERMARKS)
        self._published = watermarks_on(bus).get((self._name, 0))
        self._writer = bus.writer()

    @staticmethod
    def on(
        kafka: str, category: str, name: str = "injector", settings: Mapping[str, str] | None = None
    ) -> WatermarkWriter:
        """Return a watermark writer on a Kafka cluster.

        Args:
            kafka: a broker, as HOST:PORT.
            category: the category's name.
            name: the name of the watermark writer.
            settings: further settings of librdkafka.
        """
        return WatermarkWriter(KafkaBus(KafkaSettings(kafka, settings or {})), category, name)

    def advance(self, watermark_ms: int) -> None:
        """Publish a watermark: no later event will be earlier than it. Durable on return.

        Args:
            watermark_ms: the watermark (milliseconds since 1970, UTC). Events that were flushed before may be earlier.

        Raises:
            WatermarkWentBack: the present watermark is later.
        """
        if self._published is not None and self._published.watermark_ms > watermark_ms:
            raise WatermarkWentBack(
                f"The watermark of {self._name} is {_shown(self._published.watermark_ms)} and cannot go back to {_shown(watermark_ms)}. Nothing was "
                "changed. Consumers have completed the windows before it, so earlier events are late."
            )
        ends = {self._category: dict(self._bus.catalog.ends(self._category))}
        self._published = WatermarkStatement(self._name, 0, 1, watermark_ms, ends, watermark_ms, outside=True)
        self._writer.send(WATERMARKS.name, watermark_messages([self._published]))
        self._writer.flush()

    def close(self) -> None:
        """Close the connection. The watermark stays, and consumers wait at it until a later one is published."""
        self._writer.close()

    def __enter__(self) -> WatermarkWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _shown(time_ms: int) -> str:
    return f"{format_time(time_ms)} UTC"
