"""Outputs and dead letters of a worker: routed by type, encoded in batches, sent to the bus."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ...processors.declare.categories import AnyCategory
from ...processors.declare.codecs import Headers
from ...processors.declare.column_outputs import ColumnOutputs
from ...processors.declare.dead_letters import dead_letters_of
from ...processors.declare.processor import Destination, Processor
from ...processors.declare.record_check import RecordCheck
from ...processors.declare.routes import Routes
from ...processors.declare.sinks import Sink
from ...processors.declare.tombstones import Tombstone
from ...processors.errors import PenstockError
from ...processors.shard.batches import RejectedEvent
from ...processors.user_code import user_traceback
from ...processors.wording import counted
from ...transport.codecs.by_category import Codecs, encode_outputs
from ...transport.codecs.dead_letters import dead_letter
from ...transport.messages import Bucket, RawBatch
from ...transport.retry_messages import Returned, returned, waiting_message
from ..clock import Clock
from .checkpoint_executor import CheckpointExecutor
from .metrics import Metrics
from .open_shard import OpenShard
from .trace_context import with_trace_contexts

_LOG = logging.getLogger("penstock.worker")
LOGGED_LETTERS = 20
"""The number of dead letters that a worker logs one by one."""


class OutputRefused(PenstockError):
    """A processor returned a record that none of its outputs accepts: fix the program."""


class OutputWriter:
    """Sends the outputs of one worker, and counts them.

    Args:
        processor: produces the outputs.
        codecs: encode them.
        executor: sends them, or keeps them for their step of a checkpoint.
        clock: dates dead letters.
        metrics: counts them.
        record_sent: called with outputs of a shard before they are sent.
    """

    def __init__(
        self,
        processor: Processor,
        codecs: Codecs,
        executor: CheckpointExecutor,
        *,
        clock: Clock,
        metrics: Metrics,
        record_sent: Callable[[int, AnyCategory, Sequence[Any]], None],
    ) -> None:
        self._name = type(processor).__name__
        self._routes = Routes(type(processor))
        self._letters = dead_letters_of(type(processor))
        self._codecs = codecs
        self._executor = executor
        self._clock = clock
        self._metrics = metrics
        self._record_sent = record_sent
        self._checks = {sink.name: RecordCheck(sink.record) for sink in processor.sinks()}

    def send(self, shard: OpenShard, outputs: Sequence[Any], contexts: Sequence[Headers | None] | None = None) -> None:
        """Send outputs of a shard.

        Args:
            shard: the shard.
            outputs: records, in order.
            contexts: the trace context of each output; None if no output has one.

        Raises:
            OutputRefused: no category accepts one of them.
        """
        if not outputs:
            return
        try:
            if isinstance(outputs, ColumnOutputs) and contexts is None:
                self._write(shard, outputs.category, outputs)
            elif contexts is None:
                for category, records in self._routes.split(outputs):
                    self._write(shard, category, records)
            else:
                for category, records, own in self._routes.split_with(outputs, contexts):
                    self._write(shard, category, records, own)
        except TypeError as error:
            raise OutputRefused(
                f"{error} Nothing of this batch was saved. Fix {self._name} and start it again."
            ) from error
        self._metrics.events_out += len(outputs)
        shard.events_out += len(outputs)

    def _write(
        self,
        shard: OpenShard,
        category: Destination,
        records: Sequence[Any],
        contexts: Sequence[Headers | None] | None = None,
    ) -> None:
        if isinstance(category, Sink):
            self._checks[category.name].expect([record for record in records if type(record) is not Tombstone])
            self._executor.hold_rows(shard, category.name, records)
            return
        encoded = encode_outputs(category, self._codecs.of(category), records)
        self._metrics.bytes_out += encoded.value_bytes
        self._record_sent(shard.number, category, records)
        messages = encoded.messages if contexts is None else with_trace_contexts(encoded.messages, contexts)
        self._executor.send(shard, category.name, messages)

    def set_aside(self, shard: OpenShard, batch: RawBatch, event: RejectedEvent) -> None:
        """Send a rejected message of a batch to the category of its next attempt, or to the dead letters."""
        original = returned(batch.messages[event.at], batch.bucket)
        if event.retried_in:
            waiting = waiting_message(original, batch.bucket.number, event.reason)
            self._executor.send(shard, event.retried_in, [waiting])
            self._metrics.retries += 1
        else:
            self._write_letter(shard, original, event)

    def _write_letter(self, shard: OpenShard, original: Returned, event: RejectedEvent) -> None:
        message, origin = original
        attempts = origin.attempts + 1
        reason = f"after {counted(attempts, 'attempt')}: {event.reason}" if attempts > 1 else event.reason
        traceback = "" if event.cause is None else user_traceback(event.cause)
        bucket = Bucket(origin.category, origin.bucket)
        letter = dead_letter(message, bucket, reason, self._clock.now_ms(), traceback)
        self._write(shard, self._letters, [letter])
        self._metrics.dead_letters += 1
        if self._metrics.dead_letters <= LOGGED_LETTERS:
            _LOG.warning("%s at offset %d went to %s: %s", bucket, message.offset(), self._letters.name, reason)
        if self._metrics.dead_letters == LOGGED_LETTERS:
            _LOG.warning("Further dead letters are counted, but not logged. Find them in %s.", self._letters.name)
