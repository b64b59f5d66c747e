"""Key checks: messages outside the bucket of their key stop a worker."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.kernel import Driver
from penstock.processors.declare import bucket_of, buckets_of, plan_of
from penstock.processors.shard import EventRejected, KeyCheck
from penstock.processors.shard.key_check import KNOWN_KEYS
from penstock.transport import Bucket, Outgoing
from penstock.transport.messages import BY_KEY


class Visit(ps.Record, frozen=True):
    """A visit of a user."""

    user: str
    at: ps.EventTime
    page: str = "home"


class Counted(ps.Record, frozen=True):
    """The number of a user's visits."""

    user: str
    at: ps.EventTime
    visits: int


class Profile(ps.Record, frozen=True):
    """A user's profile."""

    user: str
    at: ps.EventTime
    name: str


visits = ps.Category("visits", Visit, key="user", event_time="at", buckets=8)
by_page = ps.Category("by_page", Visit, key=lambda visit: visit.page, event_time="at", buckets=8)
profiles = ps.Category("profiles", Profile, key="user", event_time="at", buckets=8)
counted = ps.Category("counted", Counted, key="user", event_time="at", buckets=8)
again = ps.Category("again", Visit, key="user", event_time="at", buckets=8)


class Counting(ps.Stateful):
    """Counts visits."""

    reads, writes, state = visits, counted, int

    def process(self, event: Visit, state: int | None, context: ps.Context) -> tuple[int, list[Counted]]:
        return (state or 0) + 1, [Counted(event.user, event.at, (state or 0) + 1)]


class Adding(ps.Aggregator):
    """Counts visits by an aggregator."""

    reads, writes, monoid = visits, counted, ps.monoids.Count()

    def result(self, key: str, window: ps.windows.Window, value: int) -> Counted:
        return Counted(key, 0, value)


class Joining(ps.Join):
    """Joins visits with profiles."""

    left, right, writes, before = visits, profiles, counted, timedelta(hours=1)

    def join(self, left: Visit, right: Profile, context: ps.Context) -> Iterable[Counted]:
        yield Counted(left.user, left.at, 1)


class Knowing(ps.TableJoin):
    """Joins visits with the latest profile."""

    stream, table, writes = visits, profiles, counted

    def join(self, event: Visit, row: Profile | None, context: ps.Context) -> Iterable[Counted]:
        yield Counted(event.user, event.at, int(row is not None))


class Computed(ps.Stateful):
    """Counts visits by a computed key."""

    reads, writes, state = by_page, counted, int
    process = Counting.process


class Passing(ps.Stateless):
    """Passes visits on without state."""

    reads, writes = visits, again

    def process(self, event: Visit) -> Iterable[Visit]:
        yield event


class Unchecked(Counting):
    """Counts the visits of each bucket separately."""

    key_check = False


STATEFUL = [Counting, Adding, Joining, Knowing, Computed]
USER, BUCKET = "ann", bucket_of(b"ann", 8)


def _message(user: str, key: bytes | None, number: int) -> Outgoing:
    return Outgoing(key, b'{"user":"%s","at":1,"page":"%s"}' % (user.encode(), user.encode()), number)


WRONG = [
    pytest.param(None, (BUCKET + 1) % 8, id="without a key"),
    pytest.param(b"home", (BUCKET + 2) % 8, id="by another field"),
    pytest.param(b"ann", (BUCKET + 3) % 8, id="by another partitioner"),
]


@pytest.mark.parametrize("processor", STATEFUL)
@pytest.mark.parametrize(("key", "number"), WRONG)
def test_an_event_outside_of_its_keys_bucket_stops_the_worker(
    processor: type[ps.Processor], key: bytes | None, number: int
) -> None:
    """Earlier events count. The error names key, message, both buckets and the remedy; each restart fails at the same event."""
    driver = Driver(processor)
    name = plan_of(processor).inputs[-1 if processor is Knowing else 0].name
    right = next(user for user in map(str, range(99)) if bucket_of(user.encode(), 8) == number)
    driver.bus.append(name, _message(right, right.encode(), BY_KEY))
    driver.bus.append(name, _message(USER, key, number))

    for _ in range(2):
        with pytest.raises(
            EventRejected, match=rf"{name}/{number} at offset 1: .*'ann'.*bucket {BUCKET} of 8.*key_check"
        ) as caught:
            driver.run()

    written = "without a key" if key is None else f"with the key {key!r}"
    assert f"{written} to bucket {number}" in str(caught.value)
    assert driver.bus.committed(processor.name, name)[number] == 1
    assert driver.dead_letters(processor) == []


@pytest.mark.parametrize(("key", "number"), WRONG)
def test_a_stateless_processor_accepts_events_in_any_bucket(key: bytes | None, number: int) -> None:
    """It has no state to split, and it writes its outputs to the buckets of their keys."""
    driver = Driver(Passing)
    driver.bus.append("visits", _message(USER, key, number))
    driver.run()

    assert len(driver.bus.slice(Bucket("again", BUCKET), 0, 10)) == 1


def test_the_key_check_can_be_disabled() -> None:
    """With `key_check = False`, a processor counts events by bucket."""
    driver = Driver(Unchecked)
    for number in range(4):
        driver.bus.append("visits", _message(USER, None, number))
    driver.run()

    assert [count.visits for count in driver.read(counted)] == [1, 1, 1, 1]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=300) | st.binary(max_size=12), max_size=40), st.integers(1, 1000))
def test_hashing_many_keys_equals_hashing_each_key(keys: list[bytes], buckets: int) -> None:
    """The bucket of a key does not depend on the batch or on the length of the key."""
    assert buckets_of(keys, buckets) == [bucket_of(key, buckets) for key in keys]


def test_a_misplaced_key_is_found_among_many_cached_keys() -> None:
    """It is found even after the cache has evicted keys."""
    placement = KeyCheck(Counting)
    users = list(map(str, range(KNOWN_KEYS * 9)))
    numbers = buckets_of([user.encode() for user in users], 8)
    placed = [Visit(user, 1) for user, number in zip(users, numbers, strict=True) if number == BUCKET]
    stranger = Visit(next(user for user in "abcdefghijklmn" if bucket_of(user.encode(), 8) != BUCKET), 1)

    assert len(placed) > KNOWN_KEYS
    for begin in range(0, len(placed), 10_000):
        assert placement.misplaced(visits, BUCKET, placed[begin : begin + 10_000]) is None
    found = placement.misplaced(visits, BUCKET, [*placed[:50], stranger, *placed[50:60]])

    assert found is not None
    assert (found.at, found.key) == (50, stranger.user)
