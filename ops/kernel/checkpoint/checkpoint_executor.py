"""Execution of checkpoint steps: the only place where outputs, states and positions become durable."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple, cast

from ....processors import PenstockError
from ....processors.declare import Processor, dead_letters_of, plan_of
from ....processors.shard import HeldOutput, HeldRow, Offsets, Step, steps_of, uses_transactions
from ....processors.time import NEVER_MS, SavedTimes
from ....state import Outbox
from ....transport import (
    Aborted,
    Bucket,
    Bus,
    BusUnreachable,
    CommitUnconfirmed,
    DeliveryFailed,
    Fenced,
    MessageRefused,
    Outgoing,
    Position,
    Reader,
    SettingsRefused,
    TransactionalWriter,
    Writer,
    rewrite_changelog_bucket,
)
from ..shards import (
    OpenShard,
    OpenSnapshot,
    RefusedRows,
    RowLetters,
    SinkWriters,
    changelog_of,
    local,
    logged,
    save_step,
)
from .output_pace import OutputPace
from .output_sizes import OutputSizes
from .pauses import SESSION_SHARE, PauseDetector

_LOG = logging.getLogger("penstock.worker")
TRANSACTION_LIMIT_S = 10.0
"""How much longer than a checkpoint's interval a transaction may stay open before the bus ends it."""


class CheckpointRefused(PenstockError):
    """An earlier checkpoint has failed, so this one would commit positions without their outputs."""


class CheckpointExecutor:
    """Performs steps for one worker, in the order of the calls.

    Outputs of events after a checkpoint's begin belong to the positions of the next one, and wait: those at least once until the outputs of
    the checkpoint are flushed, since they may repeat; all others until it ends. Only `start_over` drops them, and then the shards are opened
    again. No checkpoint begins before the next writer is open, and none after `abandon`.

    Args:
        processor: produces the outputs.
        bus: receives them.
        identity: names its transactions.
        threads: open writers, which waits until the bus answers.
        pauses: detects pauses of the process, after which outputs may be older than those of another worker.
        owned: returns the open shards.
        sinks: receive rows.
        row_letters: encodes the dead letters of rows that a sink refuses.
        sizes: the limits of the categories that it writes.
    """

    def __init__(
        self,
        processor: Processor,
        bus: Bus,
        identity: str,
        threads: Executor,
        *,
        pauses: PauseDetector,
        owned: Callable[[], Iterable[OpenShard]],
        sinks: SinkWriters,
        row_letters: RowLetters,
        sizes: OutputSizes,
    ) -> None:
        steps = steps_of(type(processor))
        self._bus = bus
        self._reader: Reader | None = None
        self._processor = processor.name
        self._identity = self._transactional_id(identity)
        changelog = changelog_of(type(processor))
        self._changelog = "" if changelog is None else changelog.name
        outputs = [
            category.name for category in (*plan_of(processor).written_categories, dead_letters_of(type(processor)))
        ]
        self.written = [*outputs, self._changelog] if self._changelog else outputs
        self.timeout_s = processor.checkpoint.time.total_seconds() + TRANSACTION_LIMIT_S
        self._holds = Step.SEND_OUTPUTS in steps or Step.SAVE_WITH_OUTBOX in steps
        self._has_outbox = Step.SAVE_WITH_OUTBOX in steps
        self._sizes = sizes
        self._transactional = uses_transactions(type(processor))
        self.pace = OutputPace(self.timeout_s)
        self._sends_outside = self._transactional and Step.SEND_OUTPUTS in steps
        self._threads = threads
        self._pauses = pauses
        self._owned = owned
        self._sinks = sinks
        self._row_letters = row_letters
        self._writer: Writer | TransactionalWriter | None = None
        self._outside: Writer | None = None
        self._opening: _Opening | None = None
        self._abandoned = False
        self._waiting: list[tuple[str, list[Outgoing]]] | None = None
        self._holding = False
        self._is_flushed = False

    def _transactional_id(self, worker: str) -> str:
        return f"{self._processor}.{worker}"

    def abort_open_transaction(self, worker: str) -> None:
        """Abort the open transaction of a vanished worker. If that worker is alive, it is fenced and starts over. Any thread."""
        self._bus.transactional_writer(
            self._transactional_id(worker), self._reader, self.timeout_s, self.written
        ).close()

    @property
    def is_open(self) -> bool:
        """Whether outputs can be sent; the worker's earlier transaction has ended then."""
        return self._writer is not None

    def is_ready(self) -> bool:
        """Return whether outputs can be sent; if not, continue opening a writer. Return at once, even if the bus does not answer.

        Raises:
            BusError: no writer can be opened.
        """
        if self.is_open:
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
        except SettingsRefused:
            if not self.pace.shorten():
                raise
            return False
        finally:
            del writer  # its error holds this frame, and would keep what the frames of the attempt hold
        self._outside = self._bus.writer() if self._sends_outside else None
        return True

    def _open(self, reader: Reader) -> Writer:
        """Open a writer. A transactional one first ends the worker's earlier transaction, so that the committed positions are final."""
        if self._transactional:
            return self._bus.transactional_writer(self._identity, reader, self.pace.limit_s, self.written)
        # The client sends on its own after a pause, so it must drop messages that are older than the membership may be. At-most-once outputs
        # are sent when their positions are committed: dropped, they would be lost.
        return self._bus.writer(None if self._holds else self.pace.limit_s)

    @property
    def _member(self) -> Reader:
        if self._reader is None:
            raise CheckpointRefused("A worker cannot save before it has joined its group.")
        return self._reader

    @property
    def _opened(self) -> Writer:
        if self._abandoned or self._writer is None:
            raise CheckpointRefused("A failed worker sends and saves nothing more.")
        return self._writer

    @property
    def _outputs(self) -> Writer:
        """The writer of outputs: the transaction's, except for outputs that wait until it is committed."""
        return self._outside or self._opened

    @property
    def _transactions(self) -> TransactionalWriter:
        return cast("TransactionalWriter", self._opened)

    def send(self, shard: OpenShard, category: str, messages: Iterable[Outgoing]) -> None:
        """Send outputs, or hold them for their step. During a checkpoint, outputs of later events wait."""
        if self._holds:
            # Checked before they are saved with the state: the worker would retry a refused message forever.
            shard.held.extend(HeldOutput(category, *message) for message in self._sizes.fitting(category, messages))
            return
        shard.has_sent = True
        self.send_flushed()
        if self._waiting is not None and not self._is_flushed:
            self._waiting.append((category, list(messages)))
        else:
            self._send(category, messages)

    def _send(self, category: str, messages: Iterable[Outgoing]) -> None:
        self._expect_membership()
        if self.pace.portion is None or self._transactional:
            self._opened.send(category, messages)
            return
        remaining = iter(messages)
        while portion := list(islice(remaining, self.pace.portion)):
            self._opened.send(category, portion)
            self._flush(self._opened, "This checkpoint was not saved, and its input is read again.")
            self._expect_membership()

    def _expect_membership(self) -> None:
        """After a pause, ask the group whether the buckets have another owner: no transaction would refuse the outputs."""
        if not self._transactional and self._pauses.has_paused:
            with self._pauses.confirming():
                self.confirm(self._owned())

    def send_now(self) -> None:
        """Send outputs that wait for more to share a request with, because no more will come for now."""
        if self._writer is None:
            return
        self.send_flushed()
        if self._waiting is None or self._is_flushed:  # otherwise the checkpoint's thread uses the writer
            self._writer.send_now()

    def hold_rows(self, shard: OpenShard, sink: str, rows: Iterable[object]) -> None:
        """Keep rows of a sink for their step. Rows of later events belong to the next checkpoint."""
        shard.rows.extend(HeldRow(sink, row) for row in rows)

    def begin(self, *, hold: bool = False) -> None:
        """Queue the outputs of later events; meanwhile, steps are performed, perhaps in another thread.

        Args:
            hold: whether all outputs of later events wait for `end`.

        Raises:
            CheckpointRefused: the previous checkpoint has neither ended nor been dropped by `start_over`.
        """
        self._opened  # noqa: B018 - raises without a writer
        if self._waiting is not None:
            raise CheckpointRefused("A checkpoint has failed. The next one begins after the shards are opened again.")
        self._expect_membership()
        self._waiting, self._holding, self._is_flushed = [], hold, False
        if self._transactional:
            self._transactions.enlist()

    def send_flushed(self) -> None:
        """Send queued outputs that need not wait for the end of the checkpoint. The step that flushes is over, so one thread uses the writer."""
        if self._is_flushed and self._waiting:
            waiting, self._waiting = self._waiting, []
            self._send_all(waiting)

    def end(self) -> None:
        """Send the queued outputs."""
        waiting, self._waiting = self._waiting or [], None
        self._send_all(waiting)

    def _send_all(self, waiting: Sequence[tuple[str, list[Outgoing]]]) -> None:
        for category, messages in waiting:
            self._send(category, messages)

    def perform(self, step: Step, shards: Sequence[OpenSnapshot]) -> None:
        """Perform one step for some shards; it is durable on return."""
        writer = self._opened
        match step:
            case Step.LOG_CHANGES:
                for shard in shards:
                    writer.send(self._changelog, self._sizes.fitting(self._changelog, logged(shard)))
            case Step.FLUSH_OUTPUTS:
                self._flush(writer, "This checkpoint was not saved, and its input is read again.")
                self._is_flushed = not (self._transactional or self._holding)
            case Step.SEND_OUTPUTS:
                self._expect_no_pause("These outputs are lost: at-most-once outputs are not sent again.", shards)
                self._send_held(shards)
                self._flush(self._outputs, "These outputs are lost: at-most-once outputs are not sent again.")
            case Step.COMMIT_OFFSETS:
                with self._pauses.confirming():
                    self._member.commit(_positions(shards))
            case Step.COMMIT_TRANSACTION:
                if self._has_outbox:
                    self._send_held(shards)
                self._commit(_positions(shards))
            case Step.WRITE_SINKS:
                self._expect_no_pause("This checkpoint was not saved, and its input is read again.", shards)
                self._write_sinks(writer, shards)
            case _:
                for shard in shards:
                    save_step(step, shard)

    def _expect_no_pause(self, consequence: str, shards: Sequence[OpenSnapshot]) -> None:
        """Stop before effects that nothing fences. Only the loop can ask the group, which may be waiting for this checkpoint."""
        if self._pauses.has_paused and any(shard.held or shard.rows for shard in shards):
            raise Fenced(
                f"The worker has paused for more than {self._pauses.limit_s:.0f} s, so another one may own its buckets and have written newer outputs. "
                f"{consequence}"
            )

    def _write_sinks(self, writer: Writer, shards: Sequence[OpenSnapshot]) -> None:
        def reject(rows: RefusedRows) -> None:
            writer.send(self._row_letters.category.name, self._row_letters.messages(rows))
            self._flush(writer, "The rows that the sink refused are not in the dead letters yet.")

        self._sinks.write(shards, reject)

    def confirm(self, shards: Iterable[OpenShard]) -> None:
        """Commit the committed positions of shards once more: if this succeeds, no other worker owns their buckets yet.

        Raises:
            CommitUnconfirmed: the worker is no member at present, or the bus did not answer.
            MembershipLost: the worker is no member any more.
        """
        self._member.commit(
            [position for shard in shards for position in _committed(shard, shard.committed, shard.saved_times)]
        )

    def send_outbox(self, shard: OpenShard, outbox: Outbox) -> None:
        """Send the outputs that an interrupted checkpoint has saved with a shard's state.

        Raises:
            MessageRefused: the bus accepts smaller messages than before; the outputs stay in the store.
        """
        snapshot = replace(shard.snapshot(), held=list(outbox.messages))
        self.begin()
        try:
            self._send_held([snapshot])
            self._commit(_positions([snapshot]))
        except MessageRefused as error:
            raise MessageRefused(
                f"Outputs of bucket {shard.number} that were saved with its state cannot be sent: {error} They remain in the store, so nothing is "
                "lost. Raise the limits above the size of these outputs, and start the worker again, which sends them first. Then you can lower "
                "the limits again."
            ) from error
        save_step(Step.CLEAR_OUTBOX, snapshot)
        shard.complete(snapshot)
        self.end()

    def log_state(self, shard: OpenShard) -> None:
        """Write the whole state of a shard to its changelog, which contains no checkpoint of it yet."""
        self._opened  # noqa: B018 - raises without a writer
        without_id = [
            position._replace(checkpoint_id=0) for position in _committed(shard, shard.committed, shard.saved_times)
        ]
        snapshot = shard.snapshot()
        rewrite_changelog_bucket(
            self._bus,
            self._changelog,
            shard.number,
            local(shard.state).items(),
            snapshot.state_position,
            member=self._member,
            committed=without_id,  # an id would say that the changelog is complete
            commits=_positions([snapshot]),
        )
        local(shard.state).save_position(snapshot.state_position)
        shard.complete(snapshot)

    def start_over(self, reader: Reader) -> None:
        """Drop queued and uncommitted outputs. Then `is_ready` opens another writer.

        Call this after the shards of these outputs are closed.

        Args:
            reader: the membership from now on.
        """
        self._pauses.limit_s = reader.session_s * SESSION_SHARE
        if not self._transactional:
            self.pace.fix(self._pauses.limit_s)
        self._reader, self._waiting = reader, None
        self._close_writers()

    def abandon(self) -> None:
        """Refuse to send, save or commit from now on, in all threads. A running step ends; no step follows it."""
        self._abandoned = True

    @property
    def is_transactional(self) -> bool:
        """Whether uncommitted outputs are rolled back together."""
        return self._transactional

    def close(self) -> None:
        """Close the connections. Outputs that are neither flushed nor committed are dropped."""
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
                self._outputs.send(
                    category, (Outgoing(held.key, held.value, held.bucket, held.headers) for held in messages)
                )

    def _flush(self, writer: Writer, consequence: str) -> None:
        try:
            writer.flush()
        except DeliveryFailed as error:
            raise error.reworded(f"{error} {consequence}") from error

    def _commit(self, positions: Sequence[Position]) -> None:
        with self._pauses.confirming():
            self._transactions.commit(positions)


class _Opening(NamedTuple):
    """A writer that is being opened, for a membership that may end meanwhile."""

    reader: Reader
    writer: Future[Writer]


def _discard(writer: Future[Writer]) -> None:
    """Close a writer that is not needed any more, if it was opened."""
    if not writer.cancelled() and writer.exception() is None:
        writer.result().close()


def _positions(shards: Sequence[OpenSnapshot]) -> list[Position]:
    return [position for shard in shards for position in _committed(shard, shard.reached, shard.times)]


def _committed(shard: OpenShard | OpenSnapshot, offsets: Offsets, times: SavedTimes) -> Iterator[Position]:
    """Yield the positions to commit. Without a state, they contain the event times, so that a new owner continues with them."""
    low_ms = times.low_ms if shard.state is None else NEVER_MS
    for name, offset in offsets.items():
        yield Position(Bucket(name, shard.number), offset, shard.checkpoint_id or 0, low_ms, times.inputs.get(name, ""))
