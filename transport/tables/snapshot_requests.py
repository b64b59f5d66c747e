"""Snapshots in progress: what a coordinator asks the workers of an app to do, and what they answer.

    penstock.snapshots, compacted    key  app                     value  its newest request as JSON
                                     key  app/processor/worker    value  the newest answer of a worker

    coordinator: PREPARE, repeated        workers: all of their shards are open                          -> READY
    coordinator: HOLD                     workers: save a checkpoint, copy the state, hold later outputs -> HELD
    coordinator: notes the ends of the categories between the processors; RELEASE
                                          workers: still members of their groups, outputs go on        -> RELEASED
                                          workers: the copies are stored                               -> STORED
    coordinator: CHECK, repeated after HOLD and RELEASE    workers: their newest answer again; FAILED if they have started since

A worker that starts does not see earlier requests: the repeated PREPARE finds it once it is ready, and nothing is held until all are. Nor does it join a
snapshot in progress, because the others may not hold any more: its answer to CHECK ends the attempt, and the outputs go on at once.
Every worker holds from its checkpoint to the moment when the ends are noted. So the saved states have sent exactly the messages
before these ends, and none of them reflects a later message.

Source: Carbone et al., "Lightweight Asynchronous Snapshots for Distributed Dataflows", 2015; here the bus keeps what is in flight.
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum

import msgspec

from ...processors.shard import StatePosition
from ...processors.time import NEVER_MS
from ..bus import Bus, Writer
from ..category_spec import CategorySpec
from ..errors import BusError
from .bus_table import TEXT_KEY, BusTable, TableReader

SNAPSHOTS = CategorySpec("penstock.snapshots", buckets=1, compacted=True)
"""The category of requests and answers."""


class SnapshotOrder(Enum):
    """What the workers of an app should do."""

    PREPARE = "prepare"
    HOLD = "hold"
    RELEASE = "release"
    CHECK = "check"
    ABORT = "abort"


class SnapshotStage(Enum):
    """How far a worker is with a snapshot."""

    OPENING = "opening"
    READY = "ready"
    HELD = "held"
    RELEASED = "released"
    STORED = "stored"
    FAILED = "failed"


class SnapshotRequest(msgspec.Struct, frozen=True, tag="request"):
    """The newest request of an app's coordinator.

    Args:
        app: the app.
        snapshot: the snapshot's id; each attempt has another one.
        request: what to do.
        processors: the processors that take part.
    """

    app: str
    snapshot: str
    request: SnapshotOrder
    processors: tuple[str, ...]


class ShardCut(msgspec.Struct, frozen=True):
    """The part of a shard in a snapshot.

    Args:
        position: the events that its state reflects, and its checkpoint.
        backup: the id of the backup with its state; empty without state, or as long as it is not stored.
        low_ms: its low watermark; only without state, which contains it otherwise.
        event_times: the event times of its inputs, likewise; see `SavedTimes`.
    """

    position: StatePosition
    backup: str = ""
    low_ms: int = NEVER_MS
    event_times: dict[str, str] = {}


class SnapshotAnswer(msgspec.Struct, frozen=True, tag="answer"):
    """The newest answer of a worker.

    Args:
        app: the app.
        snapshot: the snapshot's id.
        processor: the worker's processor.
        worker: the worker's name.
        stage: how far it is.
        shards: its shards, by bucket number.
        reason: why it failed, or is not ready.
    """

    app: str
    snapshot: str
    processor: str
    worker: str
    stage: SnapshotStage
    shards: dict[int, ShardCut] = {}
    reason: str = ""


SnapshotMessage = SnapshotRequest | SnapshotAnswer

_TABLE: BusTable[str, SnapshotMessage] = BusTable(
    SNAPSHOTS, TEXT_KEY, msgspec.json.Decoder(SnapshotRequest | SnapshotAnswer).decode
)


def _key(message: SnapshotMessage) -> str:
    if isinstance(message, SnapshotRequest):
        return message.app
    return f"{message.app}/{message.processor}/{message.worker}"


class SnapshotChannel:
    """Sends and receives the messages of snapshots. One thread; close it.

    Args:
        bus: contains the category, which must exist.
    """

    def __init__(self, bus: Bus) -> None:
        self._reader: TableReader[str, SnapshotMessage] = _TABLE.follow(bus)
        self._bus = bus
        self._writer: Writer | None = None

    def receive(self, timeout_s: float = 0.0) -> list[SnapshotMessage]:
        """Return the messages since the last call, in order; earlier messages are skipped.

        Args:
            timeout_s: how long to wait for one, in seconds.
        """
        was_complete = self._reader.complete
        changes = self._reader.read(timeout_s)
        return [change.value for change in changes if change.value is not None] if was_complete else []

    @property
    def is_ready(self) -> bool:
        """Whether later messages will be received."""
        return self._reader.complete

    def send(self, message: SnapshotMessage) -> None:
        """Send a message; durable on return. The first one opens a connection, which few workers ever need.

        Raises:
            BusError: it may be missing. The next message opens a new connection.
        """
        self._writer = self._writer or self._bus.writer()
        try:
            self._writer.send(SNAPSHOTS.name, [_TABLE.put(_key(message), message)])
            self._writer.flush()
        except BusError:
            self._close_writer()  # after some errors, it sends nothing more
            raise

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(BusError):  # the caller knows what it has not sent
                writer.close()

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()
        self._close_writer()
