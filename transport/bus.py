"""The protocols of the bus.

`MemoryBus` and `KafkaBus` implement them and pass one contract suite.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from .category_spec import CategorySpec, CategoryState, Durability, Topic
from .messages import Bucket, Outgoing, Polled, Position


class OwnershipListener(Protocol):
    """Callbacks of a reader when its buckets change. The reader calls them from `poll` and `close`, in the caller's thread."""

    def assigned(self, buckets: Sequence[Bucket]) -> None:
        """Record newly assigned buckets. The reader reads them from `Reader.start` on. Must return at once.

        Called after each rebalance, with no buckets if none are new: at least once after the member has joined, and again after it has lost
        buckets.
        """
        ...

    def revoked(self, buckets: Sequence[Bucket]) -> None:
        """Save and release buckets. No other member owns them before this returns."""
        ...

    def lost(self, buckets: Sequence[Bucket]) -> None:
        """Release buckets that another member may own already. Save nothing."""
        ...


class Scanner(Protocol):
    """Reads buckets. One thread calls poll any number of times, then close."""

    def poll(self, timeout_s: float) -> Polled:
        """Return the next messages; wait up to `timeout_s` if there are none.

        Raises:
            BusError: translated from the client's own error.
        """
        ...

    def close(self) -> None:
        """Release all buckets. May be repeated."""
        ...


class Reader(Scanner, Protocol):
    """A member of a consumer group. One thread calls start, poll and commit any number of times, then close.

    `poll` raises MembershipLost when the membership has ended; close, and join again. On `close`, a member with an identity keeps
    its buckets until its session ends; other members leave.
    """

    poll_limit: int
    """The most messages of a bucket that a poll returns, or of all buckets together; may change between two polls."""
    session_s: float
    """How long the member may be silent before others get its buckets, in seconds."""

    def keep_alive(self) -> None:
        """Keep the membership although the process does not poll, because it works on a batch. Any thread; nothing is called back."""
        ...

    def start(self, positions: Sequence[Position]) -> None:
        """Read owned buckets from these offsets on, including buckets that are being read or paused."""
        ...

    def pause(self, buckets: Sequence[Bucket]) -> None:
        """Stop returning messages of owned buckets. The client drops fetched messages and fetches them again: pause rarely."""
        ...

    def resume(self, buckets: Sequence[Bucket]) -> None:
        """Continue paused buckets where they were."""
        ...

    def commit(self, positions: Sequence[Position]) -> None:
        """Save the group's positions; durable on return; may be repeated.

        Raises:
            CommitUnconfirmed: the group is rebalancing, or no broker answers; poll, and commit again.
            Fenced: this reader no longer owns the buckets.
        """
        ...

    def leave(self) -> None:
        """Release all buckets and leave the group at once, so that other members get them. Then close."""
        ...


class Writer(Protocol):
    """Sends messages. One thread calls send any number of times, flush before it relies on them, and close at the end."""

    def send(self, category: str, messages: Iterable[Outgoing]) -> None:
        """Queue messages; a background thread sends them, in order for each key. Waits while the queue is full."""
        ...

    def send_now(self) -> None:
        """Let the background thread send queued messages that wait for more, to share a request. Takes about a millisecond; promises nothing."""
        ...

    def flush(self) -> None:
        """Wait until all sent messages are durable.

        Raises:
            DeliveryFailed: some messages are not durable.
        """
        ...

    def close(self) -> None:
        """Close the connection. Messages that were not flushed may be lost."""
        ...


class TransactionalWriter(Writer, Protocol):
    """Sends messages in transactions, each with the positions of a member of a group.

    Opening a writer fences an earlier writer of the same identity and ends its transaction. After an error, close the writer and open
    another one.
    """

    def enlist(self) -> None:
        """Make the next commit depend on the present membership. The thread that polls the member calls this."""
        ...

    def commit(self, positions: Sequence[Position]) -> None:
        """Commit all messages since the last commit and the positions atomically; durable on return.

        Raises:
            Aborted: the transaction was aborted, and the positions are as before.
            Fenced: another writer uses the identity, or no broker answers. The committed positions show whether the transaction was committed.
        """
        ...

    def abort(self) -> None:
        """Abort all messages since the last commit. May be repeated."""
        ...


class Catalog(Protocol):
    """The categories of a bus. Every call is complete on return and may be repeated."""

    def create(self, spec: CategorySpec) -> None:
        """Create a category; raise CategoryExists if it exists."""
        ...

    def delete(self, name: str) -> None:
        """Delete a category and its events; raise MissingCategory if it is missing."""
        ...

    def resize(self, name: str, buckets: int) -> None:
        """Raise the number of buckets. Later events of a key may be in another bucket than its earlier events."""
        ...

    def names(self) -> list[str]:
        """Return the names of all categories, sorted."""
        ...

    def describe(self, name: str) -> CategoryState:
        """Return the present state of a category; raise MissingCategory if it is missing."""
        ...

    def describe_all(self, names: Collection[str]) -> dict[str, CategoryState]:
        """Return the present states of categories, without missing ones. The number of requests does not depend on theirs."""
        ...

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Return the ids and sizes of categories, without missing ones; cheap enough for every few seconds."""
        ...

    def durability(self, name: str) -> Durability:
        """Return the replication and timestamp settings of a category, as far as the bus reports them."""
        ...

    def message_limit(self, name: str) -> int:
        """Return the size limit of a message, key and value together, in bytes, for this client and the category's present settings.

        Raises:
            BatchesRefused: the category's limit is below the size of this client's batches of small messages.
        """
        ...

    def ends(self, name: str) -> Mapping[int, int]:
        """Return the offset after the last event of each bucket, including open transactions."""
        ...

    def ends_of(self, buckets: Collection[Bucket]) -> Mapping[Bucket, int]:
        """Return the ends of buckets of any categories, with one request: cheap enough for every second.

        Raises:
            BusError: no broker answers, or a category is missing.
        """
        ...

    def stable_ends(self, name: str) -> Mapping[int, int]:
        """Return the end of each bucket for readers: the start of the first open transaction, if there is one."""
        ...

    def at_time(self, name: str, time: datetime) -> dict[int, int]:
        """Return, by bucket, the offset of the first event that arrived at `time` or later; the end if there is none."""
        ...

    def waiting_since(self, positions: Collection[Position]) -> dict[Position, int]:
        """Return when the first event at or after each position arrived at the bus (milliseconds since 1970, UTC).

        Several positions may be in one bucket. Omits positions without a later event. Events of open and aborted transactions count.
        """
        ...

    def committed(self, group: str, name: str) -> dict[int, int]:
        """Return a group's committed positions in a category, by bucket, without buckets that it has not committed.

        Waits for transactions that are being committed or aborted.
        """
        ...

    def committed_of(self, readers: Collection[tuple[str, str]]) -> dict[tuple[str, str], dict[int, int]]:
        """Return the committed positions of several groups at once, each in a category, by group and category.

        Args:
            readers: groups, each with a category.
        """
        ...

    def positions(self, group: str, name: str) -> list[Position]:
        """Return a group's committed positions, each with the checkpoint that committed it."""
        ...

    def set_committed(self, group: str, positions: Sequence[Position]) -> None:
        """Set the positions of a group without members; raise GroupInUse if it has members."""
        ...

    def forget_group(self, group: str) -> None:
        """Delete a group without members and all its positions, if it exists; raise GroupInUse if it has members."""
        ...


class Bus(Protocol):
    """A bus of categories."""

    @property
    def catalog(self) -> Catalog:
        """The categories."""
        ...

    def reader(
        self, group: str, categories: Sequence[str], ownership: OwnershipListener, identity: str | None = None
    ) -> Reader:
        """Join a consumer group that shares the buckets of `categories`, which are co-partitioned.

        A member with an identity that returns before its session ends keeps its buckets.
        """
        ...

    def scanner(self, positions: Sequence[Position]) -> Scanner:
        """Return a reader of buckets from given offsets, outside of any group."""
        ...

    def writer(self, limit_s: float | None = None) -> Writer:
        """Return a writer.

        Args:
            limit_s: how long a message may wait before it is dropped, and the next flush fails; None for the client's own limit.
        """
        ...

    def expect_transactions(self, identity: str) -> None:
        """Raise NoTransactions if brokers answer, and the cluster has no transactions.

        Args:
            identity: of a writer that does not run.
        """
        ...

    def transactional_writer(
        self, identity: str, member: Reader | None, timeout_s: float, writes: Collection[str]
    ) -> TransactionalWriter:
        """Return a writer whose commits include the positions of `member`.

        Args:
            identity: the same across restarts; one process uses it at a time.
            member: a group reader of this bus; None for transactions without positions.
            timeout_s: how long a transaction may stay open before the bus aborts it.
            writes: the categories that it may write to, including those of earlier writers of the identity.
        """
        ...
