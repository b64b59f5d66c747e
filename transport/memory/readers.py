"""Readers: members of a group, and readers of fixed buckets from fixed offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..bus import OwnershipListener
from ..errors import BusUnreachable, CommitUnconfirmed, MembershipLost, OffsetOutOfRange
from ..messages import Bucket, End, Polled, Position, RawBatch
from .cluster import MemoryCluster
from .groups import SESSION_MS, Membership
from .network import Network

POLL_LIMIT = 10_000
"""The greatest number of messages of one bucket in a poll."""


class MemoryScanner:
    """Reads buckets from given offsets."""

    def __init__(self, cluster: MemoryCluster, network: Network, positions: Sequence[Position]) -> None:
        self._cluster = cluster
        self._network = network
        self._next = {position.bucket: position.offset for position in positions}
        self._ended: dict[Bucket, int] = {}
        self.poll_limit = POLL_LIMIT
        self.paused: set[Bucket] = set()

    def poll(self, timeout_s: float) -> Polled:
        """Return the next messages; wait up to `timeout_s` if there are none."""
        self._network.wait(self.has_messages, timeout_s)
        return self.take()

    def has_messages(self) -> bool:
        """Return whether a poll would return messages or the end of a bucket."""
        return self._network.is_up() and any(
            self._begin(bucket) < self._cluster.log(bucket).stable_end or bucket not in self._ended
            for bucket in self._next
            if bucket not in self.paused and bucket.category in self._cluster.topics and self._network.reaches(bucket)
        )

    def take(self) -> Polled:
        """Return the available messages. Reports the end of a bucket once, and again after later messages."""
        batches: list[RawBatch] = []
        ended: list[End] = []
        if not self._network.is_up():
            return Polled([], [])
        for bucket in [bucket for bucket in self._next if bucket not in self.paused and self._network.reaches(bucket)]:
            log, begin = self._cluster.log(bucket), self._begin(bucket)
            messages = log.committed(begin, self.poll_limit)[: self._network.fetched(self.poll_limit)]
            if messages:
                batches.append(RawBatch(bucket, messages))
                self._next[bucket] = messages[-1].at + 1
                self._ended.pop(bucket, None)
            elif not log.committed(begin, 1):
                self._next[bucket] = max(begin, log.stable_end)
                if self._ended.get(bucket) != self._next[bucket]:
                    self._ended[bucket] = max(begin, log.stable_end)
                    ended.append(End(bucket, self._ended[bucket]))
        return Polled(batches, ended)

    def _begin(self, bucket: Bucket) -> int:
        log, begin = self._cluster.log(bucket), self._next[bucket]
        if begin is None:
            return log.start
        if not log.start <= begin <= log.end:
            raise OffsetOutOfRange(
                f"{bucket}: the bus does not have the position to read from, {begin}; it keeps offsets {log.start} to {log.end}. Events at this "
                "position have expired. Nothing was skipped."
            )
        return begin

    def start(self, positions: Sequence[Position]) -> None:
        """Read buckets from these offsets on."""
        self._next.update((position.bucket, position.offset) for position in positions)
        self.paused.difference_update(position.bucket for position in positions)
        for position in positions:
            self._ended.pop(position.bucket, None)

    def resume(self, buckets: Sequence[Bucket]) -> None:
        """Continue paused buckets."""
        self.paused.difference_update(buckets)
        for bucket in buckets:
            self._ended.pop(bucket, None)

    def drop(self, buckets: Iterable[Bucket]) -> None:
        """Stop reading buckets."""
        for bucket in buckets:
            self._next.pop(bucket, None)
            self._ended.pop(bucket, None)
        self.paused.difference_update(buckets)

    def close(self) -> None:
        """Do nothing: there is no connection."""


class MemoryReader:
    """A member of a group, which calls `OwnershipListener` when its buckets change."""

    session_s = SESSION_MS / 1000

    def __init__(
        self,
        cluster: MemoryCluster,
        network: Network,
        group: str,
        categories: Sequence[str],
        ownership: OwnershipListener,
        *,
        identity: str | None,
    ) -> None:
        for name in categories:
            cluster.topic(name)
        self._cluster = cluster
        self._network = network
        self.group = cluster.group(group)
        self._categories = tuple(categories)
        self._ownership = ownership
        self._identity = identity
        self._scanner = MemoryScanner(cluster, network, [])
        self._closed_ms: int | None = None
        self._member = self._new_member()
        if network.is_up():
            self.group.join(self._member, cluster.tick())

    def _new_member(self) -> Membership:
        return Membership(self._categories, self._identity, self._heartbeat_ms)

    def _heartbeat_ms(self, now_ms: int) -> int:
        return self._network.heartbeat_ms(now_ms) if self._closed_ms is None else self._closed_ms

    @property
    def poll_limit(self) -> int:
        """How many messages of a bucket a poll gives at most."""
        return self._scanner.poll_limit

    @poll_limit.setter
    def poll_limit(self, messages: int) -> None:
        self._scanner.poll_limit = messages

    @property
    def membership(self) -> tuple[Membership, int]:
        """The member and its present generation, for transactions."""
        return self._member, self._member.generation

    def keep_alive(self) -> None:
        """Do nothing: a member may poll as rarely as it wants to."""

    def start(self, positions: Sequence[Position]) -> None:
        """Read owned buckets from these offsets on."""
        self._scanner.start([position for position in positions if position.bucket in self._member.owned])

    def poll(self, timeout_s: float) -> Polled:
        """Return the next messages, after any change of ownership."""
        self._network.wait(lambda: self._has_group_work() or self._scanner.has_messages(), timeout_s)
        if self._network.is_up():
            self._follow_group()
        return self._scanner.take()

    def _has_group_work(self) -> bool:
        if not self._network.is_up():
            return False
        self._cluster.tick()
        member = self._member
        return (
            member not in self.group.members
            or member.is_reassigned
            or (self.group.is_rebalancing and not member.has_rejoined)
        )

    def _follow_group(self) -> None:
        """Rejoin the group and adopt its assignment, with calls of `OwnershipListener`."""
        now_ms = self._cluster.tick()
        member = self._member
        if member.is_fenced:
            raise MembershipLost(
                "The membership has ended: another worker uses the same identity. The worker joins the group again."
            )
        if member not in self.group.members:
            self._lose()
            member = self._member = self._new_member()
            self.group.join(member, now_ms)
        elif self.group.is_rebalancing and not member.has_rejoined:
            if not member.is_cooperative:
                self._revoke(member, sorted(member.owned))
            self.group.rejoin(member, self._cluster.tick())
        if member.is_reassigned:
            self._adopt_assignment(member)

    def _adopt_assignment(self, member: Membership) -> None:
        member.is_reassigned = False
        assigned = set(member.assigned)
        surplus = sorted(member.owned - assigned)
        self._revoke(member, surplus)
        if member not in self.group.members:
            return  # the session ended while the revoked buckets were saved
        missing = sorted(assigned - member.owned)
        member.owned.update(missing)
        self._ownership.assigned(missing)
        if surplus:
            self.group.request_rebalance(self._cluster.tick())

    def _revoke(self, member: Membership, buckets: Sequence[Bucket]) -> None:
        if buckets:
            self._ownership.revoked(buckets)
            self._drop(member, buckets)

    def _lose(self) -> None:
        owned = sorted(self._member.owned)
        if owned:
            self._ownership.lost(owned)
            self._drop(self._member, owned)

    def _drop(self, member: Membership, buckets: Iterable[Bucket]) -> None:
        self._scanner.drop(buckets)
        member.owned.difference_update(buckets)

    def pause(self, buckets: Sequence[Bucket]) -> None:
        """Stop returning messages of owned buckets."""
        self._scanner.paused.update(buckets)

    def resume(self, buckets: Sequence[Bucket]) -> None:
        """Continue paused buckets."""
        self._scanner.resume(buckets)

    def commit(self, positions: Sequence[Position]) -> None:
        """Save the group's positions."""
        member, generation = self.membership

        def save() -> None:
            self._cluster.tick()
            self.group.commit(member, generation, positions)

        try:
            self._network.request("commit", save)
        except BusUnreachable as error:
            raise CommitUnconfirmed(str(error)) from error

    def leave(self) -> None:
        """Release all buckets and leave the group."""
        member = self._member
        if member not in self.group.members:
            self._lose()
            return
        self._revoke(member, sorted(member.owned))
        try:
            self._network.request("leave", lambda: self.group.leave(member, self._cluster.tick()))
        except BusUnreachable:
            return  # others get the buckets when the session ends

    def close(self) -> None:
        """Release all buckets. A member without an identity leaves the group; another keeps its buckets until its session ends."""
        if self._closed_ms is not None:
            return
        if self._member.owned:
            (self._lose if self._member not in self.group.members else self._revoke_all)()
        if self._identity is None:
            self.leave()
        self._closed_ms = self._cluster.now_ms()

    def _revoke_all(self) -> None:
        self._revoke(self._member, sorted(self._member.owned))
