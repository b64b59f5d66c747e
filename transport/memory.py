"""A bus in memory, for tests and trials: the same manners as Kafka, in microseconds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from ..processors.buckets import bucket_of
from .bus import (
    BY_KEY,
    Bucket,
    CategorySpec,
    CategoryState,
    End,
    Outgoing,
    Ownership,
    Polled,
    Position,
    RawBatch,
    Reader,
)
from .errors import Aborted, BusError, CategoryExists, Fenced, GroupInUse, MissingCategory

POLL_LIMIT = 10_000
"""How many messages of one bucket a poll gives at most."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message in a bucket of the memory bus."""

    at: int
    payload: Outgoing
    arrived_ms: int

    def key(self) -> bytes | None:
        """Return the key."""
        return self.payload.key

    def value(self) -> bytes | None:
        """Return the payload."""
        return self.payload.value

    def offset(self) -> int:
        """Return its offset."""
        return self.at

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of time (1: set when it was written), and when it arrived."""
        return 1, self.arrived_ms


@dataclass
class _Stored:
    spec: CategorySpec
    buckets: list[list[StoredMessage]]


@dataclass
class _Group:
    members: list[_Member] = field(default_factory=list)
    positions: dict[Bucket, Position] = field(default_factory=dict)

    def note(self, positions: Iterable[Position]) -> None:
        self.positions.update((position.bucket, position) for position in positions if position.offset is not None)


class MemoryBus:
    """A bus that lives as long as the object.

    Args:
        now_ms: tells the time that messages arrive at, in milliseconds since 1970, UTC.
    """

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        self._now_ms = now_ms or _wall_clock_ms
        self._stored: dict[str, _Stored] = {}
        self._groups: dict[str, _Group] = {}
        self._transactional: dict[str, _TransactionalWriter] = {}

    @property
    def catalog(self) -> MemoryBus:
        """The categories: this same object."""
        return self

    def create(self, spec: CategorySpec) -> None:
        """Create a category."""
        if spec.name in self._stored:
            raise CategoryExists(f"Category {spec.name} exists already.")
        self._stored[spec.name] = _Stored(spec, [[] for _ in range(spec.buckets)])

    def delete(self, name: str) -> None:
        """Delete a category and its events."""
        self._find(name)
        del self._stored[name]

    def resize(self, name: str, buckets: int) -> None:
        """Raise the number of buckets."""
        stored = self._find(name)
        if buckets <= stored.spec.buckets:
            raise BusError(f"Category {name} has {stored.spec.buckets} buckets; it can only grow, not go to {buckets}.")
        stored.buckets.extend([] for _ in range(buckets - stored.spec.buckets))
        stored.spec = replace(stored.spec, buckets=buckets)

    def names(self) -> list[str]:
        """Return the names of all categories, sorted."""
        return sorted(self._stored)

    def describe(self, name: str) -> CategoryState:
        """Return a category as it stands."""
        stored = self._find(name)
        ends = {number: len(bucket) for number, bucket in enumerate(stored.buckets)}
        return CategoryState(stored.spec, dict.fromkeys(ends, 0), ends)

    def ends(self, name: str) -> dict[int, int]:
        """Return the offset after the last event of each bucket."""
        return {number: len(bucket) for number, bucket in enumerate(self._find(name).buckets)}

    def stable_ends(self, name: str) -> dict[int, int]:
        """Return the same: nothing of an open transaction is stored."""
        return self.ends(name)

    def at_time(self, name: str, time: datetime) -> dict[int, int]:
        """Return, by bucket, the offset of the first event that arrived at `time` or later; the end where none did."""
        since_ms = int(time.timestamp() * 1000)
        return {
            number: next((m.at for m in bucket if m.arrived_ms >= since_ms), len(bucket))
            for number, bucket in enumerate(self._find(name).buckets)
        }

    def waiting_since(self, positions: Collection[Position]) -> dict[Position, int]:
        """Return when the first event from each position on arrived at the bus."""
        waiting = {position: self.slice(position.bucket, position.offset or 0, 1) for position in positions}
        return {position: messages[0].arrived_ms for position, messages in waiting.items() if messages}

    def committed(self, group: str, name: str) -> dict[int, int]:
        """Return a group's committed positions in a category, by bucket."""
        return {position.bucket.number: position.offset or 0 for position in self.positions(group, name)}

    def positions(self, group: str, name: str) -> list[Position]:
        """Return a group's committed positions in a category, each with the checkpoint that committed it."""
        positions = self._groups.get(group, _Group()).positions
        return [position for bucket, position in positions.items() if bucket.category == name]

    def set_committed(self, group: str, positions: Sequence[Position]) -> None:
        """Set where a group goes on."""
        found = self._groups.setdefault(group, _Group())
        if found.members:
            raise GroupInUse(f"Group {group} has members.")
        found.note(positions)

    def forget_group(self, group: str) -> None:
        """Remove a group, with its positions."""
        found = self._groups.get(group)
        if found is not None and found.members:
            raise GroupInUse(f"Group {group} has members.")
        self._groups.pop(group, None)

    def reader(
        self,
        group: str,
        categories: Sequence[str],
        ownership: Ownership,
        identity: str | None = None,  # noqa: ARG002 - there is no session to outlive
    ) -> _Member:
        """Join a consumer group."""
        for name in categories:
            self._find(name)
        return _Member(self, self._groups.setdefault(group, _Group()), tuple(categories), ownership)

    def kill_members(self, group: str) -> None:
        """Let every member of a group die as a process does: nobody is told, nothing is saved."""
        self._groups.setdefault(group, _Group()).members.clear()

    def scanner(self, positions: Sequence[Position]) -> _Scanner:
        """Read given buckets from given offsets, in no group."""
        return _Scanner(self, positions)

    def writer(self) -> _MemoryWriter:
        """Return a writer."""
        return _MemoryWriter(self)

    def transactional_writer(self, identity: str, member: Reader | None, timeout_s: float) -> _TransactionalWriter:  # noqa: ARG002 - time stands still here
        """Return a writer whose commits carry the positions of `member`; an earlier one of the identity is fenced."""
        self._transactional[identity] = _TransactionalWriter(self, member, identity)
        return self._transactional[identity]

    def is_current(self, writer: _TransactionalWriter) -> bool:
        """Tell whether nobody has opened a later writer of the same identity."""
        return self._transactional.get(writer.identity) is writer

    def append(self, name: str, message: Outgoing) -> None:
        """Store one message."""
        buckets = self._find(name).buckets
        bucket = buckets[_number(message, buckets)]
        bucket.append(StoredMessage(len(bucket), message, self._now_ms()))

    def slice(self, bucket: Bucket, start: int, limit: int) -> list[StoredMessage]:
        """Return up to `limit` messages of a bucket from an offset on."""
        return self._find(bucket.category).buckets[bucket.number][start : start + limit]

    def _find(self, name: str) -> _Stored:
        try:
            return self._stored[name]
        except KeyError:
            raise MissingCategory(f"There is no category {name} on the bus. Create it first.") from None


def _number(message: Outgoing, buckets: Sequence[Sequence[StoredMessage]]) -> int:
    if message.bucket != BY_KEY:
        return message.bucket
    if message.key is None:
        return min(range(len(buckets)), key=lambda number: len(buckets[number]))
    return bucket_of(message.key, len(buckets))


class _Scanner:
    """Reads given buckets from given offsets."""

    def __init__(self, bus: MemoryBus, positions: Sequence[Position]) -> None:
        self._bus = bus
        self._next = {bucket: offset or 0 for bucket, offset, _ in positions}
        self.at_most = POLL_LIMIT
        self.paused: set[Bucket] = set()

    def poll(self, timeout_s: float) -> Polled:  # noqa: ARG002 - nothing arrives while we wait in memory
        """Return what is there."""
        batches: list[RawBatch] = []
        ended: list[End] = []
        for bucket, start in self._next.items():
            if bucket in self.paused:
                continue
            messages = self._bus.slice(bucket, start, self.at_most)
            if messages:
                batches.append(RawBatch(bucket, messages))
                self._next[bucket] = start + len(messages)
            else:
                ended.append(End(bucket, start))
        return Polled(batches, ended)

    def start(self, positions: Sequence[Position]) -> None:
        """Read these buckets from these offsets on."""
        self._next.update((bucket, offset or 0) for bucket, offset, _ in positions)
        self.paused.difference_update(position.bucket for position in positions)

    def drop(self, buckets: Iterable[Bucket]) -> None:
        """Read these buckets no more."""
        for bucket in buckets:
            self._next.pop(bucket, None)

    def close(self) -> None:
        """Do nothing: there is no connection."""


class _Member:
    """One member of a group: bucket n of every category belongs to member n modulo the members."""

    def __init__(self, bus: MemoryBus, group: _Group, categories: tuple[str, ...], ownership: Ownership) -> None:
        self._bus = bus
        self._group = group
        self._categories = categories
        self._ownership = ownership
        self._scanner = _Scanner(bus, [])
        self._owned: set[Bucket] = set()
        self._is_told = False
        group.members.append(self)

    @property
    def at_most(self) -> int:
        """How many messages of a bucket a poll gives at most."""
        return self._scanner.at_most

    @at_most.setter
    def at_most(self, messages: int) -> None:
        self._scanner.at_most = messages

    def start(self, positions: Sequence[Position]) -> None:
        """Read owned buckets from these offsets on."""
        self._scanner.start([position for position in positions if position.bucket in self._owned])

    def poll(self, timeout_s: float) -> Polled:
        """Return what is there, after any change of ownership."""
        for member in self._group.members:
            member._release()  # noqa: SLF001 - of the same class: nobody takes over before the owner let go
        self._take()
        return self._scanner.poll(timeout_s)

    def _mine(self) -> set[Bucket]:
        if self not in self._group.members:
            return set()
        mine = self._group.members.index(self)
        return {
            Bucket(name, number)
            for name in self._categories
            for number in self._bus.describe(name).ends
            if number % len(self._group.members) == mine
        }

    def _release(self) -> None:
        surplus = sorted(self._owned - self._mine())
        if surplus:
            self._ownership.given_up(surplus)
            self._drop(surplus)
            self._is_told = False

    def _drop(self, buckets: Iterable[Bucket]) -> None:
        self._scanner.drop(buckets)
        self._owned.difference_update(buckets)

    def _take(self) -> None:
        missing = sorted(self._mine() - self._owned)
        if missing or not self._is_told:
            self._is_told = True
            self._owned.update(missing)
            self._ownership.gained(missing)

    def pause(self, buckets: Sequence[Bucket]) -> None:
        """Give no more of these for now."""
        self._scanner.paused.update(buckets)

    def resume(self, buckets: Sequence[Bucket]) -> None:
        """Go on with these."""
        self._scanner.paused.difference_update(buckets)

    def commit(self, positions: Sequence[Position]) -> None:
        """Save the group's positions."""
        self.expect_owned(positions)
        self._group.note(positions)

    def expect_owned(self, positions: Sequence[Position]) -> None:
        """Raise Fenced where a bucket is somebody else's."""
        for bucket, offset, _ in positions:
            if self not in self._group.members or bucket not in self._owned:
                raise Fenced(f"{bucket}: position {offset} was refused, this reader no longer owns the bucket.")

    def leave(self) -> None:
        """Give up all buckets and leave the group."""
        if self in self._group.members:
            owned = sorted(self._owned)
            if owned:
                self._ownership.given_up(owned)
                self._drop(owned)
            self._group.members.remove(self)

    def close(self) -> None:
        """Give up all buckets and leave the group."""
        self.leave()


class _MemoryWriter:
    """Writes at once."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus

    def send(self, category: str, messages: Iterable[Outgoing]) -> None:
        """Store messages."""
        for message in messages:
            self._bus.append(category, message)

    def flush(self) -> None:
        """Do nothing: what was sent is stored."""

    def close(self) -> None:
        """Do nothing: there is no connection."""


class _TransactionalWriter:
    """Keeps messages until they are committed."""

    def __init__(self, bus: MemoryBus, member: Reader | None, identity: str) -> None:
        self.identity = identity
        self._bus = bus
        self._member = member
        self._waiting: list[tuple[str, Outgoing]] = []

    def send(self, category: str, messages: Iterable[Outgoing]) -> None:
        """Keep messages."""
        self._waiting.extend((category, message) for message in messages)

    def flush(self) -> None:
        """Do nothing: what was sent waits here."""

    def enlist(self) -> None:
        """Do nothing: who owns what is looked up when it matters."""

    def commit(self, positions: Sequence[Position]) -> None:
        """Store what waits, and the positions."""
        if not self._bus.is_current(self):
            raise Fenced(f"A later writer uses the identity {self.identity}; nothing was written.")
        try:
            if self._member:
                self._member.commit(positions)
        except Fenced as error:
            self.abort()
            raise Aborted(f"{error} Nothing was written.") from error
        waiting, self._waiting = self._waiting, []
        for name, message in waiting:
            self._bus.append(name, message)

    def abort(self) -> None:
        """Drop what waits."""
        self._waiting.clear()

    def close(self) -> None:
        """Drop what waits."""
        self.abort()


def _wall_clock_ms() -> int:
    return int(datetime.now(tz=timezone.utc).timestamp() * 1000)
