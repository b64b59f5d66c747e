"""What a processor gives, on its way to the bus: routed by type, encoded batch by batch; and dead letters."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ...processors.declare.categories import AnyCategory
from ...processors.declare.dead_letters import DeadLetter, dead_letters_of
from ...processors.declare.processor import Processor
from ...processors.declare.routes import Routes
from ...processors.errors import PenstockError
from ...processors.shard.batches import RejectedEvent
from ...transport.bus import RawBatch, outgoing
from ...transport.codecs.by_category import Codecs
from ..clock import Clock
from .checkpoint_executor import CheckpointExecutor
from .metrics import Metrics
from .open_shard import OpenShard

_LOG = logging.getLogger("penstock.worker")
LOGGED_LETTERS = 20
"""How many dead letters a worker logs one by one."""


class OutputRefused(PenstockError):
    """A processor gave something that its categories cannot take: fix the program."""


class OutputWriter:
    """Sends the outputs of one worker, and counts them.

    Args:
        processor: whose outputs.
        codecs: encode them.
        executing: sends them, or holds them back, as the checkpoints ask for.
        clock: tells when a dead letter was set aside.
        tally: where they are counted.
    """

    def __init__(
        self, processor: Processor, codecs: Codecs, executing: CheckpointExecutor, clock: Clock, tally: Metrics
    ) -> None:
        self._name = type(processor).__name__
        self._routes = Routes(type(processor))
        self._letters = dead_letters_of(type(processor))
        self._codecs = codecs
        self._executing = executing
        self._clock = clock
        self._tally = tally

    def send(self, shard: OpenShard, outputs: Sequence[Any]) -> None:
        """Send what a shard gave.

        Raises:
            OutputRefused: no category takes it.
        """
        if not outputs:
            return
        try:
            for category, records in self._routes.split(outputs):
                self._write(shard, category, records)
        except TypeError as error:
            raise OutputRefused(
                f"{error} Nothing of this batch was saved; mend {self._name} and start it again."
            ) from error
        self._tally.events_out += len(outputs)
        shard.events_out += len(outputs)

    def _write(self, shard: OpenShard, category: AnyCategory, records: Sequence[Any]) -> None:
        keys = [key.encode() for key in category.keys_of(records)]
        encoded = self._codecs.of(category).encode(records)
        self._tally.bytes_out += sum(map(len, encoded))
        self._executing.send(shard, category.name, outgoing(keys, encoded))

    def set_aside(self, shard: OpenShard, batch: RawBatch, refusal: RejectedEvent) -> None:
        """Send a message of a batch to the dead letters."""
        message = batch.messages[refusal.at]
        letter = DeadLetter(
            *batch.bucket, message.offset(), refusal.reason, message.key(), message.value(), self._clock.now_ms()
        )
        self._write(shard, self._letters, [letter])
        self._tally.dead_letters += 1
        if self._tally.dead_letters <= LOGGED_LETTERS:
            _LOG.warning(
                "%s at offset %d went to %s: %s", batch.bucket, message.offset(), self._letters.name, refusal.reason
            )
        if self._tally.dead_letters == LOGGED_LETTERS:
            _LOG.warning("Further dead letters are counted, not logged; they are in %s.", self._letters.name)
