"""A bus and states that fail at chosen operations, under a worker whose checkpoints are saved beside its loop, and yet the same each time.

Operations are counted in the order in which they happen: reads and writes of a state, its closing, sends and flushes, commits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

from penstock.ops.testing import InlineExecutor
from penstock.ops.worker.checkpoint_coordinator import CheckpointCoordinator
from penstock.state.errors import StateUnwritable
from penstock.state.protocols import ShardIdentity, ShardState, StateFolder
from penstock.transport.bus import Ownership, Reader, TransactionalWriter, Writer
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.cluster import Cluster
from penstock.transport.memory.readers import MemoryScanner
from penstock.transport.messages import Outgoing, Position

STATE = frozenset(
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
"""The operations of a state that write."""

Fails = Callable[[str, int], Exception | None]
"""Gets the name of an operation, and how many came before it; returns how it fails, if it does."""


class Faults:
    """Counts operations, and has some of them fail."""

    def __init__(self) -> None:
        self.fails: Fails = lambda _name, _before: None
        self.seen: list[str] = []
        self._paused = False

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Count nothing in the block."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def at(self, name: str) -> None:
        """Count an operation; raise what it fails with."""
        if self._paused:
            return
        before = len(self.seen)
        self.seen.append(name)
        error = self.fails(name, before)
        if error is not None:
            raise error


class FaultyState:
    """A state whose writes may fail, before or after they have taken effect.

    Args:
        state: the real one.
        faults: says which fail.
    """

    def __init__(self, state: ShardState, faults: Faults) -> None:
        self._state = state
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        """Return the state's own method, counted where it writes."""
        method = getattr(self._state, name)
        if name not in STATE:
            return method

        def counted(*given: Any, **named: Any) -> Any:
            if name == "close":
                method()  # what a database holds is let go of, whatever it says
            self._faults.at(f"state: {name}")
            return None if name == "close" else method(*given, **named)

        return counted


class FaultyStates:
    """A folder of such states."""

    def __init__(self, states: StateFolder, faults: Faults) -> None:
        self._states = states
        self._faults = faults

    def open(self, identity: ShardIdentity) -> Any:
        """Open a shard's state."""
        self._faults.at("state: open")
        return FaultyState(self._states.open(identity), self._faults)


class FaultyBus(MemoryBus):
    """A bus in memory whose writers and members may fail.

    Args:
        faults: says when.
        at_most: how many messages a poll gives.
        cluster: what other clients use, too; by default one of its own.
    """

    def __init__(self, faults: Faults, at_most: int, cluster: Cluster | None = None) -> None:
        super().__init__(lambda: 0, cluster=cluster)
        self._faults = faults
        self._at_most = at_most

    def reader(self, group: str, categories: Sequence[str], ownership: Ownership, identity: str | None = None) -> Any:
        """Join a group."""
        reader = super().reader(group, categories, ownership, identity)
        reader.poll_limit = self._at_most
        commit = reader.commit

        def committed(positions: Sequence[Position]) -> None:
            self._faults.at("bus: commit")
            commit(positions)

        reader.commit = committed  # type: ignore[method-assign]  # this one member fails
        return reader

    def scanner(self, positions: Sequence[Position]) -> MemoryScanner:
        """Read a few messages at a time from given offsets."""
        scanner = super().scanner(positions)
        scanner.poll_limit = self._at_most
        return scanner

    def writer(self) -> Any:
        """Return a writer."""
        return FaultyWriter(super().writer(), self._faults)

    def transactional_writer(
        self, identity: str, member: Reader | None, timeout_s: float, writes: Collection[str]
    ) -> Any:
        """Return a writer of transactions."""
        self._faults.at("bus: open a writer")
        return FaultyWriter(super().transactional_writer(identity, member, timeout_s, writes), self._faults)


class FaultyWriter:
    """A writer that may fail. Of one without transactions, what was sent is on the bus all the same: an answer is lost, not the message."""

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
            self._writer.commit(positions)  # type: ignore[union-attr]  # only asked of one that has it

    def __getattr__(self, name: str) -> Any:
        """Return what else only writers of transactions have."""
        return getattr(self._writer, name)

    def close(self) -> None:
        """Close."""
        self._faults.at("bus: close a writer")
        self._writer.close()


class Late(Executor):
    """Does what it is given when it has been asked for it a few times, or is waited for: between the turns of a loop, in its thread.

    Args:
        looks: how often it is looked whether something is done before it is.
    """

    def __init__(self, looks: int = 3) -> None:
        self._looks = looks

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Keep a checkpoint's steps for later; do anything else at once."""
        if not isinstance(getattr(fn, "__self__", None), CheckpointCoordinator):
            return InlineExecutor().submit(fn, *args, **kwargs)
        return _Later(lambda: InlineExecutor().submit(fn, *args, **kwargs), self._looks)


class _Later(Future[Any]):
    def __init__(self, do: Callable[[], Future[Any]], looks: int) -> None:
        super().__init__()
        self._do = do
        self._looks = looks

    def _now(self) -> None:
        if not super().done():
            self.set_running_or_notify_cancel()
            try:
                self.set_result(self._do().result())
            except Exception as error:  # noqa: BLE001 - whoever asks for the result gets it
                self.set_exception(error)

    def done(self) -> bool:
        """Tell whether it is done; looking brings that nearer."""
        self._looks -= 1
        if self._looks < 0:
            self._now()
        return super().done()

    def result(self, timeout: float | None = None) -> Any:
        """Do it, and return what came of it."""
        self._now()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Do it, and return what it raised."""
        self._now()
        return super().exception(timeout)


def disk_full(name: str) -> StateUnwritable:
    """Return what a full disk has a state raise."""
    return StateUnwritable(f"{name}: IO error: No space left on device.")
