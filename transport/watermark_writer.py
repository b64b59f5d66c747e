"""The watermark of a category that is written from outside: whoever writes it says how far it is complete."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import final

from ..processors.errors import PenstockError
from ..processors.time.timestamp_validation import shown
from .bus import Bus
from .internal_topics import ensure
from .kafka import KafkaBus, KafkaSettings
from .tables.upstream_watermarks import WATERMARKS, WatermarkStatement, outgoing, watermarks_on


class WatermarkWentBack(PenstockError):
    """A watermark was to be set to an earlier time than it has: consumers have gone by it already."""


@final
class WatermarkWriter:
    """Says how far a category is complete that is written from outside; a context manager, for one thread.

    Where several programs write a category, each is an injector of its own, and the least of what they promise counts.

    Args:
        bus: where the category is.
        category: its name.
        name: who promises.

    Raises:
        MissingCategory: there is none of that name.
    """

    def __init__(self, bus: Bus, category: str, name: str = "injector") -> None:
        self._bus = bus
        self._category = category
        self._name = f"{name}:{category}"
        bus.catalog.ends(category)
        ensure(bus, WATERMARKS)
        self._before = watermarks_on(bus).get((self._name, 0))
        self._writer = bus.writer()

    @staticmethod
    def on(
        kafka: str, category: str, name: str = "injector", settings: Mapping[str, str] | None = None
    ) -> WatermarkWriter:
        """Return an injector on a Kafka cluster.

        Args:
            kafka: a broker, as HOST:PORT.
            category: the category's name.
            name: who promises.
            settings: further settings of librdkafka.
        """
        return WatermarkWriter(KafkaBus(KafkaSettings(kafka, settings or {})), category, name)

    def promise(self, watermark_ms: int) -> None:
        """Promise that events which are written from now on are not earlier; durable on return.

        Args:
            watermark_ms: than this (milliseconds since 1970, UTC). What was written before, and flushed, may be.

        Raises:
            WatermarkWentBack: more was promised already.
        """
        if self._before is not None and self._before.watermark_ms > watermark_ms:
            raise WatermarkWentBack(
                f"{self._name} has promised {_shown(self._before.watermark_ms)} already, and a watermark never goes back to "
                f"{_shown(watermark_ms)}: consumers have completed what lies before it. Nothing was changed; what still comes from "
                "before is late there."
            )
        ends = {self._category: dict(self._bus.catalog.ends(self._category))}
        self._before = WatermarkStatement(self._name, 0, 1, watermark_ms, ends, watermark_ms, outside=True)
        self._writer.send(WATERMARKS.name, outgoing([self._before]))
        self._writer.flush()

    def close(self) -> None:
        """Let go of the connection; what was promised lasts, and holds consumers back until more is."""
        self._writer.close()

    def __enter__(self) -> WatermarkWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _shown(time_ms: int) -> str:
    return f"{shown(time_ms)} UTC"
