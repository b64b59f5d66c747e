"""Watermarks of a worker's shards, published after each checkpoint for the consumers of its outputs."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from typing import NamedTuple

import msgspec

from ....processors.declare import Processor, plan_of
from ....processors.time import FOREVER_MS, NEVER_MS
from ....transport import Bus, BusError, Writer
from ....transport.tables import NO_ROUND, WATERMARKS, LoopRound, WatermarkStatement, watermark_messages
from ...shell import MachineClock, SystemClock
from .watermark_subscriber import REPEAT_EVERY_S

_LOG = logging.getLogger("penstock.worker")

FIRST_REPEAT_S = 1.0
"""When the first statement of an idle shard is repeated. A single statement cannot be dated."""

FLUSH_LIMIT_S = 10.0
"""How long `flush` waits for the bus to accept the last statements."""


class _Published(NamedTuple):
    """The newest statement of a shard without its date, when to repeat it if the shard is idle, and its date."""

    statement: WatermarkStatement
    repeat_s: float
    as_of: int


class WatermarkPublisher:
    """Publishes the watermarks of one worker's shards, in the order of the calls. One thread.

    A statement that fails is sent again, until it arrives or a later statement of its shard replaces it.

    Args:
        processor: produces the outputs.
        bus: contains them.
        threads: send statements one at a time, beside the loop.
        clock: determines when to repeat a statement; the machine's by default.
    """

    def __init__(self, processor: Processor, bus: Bus, threads: Executor, clock: MachineClock | None = None) -> None:
        plan = plan_of(processor)
        self._processor = processor
        self._bus = bus
        self._threads = threads
        self._clock = clock or SystemClock()
        self._writer: Writer | None = None
        self._outputs = [category.name for category in plan.outputs]
        self._shards = plan.inputs[0].buckets
        self._published: dict[int, _Published] = {}
        self._pending: dict[int, WatermarkStatement] = {}
        self._sending: Future[Sequence[WatermarkStatement]] | None = None
        self._is_failing = False

    def publish(
        self,
        number: int,
        low_ms: int,
        held_by: str,
        *,
        idle: bool,
        ended: bool = False,
        as_of: int = 0,
        idle_as_of: int = 0,
        round_: LoopRound = NO_ROUND,
    ) -> None:
        """Queue a statement that covers the outputs flushed before this call, if it is new or due to be repeated.

        Args:
            number: the shard's bucket number.
            low_ms: its low watermark.
            held_by: a description of the limit of that watermark.
            idle: whether consumers should ignore the shard.
            ended: see `WatermarkStatement`.
            as_of: see `WatermarkStatement`.
            idle_as_of: see `WatermarkStatement`.
            round_: the round of the shard's loop.
        """
        output_watermark_ms = NEVER_MS if low_ms == NEVER_MS else plan_of(self._processor).output_watermark_ms(low_ms)
        statement = WatermarkStatement(
            self._processor.name,
            number,
            self._shards,
            output_watermark_ms,
            {},
            low_ms,
            held_by,
            idle,
            ended=ended,
            round=round_,
        )
        is_quiet = idle or round_.cut_ms == FOREVER_MS
        published = self._published.get(number)
        is_new = published is None or published.statement != statement
        if not is_new and not (is_quiet and self._is_due(published, as_of)):
            return
        wait_s = FIRST_REPEAT_S if is_new else REPEAT_EVERY_S
        self._published[number] = _Published(statement, self._clock.monotonic_s() + wait_s, as_of)
        if is_quiet:
            statement = msgspec.structs.replace(statement, as_of=as_of, idle_as_of=idle_as_of if idle else 0)
        self._pending[number] = statement

    def _is_due(self, published: _Published | None, as_of: int) -> bool:
        return published is not None and as_of > published.as_of and self._clock.monotonic_s() >= published.repeat_s

    def drop(self, numbers: Collection[int]) -> None:
        """Publish nothing more about shards that other workers own now."""
        for number in numbers:
            self._published.pop(number, None)
            self._pending.pop(number, None)

    def send_pending(self) -> None:
        """Send the queued statements, unless earlier ones are still being sent; return at once."""
        if self._sending is not None and self._sending.done():
            self._queue_again(self._sending.result())
            self._sending = None
        if self._pending and self._sending is None:
            statements, self._pending = list(self._pending.values()), {}
            self._sending = self._threads.submit(self._send, statements)

    def _queue_again(self, unsent: Sequence[WatermarkStatement]) -> None:
        for statement in unsent:
            if statement.bucket in self._published:
                self._pending.setdefault(statement.bucket, statement)
        self._is_failing = bool(unsent)

    def _send(self, statements: Sequence[WatermarkStatement]) -> Sequence[WatermarkStatement]:
        """Send statements. Return those without a confirmation."""
        try:
            ends = {name: dict(self._bus.catalog.ends(name)) for name in self._outputs}
            self._writer = writer = self._writer or self._bus.writer()  # opened here, beside the loop
            writer.send(
                WATERMARKS.name,
                watermark_messages(msgspec.structs.replace(statement, ends=ends) for statement in statements),
            )
            writer.flush()
        except BusError as error:
            if not self._is_failing:
                _LOG.info("The consumers' event time pauses until the bus accepts watermarks again: %s", error)
            self._close_writer()  # after some errors, it sends nothing more
            return statements
        return ()

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(BusError):  # what it has not sent is sent again, or reported
                writer.close()

    def flush(self) -> None:
        """Send the queued statements, and wait until the bus has accepted them.

        An unreachable bus delays the caller by the limit at most. A failed statement is published when the shard is opened again, and a warning reports it.
        """
        while self._pending or self._sending is not None:
            if self._sending is not None:
                wait([self._sending], FLUSH_LIMIT_S)
                if not self._sending.done() or self._sending.result():
                    self._report_unsent()
                    break
            self.send_pending()

    def _report_unsent(self) -> None:
        _LOG.warning(
            "%s: its last watermarks were not published, because the bus did not accept them within %.0f s. No event is lost. Its "
            "consumers complete their windows, joins and timers after a worker of it has started again.",
            self._processor.name,
            FLUSH_LIMIT_S,
        )

    def close(self) -> None:
        """Send the last statements, as `flush` does. Closing the writer drops waiting messages."""
        self.flush()
        self._close_writer()
