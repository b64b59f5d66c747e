"""Errors of remote state: their text, and that they show no password."""

from __future__ import annotations

import logging
import sys
import traceback
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import redis
from support.databases import PASSWORD, Postgres, Redis
from support.stores import A, B, Log, StateOpener, aggregator, identity_of, lifted, new_database, unique_name, values

import penstock as ps
from penstock.processors.shard import StatePosition
from penstock.state import BadStoreAddress, StateError, StateUnwritable
from penstock.state.remote import (
    StoreAddress,
    StoreInterrupted,
    StoreLibraryMissing,
    StoreRefused,
    postgres_connection,
    redis_connection,
    remote_states,
)
from penstock.state.remote.addresses import address_of


def test_a_wrong_password_is_not_retried(postgres: Postgres, tmp_path: Path) -> None:
    """The error comes at once and does not show the password."""
    guarded = Redis(tmp_path, "--appendonly", "yes", "--requirepass", PASSWORD)
    guarded.start()
    try:
        for url in (
            postgres.url.replace(PASSWORD, "wr0ng"),
            guarded.url.replace("//", "//:wr0ng@"),
            guarded.url,
        ):
            processor = aggregator(ps.monoids.Count())
            with closing(remote_states(url, processor)) as states, pytest.raises(StoreRefused) as refused:
                states.open(identity_of(processor))
            assert "wr0ng" not in str(refused.value)
            assert "Nothing was saved" in str(refused.value)
        processor = aggregator(ps.monoids.Count())
        with closing(remote_states(guarded.url.replace("//", f"//:{PASSWORD}@"), processor)) as states:
            assert states.open(identity_of(processor)).position() == StatePosition()
    finally:
        guarded.stop()


def test_a_missing_database_is_named(postgres: Postgres, redis_server: Redis) -> None:
    """The error comes at once."""
    for url, expected in (
        (postgres.url.replace("/postgres", "/nowhere"), '"nowhere" does not exist'),
        (redis_server.url.replace("/0", "/99"), "DB index"),
    ):
        processor = aggregator(ps.monoids.Count())
        with closing(remote_states(url, processor)) as states, pytest.raises(StoreRefused, match=expected):
            states.open(identity_of(processor))


def test_missing_privileges_are_named(postgres: Postgres) -> None:
    """The error lists the privileges that a user needs to create or use the tables."""
    url = new_database(postgres)
    with postgres.session() as session:
        session.execute(f"CREATE USER {unique_name('guest')} PASSWORD '{PASSWORD}'")
        guest = session.execute("SELECT max(usename) FROM pg_user WHERE usename LIKE 'guest%'").fetchone()
    assert guest is not None
    processor = aggregator(ps.monoids.Count())
    states = remote_states(url.replace("penstock:", f"{guest[0]}:"), processor)
    with closing(states), pytest.raises(StoreRefused, match="penstock_shards"):
        states.open(identity_of(processor))


def test_a_full_redis_saves_nothing(redis_server: Redis, opened: StateOpener) -> None:
    """Redis completes a started script: a save is refused as a whole."""
    monoid = Log()
    processor = aggregator(monoid)
    state = opened(redis_server.url, processor)
    state.save(lifted(monoid, a=1))
    with redis_server.session() as client:
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(StateUnwritable, match="is out of space"):
                state.save_together(lifted(monoid, a=2, b=2), StatePosition({"hits": 2}))
        finally:
            client.config_set("maxmemory", 0)
    state = opened(redis_server.url, processor)

    assert values(state, monoid, A, B) == [[1], None]
    assert state.position() == StatePosition()


@pytest.mark.parametrize("url", ["mysql://user:s3cret@host/db", "host:5432", "", "http://[", "redis:/s3cret"])
def test_unsupported_addresses_are_refused(url: str) -> None:
    """The error lists supported addresses and hides the password."""
    with pytest.raises(BadStoreAddress, match="postgresql://user:password@host") as refused:
        remote_states(url, aggregator(ps.monoids.Count()))

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
    """Neither the address nor a library's message about it shows the password."""
    address = address_of(url)

    assert "s3cret" not in f"{address} {address!r}"
    assert "s3cret" not in address.without_password(f"{url} is wrong, and so is its password with/and@s3cret")
    assert "host" in str(address) or "@one:1,two:2" in str(address)


@pytest.mark.parametrize("url", ["postgresql://user:s3cret/x@host/db", "redis://:s3cret/x@host/0"])
def test_an_unescaped_password_is_not_quoted(url: str) -> None:
    """Libraries quote text that they cannot parse; Penstock explains how to escape it."""
    processor = aggregator(ps.monoids.Count())
    with closing(remote_states(url, processor)) as states, pytest.raises(BadStoreAddress, match="%2F") as refused:
        states.open(identity_of(processor))

    assert "s3cret" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(("url", "module"), [("postgresql://host/db", "psycopg"), ("redis://host/0", "redis")])
def test_a_missing_library_is_named(url: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error contains the command that installs it."""
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(StoreLibraryMissing, match=r"pip install 'penstock\[(postgres|redis)\]'"):
        remote_states(url, aggregator(ps.monoids.Count()))


def test_every_error_of_psycopg_is_translated() -> None:
    """Callers see only Penstock's errors, which separate transient from permanent failures."""
    address = StoreAddress("postgresql://host/db")
    classes = [value for value in vars(psycopg.errors).values() if isinstance(value, type)]
    ours = {
        code: postgres_connection.translated(address, error("said"))
        for error in classes
        if issubclass(error, psycopg.Error) and (code := getattr(error, "sqlstate", None))
    }

    assert len(ours) > 200
    for code in ("40001", "40P01", "57P01", "57P03", "08006", "25006", "53300", "55P03"):
        assert isinstance(ours[code], StoreInterrupted)
    assert isinstance(ours["28P01"], StoreRefused)
    assert isinstance(ours["53100"], StateUnwritable)
    assert type(ours["42601"]) is StateError


@pytest.mark.parametrize(
    "words",
    [
        "the database system is starting up",
        "the database system is shutting down",
        "the database system is in recovery mode",
        "the database system is not yet accepting connections\nDETAIL:  Consistent recovery state has not been yet reached.",
        "the database system is not accepting connections\nDETAIL:  Hot standby mode is disabled.",
        "sorry, too many clients already",
        "no more connections allowed (max_client_conn)",
    ],
)
@pytest.mark.parametrize("password", ["k1ller-s3cret", "p", "a"])
def test_a_postgres_that_is_not_ready_is_waited_for(words: str, password: str) -> None:
    """Errors of connecting have no SQLSTATE, and a password of one letter is a part of any words."""
    said = f'connection failed: connection to server at "127.0.0.1", port 5432 failed: FATAL:  {words}'
    address = address_of(f"postgresql://worker:{password}@127.0.0.1:5432/db")
    refused = psycopg.OperationalError(said.replace(words, "password authentication failed for user worker"))

    assert isinstance(postgres_connection.translated(address, psycopg.OperationalError(said)), StoreInterrupted)
    assert isinstance(postgres_connection.translated(address, refused), StoreRefused)


def test_every_error_of_redis_is_translated() -> None:
    """Callers see only Penstock's errors, which separate transient from permanent failures."""
    address = StoreAddress("redis://host/0")
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

    assert all(isinstance(redis_connection.translated(address, error), StoreInterrupted) for error in passing)
    assert all(isinstance(redis_connection.translated(address, error), StoreRefused) for error in refused)
    assert isinstance(redis_connection.translated(address, errors.OutOfMemoryError("OOM")), StateUnwritable)
    assert type(redis_connection.translated(address, errors.ResponseError("ERR what?"))) is StateError


@pytest.mark.parametrize(
    ("setting", "warnings"),
    [(("--appendonly", "no"), 1), (("--appendonly", "yes"), 0), (("--rename-command", "CONFIG", ""), 0)],
)
def test_a_redis_without_persistence_logs_one_warning(
    setting: tuple[str, ...], warnings: int, tmp_path: Path, opened: StateOpener, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning appears if Redis keeps data in memory only, and not if its configuration is hidden."""
    caplog.set_level(logging.WARNING, "penstock.state")
    server = Redis(tmp_path, *setting)
    server.start()
    try:
        processor = aggregator(ps.monoids.Count())
        states = opened.folder(remote_states(server.url, processor))
        for bucket in range(3):
            states.open(identity_of(processor, bucket))
    finally:
        server.stop()

    assert len([record for record in caplog.records if "appendonly" in record.getMessage()]) == warnings
