"""The transaction coordinator: who writes under a transactional id, and what is open.

An epoch belongs to whoever opened a writer last. A new writer, or the time running out, ends what was open and makes older epochs
worthless: what they still ask for is refused.

A transaction ends with a mark in each bucket that it wrote to, and in the group whose positions it carries. Brokers that were just started may
leave marks out (`loses`): the coordinator takes the transaction for ended, and its messages stay open until the next mark of the same writer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..errors import Fenced
from ..messages import Position
from .groups import Group
from .log import BucketLog, MessageState


@dataclass
class Transaction:
    """Messages and positions that count together or not at all."""

    writer: str
    began_ms: int
    limit_ms: int
    logs: list[BucketLog] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)

    def touch(self, log: BucketLog) -> None:
        """Note that a bucket has messages of it."""
        if all(log is not other for other in self.logs):
            self.logs.append(log)

    def add_positions(self, group: Group, positions: Sequence[Position]) -> None:
        """Note positions that the group has when this is committed; until then they are undecided."""
        group.hold(self.writer, positions)
        self.groups.append(group)

    def end(self, fate: MessageState, is_lost: Callable[[], bool]) -> None:
        """Commit or abort, by marks of which some may be lost."""
        for log in self.logs:
            if not is_lost():
                log.mark(self.writer, fate)
        for group in self.groups:
            if not is_lost():
                group.decide(self.writer, fate)


@dataclass
class _Producer:
    epoch: int = 0
    transaction: Transaction | None = None


class Transactions:
    """All transactional ids of a cluster."""

    def __init__(self) -> None:
        self._producers: dict[str, _Producer] = {}
        self.loses: Callable[[bool], bool] = lambda _: False
        """Asked for each mark, with whether its transaction ran out of time: whether it is left out."""

    def begin_epoch(self, identity: str) -> int:
        """End what an earlier writer of the identity left open; return the new writer's epoch."""
        producer = self._producers.setdefault(identity, _Producer())
        self._abort(producer)
        producer.epoch += 1
        return producer.epoch

    def current(self, identity: str, epoch: int, now_ms: int, limit_ms: int) -> Transaction:
        """Return the open transaction of a writer; it begins here where there is none."""
        producer = self._expect(identity, epoch)
        if producer.transaction is None:
            producer.transaction = Transaction(identity, now_ms, limit_ms)
        return producer.transaction

    def end(self, identity: str, epoch: int, fate: MessageState) -> None:
        """Commit or abort what a writer has open; nothing where it has nothing."""
        producer = self._expect(identity, epoch)
        if producer.transaction is not None:
            producer.transaction.end(fate, lambda: self.loses(False))
            producer.transaction = None

    def expire(self, now_ms: int) -> None:
        """Abort what has been open for too long; its writer is refused from then on."""
        for producer in self._producers.values():
            open_one = producer.transaction
            if open_one is not None and now_ms - open_one.began_ms >= open_one.limit_ms:
                self._abort(producer, has_expired=True)
                producer.epoch += 1

    def _expect(self, identity: str, epoch: int) -> _Producer:
        producer = self._producers[identity]
        if producer.epoch != epoch:
            raise Fenced(
                f"Transaction of {identity}: the epoch {epoch} of this writer is not the current one, {producer.epoch}: a later writer uses the "
                "identity, or the transaction ran out of time. It is taken back unless it was committed already, which the group's positions tell."
            )
        return producer

    def _abort(self, producer: _Producer, *, has_expired: bool = False) -> None:
        if producer.transaction is not None:
            producer.transaction.end(MessageState.ABORTED, lambda: self.loses(has_expired))
            producer.transaction = None
