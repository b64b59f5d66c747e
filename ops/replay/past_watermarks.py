"""What was promised about the inputs, as far as the bus still knows.

The category of promises is compacted: of old ones the bus may have dropped all but the last, and then windows are complete later in a
replay than they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from ...processors.declare.processor import Processor
from ...processors.shard.position import Offsets
from ...processors.time.watermarks import UpstreamWatermark
from ...transport.bus import Bus
from ...transport.errors import BusUnreachable
from ...transport.messages import Bucket
from ...transport.tables.upstream_watermarks import WATERMARKS
from ..worker.watermark_subscriber import WatermarkSubscriber

LOOKS = 1_000
"""How often it is looked whether all promises are read; each time waits for them a moment."""


class PastWatermarks:
    """The promises about a processor's inputs.

    Args:
        upstream: has read all of them; None where its watermark is not promised.
    """

    def __init__(self, upstream: WatermarkSubscriber | None) -> None:
        self._upstream = upstream
        self._begun: set[Bucket] = set()

    def known(self, number: int, position: Offsets) -> dict[str, int]:
        """Return up to where each input is complete for whoever has read its bucket up to a position (milliseconds since 1970, UTC)."""
        if self._upstream is None:
            return {}
        for bucket in {Bucket(name, number) for name in position} - self._begun:
            self._upstream.begin(bucket)
            self._begun.add(bucket)
        return {
            name: self._upstream.held(Bucket(name, number), offset).watermark_ms for name, offset in position.items()
        }


@contextmanager
def past_watermarks(processor: Processor, bus: Bus) -> Iterator[PastWatermarks]:
    """Give what was promised about a processor's inputs.

    Raises:
        BusUnreachable: it is not all read.
    """
    if not isinstance(processor.watermark, UpstreamWatermark) or WATERMARKS.name not in bus.catalog.names():
        yield PastWatermarks(None)
        return
    with closing(WatermarkSubscriber(bus)) as upstream:
        for _ in range(LOOKS):
            upstream.read()
            if upstream.is_read:
                break
        else:
            raise BusUnreachable(f"The promises in {WATERMARKS.name} were not read. Nothing was replayed; try again.")
        yield PastWatermarks(upstream)
