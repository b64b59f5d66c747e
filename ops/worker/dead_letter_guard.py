"""Too many rejected events: the worker stops where setting aside goes on would drain the input into the dead letters."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any

from ...processors.declare.dead_letter_limit import Rejections
from ...processors.declare.dead_letters import dead_letters_of
from ...processors.declare.processor import Processor
from ...processors.shard.batches import AcceptedBatch, RejectedEvent
from ...transport.bus import Bus
from ...transport.codecs.by_category import Codecs
from ...transport.errors import BusError
from ...transport.messages import Bucket, RawBatch
from ...transport.offset_range import OffsetRange, read_offset_range

_LOG = logging.getLogger("penstock.worker")
LETTERS_WAIT_S = 15.0
"""How long a bus that says nothing is waited for when earlier dead letters are asked for."""


class DeadLetterGuard:
    """Follows the rejected events of one worker's buckets.

    Buckets without any cost nothing. At the first one, the dead letters say which events before it were rejected: so a worker that is
    started again, or takes a bucket over, goes on counting.

    Args:
        processor: whose limit.
        bus: where its dead letters are.
        codecs: read them.
    """

    def __init__(self, processor: type[Processor], bus: Bus, codecs: Codecs) -> None:
        self._limit = processor.dead_letter_limit
        self._looked_at = 0 if self._limit is None else max(self._limit.events, self._limit.consecutive)
        self._processor = processor
        self._letters = dead_letters_of(processor)
        self._bus = bus
        self._codecs = codecs
        self._buckets: dict[Bucket, Rejections] = {}

    def cut(self, batch: RawBatch, given: AcceptedBatch) -> AcceptedBatch:
        """Return what is taken of a batch up to where there are too many."""
        rejected = [refusal.at for refusal in given.rejected if not refusal.stops]
        found = self._of(batch).would_exceed_at(rejected) if rejected and self._limit is not None else None
        if found is None:
            return given
        stop, said = found
        refused = [refusal for refusal in given.rejected if refusal.at <= stop]
        refused[-1] = self._stopping(refused[-1], said)
        pairs = [(event, at) for event, at in zip(given.events, given.at, strict=True) if at < stop]
        return AcceptedBatch([event for event, _ in pairs], [at for _, at in pairs], refused)

    def note(self, batch: RawBatch, refused: Sequence[RejectedEvent]) -> RejectedEvent | None:
        """Note a batch that was processed; return the rejected event at which there were too many, None where there are not."""
        if self._limit is None or not (refused or batch.bucket in self._buckets):
            return None
        rejections = self._of(batch)
        at = rejections.exceeded_at(len(batch.messages), [refusal.at for refusal in refused])
        if at is None:
            return None
        return self._stopping(next(refusal for refusal in refused if refusal.at == at), rejections.description)

    def drop(self, buckets: Collection[Bucket]) -> None:
        """Forget buckets."""
        for bucket in buckets:
            self._buckets.pop(bucket, None)

    def _stopping(self, refusal: RejectedEvent, said: str) -> RejectedEvent:
        reason = (
            f"{said} could not be processed, more than `dead_letter_limit` allows. So many are seldom bad events: the codec, the record type or "
            f"the processor does not fit what is written. The last one: {refusal.reason}"
        )
        remedy = (
            f"Look at them with `penstock category tail {self._letters.name} --from 0`, mend what does not fit, and start it again. If so many are "
            f"to be expected, declare `dead_letter_limit = penstock.DeadLetterLimit(…)` on {self._processor.__name__}, or None for no limit."
        )
        return refusal._replace(reason=reason, remedy=remedy, stops=True)

    def _of(self, batch: RawBatch) -> Rejections:
        if batch.bucket not in self._buckets and self._limit is not None:
            begin = batch.messages[0].offset()
            self._buckets[batch.bucket] = Rejections(self._limit, begin, self._earlier(batch.bucket, begin))
        return self._buckets[batch.bucket]

    def _earlier(self, bucket: Bucket, before: int) -> list[int]:
        """Return the offsets of the latest events of a bucket that were set aside, as the newest dead letters say."""
        since = before - self._looked_at
        try:
            found = self._read()
        except BusError as error:
            _LOG.warning(
                "Earlier dead letters of %s cannot be read, and are not counted: %s", self._letters.name, error
            )
            return []
        return sorted(
            {one.offset for one in found if (one.category, one.bucket) == bucket and since <= one.offset < before}
        )

    def _read(self) -> list[Any]:
        catalog, name = self._bus.catalog, self._letters.name
        end = catalog.stable_ends(name)[0]
        start = max(catalog.describe(name).starts[0], end - self._looked_at)
        if start >= end:
            return []
        batches = read_offset_range(self._bus, OffsetRange(Bucket(name, 0), start, end), silence_limit_s=LETTERS_WAIT_S)
        codec = self._codecs.of(self._letters)
        return [letter for batch in batches for letter in codec.decode(batch.values()).events]
