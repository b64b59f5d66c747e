"""Outputs and dead letters of a worker: routed by type, encoded in batches, sent to the bus."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ...processors.declare.categories import AnyCategory
from ...processors.declare.codecs import Headers
from ...processors.declare.dead_letters import dead_letters_of
from ...processors.declare.processor import Processor
from ...processors.declare.routes import Routes
from ...processors.errors import PenstockError
from ...processors.shard.batches import RejectedEvent
from ...processors.user_code import user_traceback
from ...transport.codecs.by_category import Codecs, encode_outputs
from ...transport.codecs.dead_letters import dead_letter
from ...transport.messages import RawBatch
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
    """

    def __init__(
        self, processor: Processor, codecs: Codecs, executor: CheckpointExecutor, clock: Clock, metrics: Metrics
    ) -> None:
        self._name = type(processor).__name__
        self._routes = Routes(type(processor))
        self._letters = dead_letters_of(type(processor))
        self._codecs = codecs
        self._executor = executor
        self._clock = clock
        self._metrics = metrics

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
            if contexts is None:
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
        category: AnyCategory,
        records: Sequence[Any],
        contexts: Sequence[Headers | None] | None = None,
    ) -> None:
        encoded = encode_outputs(category, self._codecs.of(category), records)
        self._metrics.bytes_out += encoded.value_bytes
        messages = encoded.messages if contexts is None else with_trace_contexts(encoded.messages, contexts)
        self._executor.send(shard, category.name, messages)

    def set_aside(self, shard: OpenShard, batch: RawBatch, event: RejectedEvent) -> None:
        """Send a rejected message of a batch to the dead letters."""
        message = batch.messages[event.at]
        traceback = "" if event.cause is None else user_traceback(event.cause)
        letter = dead_letter(message, batch.bucket, event.reason, self._clock.now_ms(), traceback)
        self._write(shard, self._letters, [letter])
        self._metrics.dead_letters += 1
        if self._metrics.dead_letters <= LOGGED_LETTERS:
            _LOG.warning(
                "%s at offset %d went to %s: %s", batch.bucket, message.offset(), self._letters.name, event.reason
            )
        if self._metrics.dead_letters == LOGGED_LETTERS:
            _LOG.warning("Further dead letters are counted, but not logged. Find them in %s.", self._letters.name)
