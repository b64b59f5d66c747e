"""A worker's promises: after each checkpoint it tells the consumers of its outputs how far their event time is."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from concurrent.futures import Executor, Future, wait
from typing import NamedTuple

import msgspec

from ...processors.declare.processor import Processor
from ...processors.time.watermarks import NEVER_MS
from ...transport.bus import Bus
from ...transport.errors import BusError
from ...transport.tables.upstream_watermarks import WATERMARKS, WatermarkStatement, watermark_messages
from ..clock import Clock, SystemClock
from .watermark_age import BEAT_EVERY_S

_LOG = logging.getLogger("penstock.worker")

FIRST_BEAT_S = 1.0
"""After how long it is said again for the first time that a shard is idle: by itself, a first word cannot be dated."""

LAST_PROMISES_S = 5.0
"""How long a worker that ends waits for the bus to take its last promises."""


class _Said(NamedTuple):
    """What was said last of a shard, without its date; when it is to be repeated, if it is idle; and its date."""

    promise: WatermarkStatement
    again_s: float
    as_of: int


class WatermarkPublisher:
    """Makes the promises of one worker, in the order in which it is asked to. One thread calls.

    A promise that does not get through is sent again, until it does or a later one of its shard takes its place.

    Args:
        processor: whose outputs.
        bus: where they are.
        threads: makes them, one at a time, beside the loop.
        clock: tells when to repeat one; by default the machine's.
    """

    def __init__(self, processor: Processor, bus: Bus, threads: Executor, clock: Clock | None = None) -> None:
        self._processor = processor
        self._bus = bus
        self._threads = threads
        self._clock = clock or SystemClock()
        self._writer = bus.writer()
        self._outputs = [category.name for category in processor.outputs()]
        self._shards = processor.inputs()[0].buckets
        self._said: dict[int, _Said] = {}
        self._next: dict[int, WatermarkStatement] = {}
        self._under_way: Future[Sequence[WatermarkStatement]] | None = None
        self._fails = False

    def promise(self, number: int, low_ms: int, held_by: str, *, idle: bool, as_of: int = 0) -> None:
        """Promise what holds when the outputs that were flushed before this call are on the bus; said already, only if it is due again.

        Args:
            number: the shard's bucket number.
            low_ms: its low watermark.
            held_by: what holds that back.
            idle: whether nobody should wait for it.
            as_of: see `WatermarkStatement`.
        """
        output_watermark_ms = NEVER_MS if low_ms == NEVER_MS else self._processor.output_watermark_ms(low_ms)
        promise = WatermarkStatement(
            self._processor.name, number, self._shards, output_watermark_ms, {}, low_ms, held_by, idle
        )
        said = self._said.get(number)
        is_new = said is None or said.promise != promise
        if not is_new and not (idle and self._is_due(said, as_of)):
            return
        wait_s = FIRST_BEAT_S if is_new else BEAT_EVERY_S
        self._said[number] = _Said(promise, self._clock.monotonic_s() + wait_s, as_of)
        self._next[number] = msgspec.structs.replace(promise, as_of=as_of) if idle else promise

    def _is_due(self, said: _Said | None, as_of: int) -> bool:
        return said is not None and as_of > said.as_of and self._clock.monotonic_s() >= said.again_s

    def forget(self, numbers: Collection[int]) -> None:
        """Promise nothing more about shards that are others' now."""
        for number in numbers:
            self._said.pop(number, None)
            self._next.pop(number, None)

    def go_on(self) -> None:
        """Send what is to be promised, unless that is being done."""
        if self._under_way is not None and self._under_way.done():
            self._take_up_again(self._under_way.result())
            self._under_way = None
        if self._next and self._under_way is None:
            promises, self._next = list(self._next.values()), {}
            self._under_way = self._threads.submit(self._send, promises)

    def _take_up_again(self, unsent: Sequence[WatermarkStatement]) -> None:
        for promise in unsent:
            if promise.bucket in self._said:
                self._next.setdefault(promise.bucket, promise)
        self._fails = bool(unsent)

    def _send(self, promises: Sequence[WatermarkStatement]) -> Sequence[WatermarkStatement]:
        """Send promises; return those that are not known to have arrived."""
        try:
            ends = {name: dict(self._bus.catalog.ends(name)) for name in self._outputs}
            self._writer.send(
                WATERMARKS.name, watermark_messages(msgspec.structs.replace(promise, ends=ends) for promise in promises)
            )
            self._writer.flush()
        except BusError as error:
            if not self._fails:
                _LOG.info("Consumers' event time stands still until the bus takes promises again: %s", error)
            return promises
        return ()

    def close(self) -> None:
        """Make the last promises; one that does not get through is made when the shard is opened again.

        A bus that is away keeps nobody from ending: closing the writer ends what still waits for it.
        """
        while self._next or self._under_way is not None:
            if self._under_way is not None:
                wait([self._under_way], LAST_PROMISES_S)
                if not self._under_way.done() or self._under_way.result():
                    break
            self.go_on()
        self._writer.close()
