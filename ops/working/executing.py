"""The steps of a checkpoint, performed: the one place where outputs, states and positions become durable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

from ...processors.dead_letters import dead_letters_of
from ...processors.kinds import Processor
from ...state.checkpoints import Step, steps_of
from ...state.store import Outbox
from ...transport.bus import Bus, Outgoing, Position, Reader, TransactionalWriter, Writer
from ...transport.errors import DeliveryFailed
from .changelog import changelog_of, logged
from .shard import Sealed, Shard

TRANSACTION_LIMIT_S = 10.0
"""How much longer than a checkpoint's interval a transaction may stay open before the bus ends it."""


class Executing:
    """Performs steps for one worker, in the order it is asked to.

    Args:
        processor: whose outputs.
        bus: where they go.
        reader: the worker's membership in its group.
        identity: by which its transactions are known.
    """

    def __init__(self, processor: Processor, bus: Bus, reader: Reader, identity: str) -> None:
        steps = steps_of(type(processor))
        self._bus = bus
        self._reader = reader
        self._processor = processor.name
        self._identity = self._transactional_id(identity)
        changelog = changelog_of(type(processor))
        self._changelog = "" if changelog is None else changelog.name
        outputs = [category.name for category in (*processor.outputs(), dead_letters_of(type(processor)))]
        self.written = [*outputs, self._changelog] if self._changelog else outputs
        self.timeout_s = processor.checkpoint.time.total_seconds() + TRANSACTION_LIMIT_S
        self._holds = Step.SEND_OUTPUTS in steps or Step.SAVE_WITH_OUTBOX in steps
        self._transactions = self._open_transactions() if Step.COMMIT_TRANSACTION in steps else None
        self._writer: Writer = self._transactions or bus.writer()
        self._waiting: list[tuple[str, list[Outgoing]]] | None = None

    def _transactional_id(self, worker: str) -> str:
        return f"{self._processor}.{worker}"

    def end_left_open(self, worker: str) -> None:
        """End what another worker of the processor left open, which is gone; one that is not is fenced, and begins again. Any thread."""
        self._bus.transactional_writer(
            self._transactional_id(worker), self._reader, self.timeout_s, self.written
        ).close()

    def _open_transactions(self) -> TransactionalWriter:
        return self._bus.transactional_writer(self._identity, self._reader, self.timeout_s, self.written)

    def send(self, shard: Shard, category: str, messages: Iterable[Outgoing]) -> None:
        """Send outputs, or hold them back, as the row says; those that a checkpoint under way is not about wait for its end."""
        if self._holds:
            shard.held.extend((category, key, value) for key, value, _ in messages)
        elif self._waiting is not None:
            self._waiting.append((category, list(messages)))
        else:
            self._writer.send(category, messages)

    def begin(self) -> None:
        """Keep what is sent from now on until `end`: steps are performed, perhaps in another thread."""
        self._waiting = []
        if self._transactions is not None:
            self._transactions.enlist()

    def end(self) -> None:
        """Send what was kept."""
        waiting, self._waiting = self._waiting or [], None
        for category, messages in waiting:
            self._writer.send(category, messages)

    def perform(self, step: Step, shards: Sequence[Sealed]) -> None:
        """Perform one step for these shards; it is durable on return."""
        match step:
            case Step.LOG_CHANGES:
                for shard in shards:
                    self._writer.send(self._changelog, logged(shard))
            case Step.FLUSH_OUTPUTS:
                self._flush("Nothing of this checkpoint was saved, and their input is read again.")
            case Step.SEND_OUTPUTS:
                self._send_held(shards)
                self._flush("They are missing for good: outputs at most once are not sent again.")
            case Step.COMMIT_OFFSETS:
                self._reader.commit(_positions(shards))
            case Step.COMMIT_TRANSACTION:
                self._send_held(shards)
                self._commit(_positions(shards))
            case _:
                for shard in shards:
                    shard.perform(step)

    def send_outbox(self, shard: Shard, outbox: Outbox) -> None:
        """Send the outputs that a checkpoint had saved with a shard's state when its worker died."""
        sealed = replace(shard.seal(), held=list(outbox.messages))
        self.begin()
        self._send_held([sealed])
        self._commit(sealed.positions())
        sealed.perform(Step.CLEAR_OUTBOX)
        shard.settle(sealed)
        self.end()

    def renew(self, reader: Reader) -> None:
        """Take back what was sent and not committed, and be ready to send again, with a membership that may be another."""
        self._reader, self._waiting = reader, None
        if self._transactions is not None:
            self._transactions.close()
            self._writer = self._transactions = self._open_transactions()

    @property
    def takes_back(self) -> bool:
        """Whether outputs that were sent can still be taken back, all of them together."""
        return self._transactions is not None

    def close(self) -> None:
        """Let go of the connection; what was not flushed or committed is dropped."""
        self._writer.close()

    def _send_held(self, shards: Sequence[Sealed]) -> None:
        for shard in shards:
            for category, messages in groupby(shard.take_held(), itemgetter(0)):
                self._writer.send(category, (Outgoing(key, value) for _, key, value in messages))

    def _flush(self, consequence: str) -> None:
        try:
            self._writer.flush()
        except DeliveryFailed as error:
            raise DeliveryFailed(f"{error} {consequence}") from error

    def _commit(self, positions: Sequence[Position]) -> None:
        if self._transactions is None:
            raise TypeError("a row without transactions was asked to commit one")
        self._transactions.commit(positions)


def _positions(shards: Sequence[Sealed]) -> list[Position]:
    return [position for shard in shards for position in shard.positions()]
