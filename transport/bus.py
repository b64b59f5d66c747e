"""The seam to the bus: what the engine asks of it, and the values that cross.

Two implementations, held to one contract suite: `MemoryBus`, and Kafka behind `KafkaBus`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import repeat
from typing import NamedTuple, Protocol

from ..processors.declare.categories import AnyCategory
from ..processors.time.timestamp_validation import UNKNOWN_MS


class Bucket(NamedTuple):
    """One bucket of a category."""

    category: str
    number: int

    def __str__(self) -> str:
        return f"{self.category}/{self.number}"


class Position(NamedTuple):
    """A place in one bucket.

    Args:
        bucket: which.
        offset: the next unread one; None, for a scanner, stands for the first event that is kept.
        checkpoint_id: of a group's position, which checkpoint committed it; 0 for none that has an id.
    """

    bucket: Bucket
    offset: int | None
    checkpoint_id: int = 0


class Message(Protocol):
    """One stored message, read through confluent-kafka's own names so that its messages need no wrapping."""

    def key(self) -> bytes | None:
        """Return the key."""

    def value(self) -> bytes | None:
        """Return the payload."""

    def offset(self) -> int:
        """Return its offset."""

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of time (0: none, 1: the writer's, 2: the bus's), and when it arrived (milliseconds since 1970, UTC)."""


class End(NamedTuple):
    """A bucket that is read up to its end as of now."""

    bucket: Bucket
    offset: int


class RawBatch(NamedTuple):
    """Messages of one bucket, in order, as they came off the bus; never empty."""

    bucket: Bucket
    messages: Sequence[Message]

    @property
    def next_offset(self) -> int:
        """The next unread offset after this batch."""
        return self.messages[-1].offset() + 1

    def values(self) -> list[bytes | None]:
        """Return the payloads."""
        return [message.value() for message in self.messages]

    def arrivals_ms(self) -> list[int]:
        """Return when each message arrived at the bus (milliseconds since 1970, UTC); `UNKNOWN_MS` where nobody has noted it.

        Where the category asks for its writers' own times, those are taken for it.
        """
        return [time_ms if kind else UNKNOWN_MS for kind, time_ms in (message.timestamp() for message in self.messages)]


class Polled(NamedTuple):
    """What one poll gave.

    Args:
        batches: messages, at most one batch for each bucket.
        ended: buckets that are read up to their end as of now.
    """

    batches: Sequence[RawBatch]
    ended: Sequence[End]


MESSAGE_LIMIT = 1_000_000
"""How large a message may be where nothing else is set, in bytes: Kafka's clients take no larger one, and its brokers take that."""

CERTAINLY_FITS_BYTES = 16 * 1024
"""Every category that a worker writes takes a message of this size; it is sent without asking how large it may be."""

BY_KEY = -1
"""In place of a bucket: the one of the key."""


class Outgoing(NamedTuple):
    """A message to send: events of one key go to one bucket; without a key, to any; or to the bucket that is named."""

    key: bytes | None
    value: bytes | None
    bucket: int = BY_KEY


_new_outgoing = partial(tuple.__new__, Outgoing)


def outgoing(keys: Iterable[bytes | None], values: Iterable[bytes | None]) -> Iterator[Outgoing]:
    """Return messages for the buckets of their keys: as `map(Outgoing, keys, values)` does, in two thirds of the time."""
    return map(_new_outgoing, zip(keys, values, repeat(BY_KEY)))


def size_of(message: Outgoing) -> int:
    """Return the size of a message in bytes: of its key and its value."""
    return len(message.key or b"") + len(message.value or b"")


@dataclass(frozen=True)
class CategorySpec:
    """What a category needs of the bus.

    Args:
        name: its name.
        buckets: how many buckets.
        retention: how long events are kept; None for ever.
        compacted: keep the last message of each key instead.
        deletions: of a compacted category, how long it is kept at least that a key was deleted; None for the bus's default.
    """

    name: str
    buckets: int
    retention: timedelta | None = None
    compacted: bool = False
    deletions: timedelta | None = None

    @staticmethod
    def of(category: AnyCategory) -> CategorySpec:
        """Return what a declared category needs."""
        return CategorySpec(category.name, category.buckets, category.retention)


@dataclass(frozen=True)
class CategoryState:
    """A category as it stands on the bus.

    Args:
        spec: its shape there.
        starts: the first offset that is kept, by bucket.
        ends: the offset after the last event, by bucket.
        topic_id: the bus's own id of it; a category that is deleted and created again has another one.
    """

    spec: CategorySpec
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    topic_id: str

    @property
    def events(self) -> int:
        """How many offsets lie between start and end; transactions use some of them for themselves."""
        return sum(self.ends.values()) - sum(self.starts.values())


class Topic(NamedTuple):
    """What tells a category from another of the same name, or from itself before it was resized.

    Args:
        id: the bus's own id of it; see `CategoryState`.
        buckets: how many it has.
    """

    id: str
    buckets: int


@dataclass(frozen=True)
class Durability:
    """How safe a category's events are, and what tells when they arrived.

    Args:
        replicas: on how many brokers each bucket is kept.
        in_sync: how many of those must have a message before it counts as written.
        unclean: whether a broker that lacks messages may take over where all others are away.
        arrival: whether the bus notes when messages arrive, and not their writers.
    """

    replicas: int
    in_sync: int
    unclean: bool
    arrival: bool

    @property
    def is_safe(self) -> bool:
        """Whether no acknowledged message is lost with one broker."""
        return self.replicas >= 3 and self.in_sync >= 2 and not self.unclean


class Ownership(Protocol):
    """Told by a reader which buckets are its own. Called from within `poll` and `close`, in the caller's thread."""

    def assigned(self, buckets: Sequence[Bucket]) -> None:
        """Note that buckets are ours. Nothing of them is read until `Reader.start`; must return at once.

        Called whenever the group has given out its buckets: with none where there are no further ones for us. So it is called once at
        least after a member has joined, and again after it was told that it loses some.
        """
        ...

    def revoked(self, buckets: Sequence[Bucket]) -> None:
        """Save and let go of buckets: nobody else owns them before this returns."""
        ...

    def lost(self, buckets: Sequence[Bucket]) -> None:
        """Let go of buckets that somebody else may own already: save nothing."""
        ...


class Scanner(Protocol):
    """Reads buckets. One thread calls: poll, any number of times; then close, once."""

    def poll(self, timeout_s: float) -> Polled:
        """Return what is there, waiting up to `timeout_s` where there is nothing.

        Raises:
            BusError: translated from the client's own error.
        """
        ...

    def close(self) -> None:
        """Give up all buckets. May be repeated."""
        ...


class Reader(Scanner, Protocol):
    """A member of a consumer group. One thread calls: start, poll and commit, any number of times; then close, once.

    `poll` raises Dismissed where the membership has ended; close, and join again. On `close`, a member with an identity keeps
    its place in the group for a while; others leave.
    """

    at_most: int
    """How many messages of a bucket a poll gives at most, perhaps of all buckets together; may be changed between two polls."""

    def start(self, positions: Sequence[Position]) -> None:
        """Read owned buckets from these offsets on, also when they are read already, or paused."""
        ...

    def pause(self, buckets: Sequence[Bucket]) -> None:
        """Give no more of owned buckets for now. What the client has fetched of them is fetched again: for seldom use."""
        ...

    def resume(self, buckets: Sequence[Bucket]) -> None:
        """Go on with buckets that were paused, where they were."""
        ...

    def commit(self, positions: Sequence[Position]) -> None:
        """Save the group's positions; durable on return; may be repeated.

        Raises:
            Unsettled: ownership is changing just now, or nobody answers; poll, and commit again.
            Fenced: this reader no longer owns the buckets.
        """
        ...

    def leave(self) -> None:
        """Give up all buckets and leave the group at once, so that others get them. Then close."""
        ...


class Writer(Protocol):
    """Sends messages. One thread calls: send any number of times, flush before relying on them, close at the end."""

    def send(self, category: str, messages: Iterable[Outgoing]) -> None:
        """Hand messages over; they leave in the background, in order for each key. Waits while the queue is full."""
        ...

    def flush(self) -> None:
        """Return when all that was sent is durable.

        Raises:
            DeliveryFailed: some of it is not.
        """
        ...

    def close(self) -> None:
        """Let go of the connection; what was not flushed may be lost."""
        ...


class TransactionalWriter(Writer, Protocol):
    """Sends messages that count only when they are committed, together with the positions of a member of a group.

    Opening one ends whatever an earlier one of the same identity left open, and fences that one. After an error it is to be
    closed, and another opened.
    """

    def enlist(self) -> None:
        """Note the membership that the next commit depends on, as it is now. Called by the thread that polls the member."""
        ...

    def commit(self, positions: Sequence[Position]) -> None:
        """Make all that was sent since the last commit count, and the positions, as one; durable on return.

        Raises:
            Aborted: nothing of it counts, and the positions are as before.
            Fenced: somebody else uses the identity, or nobody answers; whether it counts, the committed positions tell.
        """
        ...

    def abort(self) -> None:
        """Drop all that was sent since the last commit. May be repeated."""
        ...


class Catalog(Protocol):
    """The categories that are on a bus. Every call is complete on return and may be repeated."""

    def create(self, spec: CategorySpec) -> None:
        """Create a category; raise CategoryExists where its name is taken."""
        ...

    def delete(self, name: str) -> None:
        """Delete a category and its events; raise MissingCategory where there is none."""
        ...

    def resize(self, name: str, buckets: int) -> None:
        """Raise the number of buckets; later events of a key may live in another bucket than its earlier ones."""
        ...

    def names(self) -> list[str]:
        """Return the names of all categories, sorted."""
        ...

    def describe(self, name: str) -> CategoryState:
        """Return a category as it stands; raise MissingCategory where there is none."""
        ...

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Return the id and size of categories, without those that are missing; cheap enough to ask every few seconds."""
        ...

    def durability(self, name: str) -> Durability:
        """Return how safe a category's events are."""
        ...

    def largest(self, name: str) -> int:
        """Return how large a message may be, in bytes, its key and its value together, for this client and the category as it is now.

        Raises:
            BatchesRefused: the category takes less than this client puts into one batch of small messages.
        """
        ...

    def ends(self, name: str) -> Mapping[int, int]:
        """Return the offset after the last event of each bucket, also of transactions that are still open."""
        ...

    def ends_of(self, buckets: Collection[Bucket]) -> Mapping[Bucket, int]:
        """Return the same for some buckets, of several categories perhaps: one request, cheap enough to make each second.

        Raises:
            BusError: nobody answers, or a category is not there.
        """
        ...

    def stable_ends(self, name: str) -> Mapping[int, int]:
        """Return the end of each bucket as readers find it: where the first transaction begins that is still open, if there is one."""
        ...

    def at_time(self, name: str, time: datetime) -> dict[int, int]:
        """Return, by bucket, the offset of the first event that arrived at `time` or later; the end where none did."""
        ...

    def waiting_since(self, positions: Collection[Position]) -> dict[Position, int]:
        """Return when the first event from each position on arrived at the bus (milliseconds since 1970, UTC).

        Several positions may lie in one bucket. Those with no event behind them are left out; so is what belongs to open transactions.
        """
        ...

    def committed(self, group: str, name: str) -> dict[int, int]:
        """Return a group's committed positions in a category, by bucket; without those it has not committed.

        Waits for transactions that are being decided.
        """
        ...

    def positions(self, group: str, name: str) -> list[Position]:
        """Return the same as positions, each with the checkpoint that committed it."""
        ...

    def set_committed(self, group: str, positions: Sequence[Position]) -> None:
        """Set where a group goes on that has no members; raise GroupInUse where it has."""
        ...

    def forget_group(self, group: str) -> None:
        """Remove a group that has no members, with all its positions; nothing where there is none; raise GroupInUse where it has."""
        ...


class Bus(Protocol):
    """Where categories live."""

    @property
    def catalog(self) -> Catalog:
        """The categories."""
        ...

    def reader(
        self, group: str, categories: Sequence[str], ownership: Ownership, identity: str | None = None
    ) -> Reader:
        """Join a consumer group that shares the buckets of `categories`, co-partitioned where there are several.

        A member with an identity that comes back within the session's time finds its buckets waiting.
        """
        ...

    def scanner(self, positions: Sequence[Position]) -> Scanner:
        """Read given buckets from given offsets, in no group."""
        ...

    def writer(self) -> Writer:
        """Return a writer."""
        ...

    def transactional_writer(
        self, identity: str, member: Reader | None, timeout_s: float, writes: Collection[str]
    ) -> TransactionalWriter:
        """Return a writer whose commits carry the positions of `member`.

        Args:
            identity: known across restarts, and used by one process at a time.
            member: a reader of this bus that is a member of a group; None for transactions that carry no positions.
            timeout_s: how long a transaction may stay open before the bus ends it.
            writes: the categories that it may write to, and that an earlier writer of the identity may have written to.
        """
        ...
