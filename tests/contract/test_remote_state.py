"""What state in PostgreSQL and Redis promises: to its owner, to the next owner, and to whoever reads it."""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.databases import PASSWORD, Postgres, Redis
from support.proxy import Proxy, Target

import penstock as ps
from penstock.processors.cores import Changes, encode_slot
from penstock.processors.stores import Writing
from penstock.processors.windows import Window
from penstock.state.errors import ForeignState, StateError, StateUnwritable
from penstock.state.remote import (
    BadStoreAddress,
    Compactor,
    RemoteStates,
    StoreFenced,
    StoreLibraryMissing,
    StoreRefused,
    StoreUnreachable,
    compactor_of,
    postgres_connection,
    read_results,
    redis_connection,
    redis_store,
    remote_states,
)
from penstock.state.remote.addresses import Address, address_of
from penstock.state.remote.errors import StoreInterrupted
from penstock.state.remote.folder import store_at
from penstock.state.remote.ordering import order_key, reverse_order_key
from penstock.state.remote.retrying import Retrying
from penstock.state.remote.seam import Shard
from penstock.state.store import Outbox, RemoteState, ShardIdentity

EVER = -(2**63)
A, B, C = (encode_slot(key, EVER) for key in "abc")
OUTBOX = Outbox({"hits": 4}, {"hits": 9}, [("pages", b"a", b"1"), ("pages", None, b"2"), ("pages", b"b", None)])
LIMIT_S = 30.0
OVERWRITING, APPENDING = Writing.READ_MERGE_WRITE, Writing.APPEND

_numbers = count()


class Hit(ps.Record, frozen=True):
    """What is counted."""

    page: str
    at: ps.EventTime


hits = ps.Category("hits", Hit, key="page", event_time="at", buckets=4)


class Log(ps.Monoid[list[Any]]):
    """Everything in order, so that what is lost, doubled or swapped shows."""

    def identity(self) -> list[Any]:
        return []

    def lift(self, observation: Any) -> list[Any]:
        return [observation]

    def combine(self, left: list[Any], right: list[Any]) -> list[Any]:
        return [*left, *right]


def aggregator(of: ps.Monoid[Any], windows: Any = None) -> type[ps.Aggregator]:
    """Make an aggregator of a name that no other test uses."""

    class Counted(ps.Aggregator):
        name = f"counted-{next(_numbers)}"
        reads, monoid, window = hits, of, windows or ps.Ever()

    return Counted


def identity_of(processor: type[ps.Aggregator], bucket: int = 0) -> ShardIdentity:
    return ShardIdentity(processor.name, bucket, processor.state_shape())


@dataclass(frozen=True)
class Place:
    """A store under test.

    Args:
        url: its address.
        target: what a proxy passes on to.
        server: the process.
        saved: what the answer to a save contains, and no other answer.
    """

    url: str
    target: Target
    server: Postgres | Redis
    saved: bytes = field(repr=False)

    def through(self, proxy: Proxy) -> str:
        return self.url.replace(f":{self.target[1]}/", f":{proxy.port}/")


@pytest.fixture(scope="session", params=["postgres", "redis"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each kind of store in turn."""
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        return Place(server.url, server.target, server, b"COMMIT\0")
    redis_server: Redis = request.getfixturevalue("redis_server")
    return Place(redis_server.url, redis_server.target, redis_server, b"*3\r\n$32")


@pytest.fixture(scope="session", params=["postgres", "redis_server", "redis_cluster"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of each kind of store in turn."""
    address: str = request.getfixturevalue(request.param).url
    return address


@pytest.fixture
def proxy(place: Place) -> Iterator[Proxy]:
    """What stands between us and the store."""
    with closing(Proxy(place.target)) as proxy:
        yield proxy


class Opened:
    """Opens states, as who calls through the seam does, and closes what was opened."""

    def __init__(self) -> None:
        self._folders: list[RemoteStates] = []

    def __call__(self, url: str, processor: type[ps.Aggregator], writing: Writing = APPENDING) -> RemoteState:
        return self.folder(remote_states(url, processor, writing=writing)).open(identity_of(processor))

    def folder(self, states: RemoteStates) -> RemoteStates:
        self._folders.append(states)
        return states

    def close(self) -> None:
        for states in self._folders:
            states.close()


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Opens states until the test ends."""
    with closing(Opened()) as opened:
        yield opened


def lifted(monoid: ps.Monoid[Any], **observations: Any) -> Changes:
    """Give one partial for each key."""
    return {encode_slot(key, EVER): monoid.encode(monoid.lift(seen)) for key, seen in observations.items()}


def values(state: RemoteState, monoid: ps.Monoid[Any], *slots: bytes) -> list[Any]:
    return [None if found is None else monoid.decode(found) for found in state.fetch(slots)]


# What every store of a shard's state promises


def test_a_new_shard_is_empty(url: str, opened: Opened) -> None:
    """It has no values, no position and no outbox."""
    state = opened(url, aggregator(ps.Count()))

    assert state.fetch([A, B]) == [None, None]
    assert state.fetch([]) == []
    assert state.position() == {}
    assert state.outbox() is None


@pytest.mark.parametrize("writing", [Writing.READ_MODIFY_WRITE, Writing.READ_MERGE_WRITE])
def test_what_was_saved_is_there_after_reopening(url: str, opened: Opened, writing: Writing) -> None:
    """Values and positions last; a removed slot is gone; positions of categories that are not named stay."""
    processor = aggregator(ps.First())
    state = opened(url, processor, writing)
    state.save({A: b"\xa11", B: b"\xa12", b"": b"\x00"})
    state.save({A: None, B: b"\xa13"})
    state.save({})
    state.save_position({"flights": 17, "planes": 2})
    state.save_together({C: b"\xa14"}, {"flights": 18})
    state.close()

    state = opened(url, processor, writing)

    assert state.fetch([B, A, b"", C, b"zz"]) == [b"\xa13", None, b"\x00", b"\xa14", None]
    assert state.position() == {"flights": 18, "planes": 2}


def test_an_outbox_is_kept_until_it_is_cleared(url: str, opened: Opened) -> None:
    """It is saved with the position at its end, survives other saves and reopening, and is dropped once."""
    monoid = ps.Count()
    processor = aggregator(monoid)
    opened(url, processor).save_with_outbox(lifted(monoid, a=1), OUTBOX)
    state = opened(url, processor)
    state.save(lifted(monoid, a=1))

    assert state.outbox() == OUTBOX
    assert state.position() == {"hits": 9}
    assert values(state, monoid, A) == [2]

    state.clear_outbox()

    assert state.outbox() is None
    assert opened(url, processor).outbox() is None


def test_shards_are_apart(url: str, opened: Opened) -> None:
    """Bucket numbers and processors do not see one another's state."""
    processor, other = aggregator(ps.Count()), aggregator(ps.Count())
    states = opened.folder(remote_states(url, processor))
    states.open(identity_of(processor, 1)).save({A: b"\x01"})

    assert states.open(identity_of(processor, 11)).fetch([A]) == [None]
    assert opened(url, other).fetch([A]) == [None]
    assert states.open(identity_of(processor, 1)).fetch([A]) == [b"\x01"]


def test_a_closed_state_is_not_used(url: str, opened: Opened) -> None:
    """It says so, and does not write."""
    state = opened(url, aggregator(ps.Count()))
    state.close()
    state.close()

    with pytest.raises(StateError, match="closed already"):
        state.save({A: b"\x01"})
    with pytest.raises(StateError, match="closed already"):
        state.fetch([A])


def test_state_of_another_shape_is_refused_and_kept(url: str, opened: Opened) -> None:
    """A changed monoid or window does not get bytes it would misread, and the owner stays the owner."""
    monoid = ps.Count()
    processor = aggregator(monoid)
    states = opened.folder(remote_states(url, processor))
    state = states.open(identity_of(processor))
    state.save(lifted(monoid, a=1))

    with pytest.raises(ForeignState, match=r"Count\(\) in Ever\(\) by page.*expected was Sum") as refused:
        states.open(ShardIdentity(processor.name, 0, "Sum"))

    assert "Nothing was changed" in str(refused.value)
    state.save_position({"hits": 1})
    assert values(state, monoid, A) == [1]


@pytest.mark.parametrize("writing", [OVERWRITING, APPENDING])
@pytest.mark.parametrize("monoid", [ps.Count(), ps.Sum(), ps.Max(), ps.Last()], ids=repr)
def test_a_save_of_many_slots_is_one(url: str, opened: Opened, monoid: ps.Monoid[Any], writing: Writing) -> None:
    """Twenty thousand slots, more than Lua unpacks at once, are saved and fetched in the order asked for."""
    state = opened(url, aggregator(monoid), writing)
    changes: Changes = {encode_slot(f"key-{n}", EVER): monoid.encode(monoid.lift(n)) for n in range(20_000)}
    state.save_together(changes, {"hits": 20_000})
    asked = [*reversed(changes), A]

    assert state.fetch(asked) == [*reversed(changes.values()), None]


# Merging: whatever the store does by itself, the result is the monoid's own

_whole = st.integers(-(2**200), 2**200) | st.integers(-(2**63) - 2, 2**63 + 2) | st.integers(-9, 9)
_carried = st.integers(-(2**63), 2**64 - 1) | st.integers(-9, 9)
_float = st.floats(-1e300, 1e300) | st.sampled_from([math.inf, -math.inf, 1e-20, 5e-324, -0.0, 0.5])
_key = st.sampled_from("xyz")
MONOIDS: dict[str, tuple[ps.Monoid[Any], st.SearchStrategy[Any]]] = {
    "count": (ps.Count(), st.none()),
    "sum of ints": (ps.Sum(), _whole),
    "sum of floats": (ps.Sum(), _float | st.just(math.nan)),
    "sum of both": (ps.Sum(), _whole | _float),
    "mean": (ps.Mean(), _whole | _float),
    "min": (ps.Min(), _carried | _float | st.just(math.nan)),
    "max": (ps.Max(), _carried | _float | st.just(math.nan)),
    "max of text": (ps.Max(), st.text(st.characters(exclude_categories=["Cs"]), max_size=3)),
    "min of bytes": (ps.Min(), st.binary(max_size=3)),
    "max of tuples": (ps.Max(), st.tuples(st.sampled_from([1, 1.5, -2]), st.text("ab\0", max_size=2))),
    "first": (ps.First(), st.integers(0, 99)),
    "last": (ps.Last(), st.integers(0, 99)),
    "log": (Log(), st.integers(0, 99)),
    "distinct": (ps.Distinct(7), st.integers(0, 999)),
    "map of count": (ps.MapOf(ps.Count()), st.dictionaries(_key, st.none(), min_size=1)),
}


def same(monoid: ps.Monoid[Any], found: Any, expected: Any, scale: float) -> bool:
    """Whether two partials are the same: sums to the rounding of the largest number in them."""
    if isinstance(monoid, ps.Mean):
        return bool(found[1] == expected[1]) and same(ps.Sum(), found[0], expected[0], scale)
    if isinstance(monoid, ps.Sum) and isinstance(expected, float) and math.isfinite(expected):
        return isinstance(found, float) and math.isclose(found, expected, rel_tol=1e-12, abs_tol=1e-12 * scale)
    return type(found) is type(expected) and monoid.same(found, expected)


def scale_of(observations: list[Any]) -> float:
    return sum(abs(seen) for seen in observations if isinstance(seen, (int, float)) and math.isfinite(seen))


def save_as_the_core_does(state: RemoteState, monoid: ps.Monoid[Any], partials: Changes, writing: Writing) -> None:
    """Save partials: alone where the store merges, merged with what was fetched otherwise."""
    if writing is not APPENDING:
        saved = state.fetch(list(partials))
        partials = {
            slot: monoid.encode(monoid.combine(monoid.decode(old), monoid.decode(new))) if old and new else new
            for old, (slot, new) in zip(saved, partials.items(), strict=True)
        }
    state.save(partials)


@pytest.mark.parametrize("name", MONOIDS)
@given(drawn=st.data())
@settings(max_examples=12, deadline=None)
def test_any_series_of_saves_folds_as_the_monoid_does(url: str, name: str, drawn: st.DataObject) -> None:
    """In any mode, and where modes change between runs, with a compactor in between: what is fetched is the fold in Python."""
    monoid, observation = MONOIDS[name]
    save = st.tuples(
        st.sampled_from([OVERWRITING, APPENDING, APPENDING]),
        st.dictionaries(st.sampled_from([A, B]), st.lists(observation, min_size=1, max_size=3), min_size=1),
        st.booleans(),
    )
    processor = aggregator(monoid)
    truth: dict[bytes, list[Any]] = {A: [], B: []}
    compactor = compactor_of(url, processor, lambda: [0], more_than=1)
    folders = {writing: remote_states(url, processor, writing=writing) for writing in (OVERWRITING, APPENDING)}
    try:
        for writing, observed, compacts in drawn.draw(st.lists(save, max_size=6)):
            state = folders[writing].open(identity_of(processor))
            partials: Changes = {}
            for slot, seen in observed.items():
                truth[slot] += seen
                partials[slot] = monoid.encode(fold(monoid, seen))
            save_as_the_core_does(state, monoid, partials, writing)
            if compacts:
                compactor.compact()
        found = folders[OVERWRITING].open(identity_of(processor)).fetch([A, B])
    finally:
        compactor.close()
        for states in folders.values():
            states.close()

    for encoded, seen in zip(found, truth.values(), strict=True):
        assert (encoded is None) == (not seen)
        if encoded is not None:
            assert same(monoid, monoid.decode(encoded), fold(monoid, seen), scale_of(seen))


def fold(monoid: ps.Monoid[Any], observations: list[Any]) -> Any:
    partial = monoid.identity()
    for observation in observations:
        partial = monoid.combine(partial, monoid.lift(observation))
    return partial


def test_sums_stay_exact_beyond_what_databases_count_with(url: str, opened: Opened) -> None:
    """Whole numbers grow past 64 bits, partial by partial, and floats as small as 1e-20 do not vanish."""
    monoid = ps.Sum()
    state = opened(url, aggregator(monoid))
    for _ in range(6):
        state.save(lifted(monoid, a=2**61 + 1, b=1e-20, c=2**70))
    state.save(lifted(monoid, a=-1))

    whole, tiny, huge = values(state, monoid, A, B, C)
    assert whole == 6 * 2**61 + 5
    assert tiny == pytest.approx(6e-20, rel=1e-12)
    assert huge == 6 * 2**70


def test_floats_overflow_to_infinity(url: str, opened: Opened) -> None:
    """As they do in Python, where a database would refuse the sum, and with it the save."""
    monoid = ps.Sum()
    state = opened(url, aggregator(monoid))
    for _ in range(2):
        state.save(lifted(monoid, a=1.7e308, b=-1.7e308, c=math.inf))
        state.save(lifted(monoid, a=1.0, b=1.0, c=-math.inf))

    up, down, unknown = values(state, monoid, A, B, C)
    assert (up, down) == (math.inf, -math.inf)
    assert math.isnan(unknown)


def test_a_removed_slot_begins_anew(url: str, opened: Opened) -> None:
    """Also where it was merged by the store or waits for being merged."""
    monoids: list[ps.Monoid[Any]] = [ps.Count(), ps.Mean(), ps.Max(), Log()]
    for monoid in monoids:
        state = opened(url, aggregator(monoid))
        state.save(lifted(monoid, a=1, b=1))
        state.save({A: None})
        state.save(lifted(monoid, a=7))

        assert values(state, monoid, A, B) == [monoid.lift(7), monoid.lift(1)]


_scalar = _whole | _float | st.floats(allow_nan=False)
_ordered = st.tuples(_scalar, _scalar) | st.tuples(*[st.tuples(_scalar, st.text("a\0\xff", max_size=2))] * 2)
_ordered |= st.tuples(*[st.lists(st.integers(-3, 3), max_size=3).map(tuple)] * 2)


@given(pair=_ordered)
def test_keys_sort_as_their_values(pair: tuple[Any, Any]) -> None:
    """Whatever Python finds smaller, equal or larger, the bytes do, and reversed ones do the other way round."""
    assume(all(order_key(value) is not None for value in pair))
    left, right = pair
    keys: list[Any] = [order_key(value) for value in pair]
    reversed_keys: list[Any] = [reverse_order_key(value) for value in pair]

    assert (left < right, left == right) == (keys[0] < keys[1], keys[0] == keys[1])
    assert (left < right) == (reversed_keys[0] > reversed_keys[1])


@pytest.mark.parametrize("value", [None, math.nan, (1, math.nan), (None,), [1], {"a": 1}])
def test_what_has_no_order_has_no_key(value: Any) -> None:
    """It is then left to Python."""
    assert order_key(value) is None
    assert reverse_order_key(value) is None


# Owners

WRITES: dict[str, Callable[[RemoteState], None]] = {
    "save": lambda state: state.save({A: b"\x05"}),
    "save_position": lambda state: state.save_position({"hits": 5}),
    "save_together": lambda state: state.save_together({A: b"\x05"}, {"hits": 5}),
    "save_with_outbox": lambda state: state.save_with_outbox({A: b"\x05"}, OUTBOX),
    "clear_outbox": lambda state: state.clear_outbox(),
}


@pytest.mark.parametrize("writing", [OVERWRITING, APPENDING])
@pytest.mark.parametrize("write", WRITES)
def test_a_zombie_changes_nothing(url: str, opened: Opened, write: str, writing: Writing) -> None:
    """Whoever opened a shard last owns it: every write of an older owner is refused, and says so."""
    processor = aggregator(ps.Count())
    zombie = opened(url, processor, writing)
    zombie.save_with_outbox({A: b"\x01"}, Outbox({}, {"hits": 1}, [("pages", b"a", b"1")]))
    owner = opened(url, processor, writing)
    before = owner.fetch([A]), owner.outbox()

    with pytest.raises(StoreFenced, match="opened again, as epoch 2"):
        WRITES[write](zombie)

    assert (owner.fetch([A]), owner.outbox()) == before
    assert opened(url, processor, writing).position() == {"hits": 1}


def test_a_store_that_went_back_is_noticed(place: Place, opened: Opened) -> None:
    """After a failover that lost saves, nothing is written on top: the owner is told to open the shard again."""
    processor = aggregator(ps.Count())
    state = opened(place.url, processor)
    for offset in range(3):
        state.save_together({A: b"\x01"}, {"hits": offset})
    forget_a_save(place, processor)

    with pytest.raises(StoreFenced, match="lost what it had saved"):
        state.save_together({A: b"\x01"}, {"hits": 3})

    assert values(opened(place.url, processor), ps.Count(), A) == [3]


@pytest.mark.parametrize("saves", [0, 1])
def test_an_epoch_that_was_given_twice_has_one_owner(place: Place, opened: Opened, saves: int) -> None:
    """A failover that loses a claim takes its epoch back; who had it does not take the next owner's saves for its own."""
    processor = aggregator(ps.Count())
    first = opened(place.url, processor)
    forget_a_claim(place, processor)
    second = opened(place.url, processor)
    for _ in range(saves):
        second.save({A: b"\x01"})

    with pytest.raises(StoreFenced, match="opened again"):
        first.save({A: b"\x05"})

    second.save({A: b"\x01"})
    assert values(second, ps.Count(), A) == [saves + 1]


def forget_a_claim(place: Place, processor: type[ps.Aggregator]) -> None:
    if isinstance(place.server, Postgres):
        with place.server.session() as session:
            session.execute("UPDATE penstock_shards SET epoch = epoch - 1 WHERE processor = %s", (processor.name,))
    else:
        with place.server.session() as client:
            client.hincrby(f"penstock:{{{processor.name}:0}}:shard", "epoch", -1)


def forget_a_save(place: Place, processor: type[ps.Aggregator]) -> None:
    if isinstance(place.server, Postgres):
        with place.server.session() as session:
            session.execute("UPDATE penstock_shards SET saves = saves - 1 WHERE processor = %s", (processor.name,))
    else:
        with place.server.session() as client:
            client.hincrby(f"penstock:{{{processor.name}:0}}:shard", "saves", -1)


def test_many_may_open_while_one_works(url: str, opened: Opened) -> None:
    """Shards of a worker share what connects it, from any thread."""
    monoid = ps.Count()
    processor = aggregator(monoid)
    states = opened.folder(remote_states(url, processor, writing=APPENDING))
    working = states.open(identity_of(processor))
    with ThreadPoolExecutor(4) as pool:
        opening = [pool.submit(states.open, identity_of(processor, bucket)) for bucket in range(1, 13)]
        for _ in range(30):
            working.save(lifted(monoid, a=1))
        others = [future.result() for future in opening]

    assert values(working, monoid, A) == [30]
    assert [state.position() for state in others] == [{}] * 12


def test_workers_that_start_together_make_the_tables_once(postgres: Postgres) -> None:
    """Each makes what is missing, and none trips over another."""
    url = new_database(postgres)
    processor = aggregator(ps.Count())
    folders = [remote_states(url, processor) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        states = list(pool.map(lambda pair: pair[1].open(identity_of(processor, pair[0])), enumerate(folders)))
    found = [state.fetch([A]) for state in states]
    for folder in folders:
        folder.close()

    assert found == [[None]] * 8


def new_database(postgres: Postgres) -> str:
    name = f"database_{next(_numbers)}"
    with postgres.session() as session:
        session.execute(f"CREATE DATABASE {name}")
    return postgres.url.replace("/postgres", f"/{name}")


# Lost connections


@pytest.mark.parametrize("write", ["save", "save_together", "save_with_outbox"])
def test_a_save_whose_answer_is_lost_counts_once(place: Place, proxy: Proxy, opened: Opened, write: str) -> None:
    """The store has saved and the connection breaks before it says so: looking settles it, also for appended partials."""
    for monoid in (ps.Count(), Log()):
        processor = aggregator(monoid)
        state = opened(place.through(proxy), processor)
        partials = lifted(monoid, a=1)
        state.save(partials)
        lost = proxy.losses
        proxy.lose_answer(place.saved)
        saves: dict[str, Callable[[], None]] = {
            "save": lambda: state.save(partials),  # noqa: B023 - called within the round
            "save_together": lambda: state.save_together(partials, {"hits": 9}),  # noqa: B023
            "save_with_outbox": lambda: state.save_with_outbox(partials, OUTBOX),  # noqa: B023
        }
        saves[write]()

        assert proxy.losses == lost + 1
        assert values(state, monoid, A) == [fold(monoid, [1, 1])]
        state.save(partials)
        assert values(opened(place.url, processor), monoid, A) == [fold(monoid, [1, 1, 1])]


@pytest.mark.parametrize("sent", [0, 100, 5_000, 60_000])
def test_a_save_that_breaks_on_its_way_counts_once(place: Place, proxy: Proxy, opened: Opened, sent: int) -> None:
    """Whatever had arrived of it."""
    monoid = ps.Count()
    processor = aggregator(monoid)
    state = opened(place.through(proxy), processor)
    state.save(lifted(monoid, a=1))
    slots = [encode_slot(f"key-{n}", EVER) for n in range(5_000)]
    proxy.cut_after(sent)
    state.save_together(dict.fromkeys(slots, b"\x01"), {"hits": 1})

    assert proxy.losses == 1
    assert values(state, monoid, *slots) == [1] * 5_000


def test_a_lost_claim_or_fetch_is_repeated(place: Place, proxy: Proxy, opened: Opened) -> None:
    """Opening and reading survive a lost connection."""
    processor = aggregator(ps.Count())
    proxy.cut_after(0)
    state = opened(place.through(proxy), processor)
    state.save({A: b"\x01"})
    proxy.cut()

    assert state.fetch([A]) == [b"\x01"]
    assert proxy.losses == 1


def test_a_large_save_goes_ahead_in_pieces(
    redis_server: Redis, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is one save, survives a broken connection, and leaves nothing behind in Redis that does not expire."""
    monkeypatch.setattr(redis_store, "_SENT_AT_ONCE_BYTES", 10_000)
    monkeypatch.setattr(redis_store, "_CHUNK_BYTES", 5_000)
    monoid = Log()
    processor = aggregator(monoid)
    slots = [encode_slot(f"key-{n}", EVER) for n in range(2_000)]
    with closing(Proxy(redis_server.target)) as proxy:
        state = opened(redis_server.url.replace(f":{redis_server.target[1]}/", f":{proxy.port}/"), processor)
        for cut_after in (45_000, 20_000):
            proxy.cut_after(cut_after)
            state.save(dict.fromkeys(slots, monoid.encode([1])))
        assert proxy.losses == 2
        assert values(state, monoid, *slots) == [[1, 1]] * 2_000
    with redis_server.session() as client:
        staged = client.keys(f"penstock:{{{processor.name}:0}}:staged:*")
        assert all(0 < client.ttl(key) <= 3600 for key in staged)


def test_pieces_that_are_missing_are_sent_again(redis_server: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that expired or came in part is not taken for the whole."""
    monkeypatch.setattr(redis_store, "_SENT_AT_ONCE_BYTES", 0)
    monoid = ps.Count()
    processor = aggregator(monoid)
    store = redis_store.RedisStore(address_of(redis_server.url))
    send = store._send_ahead
    monkeypatch.setattr(store, "_send_ahead", lambda *arguments: None)
    retrying = Retrying(pause=lambda _: monkeypatch.setattr(store, "_send_ahead", send))
    with closing(RemoteStates(store, processor, APPENDING, retrying)) as states:
        state = states.open(identity_of(processor))
        state.save(lifted(monoid, a=1))

        assert values(state, monoid, A) == [1]


def test_a_restarted_store_is_gone_on_with(place: Place, opened: Opened) -> None:
    """What was saved is there, and the owner need not open again."""
    monoid = ps.Count()
    processor = aggregator(monoid)
    state = opened(place.url, processor)
    state.save(lifted(monoid, a=1))
    place.server.restart()
    state.save(lifted(monoid, a=1))

    assert values(state, monoid, A) == [2]


def test_a_store_that_becomes_a_replica_is_waited_for(place: Place) -> None:
    """During a failover writes are refused; they are repeated until the new primary takes them."""
    monoid = ps.Count()
    processor = aggregator(monoid)
    retrying = Retrying(pause=lambda _: promote(place))
    with closing(RemoteStates(store_at(address_of(place.url)), processor, APPENDING, retrying)) as states:
        state = states.open(identity_of(processor))
        state.save(lifted(monoid, a=1))
        demote(place)
        try:
            state.save(lifted(monoid, a=1))
        finally:
            promote(place)

        assert values(state, monoid, A) == [2]


def demote(place: Place) -> None:
    if isinstance(place.server, Postgres):
        set_read_only(place.server, "on")
    else:
        with place.server.session() as client:
            client.replicaof("127.0.0.1", 1)


def promote(place: Place) -> None:
    if isinstance(place.server, Postgres):
        set_read_only(place.server, "off")
    else:
        with place.server.session() as client:
            client.replicaof("NO", "ONE")


def set_read_only(server: Postgres, setting: str) -> None:
    with server.session(options="-c default_transaction_read_only=off") as session:
        session.execute(f"ALTER SYSTEM SET default_transaction_read_only = {setting}")
        session.execute("SELECT pg_reload_conf()")
    until(lambda: shown(server, "default_transaction_read_only") == setting)


def shown(server: Postgres, setting: str) -> Any:
    with server.session() as session:
        row = session.execute(f"SHOW {setting}").fetchone()
    return row and row[0]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


def test_a_deadlock_is_survived(postgres: Postgres, opened: Opened) -> None:
    """PostgreSQL ends our transaction for one that is not ours; the save is made again."""
    monoid = ps.Count()
    processor = aggregator(monoid)
    state = opened(postgres.url, processor)
    state.save(lifted(monoid, a=1))
    with postgres.session() as other, ThreadPoolExecutor(1) as pool:
        # The other one waits longer before it looks for deadlocks, so that ours is the one that is ended.
        other.execute("SET deadlock_timeout = '30s'")
        other.execute("BEGIN")
        shard = "(SELECT shard FROM penstock_shards WHERE processor = %s)"
        other.execute(f"SELECT FROM penstock_parts WHERE shard = {shard} FOR UPDATE", (processor.name,))
        saving = pool.submit(state.save, lifted(monoid, a=1))
        until(lambda: waiting_for_locks(postgres) == 1)
        other.execute("SELECT FROM penstock_shards WHERE processor = %s FOR UPDATE", (processor.name,))
        other.execute("ROLLBACK")
        saving.result(LIMIT_S)

    assert values(state, monoid, A) == [2]


def waiting_for_locks(server: Postgres) -> int:
    with server.session() as session:
        row = session.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone()
    return int(row[0]) if row else 0


def test_an_owner_that_is_paused_in_its_transaction_is_ended(
    postgres: Postgres, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the shard no longer than a set time; what it goes on to write is dropped."""
    session = [setting.replace("'10s'", "'200ms'") for setting in postgres_connection._SESSION]
    monkeypatch.setattr(postgres_connection, "_SESSION", session)
    processor = aggregator(ps.Count())
    opened(postgres.url, processor)
    paused = postgres_connection.PostgresConnection(address_of(postgres.url))
    with closing(paused), pytest.raises(StoreInterrupted):
        save_with_a_pause(paused, processor, lambda: opened(postgres.url, processor))
    owner = opened(postgres.url, processor)
    owner.save_position({"hits": 1})
    assert opened(postgres.url, processor).position() == {"hits": 1}


def save_with_a_pause(
    connection: postgres_connection.PostgresConnection, processor: type[ps.Aggregator], pause: Callable[[], object]
) -> None:
    with connection.transaction() as transaction:
        transaction.execute("UPDATE penstock_shards SET saves = 77 WHERE processor = %s", (processor.name,))
        pause()
        transaction.execute("SELECT 1")


def test_a_store_that_stays_away_is_reported(place: Place, proxy: Proxy, opened: Opened) -> None:
    """After the limit; then nothing more is written before the state is opened again, for nobody knows what took effect."""
    monoid = ps.Count()
    processor = aggregator(monoid)
    states = opened.folder(remote_states(place.through(proxy), processor, writing=APPENDING, retry_limit_s=0.2))
    state = states.open(identity_of(processor))
    proxy.lose_answer(place.saved)
    state.save_together(lifted(monoid, a=1), {"hits": 1})
    proxy.refuse()

    with pytest.raises(StoreUnreachable, match="start again when the store is back"):
        state.save_together(lifted(monoid, a=1), {"hits": 2})

    proxy.resume()
    with pytest.raises(StoreUnreachable, match="earlier write failed"):
        state.save_together(lifted(monoid, a=1), {"hits": 2})
    assert opened(place.url, processor).position() == {"hits": 1}


def test_pauses_grow_and_end_at_the_limit() -> None:
    """Between attempts it is waited for a random time below a bound that doubles, never beyond the limit."""
    now = 0.0
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        nonlocal now
        pauses.append(seconds)
        now += max(seconds, 0.001)

    def attempt() -> None:
        raise StoreInterrupted("It is away.")

    with pytest.raises(StoreUnreachable, match="It is away"):
        Retrying(60.0, lambda: now, pause).call(attempt)

    bounds = [min(0.05 * 2**n, 5.0) for n in range(len(pauses))]
    assert all(0 <= waited <= bound for waited, bound in zip(pauses, bounds, strict=True))
    assert 60.0 <= now < 60.1


# What is refused, and in which words


def test_a_wrong_password_is_not_tried_again(postgres: Postgres, tmp_path: Path) -> None:
    """The error comes at once and does not show the password."""
    guarded = Redis(tmp_path, "--appendonly", "yes", "--requirepass", PASSWORD)
    guarded.start()
    try:
        for url in (
            postgres.url.replace(PASSWORD, "wr0ng"),
            guarded.url.replace("//", "//:wr0ng@"),
            guarded.url,
        ):
            processor = aggregator(ps.Count())
            with closing(remote_states(url, processor)) as states, pytest.raises(StoreRefused) as refused:
                states.open(identity_of(processor))
            assert "wr0ng" not in str(refused.value)
            assert "Nothing was saved" in str(refused.value)
        processor = aggregator(ps.Count())
        with closing(remote_states(guarded.url.replace("//", f"//:{PASSWORD}@"), processor)) as states:
            assert states.open(identity_of(processor)).position() == {}
    finally:
        guarded.stop()


def test_a_database_that_is_not_there_is_named(postgres: Postgres, redis_server: Redis) -> None:
    """At once."""
    for url, said in (
        (postgres.url.replace("/postgres", "/nowhere"), '"nowhere" does not exist'),
        (redis_server.url.replace("/0", "/99"), "DB index"),
    ):
        processor = aggregator(ps.Count())
        with closing(remote_states(url, processor)) as states, pytest.raises(StoreRefused, match=said):
            states.open(identity_of(processor))


def test_missing_rights_are_named(postgres: Postgres) -> None:
    """A user who may neither make nor use the tables is told which they are."""
    url = new_database(postgres)
    with postgres.session() as session:
        session.execute(f"CREATE USER guest_{next(_numbers)} PASSWORD '{PASSWORD}'")
        guest = session.execute("SELECT max(usename) FROM pg_user WHERE usename LIKE 'guest%'").fetchone()
    assert guest is not None
    processor = aggregator(ps.Count())
    states = remote_states(url.replace("penstock:", f"{guest[0]}:"), processor)
    with closing(states), pytest.raises(StoreRefused, match="penstock_shards"):
        states.open(identity_of(processor))


def test_a_full_redis_saves_nothing(redis_server: Redis, opened: Opened) -> None:
    """A script that begins is finished: a save is refused as a whole or not at all."""
    monoid = Log()
    processor = aggregator(monoid)
    state = opened(redis_server.url, processor)
    state.save(lifted(monoid, a=1))
    with redis_server.session() as client:
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(StateUnwritable, match="has no room"):
                state.save_together(lifted(monoid, a=2, b=2), {"hits": 2})
        finally:
            client.config_set("maxmemory", 0)
    state = opened(redis_server.url, processor)

    assert values(state, monoid, A, B) == [[1], None]
    assert state.position() == {}


@pytest.mark.parametrize("url", ["mysql://user:s3cret@host/db", "host:5432", "", "http://[", "redis:/s3cret"])
def test_other_addresses_are_refused(url: str) -> None:
    """With the ones that work, and without the password."""
    with pytest.raises(BadStoreAddress, match="postgresql://user:password@host") as refused:
        remote_states(url, aggregator(ps.Count()))

    assert "s3cret@" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:s3cret@host:5432/db",
        "postgresql://user:s3cret@one:1,two:2/db?sslmode=require",
        "postgresql://host/db?user=me&password=s3cret",
        "redis://:s3cret@host:6379/0",
        "rediss://user:with/and@s3cret@host/0",
    ],
)
def test_a_password_is_never_shown(url: str) -> None:
    """Neither by the address, nor by what a library says about it."""
    address = address_of(url)

    assert "s3cret" not in f"{address} {address!r}"
    assert "s3cret" not in address.without_password(f"{url} is wrong, and so is its password with/and@s3cret")
    assert "host" in str(address) or "@one:1,two:2" in str(address)


@pytest.mark.parametrize("url", ["postgresql://user:s3cret/x@host/db", "redis://:s3cret/x@host/0"])
def test_a_password_that_was_not_escaped_is_not_quoted(url: str) -> None:
    """Libraries quote what they cannot understand; we say how to write it."""
    processor = aggregator(ps.Count())
    with closing(remote_states(url, processor)) as states, pytest.raises(BadStoreAddress, match="%2F") as refused:
        states.open(identity_of(processor))

    assert "s3cret" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(("url", "module"), [("postgresql://host/db", "psycopg"), ("redis://host/0", "redis")])
def test_a_missing_library_is_named(url: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(StoreLibraryMissing, match=r"pip install 'penstock\[(postgres|redis)\]'"):
        remote_states(url, aggregator(ps.Count()))


def test_every_error_of_psycopg_has_a_class_of_ours() -> None:
    """No client library's error reaches the caller, and those that pass by themselves are told from the others."""
    address = Address("postgresql://host/db")
    classes = [value for value in vars(psycopg.errors).values() if isinstance(value, type)]
    ours = {
        code: postgres_connection.explained(address, error("said"))
        for error in classes
        if issubclass(error, psycopg.Error) and (code := getattr(error, "sqlstate", None))
    }

    assert len(ours) > 200
    for code in ("40001", "40P01", "57P01", "57P03", "08006", "25006", "53300", "55P03"):
        assert isinstance(ours[code], StoreInterrupted)
    assert isinstance(ours["28P01"], StoreRefused)
    assert isinstance(ours["53100"], StateUnwritable)
    assert type(ours["42601"]) is StateError


def test_every_error_of_redis_has_a_class_of_ours() -> None:
    """No client library's error reaches the caller, and those that pass by themselves are told from the others."""
    address = Address("redis://host/0")
    errors = redis.exceptions
    passing: list[Exception] = [
        errors.ConnectionError("gone"),
        errors.TimeoutError("late"),
        errors.BusyLoadingError("LOADING"),
        errors.ReadOnlyError("READONLY"),
        errors.ClusterDownError("CLUSTERDOWN Hash slot not served"),
        errors.MasterDownError("MASTERDOWN"),
        errors.ResponseError("NOREPLICAS Not enough good replicas to write."),
        errors.ResponseError("BUSY Redis is busy running a script."),
    ]
    refused: list[Exception] = [errors.AuthenticationError("WRONGPASS"), errors.NoPermissionError("NOPERM")]

    assert all(isinstance(redis_connection.explained(address, error), StoreInterrupted) for error in passing)
    assert all(isinstance(redis_connection.explained(address, error), StoreRefused) for error in refused)
    assert isinstance(redis_connection.explained(address, errors.OutOfMemoryError("OOM")), StateUnwritable)
    assert type(redis_connection.explained(address, errors.ResponseError("ERR what?"))) is StateError


@pytest.mark.parametrize(
    ("setting", "warnings"),
    [(("--appendonly", "no"), 1), (("--appendonly", "yes"), 0), (("--rename-command", "CONFIG", ""), 0)],
)
def test_a_redis_that_forgets_is_warned_of_once(
    setting: tuple[str, ...], warnings: int, tmp_path: Path, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    """Where it keeps data in memory alone; where it does not tell, nothing is said."""
    caplog.set_level(logging.WARNING, "penstock.state")
    server = Redis(tmp_path, *setting)
    server.start()
    try:
        processor = aggregator(ps.Count())
        states = opened.folder(remote_states(server.url, processor))
        for bucket in range(3):
            states.open(identity_of(processor, bucket))
    finally:
        server.stop()

    assert len([record for record in caplog.records if "appendonly" in record.getMessage()]) == warnings


# Compaction


def test_crowds_are_merged_in_order(url: str, opened: Opened) -> None:
    """What has more partials than the limit becomes one; the rest is left alone; what is fetched does not change."""
    monoid = Log()
    processor = aggregator(monoid)
    state = opened(url, processor)
    for n in range(9):
        state.save(lifted(monoid, a=n) | (lifted(monoid, b=n) if n < 4 else {}))
    with closing(compactor_of(url, processor, more_than=4)) as compactor:
        assert compactor.compact() == 1
        assert compactor.compact() == 0
    state.save(lifted(monoid, a=9))

    assert values(state, monoid, A, B) == [list(range(10)), list(range(4))]
    assert crowd_sizes(url, processor) == {A: 2, B: 4}


def crowd_sizes(url: str, processor: type[ps.Aggregator]) -> dict[bytes, int]:
    with closing(store_at(address_of(url))) as store:
        found = store.crowds(Shard(processor.name, 0), 0)
        return {crowd.slot: len(crowd.partials) for crowds in found for crowd in crowds}


def remove_and_append(state: RemoteState) -> None:
    state.save({A: None})
    for n in (7, 8, 9):
        state.save(lifted(Log(), a=n))


MEANWHILE: dict[str, tuple[Callable[[RemoteState, Compactor], object], list[Any] | None]] = {
    "appended": (lambda state, _: state.save(lifted(Log(), a=3)), [0, 1, 2, 3]),
    "merged": (lambda _, faster: faster.compact(), [0, 1, 2]),
    "removed": (lambda state, _: state.save({A: None}), None),
    "removed and appended": (lambda state, _: remove_and_append(state), [7, 8, 9]),
}


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_what_happens_while_a_crowd_is_merged_stays(url: str, opened: Opened, meanwhile: str) -> None:
    """Between a compactor's reading and its writing, anybody may write, and another compactor may be faster."""
    monoid = Log()
    processor = aggregator(monoid)
    state = opened(url, processor)
    for n in range(3):
        state.save(lifted(monoid, a=n))
    happens, expected = MEANWHILE[meanwhile]
    shard = Shard(processor.name, 0)
    with closing(store_at(address_of(url))) as store, closing(compactor_of(url, processor, more_than=1)) as faster:
        (crowd,) = [crowd for crowds in store.crowds(shard, 1) for crowd in crowds]
        happens(state, faster)
        store.replace(shard, [(crowd, monoid.encode([0, 1, 2]))])

    assert values(state, monoid, A) == [expected]


def test_other_partials_at_the_same_places_are_not_replaced(postgres: Postgres, opened: Opened) -> None:
    """After a failover that lost saves, between a compactor's reading and its writing."""
    monoid = Log()
    processor = aggregator(monoid)
    state = opened(postgres.url, processor)
    for n in range(3):
        state.save(lifted(monoid, a=n))
    shard = Shard(processor.name, 0)
    with closing(store_at(address_of(postgres.url))) as store, postgres.session() as session:
        (crowd,) = [crowd for crowds in store.crowds(shard, 1) for crowd in crowds]
        session.execute(
            "UPDATE penstock_parts AS part SET encoded = %s FROM penstock_shards AS own "
            "WHERE part.shard = own.shard AND own.processor = %s AND part.place = %s",
            (monoid.encode([7]), processor.name, crowd.last),
        )

        assert store.replace(shard, [(crowd, monoid.encode([0, 1, 2]))]) == 0
    assert values(state, monoid, A) == [[0, 1, 7]]


def test_a_crowd_that_a_whole_value_replaced_stays_replaced(url: str, opened: Opened) -> None:
    """Where the way of writing was changed while a compactor was at work."""
    monoid = Log()
    processor = aggregator(monoid)
    state = opened(url, processor)
    for n in range(3):
        state.save(lifted(monoid, a=n))
    shard = Shard(processor.name, 0)
    with closing(store_at(address_of(url))) as store:
        (crowd,) = [crowd for crowds in store.crowds(shard, 1) for crowd in crowds]
        state = opened(url, processor, OVERWRITING)
        state.save({A: monoid.encode([0, 1, 2, 3])})

        assert store.replace(shard, [(crowd, monoid.encode([0, 1, 2]))]) == 0
    assert values(state, monoid, A) == [[0, 1, 2, 3]]


def test_a_compactor_disturbs_nobody(url: str, opened: Opened) -> None:
    """It runs in a thread of its own while the owner appends and reads."""
    monoid = Log()
    processor = aggregator(monoid)
    state = opened(url, processor)
    with closing(compactor_of(url, processor, lambda: [0], more_than=2, pause_s=0.001)) as compactor:
        compactor.start()
        for n in range(150):
            state.save(lifted(monoid, a=n, b=n))
            assert values(state, monoid, A) == [list(range(n + 1))]
        until(lambda: max(crowd_sizes(url, processor).values()) <= 2)

    assert values(state, monoid, A, B) == [list(range(150))] * 2


PROGRAM = """
import sys
sys.path[:0] = {path!r}
import test_remote_state as tests
processor = tests.aggregator(tests.Log())
processor.name = {name!r}
compactor = tests.compactor_of({url!r}, processor, lambda: [0], more_than=1)
while True:
    if compactor.compact():
        print("merged", flush=True)
"""


def test_a_compactor_may_be_killed_at_any_moment(url: str, opened: Opened) -> None:
    """Nothing is lost and nothing counts twice, however often."""
    monoid = Log()
    processor = aggregator(monoid)
    state = opened(url, processor)
    slots = [encode_slot(f"key-{n}", EVER) for n in range(300)]
    program = PROGRAM.format(path=sys.path, name=processor.name, url=url)
    appended = count()
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as compacting:
            assert compacting.stdout is not None
            os.set_blocking(compacting.stdout.fileno(), False)
            deadline = time.monotonic() + LIMIT_S
            while not compacting.stdout.read():
                assert time.monotonic() < deadline, "nothing was merged"
                state.save(dict.fromkeys(slots, monoid.encode([next(appended)])))
            state.save(dict.fromkeys(slots, monoid.encode([next(appended)])))
            compacting.kill()

    assert values(state, monoid, *slots) == [list(range(next(appended)))] * len(slots)


def test_a_compactor_goes_on_after_a_lost_connection(place: Place, proxy: Proxy, opened: Opened) -> None:
    """A pass that breaks is said and made again."""
    monoid = Log()
    processor = aggregator(monoid)
    state = opened(place.url, processor)
    with closing(compactor_of(place.through(proxy), processor, lambda: [0], more_than=2, pause_s=0.01)) as compactor:
        proxy.refuse()
        compactor.start()
        for n in range(9):
            state.save(lifted(monoid, a=n))
        proxy.resume()
        until(lambda: crowd_sizes(place.url, processor)[A] <= 2)

    assert values(state, monoid, A) == [list(range(9))]


# Reading

HOUR = 3_600_000


def test_results_can_be_asked_for(url: str, opened: Opened) -> None:
    """By key and window, by key, and all; without becoming the owner of anything."""
    monoid = ps.Mean()
    processor = aggregator(monoid, ps.Tumbling(timedelta(hours=1)))
    folder = opened.folder(remote_states(url, processor, writing=APPENDING))
    owners = [folder.open(identity_of(processor, bucket)) for bucket in range(hits.buckets)]
    with read_results(url, processor) as results:
        bucket = {key: results._shard_of(key).bucket for key in ("a", "*b?", "c")}
        for key, hour in (("a", 0), ("a", 2), ("*b?", 0), ("c", 0), ("c", -1)):
            for seen in (1, 2):
                slot = encode_slot(key, hour * HOUR)
                owners[bucket[key]].save({slot: monoid.encode(monoid.lift(hour + seen))})

        assert results.result("a", Window(2 * HOUR, 3 * HOUR)) == 3.5
        assert results.result("a", Window(HOUR, 2 * HOUR)) is None
        assert list(results.results("c")) == [(Window(-HOUR, 0), 0.5), (Window(0, HOUR), 1.5)]
        assert list(results.results("*b?")) == [(Window(0, HOUR), 1.5)]
        assert list(results.results("nobody")) == []
        everything = sorted(results.scan(100))
        assert [(key, window.start // HOUR, value) for key, window, value in everything] == [
            ("*b?", 0, 1.5),
            ("a", 0, 1.5),
            ("a", 2, 3.5),
            ("c", -1, 0.5),
            ("c", 0, 1.5),
        ]
        assert set(results.scan(2)) < set(everything)
        assert len(list(results.scan(2))) == 2
        assert list(results.scan(0)) == []
    for owner in owners:
        owner.save_position({"hits": 1})


def test_reading_finds_what_writing_left(url: str, opened: Opened) -> None:
    """Whole values, numbers, ranks and partials alike; results without windows need none to be named."""
    monoids: list[ps.Monoid[Any]] = [ps.Count(), ps.Max(), Log()]
    for monoid in monoids:
        processor = aggregator(monoid)
        with read_results(url, processor) as results:
            bucket = results._shard_of("a").bucket
            for writing in (OVERWRITING, APPENDING):
                states = opened.folder(remote_states(url, processor, writing=writing))
                states.open(identity_of(processor, bucket)).save(lifted(monoid, a=3))

            assert results.result("a") == monoid.value(fold(monoid, [3, 3]))
            assert [value for _, value in results.results("a")] == [results.result("a")]


def test_nothing_is_found_where_nothing_was_written(url: str, postgres: Postgres) -> None:
    """An unknown processor has no results, and asking makes no tables."""
    for address in (url, new_database(postgres)):
        with read_results(address, aggregator(ps.Count())) as results:
            assert results.result("a") is None
            assert list(results.scan(9)) == []


def test_results_of_another_shape_are_not_misread(url: str, opened: Opened) -> None:
    """A reader whose monoid differs from the writer's is told so."""
    processor = aggregator(ps.Count())
    states = opened.folder(remote_states(url, processor))
    for bucket in range(hits.buckets):
        states.open(identity_of(processor, bucket))
    processor.monoid = ps.Sum()

    with read_results(url, processor) as results, pytest.raises(ForeignState, match="Count"):
        results.result("a")
