"""The transaction coordinator: who writes under a transactional id, and what is open.

An epoch belongs to whoever opened a writer last. A new writer, or the time running out, ends what was open and makes older epochs
worthless: what they still ask for is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..bus import Position
from ..errors import Fenced
from .groups import Group
from .log import BucketLog, Decision, MessageState


@dataclass
class Transaction:
    """Messages and positions that count together or not at all."""

    began_ms: int
    limit_ms: int
    decision: Decision = field(default_factory=Decision)
    logs: list[BucketLog] = field(default_factory=list)
    positions: list[tuple[Group, Sequence[Position]]] = field(default_factory=list)

    def touch(self, log: BucketLog) -> None:
        """Note that a bucket has messages of it."""
        if all(log is not other for other in self.logs):
            self.logs.append(log)

    def add_positions(self, group: Group, positions: Sequence[Position]) -> None:
        """Note positions that the group has when this is committed; until then they are undecided."""
        group.undecided.append((self.decision, positions))
        self.positions.append((group, positions))

    def end(self, fate: MessageState) -> None:
        """Commit or abort."""
        self.decision.fate = fate
        for log in self.logs:
            log.mark(self.decision)
        for group, positions in self.positions:
            group.decide(self.decision, positions)


@dataclass
class _Producer:
    epoch: int = 0
    transaction: Transaction | None = None


class Transactions:
    """All transactional ids of a cluster."""

    def __init__(self) -> None:
        self._producers: dict[str, _Producer] = {}

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
            producer.transaction = Transaction(now_ms, limit_ms)
        return producer.transaction

    def end(self, identity: str, epoch: int, fate: MessageState) -> None:
        """Commit or abort what a writer has open; nothing where it has nothing."""
        producer = self._expect(identity, epoch)
        if producer.transaction is not None:
            producer.transaction.end(fate)
            producer.transaction = None

    def expire(self, now_ms: int) -> None:
        """Abort what has been open for too long; its writer is refused from then on."""
        for producer in self._producers.values():
            open_one = producer.transaction
            if open_one is not None and now_ms - open_one.began_ms >= open_one.limit_ms:
                self._abort(producer)
                producer.epoch += 1

    def _expect(self, identity: str, epoch: int) -> _Producer:
        producer = self._producers[identity]
        if producer.epoch != epoch:
            raise Fenced(
                f"Transaction of {identity}: the epoch {epoch} of this writer is not the current one, {producer.epoch}: a later writer uses the "
                "identity, or the transaction ran out of time. It is taken back unless it was committed already, which the group's positions tell."
            )
        return producer

    def _abort(self, producer: _Producer) -> None:
        if producer.transaction is not None:
            producer.transaction.end(MessageState.ABORTED)
            producer.transaction = None
