"""The watermark of a category that is written from outside: whoever writes it says how far it is complete."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timezone

from ..processors.errors import PenstockError
from .bus import Bus
from .promises import WATERMARKS, Promise, ensure_watermarks, outgoing, promises_on


class WatermarkWentBack(PenstockError):
    """A watermark was to be set to an earlier time than it has: consumers have gone by it already."""


def inject(bus: Bus, category: str, watermark_ms: int, injector: str) -> None:
    """Promise that all events of a category before a time are on the bus; durable on return.

    Args:
        bus: where the category is.
        category: its name.
        watermark_ms: the time (milliseconds since 1970, UTC): events that are written from now on are not earlier.
        injector: who promises. Where several programs write a category each promises for itself, and the least counts.

    Raises:
        MissingCategory: there is none of that name.
        WatermarkWentBack: the injector has promised more already.
    """
    ends = dict(bus.catalog.ends(category))
    ensure_watermarks(bus)
    promiser = f"{injector}:{category}"
    before = promises_on(bus).get((promiser, 0))
    if before is not None and before.watermark_ms > watermark_ms:
        raise WatermarkWentBack(
            f"{injector} has promised {_shown(before.watermark_ms)} for {category}, and a watermark never goes back to "
            f"{_shown(watermark_ms)}: consumers have completed what lies before it. Nothing was changed; what still comes from before "
            "is late there."
        )
    with closing(bus.writer()) as writer:
        promise = Promise(promiser, 0, 1, watermark_ms, {category: ends}, watermark_ms)
        writer.send(WATERMARKS.name, outgoing([promise]))
        writer.flush()


def _shown(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
