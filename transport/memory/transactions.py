"""The transaction coordinator: transactional ids, their epochs and open transactions.

A new writer, or an expired transaction, increases the epoch, ends the open transaction, and fences writers of older epochs.

A transaction ends with a marker in each of its buckets, and in the group of its positions. A broker that has just started may skip markers
(`skips_marker`): the coordinator treats the transaction as ended, and its messages stay open until the next marker of the same writer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..errors import Fenced
from ..messages import Position
from .groups import MemoryGroup
from .log import BucketLog, MessageState


@dataclass
class Transaction:
    """Messages and positions that are committed together or not at all."""

    writer: str
    began_ms: int
    limit_ms: int
    logs: list[BucketLog] = field(default_factory=list)
    groups: list[MemoryGroup] = field(default_factory=list)

    def touch(self, log: BucketLog) -> None:
        """Record that a bucket has messages of the transaction."""
        if all(log is not other for other in self.logs):
            self.logs.append(log)

    def add_positions(self, group: MemoryGroup, positions: Sequence[Position]) -> None:
        """Add positions of a group; they are undecided until the transaction ends."""
        group.add_undecided(self.writer, positions)
        self.groups.append(group)

    def end(self, outcome: MessageState, skips: Callable[[], bool]) -> None:
        """Commit or abort by markers, some of which may be skipped."""
        for log in self.logs:
            if not skips():
                log.mark(self.writer, outcome)
        for group in self.groups:
            if not skips():
                group.decide(self.writer, outcome)


@dataclass
class _Producer:
    epoch: int = 0
    transaction: Transaction | None = None


class Transactions:
    """All transactional ids of a cluster."""

    def __init__(self) -> None:
        self._producers: dict[str, _Producer] = {}
        self.skips_marker: Callable[[bool], bool] = lambda _: False
        """Returns whether to skip a marker; the argument is whether its transaction has expired."""

    def begin_epoch(self, identity: str) -> int:
        """Abort the open transaction of an earlier writer; return the new writer's epoch."""
        producer = self._producers.setdefault(identity, _Producer())
        self._abort(producer)
        producer.epoch += 1
        return producer.epoch

    def current(self, identity: str, epoch: int, now_ms: int, limit_ms: int) -> Transaction:
        """Return the open transaction of a writer; begin one if there is none."""
        producer = self._expect(identity, epoch)
        if producer.transaction is None:
            producer.transaction = Transaction(identity, now_ms, limit_ms)
        return producer.transaction

    def end(self, identity: str, epoch: int, outcome: MessageState) -> None:
        """Commit or abort the open transaction of a writer, if there is one."""
        producer = self._expect(identity, epoch)
        if producer.transaction is not None:
            producer.transaction.end(outcome, lambda: self.skips_marker(False))
            producer.transaction = None

    def expire(self, now_ms: int) -> None:
        """Abort expired transactions, and fence their writers."""
        for producer in self._producers.values():
            transaction = producer.transaction
            if transaction is not None and now_ms - transaction.began_ms >= transaction.limit_ms:
                self._abort(producer, has_expired=True)
                producer.epoch += 1

    def _expect(self, identity: str, epoch: int) -> _Producer:
        producer = self._producers[identity]
        if producer.epoch != epoch:
            raise Fenced(
                f"Transaction of {identity}: the epoch {epoch} of this writer is not the current epoch, {producer.epoch}: a later writer uses "
                "the identity, or the transaction has expired. It was aborted unless it was committed already, which the group's positions show."
            )
        return producer

    def _abort(self, producer: _Producer, *, has_expired: bool = False) -> None:
        if producer.transaction is not None:
            producer.transaction.end(MessageState.ABORTED, lambda: self.skips_marker(has_expired))
            producer.transaction = None
