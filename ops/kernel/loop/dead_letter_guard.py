"""The limit on dead letters: the worker stops before it drains the whole input into the dead letters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ....processors.declare import DeadLetterLimit, Processor, Rejections, dead_letters_of, plan_of
from ....processors.shard import AcceptedBatch, RejectedEvent
from ....transport import Bucket, Bus, BusError, OffsetRange, RawBatch, read_offset_range, returned
from ....transport.codecs import Codecs

_LOG = logging.getLogger("penstock.worker")
LETTERS_WAIT_S = 15.0
"""How long a read of earlier dead letters waits for a silent bus."""

Cut = Callable[[RawBatch, AcceptedBatch], AcceptedBatch]
"""Ends a batch before an event at which the worker stops, if there is one."""
Count = Callable[[RawBatch, Sequence[RejectedEvent]], RejectedEvent | None]
"""Counts the rejected events of a processed batch; returns the one that exceeded the limit, or None."""


class DeadLetterGuard:
    """Counts the rejected events of one worker's buckets.

    A bucket without rejected events costs nothing. At the first one, earlier rejected events are read from the dead letters, so a restarted
    worker or a new owner continues the count. A retry category contains only events that have failed, so an event that fails at its last attempt counts at its
    first place, among the events around it.

    Args:
        processor: produces the dead letters.
        limit: its limit.
        bus: contains its dead letters.
        codecs: decode them.
    """

    def __init__(self, processor: type[Processor], limit: DeadLetterLimit, bus: Bus, codecs: Codecs) -> None:
        self._limit = limit
        self._window = max(limit.events, limit.consecutive)
        self._processor = processor
        self._chain = plan_of(processor).retry_chain
        self._letters = dead_letters_of(processor)
        self._bus = bus
        self._codecs = codecs
        self._buckets: dict[Bucket, Rejections] = {}

    def checks_of(self, category: str) -> tuple[tuple[Cut, ...], Count]:
        """Return the cuts before the batches of an input are processed, and the count after that."""
        if self._chain is not None and self._chain.includes(category):
            return (), self._count_retried
        return (self._cut,), self._count

    def _cut(self, batch: RawBatch, accepted: AcceptedBatch) -> AcceptedBatch:
        """Return the part of a batch before the limit is exceeded, with a rejected event that stops the worker; or all of it."""
        rejected_at = [event.at for event in accepted.rejected if not event.stops]
        exceeded = self._of(batch).would_exceed_at(rejected_at) if rejected_at else None
        if exceeded is None:
            return accepted
        stop, description = exceeded
        rejected = [event for event in accepted.rejected if event.at <= stop]
        rejected[-1] = self._stopping(rejected[-1], description)
        pairs = [(event, at) for event, at in zip(accepted.events, accepted.at, strict=True) if at < stop]
        return AcceptedBatch(accepted.events.of([event for event, _ in pairs]), [at for _, at in pairs], rejected)

    def _count(self, batch: RawBatch, rejected: Sequence[RejectedEvent]) -> RejectedEvent | None:
        if not (rejected or batch.bucket in self._buckets):
            return None
        rejections = self._of(batch)
        at = rejections.exceeded_at(len(batch.messages), [event.at for event in rejected])
        if at is None:
            return None
        return self._stopping(next(event for event in rejected if event.at == at), rejections.description)

    def _count_retried(self, batch: RawBatch, rejected: Sequence[RejectedEvent]) -> RejectedEvent | None:
        """Count the events of a retry category at their first places."""
        origins = [returned(batch.messages[event.at], batch.bucket, self._chain).origin for event in rejected]
        if not origins:
            return None
        first = Bucket(origins[0].category, origins[0].bucket)
        if batch.bucket not in self._buckets:
            begin = origins[0].offset
            self._buckets[batch.bucket] = Rejections(self._limit, begin, self._earlier(first, begin), str(first))
        rejections = self._buckets[batch.bucket]
        found = rejections.exceeded_by(origin.offset for origin in origins)
        return None if found is None else self._stopping(rejected[found], rejections.description)

    def drop(self, buckets: Collection[Bucket]) -> None:
        """Drop the counts of buckets."""
        for bucket in buckets:
            self._buckets.pop(bucket, None)

    def _stopping(self, event: RejectedEvent, description: str) -> RejectedEvent:
        reason = (
            f"{description} could not be processed, more than `dead_letter_limit` allows. The cause is rarely the events: usually the codec, the "
            f"record type or the processor does not match the written data. The last error: {event.reason}"
        )
        remedy = (
            f"Inspect them with `penstock dead-letters show {self._processor.name} --limit 10`, fix the cause, and start the worker again. If so many are "
            f"normal, declare `dead_letter_limit = penstock.DeadLetterLimit(…)` on {self._processor.__name__}, or None for no limit."
        )
        return event._replace(reason=reason, remedy=remedy, stops=True)

    def _of(self, batch: RawBatch) -> Rejections:
        if batch.bucket not in self._buckets:
            begin = batch.messages[0].offset()
            self._buckets[batch.bucket] = Rejections(self._limit, begin, self._earlier(batch.bucket, begin))
        return self._buckets[batch.bucket]

    def _earlier(self, bucket: Bucket, before: int) -> list[int]:
        """Return the offsets of a bucket's latest rejected events, from the newest dead letters."""
        since = before - self._window
        try:
            found = self._read()
        except BusError as error:
            _LOG.warning("Earlier dead letters in %s cannot be read and are not counted: %s", self._letters.name, error)
            return []
        offsets = {letter.offset for letter in found if (letter.category, letter.bucket) == bucket}
        return sorted(offset for offset in offsets if since <= offset < before)

    def _read(self) -> list[Any]:
        catalog, name = self._bus.catalog, self._letters.name
        end = catalog.stable_ends(name)[0]
        start = max(catalog.describe(name).starts[0], end - self._window)
        if start >= end:
            return []
        batches = read_offset_range(self._bus, OffsetRange(Bucket(name, 0), start, end), silence_limit_s=LETTERS_WAIT_S)
        codec = self._codecs.of(self._letters)
        return [letter for batch in batches for letter in codec.decode(batch.messages).events]
