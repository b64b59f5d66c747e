"""Outputs and dead letters of a worker: routed by type, encoded in batches, sent to the bus."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ....processors import DeclarationError, PenstockError, counted, user_traceback
from ....processors.declare import (
    AnyCategory,
    ColumnOutputs,
    Destination,
    MessageHeaders,
    Processor,
    RecordCheck,
    Routes,
    Sink,
    Tombstone,
    dead_letters_of,
    expect_unit_of_outputs,
    plan_of,
)
from ....processors.shard import RejectedEvent
from ....processors.time import YEAR_1990_MS
from ....transport import CERTAINLY_FITS_BYTES, Bucket, Outgoing, RawBatch, Returned, returned, size_of, waiting_message
from ....transport.codecs import Codecs, dead_letter, encode_outputs
from ...shell import MachineClock
from ..shards import OpenShard
from ..telemetry import Metrics, with_trace_contexts
from .checkpoint_executor import CheckpointExecutor
from .output_sizes import OutputSizes, OutputTooLarge

_UNENCODABLE = (TypeError, ValueError, OverflowError, DeclarationError)
"""Errors of routing and encoding an output."""
_LOG = logging.getLogger("penstock.worker")
LOGGED_LETTERS = 20
"""The number of dead letters that a worker logs one by one."""


class OutputRefused(PenstockError):
    """A processor returned a record that none of its outputs accepts: fix the program.

    Args:
        processor: the name of the processor's class.
        reason: why.
        at: the index of the output; None if no single output is the reason.
        place: the event of the output, or the batch.
    """

    def __init__(self, processor: str, reason: str, at: int | None = None, place: str = "") -> None:
        where = f"{place}: " if place else ""
        super().__init__(f"{where}{reason} Nothing of this batch was saved. Fix {processor} and start it again.")
        self._processor, self._reason, self.at = processor, reason, at

    def of(self, place: str) -> OutputRefused:
        """Return the same error with the place of the event."""
        return OutputRefused(self._processor, self._reason, self.at, place)


class OutputWriter:
    """Sends the outputs of one worker, and counts them.

    Args:
        processor: produces the outputs.
        codecs: encode them.
        executor: sends them, or keeps them for their step of a checkpoint.
        sizes: the limits of their categories.
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
        sizes: OutputSizes,
        clock: MachineClock,
        metrics: Metrics,
        record_sent: Callable[[int, AnyCategory, Sequence[Any]], None],
    ) -> None:
        plan = plan_of(processor)
        self._processor = type(processor)
        self._name = type(processor).__name__
        self._routes = Routes(type(processor))
        self._with_known_unit: set[tuple[int, str]] = set()
        """The shards and categories whose first event times have been checked."""
        self._letters = dead_letters_of(type(processor))
        self._chain = plan.retry_chain
        self._codecs = codecs
        self._executor = executor
        self._sizes = sizes
        self._clock = clock
        self._metrics = metrics
        self._record_sent = record_sent
        self._checks = {sink.name: RecordCheck(sink.record) for sink in plan.sinks}

    def send(
        self, shard: OpenShard, outputs: Sequence[Any], contexts: Sequence[MessageHeaders | None] | None = None
    ) -> None:
        """Send outputs of a shard.

        Args:
            shard: the shard.
            outputs: records, in order.
            contexts: the trace context of each output; None if no output has one.

        Raises:
            OutputRefused: no category accepts one of them.
            OutputTooLarge: one of them exceeds the size limit of its category.
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
        except OutputTooLarge as error:
            numbered = self._routes.split_with(outputs, range(len(outputs)))
            [at] = [numbers[error.at] for category, _, numbers in numbered if category.name == error.category]
            raise OutputTooLarge(
                f"{self._name} cannot write an output. {error} Its checkpoint was not saved.", error.category, at
            ) from error
        except _UNENCODABLE as error:
            raise self._refused(list(outputs), error) from error
        self._metrics.events_out += len(outputs)
        shard.events_out += len(outputs)

    def _refused(self, outputs: Sequence[Any], error: Exception) -> OutputRefused:
        """Return the error about the first of some outputs that cannot be encoded."""
        for at, output in enumerate(outputs):
            try:
                self._routes.expect([output])
                for category, records in self._routes.split([output]):
                    if not isinstance(category, Sink):
                        list(encode_outputs(category, self._codecs.of(category), records).messages)
            except _UNENCODABLE as refused:
                return OutputRefused(self._name, _as_sentence(refused), at)
        return OutputRefused(self._name, _as_sentence(error))

    def _write(
        self,
        shard: OpenShard,
        category: Destination,
        records: Sequence[Any],
        contexts: Sequence[MessageHeaders | None] | None = None,
    ) -> None:
        if isinstance(category, Sink):
            rows = [record for record in records if type(record) is not Tombstone]
            self._checks[category.name].expect(rows)
            self._checks[category.name].expect_text(rows)
            self._executor.hold_rows(shard, category.name, records)
            return
        self._expect_unit(shard, category, records)
        encoded = encode_outputs(category, self._codecs.of(category), records)
        if encoded.largest_value > CERTAINLY_FITS_BYTES:
            encoded = encoded._replace(messages=self._fitting(category, encoded.messages))
        self._metrics.bytes_out += encoded.value_bytes
        self._record_sent(shard.number, category, records)
        messages = encoded.messages if contexts is None else with_trace_contexts(encoded.messages, contexts)
        self._executor.send(shard, category.name, messages)

    def _fitting(self, category: AnyCategory, messages: Iterator[Outgoing]) -> Iterator[Outgoing]:
        """Return messages if all of them fit. A dead letter always does."""
        return messages if category is self._letters else iter([*self._sizes.expect_messages(category.name, messages)])

    def _expect_unit(self, shard: OpenShard, category: AnyCategory, records: Sequence[Any]) -> None:
        """Check the unit of the first event times that a shard writes to a category: at its start, or beside inputs with dates after 1990.

        Raises:
            InvalidRecord: they look like another unit than milliseconds.
        """
        if (shard.number, category.name) in self._with_known_unit or category is self._letters:
            return
        is_start = not any(shard.saved_position.values())
        if is_start or shard.operator.time.low_ms >= YEAR_1990_MS:
            expect_unit_of_outputs(self._processor, category, records, self._clock.now_ms())
            self._with_known_unit.add((shard.number, category.name))

    def set_aside(self, shard: OpenShard, batch: RawBatch, event: RejectedEvent) -> None:
        """Send a rejected message of a batch to the category of its next attempt, or to the dead letters."""
        original = returned(batch.messages[event.at], batch.bucket, self._chain)
        waiting = waiting_message(original, batch.bucket.number, event.reason) if event.retried_in else None
        limit = self._sizes.exceeded(event.retried_in, size_of(waiting)) if waiting else None
        if limit is not None:
            reason = f"{event.reason}; not tried again, because it exceeds the {limit:,} bytes that {event.retried_in} accepts"
            self._write_letter(shard, original, event._replace(reason=reason))
        elif waiting is not None:
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


def _as_sentence(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text if text.endswith((".", "!", "?")) else f"{text}."
