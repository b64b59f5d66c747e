"""The steps of a checkpoint, performed: the one place where outputs, states and positions become durable."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, cast

from ...processors.declare.dead_letters import dead_letters_of
from ...processors.declare.processor import Processor
from ...processors.errors import PenstockError
from ...processors.shard.checkpoints import Step, steps_of
from ...state.protocols import Outbox
from ...transport.bus import Bucket, Bus, Outgoing, Position, Reader, TransactionalWriter, Writer
from ...transport.changelog import rewrite
from ...transport.errors import Aborted, BusUnreachable, CommitUnconfirmed, DeliveryFailed, Fenced, MessageRefused
from .changelog_replay import changelog_of, logged
from .open_shard import OpenShard, OpenSnapshot, local, save_step
from .output_sizes import OutputSizes

_LOG = logging.getLogger("penstock.worker")
TRANSACTION_LIMIT_S = 10.0
"""How much longer than a checkpoint's interval a transaction may stay open before the bus ends it."""


class CheckpointRefused(PenstockError):
    """A checkpoint was asked for where one before has failed: it would commit positions of outputs that were never sent."""


class CheckpointExecutor:
    """Performs steps for one worker, in the order it is asked to.

    Outputs that are kept until a checkpoint ends are covered by the positions of the next one. They are therefore dropped in `start_over`
    alone, after which the shards are opened again; until the writer for those is there, and after `abandon` for ever, no checkpoint begins.

    Args:
        processor: whose outputs.
        bus: where they go.
        identity: by which its transactions are known.
        threads: open writers, which takes as long as the bus does not answer.
    """

    def __init__(self, processor: Processor, bus: Bus, identity: str, threads: Executor) -> None:
        steps = steps_of(type(processor))
        self._bus = bus
        self._reader: Reader | None = None
        self._processor = processor.name
        self._identity = self._transactional_id(identity)
        changelog = changelog_of(type(processor))
        self._changelog = "" if changelog is None else changelog.name
        outputs = [category.name for category in (*processor.outputs(), dead_letters_of(type(processor)))]
        self.written = [*outputs, self._changelog] if self._changelog else outputs
        self.timeout_s = processor.checkpoint.time.total_seconds() + TRANSACTION_LIMIT_S
        self._holds = Step.SEND_OUTPUTS in steps or Step.SAVE_WITH_OUTBOX in steps
        self._has_outbox = Step.SAVE_WITH_OUTBOX in steps
        self._sizes = OutputSizes(bus)
        self._transactional = Step.COMMIT_TRANSACTION in steps
        self._sends_outside = self._transactional and Step.SEND_OUTPUTS in steps
        self._threads = threads
        self._writer: Writer | TransactionalWriter | None = None
        self._outside: Writer | None = None
        self._opening: _Opening | None = None
        self._abandoned = False
        self._waiting: list[tuple[str, list[Outgoing]]] | None = None

    def _transactional_id(self, worker: str) -> str:
        return f"{self._processor}.{worker}"

    def end_left_open(self, worker: str) -> None:
        """End what another worker of the processor left open, which is gone; one that is not is fenced, and begins again. Any thread."""
        self._bus.transactional_writer(
            self._transactional_id(worker), self._reader, self.timeout_s, self.written
        ).close()

    def is_ready(self) -> bool:
        """Tell whether it can send; if not, go on opening a writer. Returns at once, however long the bus does not answer.

        Raises:
            BusError: it never can.
        """
        if self._writer is not None:
            return True
        if self._opening is None:
            self._opening = _Opening(self._member, self._threads.submit(self._open, self._member))
        reader, writer = self._opening
        if not writer.done():
            return False
        self._opening = None
        if reader is not self._reader:
            _discard(writer)
            return False
        try:
            self._writer = writer.result()
        except (BusUnreachable, DeliveryFailed, Aborted, Fenced, CommitUnconfirmed) as error:
            _LOG.warning("%s", error)
            return False
        self._outside = self._bus.writer() if self._sends_outside else None
        return True

    def _open(self, reader: Reader) -> Writer:
        """Open a writer. One of transactions ends what an earlier one of this worker has left open, before anybody looks for positions."""
        if self._transactional:
            return self._bus.transactional_writer(self._identity, reader, self.timeout_s, self.written)
        return self._bus.writer()

    @property
    def _member(self) -> Reader:
        if self._reader is None:
            raise CheckpointRefused("A worker saves nothing before it has joined its group.")
        return self._reader

    @property
    def _opened(self) -> Writer:
        if self._abandoned or self._writer is None:
            raise CheckpointRefused("Nothing is sent or saved any more by a worker that has failed.")
        return self._writer

    @property
    def _outputs(self) -> Writer:
        """Where outputs go: into the transaction, if there is one, but for those that wait until it is committed."""
        return self._outside or self._opened

    @property
    def _transactions(self) -> TransactionalWriter:
        return cast("TransactionalWriter", self._opened)

    def send(self, shard: OpenShard, category: str, messages: Iterable[Outgoing]) -> None:
        """Send outputs, or hold them back, as the row says; those that a checkpoint under way is not about wait for its end."""
        if self._holds:
            # Before they are saved with the state: what the bus refuses then would be sent again for ever.
            fitting = self._sizes.fitting(category, messages)
            shard.held.extend((category, key, value) for key, value, _ in fitting)
            return
        shard.has_sent = True
        if self._waiting is not None:
            self._waiting.append((category, list(messages)))
        else:
            self._opened.send(category, messages)

    def begin(self) -> None:
        """Keep what is sent from now on until `end`: steps are performed, perhaps in another thread.

        Raises:
            CheckpointRefused: the checkpoint before has neither ended nor been started over.
        """
        self._opened  # noqa: B018 - refused where there is none
        if self._waiting is not None:
            raise CheckpointRefused(
                "A checkpoint has failed, and no other is begun before the shards are opened again."
            )
        self._waiting = []
        if self._transactional:
            self._transactions.enlist()

    def end(self) -> None:
        """Send what was kept."""
        waiting, self._waiting = self._waiting or [], None
        for category, messages in waiting:
            self._opened.send(category, messages)

    def perform(self, step: Step, shards: Sequence[OpenSnapshot]) -> None:
        """Perform one step for these shards; it is durable on return."""
        writer = self._opened
        match step:
            case Step.LOG_CHANGES:
                for shard in shards:
                    writer.send(self._changelog, logged(shard))
            case Step.FLUSH_OUTPUTS:
                self._flush(writer, "Nothing of this checkpoint was saved, and their input is read again.")
            case Step.SEND_OUTPUTS:
                self._send_held(shards)
                self._flush(self._outputs, "They are missing for good: outputs at most once are not sent again.")
            case Step.COMMIT_OFFSETS:
                self._member.commit(_positions(shards))
            case Step.COMMIT_TRANSACTION:
                if self._has_outbox:
                    self._send_held(shards)
                self._commit(_positions(shards))
            case _:
                for shard in shards:
                    save_step(step, shard)

    def send_outbox(self, shard: OpenShard, outbox: Outbox) -> None:
        """Send the outputs that a checkpoint had saved with a shard's state when its worker died.

        Raises:
            MessageRefused: a limit was lowered since; they are kept.
        """
        sealed = replace(shard.snapshot(), held=list(outbox.messages))
        self.begin()
        try:
            self._send_held([sealed])
            self._commit(_positions([sealed]))
        except MessageRefused as error:
            raise MessageRefused(
                f"Outputs of bucket {shard.number} that were saved with its state cannot be sent: {error} They are kept in the store, and nothing "
                "is lost. Raise those limits above what these outputs have, and start the worker again: it sends them first. Then the limits can "
                "be lowered again."
            ) from error
        save_step(Step.CLEAR_OUTBOX, sealed)
        shard.complete(sealed)
        self.end()

    def log_state(self, shard: OpenShard) -> None:
        """Write a shard's whole state to its changelog, which was kept for none of its checkpoints so far."""
        self._opened  # noqa: B018 - refused where there is none
        sealed = shard.snapshot()
        rewrite(
            self._bus,
            self._changelog,
            shard.number,
            local(shard.state).items(),
            sealed.state_position,
            member=self._member,
            commits=_positions([sealed]),
        )
        local(shard.state).save_position(sealed.state_position)
        shard.complete(sealed)

    def start_over(self, reader: Reader) -> None:
        """Drop what waits, and what was sent and is not committed; then `is_ready` opens another writer.

        To be called when the shards are closed that gave it.

        Args:
            reader: the membership from now on, which may be another.
        """
        self._reader, self._waiting = reader, None
        self._close_writers()

    def abandon(self) -> None:
        """Send, save and commit nothing any more, in no thread. What a step under way does is done; none follows it."""
        self._abandoned = True

    @property
    def takes_back(self) -> bool:
        """Whether outputs that were sent can still be taken back, all of them together."""
        return self._transactional

    def close(self) -> None:
        """Let go of the connections; what was not flushed or committed is dropped."""
        if self._opening is not None:
            self._opening.writer.add_done_callback(_discard)
        self._close_writers()

    def _close_writers(self) -> None:
        writers, self._writer, self._outside = (self._writer, self._outside), None, None
        for writer in filter(None, writers):
            writer.close()

    def _send_held(self, shards: Sequence[OpenSnapshot]) -> None:
        for shard in shards:
            for category, messages in groupby(shard.take_held(), itemgetter(0)):
                self._outputs.send(category, (Outgoing(key, value) for _, key, value in messages))

    def _flush(self, writer: Writer, consequence: str) -> None:
        try:
            writer.flush()
        except DeliveryFailed as error:
            raise DeliveryFailed(f"{error} {consequence}") from error

    def _commit(self, positions: Sequence[Position]) -> None:
        self._transactions.commit(positions)


class _Opening(NamedTuple):
    """A writer that is being opened, for a membership that may have ended by then."""

    reader: Reader
    writer: Future[Writer]


def _discard(writer: Future[Writer]) -> None:
    """Close a writer that nobody wants any more, if it was opened at all."""
    if not writer.cancelled() and writer.exception() is None:
        writer.result().close()


def _positions(shards: Sequence[OpenSnapshot]) -> list[Position]:
    return [
        Position(Bucket(name, shard.number), offset, shard.checkpoint_id or 0)
        for shard in shards
        for name, offset in shard.reached.items()
    ]
