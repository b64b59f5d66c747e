"""The events of an input: split, decoded and accepted.

    messages --split--> one record each --as first written--> decode --deletions--> expect units, places --accept--> events, rejected messages

A step that an input does not need is absent.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....processors.declare import (
    AnyCategory,
    ColumnCodec,
    ColumnEvents,
    Decoded,
    Message,
    Processor,
    SplittingCodec,
    plan_of,
)
from ....processors.shard import (
    AcceptedBatch,
    KeyCheck,
    MisplacedEvent,
    RejectedEvent,
    accept_batch,
    expect_unit,
    with_deletions,
)
from ....processors.time import Times
from ....transport import RawBatch, returned, split_batch
from ....transport.codecs import Codecs
from ...shell import MachineClock
from ..shards import OpenShard

LEAST_COLUMNS = 200
"""The number of events from which columns are faster than records."""


class BatchIntake:
    """Decodes and accepts the batches of one input. One thread.

    Args:
        processor: reads the input.
        category: the input.
        codecs: decode it.
        keys: checks that events are in the bucket of their key.
        clock: returns the time.
    """

    def __init__(
        self, processor: Processor, category: AnyCategory, codecs: Codecs, keys: KeyCheck, clock: MachineClock
    ) -> None:
        plan = plan_of(processor)
        chain = plan.retry_chain
        self._chain = chain if chain is not None and chain.includes(category.name) else None
        source = category if self._chain is None else self._chain.source
        self.category = category
        self._source = source
        self._codec = codecs.of(source)
        self.divides = isinstance(self._codec, SplittingCodec)
        """Whether a message may have several events."""
        self._columns = None if chain else plan.stream_columns
        self._reads_deletions = plan.reads_tombstones(category)
        self._processor = processor
        self._keys = keys
        self._clock = clock

    def split(self, received: RawBatch) -> RawBatch:
        """Return a batch with a message for each record."""
        return split_batch(self._codec, received)

    def accept(self, shard: OpenShard, batch: RawBatch, arrivals_ms: Times) -> AcceptedBatch:
        """Decode a batch, and separate the events to process from the messages that the processor never sees."""
        messages: Sequence[Message] = batch.messages
        if self._chain is not None:
            messages = [returned(message, batch.bucket, self._chain).message for message in messages]
        decoded = self._decoded(messages)
        if self._reads_deletions:
            decoded = with_deletions(decoded, messages, self.category, self._processor)
        decoded = decoded._replace(events=self.category.batch_of(decoded.events))
        if not shard.position.get(self.category.name):  # 0 after the start of a worker before the first event
            now_ms = self._clock.now_ms()
            expect_unit(type(self._processor), str(batch.bucket), self.category, decoded.events, now_ms)
        return accept_batch(decoded, self.category, arrivals_ms, self._processor, self._misplaced(batch, decoded))

    def _decoded(self, messages: Sequence[Message]) -> Decoded:
        """Decode a batch, to columns if the processor uses them and the batch is worth it."""
        codec = self._codec
        if self._columns is not None and len(messages) >= LEAST_COLUMNS and isinstance(codec, ColumnCodec):
            columns = codec.decode_columns(messages, self._columns)
            if columns is not None:
                events = ColumnEvents(
                    self._source, columns, lambda begin, end: codec.decode(messages[begin:end]).events
                )
                return Decoded(events, range(len(messages)), [])
        return codec.decode(messages)

    def _misplaced(self, batch: RawBatch, decoded: Decoded) -> list[RejectedEvent]:
        found = self._keys.misplaced(self.category, batch.bucket.number, decoded.events)
        if found is None:
            return []
        event, keys = decoded.events[found.at], [message.key() for message in batch.messages]
        misplaced = MisplacedEvent(found, event, decoded.at[found.at], keys, self.category)
        return [misplaced.rejection(type(self._processor))]
