"""A consumer group: members, generations, assignments and committed positions, as the group coordinator keeps them.

    join, leave, a session that ends, more buckets --> a rebalance: members rejoin --> the next generation, with an assignment

With one category members rejoin with what they own and go on meanwhile; a bucket that is to move is given to its next owner in a further
rebalance, when the one before has let go of it (cooperative). With several, everybody lets go of everything first (eager), and bucket n of
every category goes to one member (range).
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
"""How long a member may be silent before others get its buckets."""
REJOIN_LIMIT_MS = 300_000
"""How long a rebalance waits for members that are alive and do not come to rejoin."""

_serials = count()


@dataclass
class Membership:
    """What the coordinator knows of a member.

    Args:
        categories: what it reads.
        instance: a static member's name.
        heartbeat_ms: tells when it was last heard of.
        owned: what it owns, as it says itself.
    """

    categories: tuple[str, ...]
    instance: str | None
    heartbeat_ms: Callable[[int], int]
    owned: set[Bucket] = field(default_factory=set)
    serial: int = field(default_factory=lambda: next(_serials))
    generation: int = 0
    assigned: set[Bucket] = field(default_factory=set)
    has_rejoined: bool = False
    has_news: bool = False
    is_fenced: bool = False

    @property
    def is_cooperative(self) -> bool:
        """Whether it keeps what it owns while the group forms anew."""
        return len(self.categories) == 1

    @property
    def _order(self) -> tuple[str, int]:
        return self.instance or "", self.serial

    def __lt__(self, other: Membership) -> bool:
        return self._order < other._order


class Group:
    """One consumer group.

    Args:
        buckets: gives the buckets that categories have now.
        session_ms: how long a member may be silent.
    """

    def __init__(self, buckets: Callable[[Iterable[str]], set[Bucket]], session_ms: int = SESSION_MS) -> None:
        self._buckets = buckets
        self._session_ms = session_ms
        self.members: list[Membership] = []
        self.committed: dict[Bucket, Position] = {}
        self.undecided: dict[str, list[Position]] = {}
        self._generation = 0
        self._rejoining_since_ms: int | None = None
        self._known: set[Bucket] = set()

    @property
    def is_rebalancing(self) -> bool:
        """Whether members are to rejoin."""
        return self._rejoining_since_ms is not None

    def join(self, member: Membership, now_ms: int) -> None:
        """Add a member; one with the name of another takes its place, with what that was assigned."""
        before = next(
            (one for one in self.members if one.instance is not None and one.instance == member.instance), None
        )
        if before is None or before.categories != member.categories or self.is_rebalancing:
            if before is not None:
                self._fence(before)
            self.members.append(member)
            self._rebalance(now_ms)
        else:
            self.members[self.members.index(before)] = member
            before.is_fenced = True
            member.generation, member.assigned, member.has_news = before.generation, before.assigned, True
            if {bucket for one in self.members for bucket in one.assigned} != self._known:
                # The one before died between letting go of a bucket and saying so. Brokers are less kind: nobody gets that bucket before
                # the group forms anew for another reason (tried with Kafka 4.3 and librdkafka 2.16).
                self._rebalance(now_ms)
        self._advance(now_ms)

    def rejoin(self, member: Membership, now_ms: int) -> None:
        """Note that a member takes part in the rebalance."""
        member.has_rejoined = True
        self._advance(now_ms)

    def ask_again(self, now_ms: int) -> None:
        """Rebalance: somebody has let go of what others wait for."""
        self._rebalance(now_ms)
        self._advance(now_ms)

    def leave(self, member: Membership, now_ms: int) -> None:
        """Remove a member; others get what it had."""
        if member in self.members:
            self.members.remove(member)
            if self.members:
                self._rebalance(now_ms)
        self._advance(now_ms)

    def tick(self, now_ms: int) -> None:
        """Do what time brings: end the sessions of members that were not heard of, notice new buckets, finish a rebalance."""
        silent = [one for one in self.members if now_ms - one.heartbeat_ms(now_ms) >= self._session_ms]
        for member in silent:
            self.members.remove(member)
        changed = bool(self.members) and self._known != self._wanted() and not self.is_rebalancing
        if (silent and self.members) or changed:
            self._rebalance(now_ms)
        self._advance(now_ms)

    def commit(self, member: Membership, generation: int, positions: Iterable[Position]) -> None:
        """Note a member's positions."""
        self.expect_member(member, generation)
        self.note(positions)

    def expect_member(self, member: Membership, generation: int) -> None:
        """Refuse who is no member, or of another generation."""
        if member.is_fenced:
            raise MembershipLost("Positions were not saved: another worker uses the same identity; stop one of them.")
        if member not in self.members:
            raise Fenced(
                "Positions were not saved: the buckets have a new owner; what was not saved is done again there."
            )
        if generation != self._generation:
            raise CommitUnconfirmed(
                "Positions were not saved: the group forms anew. The position is saved again with the next checkpoint."
            )

    def note(self, positions: Iterable[Position]) -> None:
        """Set positions."""
        self.committed.update((position.bucket, position) for position in positions if position.offset is not None)

    def hold(self, writer: str, positions: Sequence[Position]) -> None:
        """Take positions of the transaction of a writer; until that ends, they are undecided."""
        self.undecided.setdefault(writer, []).extend(positions)

    def decide(self, writer: str, fate: MessageState) -> None:
        """Note the positions of a writer's transaction that was committed, or drop those of one that was not."""
        held = self.undecided.pop(writer, [])
        if fate is MessageState.COMMITTED:
            self.note(held)

    def expect_empty(self, name: str) -> None:
        """Refuse where there are members."""
        if self.members:
            raise GroupInUse(f"Group {name} has members.")

    def _fence(self, member: Membership) -> None:
        member.is_fenced = True
        self.members.remove(member)

    def _wanted(self) -> set[Bucket]:
        return self._buckets({name for member in self.members for name in member.categories})

    def _rebalance(self, now_ms: int) -> None:
        self._rejoining_since_ms = now_ms
        for member in self.members:
            member.has_rejoined = False

    def _advance(self, now_ms: int) -> None:
        """Finish a rebalance when everybody has rejoined, or was waited for long enough."""
        if self._rejoining_since_ms is None:
            return
        for member in self.members:
            # The client's background thread rejoins by itself where nothing is to be let go of before.
            if (
                not member.has_news
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
        self._known = self._wanted()
        shares = (
            _sticky(self.members, self._known) if _are_cooperative(self.members) else _ranges(self.members, self._known)
        )
        for member, share in zip(self.members, shares, strict=True):
            member.generation, member.assigned, member.has_news = self._generation, share, True


def _are_cooperative(members: Sequence[Membership]) -> bool:
    return all(member.is_cooperative for member in members)


def _ranges(members: Sequence[Membership], buckets: set[Bucket]) -> list[set[Bucket]]:
    """Give each member, in order of names, a range of the bucket numbers of every category."""
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
    """Let members keep what they own as far as that is even; what another still owns is given in the next rebalance."""
    most = ceil(len(buckets) / len(members)) if members else 0
    kept = {member.serial: sorted(member.owned & buckets)[:most] for member in members}
    free = sorted(buckets - {bucket for share in kept.values() for bucket in share})
    for bucket in free:
        poorest = min(sorted(members), key=lambda member: len(kept[member.serial]))
        kept[poorest.serial].append(bucket)
    least = len(buckets) // len(members) if members else 0
    for poor in sorted(members):
        while len(kept[poor.serial]) < least:
            rich = max(sorted(members), key=lambda member: len(kept[member.serial]))
            kept[poor.serial].append(kept[rich.serial].pop())
    owners = {bucket: member.serial for member in members for bucket in member.owned}
    return [
        {bucket for bucket in kept[member.serial] if owners.get(bucket, member.serial) == member.serial}
        for member in members
    ]
