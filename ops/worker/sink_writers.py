"""The sinks of one worker: claims of shards, and the step of a checkpoint that writes rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import msgspec

from ...processors.declare.processor import Processor
from ...processors.declare.sinks import Sink, SinkBatch, SinkRefused, SinkWriter
from ...processors.errors import PenstockError
from ...processors.shard.checkpoints import are_decided_by_sink, steps_of
from ...processors.shard.position import StatePosition
from ...processors.shard.sink_position import SinkPosition, decode_sink_position, encode_sink_position
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
    """

    def __init__(self, processor: type[Processor], opens: OpenSink) -> None:
        self._processor = processor
        self._writers = {sink.name: opens(sink) for sink in processor.sinks()}
        self._decides = are_decided_by_sink(steps_of(processor))
        self._resets: dict[int, int] = {}

    def claim(self, number: int, snapshot: BusSnapshot) -> BusSnapshot:
        """Claim a shard. Return the snapshot with the committed position of an exactly-once sink in place of the group's.

        Raises:
            SinkUnreachable: a sink does not answer.
            SinkRefused: a sink cannot be written as declared.
            RowsLost: an exactly-once sink lacks rows of events that the group has committed.
            TopicRecreated: the rows come from another topic than the input.
        """
        saved = [writer.claim(self._processor.name, number) for writer in self._writers.values()]
        self._resets[number] = 0 if snapshot.maintenance is None else snapshot.maintenance.lineage.resets
        if not self._decides or not saved[0]:
            return snapshot
        position = self._decoded(number, saved[0])
        if position.resets != self._resets[number]:
            return snapshot
        self._expect_all_rows(number, position, snapshot)
        committed = StatePosition(position.offsets, topic_ids=position.topic_ids)
        return replace(snapshot, committed={**snapshot.committed, number: committed})

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

    def write(self, shards: Sequence[OpenSnapshot]) -> list[RefusedRows]:
        """Write the rows of shards; durable on return. Return the rows that sinks have left out.

        Raises:
            SinkUnreachable: it is unknown whether a batch was written.
            SinkFenced: another worker has claimed a shard.
            SinkRefused: a sink refuses a row.
        """
        found: list[RefusedRows] = []
        for shard in shards:
            for name, batch in self._batches(shard):
                refused = self._writers[name].write(batch)
                if refused:
                    found.append(RefusedRows(name, batch, refused))
            if self._decides:
                shard.rows = []  # otherwise, an incomplete checkpoint leaves them to the next one, which begins at the same offsets
        return found

    def _batches(self, shard: OpenSnapshot) -> Iterator[tuple[str, SinkBatch]]:
        position = ""
        if self._decides:
            position = encode_sink_position(
                SinkPosition(shard.reached, dict(shard.topic_ids), self._resets[shard.number])
            )
        rows: dict[str, list[object]] = {name: [] for name in self._writers}
        for name, row in shard.rows:
            rows[name].append(row)
        for name, of_sink in rows.items():
            if of_sink or self._decides:
                semantics = self._processor.output_semantics
                yield name, SinkBatch(self._processor.name, shard.number, shard.first, of_sink, position, semantics)

    def close(self) -> None:
        """Close all sinks."""
        do_all([writer.close for writer in self._writers.values()])
