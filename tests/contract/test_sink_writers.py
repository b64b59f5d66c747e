"""Sinks with owners: each write counts once and is fenced, in memory and in PostgreSQL; the columns of PostgreSQL tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from io import BytesIO
from itertools import count
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from support.databases import Postgres
from support.disks import Disk
from support.mortal import Crash
from support.mortals import Trial
from support.proxy import Proxy
from support.subjects import EXACT, MEMORY, Subject

import penstock as ps
from penstock.backfill.outputs.parquet_sink import ParquetWriter
from penstock.backfill.warehouse import RecordColumns
from penstock.processors.declare import plan_of, write_accepted
from penstock.state.files import FileStore
from penstock.state.remote import StoreRetry
from penstock.state.remote.addresses import address_of
from penstock.state.sinks import MemoryRows, OwnedRows, postgres_rows
from penstock.state.sinks.postgres_rows import PostgresRowStore


class Total(ps.Record, frozen=True):
    """A row."""

    user: str
    clicks: int


class Color(Enum):
    """An enumeration."""

    RED = "red"


class Everything(ps.Record, frozen=True):
    """A row with each type of column."""

    number: int
    at: ps.EventTime
    ratio: float
    text: str
    is_on: bool
    raw: bytes
    moment: datetime
    day: date
    amount: Decimal
    id: UUID
    color: Color
    tags: list[str]
    inner: Total
    maybe: int | None = None


_NAMES = (f"sink_{number}" for number in count())


def batch(*rows: Any, position: str = "p", bucket: int = 0) -> ps.sinks.SinkBatch:
    """Return a batch of a processor."""
    return ps.sinks.SinkBatch("counter", bucket, {"clicks": 0}, rows, position, EXACT)


class Table:
    """A table of PostgreSQL, created by the statement that the sink prints.

    Args:
        server: the server.
        record: the type of the rows.
        key: the key.
    """

    def __init__(self, server: Postgres, record: type[ps.Record] = Total, key: str | None = "user") -> None:
        self.server = server
        self.name = next(_NAMES)
        self.declared = ps.sinks.PostgresSink(self.name, record, key=key, at=server.url)
        with closing(self.declared.open()) as writer, pytest.raises(ps.sinks.SinkRefused) as refused:
            writer.claim("counter", 0)
        self.statement = str(refused.value).partition("\n")[2]
        with server.session() as session:
            session.execute(self.statement.encode())

    def rows(self) -> list[tuple[Any, ...]]:
        """Return its rows in order."""
        with self.server.session() as session:
            found = session.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(self.name))).fetchall()
        return sorted(found, key=repr)


@pytest.fixture(params=["memory", "postgres"])
def two_writers(request: pytest.FixtureRequest) -> Iterator[tuple[OwnedRows, OwnedRows]]:
    """Two workers' writers of one sink."""
    if request.param == "memory":
        rows = MemoryRows()
        yield OwnedRows(rows, "it", StoreRetry()), OwnedRows(rows, "it", StoreRetry())
        return
    table = Table(request.getfixturevalue("postgres"), key=None)
    with closing(table.declared.open()) as first, closing(table.declared.open()) as second:
        yield first, second


def test_a_claim_returns_the_position_of_the_last_batch(two_writers: tuple[OwnedRows, OwnedRows]) -> None:
    """Positions belong to shards; the position of a batch without rows counts, too."""
    first, second = two_writers

    assert first.claim("counter", 0) == ""
    first.claim("counter", 1)
    first.write(batch(Total("ann", 1), position="one"))
    first.write(batch(position="two"))
    first.write(batch(Total("bob", 1), position="other", bucket=1))
    assert (second.claim("counter", 0), second.claim("counter", 1), second.claim("else", 0)) == ("two", "other", "")


def test_a_former_owner_writes_nothing(two_writers: tuple[OwnedRows, OwnedRows]) -> None:
    """A worker that was paused while another one claimed its shard is fenced, and stays so until it claims the shard again."""
    first, second = two_writers
    first.claim("counter", 0)
    second.claim("counter", 0)
    for _ in range(2):
        with pytest.raises(ps.sinks.SinkFenced, match=r"counter/0"):
            first.write(batch(Total("ann", 1), position="lost"))
    second.write(batch(Total("ann", 2), position="kept"))

    assert first.claim("counter", 0) == "kept"


def test_the_printed_statement_creates_a_table_that_fits_each_type(postgres: Postgres) -> None:
    """Each type of field has a column, and arrives unchanged."""
    table = Table(postgres, Everything, "number")
    moment = datetime(2016, 6, 26, 12, tzinfo=UTC)
    row = Everything(
        2**63 - 1, 1_385_000_000_123, 0.1, 'a\t"ü\\', True, b"\0\xff", moment, date(2016, 6, 26), Decimal("0.10"), UUID(int=7), Color.RED, ["x"], Total("ann", 1)
    )  # fmt: skip
    with closing(table.declared.open()) as writer:
        writer.claim("counter", 0)
        writer.write(batch(row))
        writer.write(batch(row))

    at = datetime.fromtimestamp(1_385_000_000, UTC).replace(microsecond=123_000)
    values = (
        2**63 - 1,
        at,
        0.1,
        'a\t"ü\\',
        True,
        b"\0\xff",
        moment,
        date(2016, 6, 26),
        Decimal("0.10"),
        UUID(int=7),
        "red",
        ["x"],
    )
    assert table.rows() == [(*values, {"user": "ann", "clicks": 1}, None)]


Change = st.tuples(st.sampled_from(["ann", "bob", "x'; --", "ü"]), st.none() | st.integers(-(2**63), 2**63 - 1))


@given(batches=st.lists(st.lists(Change, max_size=6), max_size=4))
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_rows_replace_rows_of_their_key_and_tombstones_delete_them(
    postgres: Postgres, batches: Sequence[Sequence[tuple[str, int | None]]]
) -> None:
    """The table equals a dictionary after the same changes, in the same order, also within a batch."""
    table = Table(postgres)
    truth: dict[str, int | None] = {}
    with closing(table.declared.open()) as writer:
        writer.claim("counter", 0)
        for changes in batches:
            writer.write(
                batch(*(ps.Tombstone(user) if clicks is None else Total(user, clicks) for user, clicks in changes))
            )
            truth |= dict(changes)

    assert dict(table.rows()) == {user: clicks for user, clicks in truth.items() if clicks is not None}


class Number(Enum):
    """An enumeration of numbers."""

    ONE = 1


def keyed(kind: type) -> type[ps.Record]:
    """Return the type of rows with a key of a type."""
    return type("Keyed", (ps.Record,), {"__annotations__": {"key": kind, "clicks": int}}, frozen=True)


@pytest.mark.parametrize(
    ("kind", "key", "text"),
    [
        (Color, Color.RED, "red"),
        (Number, Number.ONE, "1"),
        (ps.EventTime, 1_790_000_000_000, "1790000000000"),
        (int, -7, "-7"),
    ],
)
def test_a_tombstone_deletes_the_row_of_any_key(postgres: Postgres, kind: type, key: Any, text: str) -> None:
    """It may be in the same batch, or in a later one."""
    record = keyed(kind)
    table = Table(postgres, record, "key")
    with closing(table.declared.open()) as writer:
        table.declared.expect_tombstone(text)
        writer.claim("counter", 0)
        writer.write(batch(record(key, 1), ps.Tombstone(text)))
        assert table.rows() == []
        writer.write(batch(ps.Tombstone(text), record(key, 2)))
        assert [clicks for _, clicks in table.rows()] == [2]
        writer.write(batch(ps.Tombstone(text)))

    assert table.rows() == []


def test_a_write_whose_answer_is_lost_counts_once(postgres: Postgres) -> None:
    """PostgreSQL has committed, and the connection breaks before the answer."""
    table = Table(postgres, key=None)
    with closing(Proxy(postgres.target)) as proxy:
        address = address_of(postgres.url.replace(str(postgres.target[1]), str(proxy.port)))
        with closing(OwnedRows(PostgresRowStore(table.declared, address), "it", StoreRetry())) as writer:
            writer.claim("counter", 0)
            proxy.lose_answer(b"COMMIT\0")
            writer.write(batch(Total("ann", 1)))
            writer.write(batch(Total("ann", 2)))

            assert proxy.losses == 1
    assert table.rows() == [("ann", 1), ("ann", 2)]


def test_an_unreachable_server_is_reported_after_retries(postgres: Postgres) -> None:
    """The outcome of the write is unknown, so the shard must be claimed again before the next one."""
    table = Table(postgres, key=None)
    with closing(Proxy(postgres.target)) as proxy:
        address = address_of(postgres.url.replace(str(postgres.target[1]), str(proxy.port)))
        with closing(OwnedRows(PostgresRowStore(table.declared, address), "it", StoreRetry(0.3))) as writer:
            writer.claim("counter", 0)
            proxy.refuse()
            with pytest.raises(ps.sinks.SinkUnreachable, match=r"retried"):
                writer.write(batch(Total("ann", 1)))
            proxy.resume()
            with pytest.raises(ps.sinks.SinkFenced, match=r"unknown outcome"):
                writer.write(batch(Total("ann", 1)))
            writer.claim("counter", 0)
            writer.write(batch(Total("ann", 1)))

    assert table.rows() == [("ann", 1)]


def test_a_server_that_hangs_is_an_outage(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel answers, so only a time limit shows it; a batch may take longer as long as it makes progress."""
    monkeypatch.setattr(postgres_rows, "ANSWER_LIMIT_S", 4.0)  # a busy machine writes a part of 0.4 s within it
    monkeypatch.setattr(postgres_rows, "PART_ROWS", 2)
    table = Table(postgres, key=None)
    with postgres.session() as session:
        session.execute(
            f"CREATE FUNCTION {table.name}_slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.2); RETURN NEW; END'; "
            f"CREATE TRIGGER slow BEFORE INSERT ON {table.name} FOR EACH ROW EXECUTE FUNCTION {table.name}_slow()".encode()
        )
    with closing(Proxy(postgres.target)) as proxy:
        address = address_of(postgres.url.replace(str(postgres.target[1]), str(proxy.port)))
        with closing(OwnedRows(PostgresRowStore(table.declared, address), "it", StoreRetry(0.1))) as writer:
            writer.claim("counter", 0)
            writer.write(batch(*(Total("ann", number) for number in range(30))))
            proxy.fall_silent()
            with pytest.raises(ps.sinks.SinkUnreachable, match=r"did not answer within 4 s|timeout expired"):
                writer.write(batch(Total("ann", 30)))
            proxy.cut()
            proxy.resume()
            writer.claim("counter", 0)
            writer.write(batch(Total("ann", 31)))

    assert sorted(clicks for _, clicks in table.rows() if clicks != 30) == [*range(30), 31]


UNFIT: Mapping[str, tuple[str, str]] = {
    "too small": ('CREATE TABLE {} ("user" text PRIMARY KEY, clicks integer)', r"column clicks is integer instead of bigint"),
    "limited": ('CREATE TABLE {} ("user" varchar(5) PRIMARY KEY, clicks bigint)', r"column user is character varying\(5\) instead of text"),
    "missing": ('CREATE TABLE {} ("user" text PRIMARY KEY)', r"column clicks is missing"),
    "required": ('CREATE TABLE {} ("user" text PRIMARY KEY, clicks bigint, city text NOT NULL)', r"column city is NOT NULL without a default"),
    "no key": ('CREATE TABLE {} ("user" text, clicks bigint)', r"no unique index has exactly the columns of the key \(user\)"),
    "partly unique": ('CREATE TABLE {0} ("user" text, clicks bigint); CREATE UNIQUE INDEX ON {0} ("user") WHERE clicks > 0', r"no unique index"),
    "deferrable": ('CREATE TABLE {} ("user" text PRIMARY KEY DEFERRABLE, clicks bigint)', r"no unique index"),
    "generated": ('CREATE TABLE {} ("user" text PRIMARY KEY, clicks bigint GENERATED ALWAYS AS (3) STORED)', r"column clicks is generated by the table"),
    "identity": ('CREATE TABLE {} ("user" text PRIMARY KEY, clicks bigint GENERATED ALWAYS AS IDENTITY)', r"column clicks is generated by the table"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNFIT)
def test_an_unfit_table_is_refused_with_a_statement(postgres: Postgres, case: str) -> None:
    """The error names each reason, and a table that fits."""
    name, (create, reason) = next(_NAMES), UNFIT[case]
    with postgres.session() as session:
        session.execute(create.format(name).encode())
    with (
        closing(ps.sinks.PostgresSink(name, Total, key="user", at=postgres.url).open()) as writer,
        pytest.raises(ps.sinks.SinkRefused, match=reason) as refused,
    ):
        writer.claim("counter", 0)

    assert f'CREATE TABLE "{name}" ("user" text NOT NULL, "clicks" bigint NOT NULL, PRIMARY KEY ("user"));' in str(
        refused.value
    )
    assert postgres.url not in str(refused.value)


def test_other_columns_keep_their_defaults_and_values(postgres: Postgres) -> None:
    """A table may have columns that the record lacks; an update of a row leaves them as they are."""
    name = next(_NAMES)
    with postgres.session() as session:
        session.execute(f'CREATE TABLE {name} (id bigserial, note text, clicks numeric, "user" text UNIQUE)'.encode())
        with closing(ps.sinks.PostgresSink(f"public.{name}", Total, key="user", at=postgres.url).open()) as writer:
            writer.claim("counter", 0)
            writer.write(batch(Total("ann", 1)))
            session.execute(f"UPDATE {name} SET note = 'kept'".encode())
            writer.write(batch(Total("ann", 2)))

        assert session.execute(f"SELECT * FROM {name}".encode()).fetchall() == [(1, "kept", Decimal(2), "ann")]


def checked(postgres: Postgres, key: str | None = "user") -> Table:
    """Return a table whose clicks must not be negative."""
    table = Table(postgres, key=key)
    with postgres.session() as session:
        session.execute(f"ALTER TABLE {table.name} ADD CHECK (clicks >= 0)".encode())
    return table


BAD = (Total("bob", -1), Total("a\0b", 1), Total("\ud800", 1))


def test_a_refused_row_can_stop_the_worker_and_writes_nothing(postgres: Postgres) -> None:
    """The error names the table's reason, the place and the row; the position stays before the batch."""
    table = checked(postgres)
    stopping = replace(table.declared, on_refused=ps.ErrorPolicy.STOP)
    with closing(stopping.open()) as writer:
        writer.claim("counter", 0)
        writer.write(batch(Total("ann", 1), position="good"))
        for bad in BAD:
            place = r"refuses a row of the events from clicks/0 at offset 0 on: .*(check constraint|NUL|surrogates)"
            with pytest.raises(ps.sinks.SinkRefused, match=f"{place}.*The row is {re.escape(ascii(bad))}"):
                writer.write(batch(Total("ann", 2), bad, position="bad"))

            assert writer.claim("counter", 0) == "good"
    assert table.rows() == [("ann", 1)]


@pytest.mark.parametrize("key", [None, "user"])
def test_refused_rows_are_left_out_and_the_others_are_written_once(postgres: Postgres, key: str | None) -> None:
    """They are known before anything is written, and the last row of a key is the last one that the table accepts."""
    table = checked(postgres, key)
    good = [Total(f"u{number % 7}", number) for number in range(20)]
    rows = [*good[:9], BAD[0], *good[9:15], BAD[1], BAD[2], *good[15:], Total("u3", -3)]
    before: list[tuple[list[tuple[Any, ...]], list[str]]] = []
    with closing(table.declared.open()) as writer:
        writer.claim("counter", 0)
        write_accepted(
            writer,
            batch(*rows),
            lambda _, found: before.append((table.rows(), [repr(refused.row) for refused in found])),
        )

        assert [(rows, sorted(refused)) for rows, refused in before] == [
            ([], sorted(map(repr, [*BAD, Total("u3", -3)])))
        ]
        assert writer.claim("counter", 0) == "p"
    kept = good if key is None else {row.user: row for row in good}.values()
    assert table.rows() == sorted(((row.user, row.clicks) for row in kept), key=repr)


def test_a_table_that_refuses_most_rows_stops_the_worker(postgres: Postgres) -> None:
    """The table or the record type must be wrong then, and dead letters of all rows would be useless."""
    table = checked(postgres, None)
    with closing(table.declared.open()) as writer:
        writer.claim("counter", 0)
        with pytest.raises(ps.sinks.SinkRefused, match=r"check constraint.*refuses 100 rows or more"):
            writer.write(batch(*(Total("ann", -number) for number in range(1, 300))))

    assert table.rows() == []


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        ("PENSTOCK_NO_SUCH_VARIABLE", r"environment variable PENSTOCK_NO_SUCH_VARIABLE, which is not set"),
        ("redis://:s3cret@host", r"cannot be written at redis://:\*\*\*@host.* starts with postgresql://"),
    ],
)
def test_a_missing_or_foreign_address_is_refused(at: str, reason: str) -> None:
    """The message shows no password."""
    with pytest.raises(ps.sinks.SinkRefused, match=reason):
        ps.sinks.PostgresSink("totals", Total, at=at).open()


def _moments(subject: Subject) -> Sequence[str]:
    trial = Trial(subject)
    trial.run()
    trial.expect_kept()
    return trial.driver.moments


@pytest.mark.parametrize(
    "subject",
    [Subject("stateless", EXACT, EXACT, sink=MEMORY), Subject("stateful", EXACT, EXACT, sink=MEMORY)],
    ids=str,
)
def test_rows_in_postgresql_equal_the_truth_after_a_death_before_each_sort_of_operation(
    postgres: Postgres, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers die before and after each request and in each gap of a checkpoint; the next ones continue on the same or an empty disk."""
    moments = _moments(subject)
    first = {label: moments.index(label, len(moments) // 3) for label in sorted(set(moments[len(moments) // 3 :]))}
    for label, at in first.items():
        for disk in (Disk.SAME, Disk.NONE):
            trial = Trial(subject, [Crash(at, disk), Crash(at + 5, Disk.SAME)])
            record = plan_of(trial.processor).sinks[0].record
            table = Table(postgres, record, None)  # type: ignore[arg-type]
            name = plan_of(trial.processor).sinks[0].name
            rows = PostgresRowStore(table.declared, address_of(postgres.url))
            with closing(rows):
                monkeypatch.setitem(trial.driver._rows, name, rows)
                trial.run()
            names = [column.name for column in table.declared.columns]
            found = [record(**dict(zip(names, _plain(values), strict=True))) for values in table.rows()]  # type: ignore[operator]
            memory = MemoryRows()
            memory.rows.extend(found)
            monkeypatch.setitem(trial.driver._rows, name, memory)

            assert trial.driver.died, label
            trial.expect_kept()


def _plain(values: Sequence[Any]) -> list[Any]:
    """Return the values of a row with event times as milliseconds."""
    return [round(value.timestamp() * 1000) if isinstance(value, datetime) else value for value in values]


def test_parquet_files_replace_those_of_an_interrupted_checkpoint(store: FileStore) -> None:
    """In each file store, the successor's file is there, and the one of the interrupted checkpoint is not."""
    columns = RecordColumns(Total)
    for total in (Total("ann", 1), Total("bob", 2)):
        writer = ParquetWriter(store, columns, "files")
        writer.claim("counter", 0)
        writer.write(batch(total))
    [name] = store.list_folder("clicks/00000")
    content = b"".join(store.read(f"clicks/00000/{name}"))

    assert pq.read_table(BytesIO(content)).to_pylist() == [{"user": "bob", "clicks": 2}]
