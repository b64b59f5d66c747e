"""The sinks of one worker: claims of shards, and the step of a checkpoint that writes rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

import msgspec

from ....processors import PenstockError
from ....processors.declare import Processor, Sink, SinkBatch, SinkRefused, SinkWriter, plan_of, write_accepted
from ....processors.shard import (
    SinkPosition,
    StatePosition,
    are_decided_by_sink,
    decode_sink_position,
    encode_sink_position,
    steps_of,
)
from ..telemetry import Waits
from .bus_snapshot import BusSnapshot
from .cleanup import do_all
from .open_shard import OpenSnapshot
from .refused_rows import RefusedRows
from .resume_checks import expect_same_topics

OpenSink = Callable[[Sink], SinkWriter]


def open_sink(sink: Sink) -> SinkWriter:
    """Open a sink as it is declared."""
    return sink.open()


class RowsLost(PenstockError):
    """The rows of a sink end before the group's positions: the user must choose how to continue."""


class SinkWriters:
    """The open sinks. Several threads claim shards; one thread writes.

    Args:
        processor: the processor.
        opens: opens a sink.
        waits: note the calls of sinks.
    """

    def __init__(self, processor: type[Processor], opens: OpenSink, waits: Waits) -> None:
        self._processor = processor
        self._waits = waits
        self._writers = {sink.name: opens(sink) for sink in plan_of(processor).sinks}
        self._decides = are_decided_by_sink(steps_of(processor))
        self._resets: dict[int, int] = {}
        self._claimed: set[int] = set()
        """The shards whose first checkpoint since their claim has not been written."""

    def claim(self, number: int, snapshot: BusSnapshot) -> BusSnapshot:
        """Claim a shard. Return the snapshot with the committed position of an exactly-once sink in place of the group's.

        Raises:
            SinkUnreachable: a sink does not answer.
            SinkRefused: a sink cannot be written as declared.
            RowsLost: an exactly-once sink lacks rows of events that the group has committed.
            TopicRecreated: the rows come from another topic than the input.
        """
        saved = [self._claimed_at(name, number) for name in self._writers]
        self._resets[number] = 0 if snapshot.maintenance is None else snapshot.maintenance.lineage.resets
        self._claimed.add(number)
        if not self._decides or not saved[0]:
            return snapshot
        position = self._decoded(number, saved[0])
        if position.resets != self._resets[number]:
            return snapshot
        self._expect_all_rows(number, position, snapshot)
        committed = StatePosition(position.offsets, topic_ids=position.topic_ids)
        return replace(snapshot, committed={**snapshot.committed, number: committed})

    def _claimed_at(self, name: str, number: int) -> str:
        # A claim may ask nothing, or another table: only rows show that the sink takes rows again.
        with self._waits.until_answered(name, answers_all=False):
            return self._writers[name].claim(self._processor.name, number)

    def _decoded(self, number: int, text: str) -> SinkPosition:
        try:
            return decode_sink_position(text)
        except msgspec.DecodeError as error:
            raise SinkRefused(
                f"{self._processor.name}, bucket {number}: {self._name} returned the position {text!r:.200}, which Penstock did not write there: {error}. "
                "Nothing was read. `claim` must return the position of the last batch unchanged."
            ) from error

    @property
    def _name(self) -> str:
        return ", ".join(self._writers)

    def _expect_all_rows(self, number: int, position: SinkPosition, snapshot: BusSnapshot) -> None:
        owner = self._processor.name
        recreated = StatePosition(position.offsets, topic_ids=position.topic_ids).recreated(snapshot.topic_ids)
        expect_same_topics(owner, snapshot.topic_ids, recreated, f"{self._name} (bucket {number})")
        group = snapshot.committed_at(number)
        if any(offset > position.offsets.get(name, 0) for name, offset in group.offsets.items()):
            raise RowsLost(
                f"{owner}, bucket {number}: {self._name} has the rows of the events up to {position}, but the group has committed {group}. Either "
                "the store has lost rows, by a restored backup or a failover, or the processor ran with another declaration of its outputs. The "
                f"worker stops; no row was written. To write the missing rows, use `penstock reset APP:{self._processor.__name__}` with a time before the loss. To "
                "continue without them, use it with `--to latest`."
            )

    def write(self, shards: Sequence[OpenSnapshot], reject: Callable[[RefusedRows], None]) -> None:
        """Write the rows of shards; durable on return.

        Args:
            shards: the shards.
            reject: gets the rows that sinks leave out; they are durable on return.

        Raises:
            SinkUnreachable: it is unknown whether a batch was written.
            SinkFenced: another worker has claimed a shard.
            SinkRefused: a sink refuses a row.
        """
        for shard in shards:
            for name, batch in self._batches(shard):
                with self._waits.until_answered(name, [batch.bucket], answers_all=bool(batch.rows)):
                    write_accepted(
                        self._writers[name],
                        batch,
                        lambda batch, rows: reject(RefusedRows(name, batch, rows)),  # noqa: B023 - called within the round
                    )
            self._claimed.discard(shard.number)
            if self._decides:
                shard.rows = []  # otherwise, an incomplete checkpoint leaves them to the next one, which begins at the same offsets

    def release(self, numbers: Collection[int]) -> None:
        """End the waits for writes of shards that belong to another worker now."""
        for name in self._writers:
            self._waits.release(name, numbers)

    def _batches(self, shard: OpenSnapshot) -> Iterator[tuple[str, SinkBatch]]:
        position = ""
        if self._decides:
            position = encode_sink_position(
                SinkPosition(shard.reached, dict(shard.topic_ids), self._resets[shard.number])
            )
        rows: dict[str, list[object]] = {name: [] for name in self._writers}
        for name, row in shard.rows:
            rows[name].append(row)
        number, owner, semantics = shard.number, self._processor.name, self._processor.output_semantics
        for name, of_sink in rows.items():
            if of_sink or self._decides or number in self._claimed:
                resets = self._resets[number]
                yield name, SinkBatch(owner, number, shard.first, of_sink, position, semantics, resets)

    def close(self) -> None:
        """Close all sinks."""
        do_all([writer.close for writer in self._writers.values()])
