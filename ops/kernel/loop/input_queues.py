"""Polled batches on their way to the shards.

    polled --OffsetLimits--> --RetryDelays--> due --InputMerger--> batches in order of event time

A processor without retries has no delays, and one with a single input is not merged.
"""

from __future__ import annotations

from collections.abc import Collection

from ....processors.declare import Processor, plan_of
from ....transport import Bucket, Polled, Position, Reader
from ...shell import MachineClock
from ..shards import OpenShard
from .input_merger import InputMerger
from .offset_limits import OffsetLimits
from .retry_delays import RetryDelays


class InputQueues:
    """The batches of a worker that are polled and not processed yet. One thread.

    Args:
        processor: declares the inputs.
        limits: where the run ends.
        clock: determines which events are due.
    """

    def __init__(self, processor: type[Processor], limits: OffsetLimits, clock: MachineClock) -> None:
        plan = plan_of(processor)
        chain, sources = plan.retry_chain, [category.name for category in plan.sources]
        self._limits = limits
        self._delays = None if chain is None else RetryDelays(chain.waits_ms(), clock)
        self._merger = InputMerger(sources, clock) if len(sources) > 1 else None

    def arranged(self, polled: Polled, reader: Reader) -> Polled:
        """Queue a poll; return what can be processed now. Buckets with long queues are paused."""
        polled = self._limits.applied(polled)
        if self._delays is not None:
            polled = self._delays.due(polled)
            self._delays.limit_queues(reader)
        if self._merger is not None:
            polled = self._merger.merge(polled)
            self._merger.limit_queues(reader)
        return polled

    def catch_up(self, shard: OpenShard, start_positions: Collection[Position]) -> None:
        """Let the inputs of a shard whose state is behind its outputs reach these outputs together."""
        if self._merger is not None and shard.is_state_only:
            self._merger.catch_up(start_positions, shard.state_only_until)

    def is_waiting(self, bucket: Bucket) -> bool:
        """Return whether the next event of a retry bucket is read, and not due yet; True for a processor without retries."""
        return self._delays is None or self._delays.is_waiting(bucket)

    def drop(self, buckets: Collection[Bucket]) -> None:
        """Drop the queues of buckets, which are read again here or by another worker."""
        for queues in (self._merger, self._delays):
            if queues is not None:
                queues.drop(buckets)
