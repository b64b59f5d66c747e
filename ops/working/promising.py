"""A worker's promises: after each checkpoint it tells the consumers of its outputs how far their event time is."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from concurrent.futures import Executor, Future, wait

import msgspec

from ...processors.kinds import Processor
from ...processors.watermarks import NEVER_MS
from ...transport.bus import Bus
from ...transport.errors import BusError
from ...transport.promises import WATERMARKS, Promise, outgoing

_LOG = logging.getLogger("penstock.worker")


class Promising:
    """Makes the promises of one worker, in the order in which it is asked to. One thread calls.

    Args:
        processor: whose outputs.
        bus: where they are.
        threads: makes them, one at a time, beside the loop.
    """

    def __init__(self, processor: Processor, bus: Bus, threads: Executor) -> None:
        self._processor = processor
        self._bus = bus
        self._threads = threads
        self._writer = bus.writer()
        self._outputs = [category.name for category in processor.outputs()]
        self._shards = processor.inputs()[0].buckets
        self._made: dict[int, Promise] = {}
        self._next: dict[int, Promise] = {}
        self._under_way: Future[None] | None = None

    def promise(self, number: int, low_ms: int, held_by: str, *, idle: bool) -> None:
        """Promise what holds when the outputs that were flushed before this call are on the bus.

        Args:
            number: the shard's bucket number.
            low_ms: its low watermark.
            held_by: what holds that back.
            idle: whether nobody should wait for it.
        """
        promised_ms = NEVER_MS if low_ms == NEVER_MS else self._processor.promised_ms(low_ms)
        promise = Promise(self._processor.name, number, self._shards, promised_ms, {}, low_ms, held_by, idle)
        if promise != self._made.get(number):
            self._made[number] = self._next[number] = promise

    def forget(self, numbers: Collection[int]) -> None:
        """Promise nothing more about shards that are others' now."""
        for number in numbers:
            self._made.pop(number, None)
            self._next.pop(number, None)

    def go_on(self) -> None:
        """Send what is to be promised, unless that is being done."""
        if self._under_way is not None and self._under_way.done():
            self._under_way.result()
            self._under_way = None
        if self._next and self._under_way is None:
            promises, self._next = list(self._next.values()), {}
            self._under_way = self._threads.submit(self._send, promises)

    def _send(self, promises: Sequence[Promise]) -> None:
        try:
            ends = {name: dict(self._bus.catalog.ends(name)) for name in self._outputs}
            self._writer.send(
                WATERMARKS.name, outgoing(msgspec.structs.replace(promise, ends=ends) for promise in promises)
            )
            self._writer.flush()
        except BusError as error:
            _LOG.info("Consumers' event time stands still for a moment: %s", error)

    def close(self) -> None:
        """Make the last promises."""
        while self._next or self._under_way is not None:
            wait([self._under_way] if self._under_way is not None else [])
            self.go_on()
        self._writer.close()
