"""The worker: one process's share of a processor's buckets, from the bus through the processor and back.

    poll -> decode -> feed -> encode -> send      for each batch
    flush outputs, save state, save position      at each checkpoint, in the order that its steps give

It performs what the cores and the step table say, and chooses nothing itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..processors.categories import AnyCategory
from ..processors.dead_letters import DeadLetter, dead_letters_of
from ..processors.errors import PenstockError
from ..processors.kinds import OnBad, Processor
from ..processors.routes import Routes
from ..state.checkpoints import AT_LEAST_ONCE, Gap, Step, without_state
from ..state.store import StateFolder
from ..transport.bus import Bucket, Bus, Outgoing, Position, RawBatch
from ..transport.codec_of import Codecs
from ..transport.errors import Fenced, OffsetOutOfRange, Unsettled
from .clock import Clock, SystemClock
from .refusals import Refusal, refusals, until_stop
from .shard import Shard, open_shard
from .tally import Pending, Tally

_LOG = logging.getLogger("penstock.worker")
POLL_WAIT_S = 0.1
LOGGED_LETTERS = 20
"""How many dead letters a worker logs one by one."""


class EventRefused(PenstockError):
    """An event stopped the worker, as its processor asked for: what came before it is saved, it is read again."""


class OutputRefused(PenstockError):
    """A processor gave something that its categories cannot take: fix the program."""


class Worker:
    """Runs a processor on the buckets that its consumer group gives it.

    Args:
        processor: checked, and opened by `run`.
        bus: where its categories are; all of them exist.
        states: where the states of its shards are.
        clock: tells when a checkpoint is due.
        at_gap: called in each gap of a checkpoint; a test may raise there.
    """

    def __init__(
        self,
        processor: Processor,
        bus: Bus,
        states: StateFolder,
        *,
        clock: Clock | None = None,
        at_gap: Callable[[Gap], None] = lambda _: None,
    ) -> None:
        self._processor = processor
        self._name = type(processor).__name__
        self._steps = AT_LEAST_ONCE if processor.state_shape() else without_state(AT_LEAST_ONCE)
        self._inputs = {category.name: category for category in processor.inputs()}
        self._bus = bus
        self._states = states
        self._clock = clock or SystemClock()
        self.at_gap = at_gap
        self._routes = Routes(type(processor))
        self._codecs = Codecs(bus)
        self._letters = dead_letters_of(type(processor))
        self._writer = bus.writer()
        self._shards: dict[int, Shard] = {}
        self._pending = Pending(self._clock.monotonic_s())
        self._stopping = False
        self.tally = Tally()
        self._reader = bus.reader(processor.name, list(self._inputs), self)

    def run(self, finished: Callable[[Worker], bool] = lambda _: False) -> None:
        """Work until `stop` is called or `finished` says so, then save a last checkpoint and leave the group."""
        try:
            while not (self._stopping or finished(self)):
                self.turn()
            self._save_if_settled()
        except BaseException:
            self.lost([])  # what is not saved is done again by whoever owns the buckets next
            raise
        finally:
            self._close()

    def turn(self) -> None:
        """Poll once, process what came, and save a checkpoint if one is due."""
        try:
            polled = self._reader.poll(POLL_WAIT_S)
            for batch in polled.batches:
                self._process(batch)
            for bucket, end in polled.ended:
                self._note_end(bucket, end)
            if self._pending.due(self._processor, self._clock.monotonic_s()):
                self._save_if_settled()
        except Fenced as error:
            _LOG.warning("%s", error)
            self.lost([])

    def stop(self) -> None:
        """Ask `run` to end after the turn it is in; may be called from a signal handler."""
        self._stopping = True

    @property
    def owns_nothing(self) -> bool:
        """Whether other workers have all the buckets, or none has been given out yet."""
        return not self._shards

    def has_reached(self, targets: Mapping[Bucket, int]) -> bool:
        """Tell whether every bucket that it owns is read up to its target; False while it owns none."""
        return bool(self._shards) and all(
            offset is not None and offset >= targets.get(bucket, 0)
            for number in self._shards
            for bucket, offset in self._positions(number)
        )

    def _positions(self, number: int) -> list[Position]:
        known = self._shards[number].position
        return [Position(Bucket(name, number), known.get(name)) for name in self._inputs]

    def _process(self, batch: RawBatch) -> None:
        """Take one batch through the processor, and note how far the bucket is read."""
        shard = self._shards.get(batch.bucket.number)
        batch = _unread(batch, shard.position.get(batch.bucket.category) if shard else None)
        if shard is None or not batch.messages:
            return  # handed out before the bucket moved away; its new owner reads it
        category = self._inputs[batch.bucket.category]
        values = batch.values()
        decoded = until_stop(self._codecs.of(category).decode(values), self._processor)
        stops = self._processor.raising is OnBad.STOP
        fed = shard.core.feed(category, decoded.events, stop_at_error=stops)
        self._send(fed.outputs)
        for refusal in refusals(decoded, fed, self._processor):
            if refusal.stops:
                self._stop_at(shard, batch, refusal)
            self._set_aside(batch, refusal)
        shard.position[batch.bucket.category] = batch.next_offset
        self._pending.add(len(values), sum(map(len, filter(None, values))))
        self.tally.events_in += len(values)

    def _send(self, outputs: Sequence[Any]) -> None:
        if not outputs:
            return
        try:
            for category, records in self._routes.split(outputs):
                self._write(category, records)
        except TypeError as error:
            raise OutputRefused(
                f"{error} Nothing of this batch was saved; mend {self._name} and start it again."
            ) from error
        self.tally.events_out += len(outputs)

    def _write(self, category: AnyCategory, records: Sequence[Any]) -> None:
        keys = [key.encode() for key in category.keys_of(records)]
        encoded = self._codecs.of(category).encode(records)
        self._writer.send(category.name, map(Outgoing, keys, encoded))

    def _stop_at(self, shard: Shard, batch: RawBatch, refusal: Refusal) -> None:
        """Save what came before an event, then stop there."""
        offset = batch.messages[refusal.at].offset()
        shard.position[batch.bucket.category] = offset
        self.checkpoint()
        raise EventRefused(
            f"{batch.bucket} at offset {offset}: {refusal.reason}. All before this event is saved and nothing was "
            f"skipped: the worker stops here, and begins with it when it is started again. Mend {self._name} or what "
            f"produces such events, or let them go to {self._letters.name} (`{refusal.policy} = OnBad.DEAD_LETTER`)."
        ) from refusal.cause

    def _set_aside(self, batch: RawBatch, refusal: Refusal) -> None:
        message = batch.messages[refusal.at]
        letter = DeadLetter(
            *batch.bucket, message.offset(), refusal.reason, message.key(), message.value(), self._clock.now_ms()
        )
        self._write(self._letters, [letter])
        self.tally.dead_letters += 1
        if self.tally.dead_letters <= LOGGED_LETTERS:
            _LOG.warning(
                "%s at offset %d went to %s: %s", batch.bucket, message.offset(), self._letters.name, refusal.reason
            )
        if self.tally.dead_letters == LOGGED_LETTERS:
            _LOG.warning("Further dead letters are counted, not logged; they are in %s.", self._letters.name)

    def _note_end(self, bucket: Bucket, end: int) -> None:
        """Move past what only the bus itself has written at the end of a bucket."""
        shard = self._shards.get(bucket.number)
        if shard is not None and end > shard.position.get(bucket.category, -1):
            shard.position[bucket.category] = end

    def _save_if_settled(self) -> None:
        """Save a checkpoint; where the group is forming anew, its position is saved with the next one."""
        try:
            self.checkpoint()
        except Unsettled as error:
            _LOG.info("%s", error)

    def checkpoint(self) -> None:
        """Make everything durable that was read so far, step by step."""
        shards = list(self._shards.values())
        for shard in shards:
            self._send(shard.drain().outputs)
        for step in self._steps:
            self.at_gap(Gap(step))
            self._perform(step, shards)
        self.at_gap(Gap(None))
        self._pending = Pending(self._clock.monotonic_s())
        self.tally.checkpoints += 1

    def _perform(self, step: Step, shards: Sequence[Shard]) -> None:
        match step:
            case Step.FLUSH_OUTPUTS:
                self._writer.flush()
            case Step.SAVE_STATE:
                for shard in shards:
                    shard.save_state()
            case Step.SAVE_POSITION:
                for shard in shards:
                    shard.save_position()
                self._reader.commit([position for shard in shards for position in shard.positions()])

    def gained(self, committed: Sequence[Position]) -> Sequence[Position]:
        """Open the shards of buckets that are ours now; return where to read from."""
        starts = {name: self._bus.catalog.describe(name).starts for name in self._inputs}
        wanted = []
        for bucket, group_offset in committed:
            if bucket.number not in self._shards:
                self._shards[bucket.number] = open_shard(self._processor, bucket.number, self._states)
            shard = self._shards[bucket.number]
            offset = group_offset if shard.state is None else shard.position.get(bucket.category)
            self._refuse_gap(bucket, offset, starts[bucket.category][bucket.number], group_offset)
            if offset is not None:
                shard.position[bucket.category] = offset
            wanted.append(Position(bucket, offset))
        return wanted

    def _refuse_gap(self, bucket: Bucket, offset: int | None, start: int, group_offset: int | None) -> None:
        begun = offset if offset is not None or group_offset is None else 0
        if begun is not None and begun < start:
            raise OffsetOutOfRange(
                f"{self._processor.name} stands at offset {begun} of {bucket}, but the bus keeps that bucket only from "
                f"offset {start} on: {start - begun:,} events are gone, so it does not start. Nothing was changed. Give "
                "the processor another name to begin anew with what is still there."
            )

    def given_up(self, buckets: Sequence[Bucket]) -> None:
        """Save everything, then close the shards that go to another owner."""
        if self._shards:
            self._save_if_settled()
        self.lost(buckets)

    def lost(self, buckets: Sequence[Bucket]) -> None:
        """Close shards without saving: those of the buckets, or all."""
        for number in {bucket.number for bucket in buckets} or set(self._shards):
            shard = self._shards.pop(number, None)
            if shard is not None:
                shard.close()

    def _close(self) -> None:
        self._reader.close()
        self._writer.close()


def _unread(batch: RawBatch, position: int | None) -> RawBatch:
    """Drop what a shard has read already: it may be handed out again after a bucket came back."""
    if position is None or not batch.messages or batch.messages[0].offset() >= position:
        return batch
    return RawBatch(batch.bucket, [message for message in batch.messages if message.offset() >= position])
