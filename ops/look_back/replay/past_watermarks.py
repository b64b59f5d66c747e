"""Past upstream watermarks of a replay's inputs.

The category of watermarks is compacted. If only the newest ones are left, windows close later in a replay than they did originally.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager

from ....processors.declare import Processor, plan_of
from ....processors.shard import Offsets
from ....transport import Bucket, Bus
from ....transport.tables import WATERMARKS
from ...kernel import WatermarkSubscriber


class PastWatermarks:
    """Past watermarks of a processor's inputs.

    Args:
        upstream: all watermarks, read to the end; None without upstream watermarks.
        inputs: the names of the inputs whose watermarks their writers determine.
    """

    def __init__(self, upstream: WatermarkSubscriber | None, inputs: Collection[str] = ()) -> None:
        self._upstream = upstream
        self._inputs = inputs
        self._followed: set[Bucket] = set()

    def at(self, number: int, position: Offsets) -> dict[str, int]:
        """Return the watermark of each input that has one at a position (milliseconds since 1970, UTC)."""
        if self._upstream is None:
            return {}
        offsets = {Bucket(name, number): offset for name, offset in position.items() if name in self._inputs}
        for bucket in offsets.keys() - self._followed:
            self._upstream.begin(bucket)
            self._followed.add(bucket)
        return {bucket.category: self._upstream.at(bucket, offset).watermark_ms for bucket, offset in offsets.items()}


@contextmanager
def past_watermarks(processor: Processor, bus: Bus) -> Iterator[PastWatermarks]:
    """Read the past watermarks of a processor's inputs.

    Raises:
        BusUnreachable: they cannot be read to the end.
    """
    plan = plan_of(processor)
    if not plan.upstream_inputs or WATERMARKS.name not in bus.catalog.names():
        yield PastWatermarks(None)
        return
    with closing(WatermarkSubscriber(bus, plan.upstream_inputs)) as upstream:
        upstream.read_to_end()
        yield PastWatermarks(upstream, plan.upstream_inputs)
