"""A bus and states that fail at chosen operations, deterministically, under a worker with asynchronous checkpoints.

Operations are counted in order: reads and writes of a state, its closing, sends, flushes and commits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

import penstock as ps
from penstock.ops.kernel.checkpoint.checkpoint_coordinator import CheckpointCoordinator
from penstock.ops.kernel.testing import InlineExecutor
from penstock.state import ShardIdentity, ShardState, StateFolder, StateUnwritable
from penstock.state.remote import ShardVersion, StoredShard
from penstock.state.sinks.owned_rows import RowClaim, RowStore
from penstock.transport import Outgoing, Position, Reader, TransactionalWriter, Writer
from penstock.transport.bus import OwnershipListener
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.cluster import MemoryCluster
from penstock.transport.memory.readers import MemoryScanner

STATE_WRITES = frozenset(
    {
        "save",
        "save_position",
        "save_together",
        "prepare",
        "apply",
        "discard",
        "clear",
        "save_with_outbox",
        "clear_outbox",
        "close",
    }
)
"""The writing operations of a state."""

Fails = Callable[[str, int], Exception | None]
"""Takes the name and the number of an operation; returns its error, or None."""


class Faults:
    """Counts operations, and fails chosen ones."""

    def __init__(self) -> None:
        self.fails: Fails = lambda _name, _before: None
        self.operations: list[str] = []
        self._paused = False

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Do not count operations in the block."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def at(self, name: str) -> None:
        """Count an operation, and raise its error if it fails."""
        if self._paused:
            return
        before = len(self.operations)
        self.operations.append(name)
        error = self.fails(name, before)
        if error is not None:
            raise error


class FaultyState:
    """A state whose writes may fail.

    Args:
        state: the wrapped state.
        faults: chooses the failing operations.
    """

    def __init__(self, state: ShardState, faults: Faults) -> None:
        self._state = state
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        """Return the state's method; writing methods are counted."""
        method = getattr(self._state, name)
        if name not in STATE_WRITES:
            return method

        def counted(*args: Any, **kwargs: Any) -> Any:
            if name == "close":
                method()  # a database releases its resources even if closing fails
            self._faults.at(f"state: {name}")
            return None if name == "close" else method(*args, **kwargs)

        return counted


class FaultyStates:
    """A folder of faulty states."""

    def __init__(self, states: StateFolder, faults: Faults) -> None:
        self._states = states
        self._faults = faults

    def open(self, identity: ShardIdentity) -> Any:
        """Open a shard's state."""
        self._faults.at("state: open")
        return FaultyState(self._states.open(identity), self._faults)


class FaultyBus(MemoryBus):
    """A memory bus whose writers and readers may fail.

    Args:
        faults: chooses the failing operations.
        at_most: the maximum number of messages of a poll.
        cluster: a shared cluster; by default a new one.
    """

    def __init__(self, faults: Faults, at_most: int, cluster: MemoryCluster | None = None) -> None:
        super().__init__(lambda: 0, cluster=cluster)
        self._faults = faults
        self._at_most = at_most

    def reader(
        self, group: str, categories: Sequence[str], ownership: OwnershipListener, identity: str | None = None
    ) -> Any:
        """Join a group."""
        reader = super().reader(group, categories, ownership, identity)
        reader.poll_limit = self._at_most
        commit = reader.commit

        def committed(positions: Sequence[Position]) -> None:
            self._faults.at("bus: commit")
            commit(positions)

        reader.commit = committed  # type: ignore[method-assign]  # only this member fails
        return reader

    def scanner(self, positions: Sequence[Position]) -> MemoryScanner:
        """Return a scanner that reads a few messages at a time."""
        scanner = super().scanner(positions)
        scanner.poll_limit = self._at_most
        return scanner

    def writer(self, limit_s: float | None = None) -> Any:
        """Return a writer."""
        return FaultyWriter(super().writer(limit_s), self._faults)

    def transactional_writer(
        self, identity: str, member: Reader | None, timeout_s: float, writes: Collection[str]
    ) -> Any:
        """Return a transactional writer."""
        self._faults.at("bus: open a writer")
        return FaultyWriter(super().transactional_writer(identity, member, timeout_s, writes), self._faults)


class FaultyWriter:
    """A writer that may fail. Without transactions, a failed send loses only the answer; the message is on the bus."""

    def __init__(self, writer: Writer | TransactionalWriter, faults: Faults) -> None:
        self._writer = writer
        self._faults = faults

    def send(self, category: str, messages: Iterable[Outgoing]) -> None:
        """Send."""
        self._faults.at("bus: send")
        self._writer.send(category, messages)

    def flush(self) -> None:
        """Flush."""
        self._faults.at("bus: flush")
        self._writer.flush()

    def commit(self, positions: Sequence[Position]) -> None:
        """Commit a transaction."""
        self._faults.at("bus: commit a transaction")
        with self._faults.pausing():
            self._writer.commit(positions)  # type: ignore[union-attr]  # called only for transactional writers

    def __getattr__(self, name: str) -> Any:
        """Return further methods of transactional writers."""
        return getattr(self._writer, name)

    def close(self) -> None:
        """Close."""
        self._faults.at("bus: close a writer")
        self._writer.close()


class FaultyRows:
    """Rows of a sink whose claims and writes may fail, before they happen or before their answer."""

    def __init__(self, rows: RowStore, faults: Faults) -> None:
        self._rows = rows
        self._faults = faults

    def claim(self, shard: StoredShard) -> RowClaim:
        """Become the owner."""
        self._faults.at("sink: claim")
        return self._rows.claim(shard)

    def commit(self, shard: StoredShard, version: ShardVersion, batch: ps.sinks.SinkBatch) -> ShardVersion:
        """Write rows and position."""
        self._faults.at("sink: write")
        found = self._rows.commit(shard, version, batch)
        self._faults.at("sink: answer")
        return found

    def close(self) -> None:
        """Keep the rows."""


class DelayedExecutor(Executor):
    """Runs a call after a few polls of its future, or when its result is needed: between iterations of a loop, in its thread.

    Args:
        polls: the number of polls before the call runs.
    """

    def __init__(self, polls: int = 3) -> None:
        self._polls = polls

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Delay the steps of a checkpoint; run any other call at once."""
        if not isinstance(getattr(fn, "__self__", None), CheckpointCoordinator):
            return InlineExecutor().submit(fn, *args, **kwargs)
        return _DelayedFuture(lambda: InlineExecutor().submit(fn, *args, **kwargs), self._polls)


class _DelayedFuture(Future[Any]):
    def __init__(self, call: Callable[[], Future[Any]], polls: int) -> None:
        super().__init__()
        self._call = call
        self._polls = polls

    def _run(self) -> None:
        if not super().done():
            self.set_running_or_notify_cancel()
            try:
                self.set_result(self._call().result())
            except Exception as error:  # noqa: BLE001 - raised when the result is read
                self.set_exception(error)

    def done(self) -> bool:
        """Tell whether the call has run, and count the poll."""
        self._polls -= 1
        if self._polls < 0:
            self._run()
        return super().done()

    def result(self, timeout: float | None = None) -> Any:
        """Run the call, and return its result."""
        self._run()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Run the call, and return its exception."""
        self._run()
        return super().exception(timeout)


def disk_full(name: str) -> StateUnwritable:
    """Return the error of a state on a full disk."""
    return StateUnwritable(f"{name}: IO error: No space left on device.")
