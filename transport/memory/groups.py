"""A consumer group: its members, generations, assignments and committed positions.

    join, leave, end of a session, more buckets --> rebalance: members rejoin --> next generation, with an assignment

With one category, rebalances are cooperative: members rejoin with their buckets and continue. A bucket that moves is revoked first, and
assigned to its next owner in another rebalance. With several categories, rebalances are eager: members release all buckets first, and one
member gets bucket n of every category (range).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import ceil

from ..errors import CommitUnconfirmed, Fenced, GroupInUse, MembershipLost
from ..messages import Bucket, Position
from .log import MessageState

SESSION_MS = 45_000
"""The session timeout: a member without heartbeats for this time loses its buckets."""
REJOIN_LIMIT_MS = 300_000
"""The time limit for live members to rejoin during a rebalance."""

_serials = count()


@dataclass
class Membership:
    """The coordinator's record of a member.

    Args:
        categories: the subscribed categories.
        instance: the name of a static member; None for another member.
        heartbeat_ms: returns the time of the last heartbeat.
        owned: the buckets that the member reports as its own.
    """

    categories: tuple[str, ...]
    instance: str | None
    heartbeat_ms: Callable[[int], int]
    owned: set[Bucket] = field(default_factory=set)
    serial: int = field(default_factory=lambda: next(_serials))
    generation: int = 0
    assigned: set[Bucket] = field(default_factory=set)
    has_rejoined: bool = False
    is_reassigned: bool = False
    is_fenced: bool = False

    @property
    def is_cooperative(self) -> bool:
        """Whether it keeps its buckets during a rebalance."""
        return len(self.categories) == 1

    @property
    def _order(self) -> tuple[str, int]:
        return self.instance or "", self.serial

    def __lt__(self, other: Membership) -> bool:
        return self._order < other._order


class MemoryGroup:
    """One consumer group.

    Args:
        buckets: returns the present buckets of categories.
        session_ms: the session timeout.
    """

    def __init__(self, buckets: Callable[[Iterable[str]], set[Bucket]], session_ms: int = SESSION_MS) -> None:
        self._buckets = buckets
        self._session_ms = session_ms
        self.members: list[Membership] = []
        self.committed: dict[Bucket, Position] = {}
        self.undecided: dict[str, list[Position]] = {}
        self._generation = 0
        self._rejoining_since_ms: int | None = None
        self._assigned_buckets: set[Bucket] = set()

    @property
    def is_rebalancing(self) -> bool:
        """Whether the group waits for members to rejoin."""
        return self._rejoining_since_ms is not None

    def join(self, member: Membership, now_ms: int) -> None:
        """Add a member. A static member replaces the member of the same name, with its buckets."""
        former = next(
            (other for other in self.members if other.instance is not None and other.instance == member.instance), None
        )
        if former is None or former.categories != member.categories or self.is_rebalancing:
            if former is not None:
                self._fence(former)
            self.members.append(member)
            self._rebalance(now_ms)
        else:
            self.members[self.members.index(former)] = member
            former.is_fenced = True
            member.generation, member.assigned, member.is_reassigned = former.generation, former.assigned, True
            if {bucket for other in self.members for bucket in other.assigned} != self._assigned_buckets:
                # The former member died after releasing a bucket and before reporting it. Real brokers leave that bucket without an owner
                # until another rebalance (tested with Kafka 4.3 and librdkafka 2.16).
                self._rebalance(now_ms)
        self._advance(now_ms)

    def rejoin(self, member: Membership, now_ms: int) -> None:
        """Record that a member takes part in the rebalance."""
        member.has_rejoined = True
        self._advance(now_ms)

    def request_rebalance(self, now_ms: int) -> None:
        """Rebalance, because a member has released buckets that others wait for."""
        self._rebalance(now_ms)
        self._advance(now_ms)

    def leave(self, member: Membership, now_ms: int) -> None:
        """Remove a member; the others get its buckets."""
        if member in self.members:
            self.members.remove(member)
            if self.members:
                self._rebalance(now_ms)
        self._advance(now_ms)

    def tick(self, now_ms: int) -> None:
        """End the sessions of silent members, detect new buckets, and finish a rebalance."""
        silent = [member for member in self.members if now_ms - member.heartbeat_ms(now_ms) >= self._session_ms]
        for member in silent:
            self.members.remove(member)
        changed = (
            bool(self.members) and self._assigned_buckets != self._subscribed_buckets() and not self.is_rebalancing
        )
        if (silent and self.members) or changed:
            self._rebalance(now_ms)
        self._advance(now_ms)

    def commit(self, member: Membership, generation: int, positions: Iterable[Position]) -> None:
        """Record a member's positions."""
        self.expect_member(member, generation)
        self.record(positions)

    def expect_member(self, member: Membership, generation: int) -> None:
        """Raise an error unless the member belongs to the present generation."""
        if member.is_fenced:
            raise MembershipLost("Positions were not saved: another worker uses the same identity. Stop one of them.")
        if member not in self.members:
            raise Fenced(
                "Positions were not saved: the buckets have a new owner, which processes the unsaved events again."
            )
        if generation != self._generation:
            raise CommitUnconfirmed(
                "Positions were not saved: the group is rebalancing. The position is saved again with the next checkpoint."
            )

    def record(self, positions: Iterable[Position]) -> None:
        """Set positions."""
        self.committed.update((position.bucket, position) for position in positions if position.offset is not None)

    def add_undecided(self, writer: str, positions: Sequence[Position]) -> None:
        """Add positions of a writer's open transaction, which are undecided until it ends."""
        self.undecided.setdefault(writer, []).extend(positions)

    def decide(self, writer: str, outcome: MessageState) -> None:
        """Record the positions of a committed transaction, or drop the positions of an aborted one."""
        positions = self.undecided.pop(writer, [])
        if outcome is MessageState.COMMITTED:
            self.record(positions)

    def expect_empty(self, name: str) -> None:
        """Raise GroupInUse if the group has members."""
        if self.members:
            raise GroupInUse(
                f"Group {name} has members. Its positions were not changed. Stop its workers and try again."
            )

    def _fence(self, member: Membership) -> None:
        member.is_fenced = True
        self.members.remove(member)

    def _subscribed_buckets(self) -> set[Bucket]:
        return self._buckets({name for member in self.members for name in member.categories})

    def _rebalance(self, now_ms: int) -> None:
        self._rejoining_since_ms = now_ms
        for member in self.members:
            member.has_rejoined = False

    def _advance(self, now_ms: int) -> None:
        """Finish a rebalance when all members have rejoined, or the time limit has passed."""
        if self._rejoining_since_ms is None:
            return
        for member in self.members:
            # The client's background thread rejoins by itself if it need not release buckets first.
            if (
                not member.is_reassigned
                and (member.is_cooperative or not member.owned)
                and member.heartbeat_ms(now_ms) >= now_ms
            ):
                member.has_rejoined = True
        if now_ms - self._rejoining_since_ms >= REJOIN_LIMIT_MS:
            self.members = [member for member in self.members if member.has_rejoined]
        if all(member.has_rejoined for member in self.members):
            self._assign()

    def _assign(self) -> None:
        self._rejoining_since_ms = None
        self._generation += 1
        self._assigned_buckets = self._subscribed_buckets()
        shares = (
            _sticky(self.members, self._assigned_buckets)
            if _are_cooperative(self.members)
            else _ranges(self.members, self._assigned_buckets)
        )
        for member, share in zip(self.members, shares, strict=True):
            member.generation, member.assigned, member.is_reassigned = self._generation, share, True


def _are_cooperative(members: Sequence[Membership]) -> bool:
    return all(member.is_cooperative for member in members)


def _ranges(members: Sequence[Membership], buckets: set[Bucket]) -> list[set[Bucket]]:
    """Assign each member, in order of names, a range of the bucket numbers of every category."""
    ordered = sorted(members)
    shares: dict[int, set[Bucket]] = {member.serial: set() for member in members}
    for name in {bucket.category for bucket in buckets}:
        numbers = sorted(bucket.number for bucket in buckets if bucket.category == name)
        each, more = divmod(len(numbers), len(ordered))
        for place, member in enumerate(ordered):
            begin = place * each + min(place, more)
            own = numbers[begin : begin + each + (place < more)]
            shares[member.serial].update(Bucket(name, number) for number in own)
    return [shares[member.serial] for member in members]


def _sticky(members: Sequence[Membership], buckets: set[Bucket]) -> list[set[Bucket]]:
    """Keep buckets with their owners as far as shares stay even. A bucket that moves is assigned in the next rebalance."""
    most = ceil(len(buckets) / len(members)) if members else 0
    kept = {member.serial: sorted(member.owned & buckets)[:most] for member in members}
    free = sorted(buckets - {bucket for share in kept.values() for bucket in share})
    for bucket in free:
        smallest = min(sorted(members), key=lambda member: len(kept[member.serial]))
        kept[smallest.serial].append(bucket)
    least = len(buckets) // len(members) if members else 0
    for receiver in sorted(members):
        while len(kept[receiver.serial]) < least:
            donor = max(sorted(members), key=lambda member: len(kept[member.serial]))
            kept[receiver.serial].append(kept[donor.serial].pop())
    owners = {bucket: member.serial for member in members for bucket in member.owned}
    return [
        {bucket for bucket in kept[member.serial] if owners.get(bucket, member.serial) == member.serial}
        for member in members
    ]
