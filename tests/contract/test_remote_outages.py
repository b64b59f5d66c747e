"""Remote state during lost connections and outages: every save counts once, or its outcome is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from support.databases import Postgres, Redis
from support.proxy import Proxy
from support.stores import (
    APPENDING,
    EVER,
    LIMIT_S,
    OUTBOX,
    A,
    Log,
    Place,
    StateOpener,
    aggregator,
    fold,
    identity_of,
    lifted,
    until,
    values,
)

import penstock as ps
from penstock.processors.keyed_state import encode_window_key
from penstock.processors.shard import StatePosition
from penstock.state.remote import (
    StoreInterrupted,
    StoreRetry,
    StoreUnreachable,
    postgres_connection,
    postgres_store,
    redis_store,
    remote_states,
)
from penstock.state.remote.addresses import address_of
from penstock.state.remote.folder import RemoteStates, store_at


@pytest.mark.parametrize("write", ["save", "save_together", "save_with_outbox"])
def test_a_save_whose_answer_is_lost_counts_once(place: Place, proxy: Proxy, opened: StateOpener, write: str) -> None:
    """The store has saved, and the connection breaks before the answer: a read decides, also for appended partials."""
    for monoid in (ps.monoids.Count(), Log()):
        processor = aggregator(monoid)
        state = opened(place.through(proxy), processor)
        partials = lifted(monoid, a=1)
        state.save(partials)
        lost = proxy.losses
        proxy.lose_answer(place.saved)
        saves: dict[str, Callable[[], None]] = {
            "save": lambda: state.save(partials),  # noqa: B023 - called within the round
            "save_together": lambda: state.save_together(partials, StatePosition({"hits": 9})),  # noqa: B023
            "save_with_outbox": lambda: state.save_with_outbox(partials, OUTBOX),  # noqa: B023
        }
        saves[write]()

        assert proxy.losses == lost + 1
        assert values(state, monoid, A) == [fold(monoid, [1, 1])]
        state.save(partials)
        assert values(opened(place.url, processor), monoid, A) == [fold(monoid, [1, 1, 1])]


@pytest.mark.parametrize("sent", [0, 100, 5_000, 60_000])
def test_a_save_that_breaks_in_transit_counts_once(place: Place, proxy: Proxy, opened: StateOpener, sent: int) -> None:
    """The connection may break after any byte."""
    monoid = ps.monoids.Count()
    processor = aggregator(monoid)
    state = opened(place.through(proxy), processor)
    state.save(lifted(monoid, a=1))
    slots = [encode_window_key(f"key-{n}", EVER) for n in range(5_000)]
    proxy.cut_after(sent)
    state.save_together(dict.fromkeys(slots, b"\x01"), StatePosition({"hits": 1}))

    assert proxy.losses == 1
    assert values(state, monoid, *slots) == [1] * 5_000


def test_a_lost_claim_or_fetch_is_repeated(place: Place, proxy: Proxy, opened: StateOpener) -> None:
    """Opening and reading survive a lost connection."""
    processor = aggregator(ps.monoids.Count())
    proxy.cut_after(0)
    state = opened(place.through(proxy), processor)
    state.save({A: b"\x01"})
    proxy.cut()

    assert state.fetch([A]) == [b"\x01"]
    assert proxy.losses == 1


def test_a_large_save_is_sent_in_chunks(
    redis_server: Redis, opened: StateOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunks are one save, survive a broken connection, and leave only expiring keys in Redis."""
    monkeypatch.setattr(redis_store, "_COMMAND_LIMIT_BYTES", 10_000)
    monkeypatch.setattr(redis_store, "_CHUNK_BYTES", 5_000)
    monoid = Log()
    processor = aggregator(monoid)
    slots = [encode_window_key(f"key-{n}", EVER) for n in range(2_000)]
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


def test_missing_chunks_are_sent_again(redis_server: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that expired or is incomplete is not used."""
    monkeypatch.setattr(redis_store, "_COMMAND_LIMIT_BYTES", 0)
    monoid = ps.monoids.Count()
    processor = aggregator(monoid)
    store = redis_store.RedisStore(address_of(redis_server.url))
    send = store._stage
    monkeypatch.setattr(store, "_stage", lambda *arguments: None)
    retrying = StoreRetry(pause=lambda _: monkeypatch.setattr(store, "_stage", send))
    with closing(RemoteStates(store, processor, APPENDING, retrying)) as states:
        state = states.open(identity_of(processor))
        state.save(lifted(monoid, a=1))

        assert values(state, monoid, A) == [1]


def test_work_continues_after_a_store_restarts(place: Place, opened: StateOpener) -> None:
    """Saved data is there, and the owner need not open the shard again."""
    monoid = ps.monoids.Count()
    processor = aggregator(monoid)
    state = opened(place.url, processor)
    state.save(lifted(monoid, a=1))
    place.server.restart()
    state.save(lifted(monoid, a=1))

    assert values(state, monoid, A) == [2]


def test_writes_wait_while_the_store_is_a_replica(place: Place) -> None:
    """A failover refuses writes; they are repeated until the new primary accepts them."""
    monoid = ps.monoids.Count()
    processor = aggregator(monoid)
    retrying = StoreRetry(pause=lambda _: promote(place))
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


def test_a_save_is_repeated_after_a_deadlock(postgres: Postgres, opened: StateOpener) -> None:
    """PostgreSQL rolls the save back in favour of another transaction; the owner repeats it."""
    monoid = ps.monoids.Count()
    processor = aggregator(monoid)
    state = opened(postgres.url, processor)
    state.save(lifted(monoid, a=1))
    with postgres.session() as other, postgres.session() as watching, ThreadPoolExecutor(1) as pool:
        # The other session waits longer before it checks for deadlocks, so PostgreSQL ends the owner's transaction.
        other.execute("SET deadlock_timeout = '30s'")
        other.execute("BEGIN")
        shard = "(SELECT shard FROM penstock_shards WHERE processor = %s)"
        other.execute(f"SELECT FROM penstock_parts WHERE shard = {shard} FOR UPDATE", (processor.name,))
        saving = pool.submit(state.save, lifted(monoid, a=1))
        until(lambda: waiting_for_locks(watching) == 1)
        other.execute("SELECT FROM penstock_shards WHERE processor = %s FOR UPDATE", (processor.name,))
        other.execute("ROLLBACK")
        saving.result(LIMIT_S)

    assert values(state, monoid, A) == [2]


def waiting_for_locks(session: psycopg.Connection) -> int:
    row = session.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone()
    return int(row[0]) if row else 0


def test_an_owner_that_pauses_within_its_transaction_is_ended(
    postgres: Postgres, opened: StateOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It locks the shard no longer than a set time; its later writes are discarded."""
    session = [setting.replace("'10s'", "'200ms'") for setting in postgres_connection._SESSION]
    monkeypatch.setattr(postgres_connection, "_SESSION", session)
    processor = aggregator(ps.monoids.Count())
    opened(postgres.url, processor)
    paused = postgres_connection.PostgresConnection(address_of(postgres.url))
    with closing(paused), pytest.raises(StoreInterrupted):
        save_with_a_pause(paused, processor, lambda: opened(postgres.url, processor))
    owner = opened(postgres.url, processor)
    owner.save_position(StatePosition({"hits": 1}))
    assert opened(postgres.url, processor).position() == StatePosition({"hits": 1})


def save_with_a_pause(
    connection: postgres_connection.PostgresConnection, processor: type[ps.Aggregator], pause: Callable[[], object]
) -> None:
    with connection.transaction() as transaction:
        transaction.execute("UPDATE penstock_shards SET saves = 77 WHERE processor = %s", (processor.name,))
        pause()
        transaction.execute("SELECT 1")


def test_a_long_outage_of_the_store_is_reported(place: Place, proxy: Proxy, opened: StateOpener) -> None:
    """After the time limit the outcome is unknown, so nothing more is written before the state is opened again."""
    monoid = ps.monoids.Count()
    processor = aggregator(monoid)
    states = opened.folder(remote_states(place.through(proxy), processor, write_mode=APPENDING, retry_limit_s=2.0))
    state = states.open(identity_of(processor))
    proxy.lose_answer(place.saved)
    state.save_together(lifted(monoid, a=1), StatePosition({"hits": 1}))
    proxy.refuse()

    with pytest.raises(StoreUnreachable, match="start other commands again when the store is back"):
        state.save_together(lifted(monoid, a=1), StatePosition({"hits": 2}))

    proxy.resume()
    with pytest.raises(StoreUnreachable, match="earlier write failed"):
        state.save_together(lifted(monoid, a=1), StatePosition({"hits": 2}))
    assert opened(place.url, processor).position() == StatePosition({"hits": 1})


def test_retry_delays_grow_and_end_at_the_limit() -> None:
    """Delays are random below a bound that doubles, and never exceed the limit."""
    now = 0.0
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        nonlocal now
        pauses.append(seconds)
        now += max(seconds, 0.001)

    def attempt() -> None:
        raise StoreInterrupted("It is away.")

    with pytest.raises(StoreUnreachable, match="It is away"):
        StoreRetry(60.0, lambda: now, pause).call(attempt)

    bounds = [min(0.05 * 2**n, 5.0) for n in range(len(pauses))]
    assert all(0 <= waited <= bound for waited, bound in zip(pauses, bounds, strict=True))
    assert 60.0 <= now < 60.1


def test_a_server_that_hangs_is_an_outage_and_a_slow_one_is_not(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernel accepts bytes, so only another connection shows it. Slow work is not repeated forever."""
    monkeypatch.setattr(postgres_store, "_ANSWER_LIMIT_S", 3.0)  # a busy machine answers within it
    monoid = ps.monoids.Count()
    processor = aggregator(monoid)
    with closing(Proxy(postgres.target)) as proxy:
        url = postgres.url.replace(f":{postgres.target[1]}/", f":{proxy.port}/")
        with closing(remote_states(url, processor, write_mode=APPENDING, retry_limit_s=0.1)) as states:
            state = states.open(identity_of(processor))
            state.save(lifted(monoid, a=1))
            with slow_parts(postgres):
                state.save(lifted(monoid, a=1))
            proxy.fall_silent()
            with pytest.raises(StoreUnreachable, match=r"did not answer within 3 s|timeout expired"):
                state.save(lifted(monoid, a=1))
            proxy.cut()
            proxy.resume()
            before = values(states.open(identity_of(processor)), monoid, A)

    assert before in ([2], [3])  # the save whose answer was withheld has taken effect, or not


@contextmanager
def slow_parts(postgres: Postgres) -> Iterator[None]:
    """Make each change of parts take longer than several limits."""
    with postgres.session() as session:
        session.execute(
            "CREATE OR REPLACE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(7); RETURN NEW; END'; "
            "CREATE TRIGGER slowly BEFORE INSERT ON penstock_parts FOR EACH STATEMENT EXECUTE FUNCTION slowly()"
        )
        try:
            yield
        finally:
            session.execute("DROP TRIGGER slowly ON penstock_parts")
