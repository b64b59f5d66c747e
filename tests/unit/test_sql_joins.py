"""Joins in SQL have the results that DuckDB computes over the same events, also with a crash in the middle."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.processors.apps import App
from penstock.processors.declare import plan_of
from penstock.processors.sql import SqlApp, SqlText, compile_app
from penstock.processors.sql.errors import SqlRefused
from penstock.testing import Crash, Driver

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
TABLES = """
CREATE CATEGORY orders (seen bigint, customer text, item text, cents bigint) WITH (key = 'customer', time = 'seen', buckets = 2);
CREATE CATEGORY payments (seen bigint, customer text, item text, paid bigint) WITH (key = 'customer', time = 'seen', buckets = 2);
CREATE CATEGORY items (seen bigint, item text, price bigint) WITH (key = 'item', time = 'seen', buckets = 3);
"""
WITHIN = "p.seen BETWEEN o.seen - interval '30 seconds' AND o.seen + interval '1 minute'"
WITHIN_ORACLE = "p.seen BETWEEN o.seen - 30000 AND o.seen + 60000"


class Case(NamedTuple):
    """A query for Penstock, and the same one for DuckDB."""

    query: str
    oracle: str
    copies: int
    """The number of processors that copy an input under the key of the join."""
    updates_of: tuple[str, ...] | None = None


def same(query: str, copies: int) -> Case:
    """Return a query that differs in its bounds only: DuckDB has numbers instead of intervals."""
    return Case(query, query.replace(WITHIN, WITHIN_ORACLE), copies)


CASES = {
    "by the key of both": same(
        f"SELECT o.seen, o.customer, o.item, p.item AS paid_item, cents - paid AS rest FROM orders o JOIN payments p ON o.customer = p.customer AND {WITHIN}",
        0,
    ),
    "by another column": same(
        f"SELECT o.seen, o.customer, p.customer AS payer, p.seen AS paid_at FROM orders o JOIN payments AS p ON p.item = o.item AND {WITHIN} WHERE paid > 2",
        2,
    ),
    "with further conditions": same(
        f"SELECT o.seen, o.item, p.paid FROM orders o JOIN payments p ON o.customer = p.customer AND o.item = p.item AND p.paid >= o.cents AND {WITHIN}",
        0,
    ),
    "left": same(
        f"SELECT o.seen, o.customer, o.item, p.seen AS paid_at, coalesce(paid, -1) AS paid FROM orders o LEFT JOIN payments p ON o.customer = p.customer "
        f"AND p.paid > 3 AND {WITHIN} WHERE o.customer NOT LIKE 'closing%'",
        0,
    ),
    "left by a column that can be NULL": same(
        f"SELECT o.seen, o.customer, o.item, p.seen AS paid_at FROM orders o LEFT JOIN payments p ON o.item = p.item AND {WITHIN} WHERE o.customer NOT LIKE 'closing%'",
        2,
    ),
    "by two columns": same(
        f"SELECT o.seen, o.customer, p.customer AS payer FROM orders o JOIN payments p ON o.item = p.item AND o.cents = p.paid AND {WITHIN}",
        2,
    ),
    "by an expression": same(
        f"SELECT o.seen, o.customer, p.customer AS payer FROM orders o JOIN payments p ON length(o.item) = p.paid AND {WITHIN}",
        2,
    ),
    "with itself": Case(
        "SELECT a.seen, a.customer, b.seen AS next_at FROM orders a JOIN orders b ON a.customer = b.customer AND b.seen > a.seen AND b.seen <= a.seen + 20000",
        "SELECT a.seen, a.customer, b.seen AS next_at FROM orders a JOIN orders b ON a.customer = b.customer AND b.seen > a.seen AND b.seen <= a.seen + 20000",
        1,
    ),
    "of inner queries": same(
        "WITH big AS (SELECT seen, customer, cents FROM orders WHERE cents > 1) SELECT o.*, p.paid FROM big o JOIN "
        "(SELECT seen, customer AS who, paid FROM payments WHERE paid > 1) AS p ON o.customer = p.who AND "
        f"{WITHIN}",
        0,
    ),
    "aggregated": Case(
        f"SELECT o.item, count(*) AS pairs, sum(p.paid) AS paid FROM orders o JOIN payments p ON o.customer = p.customer AND {WITHIN} "
        "GROUP BY o.item, tumble(o.seen, interval '1 minute')",
        f"SELECT o.item, count(*) AS pairs, sum(p.paid)::bigint AS paid, o.seen // 60000 * 60000 AS window_start FROM orders o "
        f"JOIN payments p ON o.customer = p.customer AND {WITHIN_ORACLE} GROUP BY o.item, o.seen // 60000",
        0,
        ("item", "window_start"),
    ),
    "as of a table": Case(
        "SELECT o.seen, o.customer, i.price * 2 AS twice FROM orders o LEFT JOIN items FOR SYSTEM_TIME AS OF o.seen AS i ON o.item = i.item AND i.price > 1 "
        "WHERE o.customer NOT LIKE 'closing%'",
        "SELECT o.seen, o.customer, i.price * 2 AS twice FROM orders o LEFT JOIN (SELECT o2.id, i2.price FROM orders o2 ASOF JOIN items i2 "
        "ON o2.item = i2.item AND o2.seen >= i2.seen) i ON o.id = i.id AND i.price > 1",
        1,
    ),
    "of three tables": Case(
        f"SELECT o.seen, o.customer, o.item, p.seen AS paid_at, p.item AS paid_item, i.price FROM orders o JOIN payments p "
        f"ON o.customer = p.customer AND {WITHIN} JOIN items FOR SYSTEM_TIME AS OF o.seen AS i ON p.item = i.item WHERE paid < 4",
        f"SELECT o.seen, o.customer, o.item, p.seen AS paid_at, p.item AS paid_item, i.price FROM orders o JOIN payments p "
        f"ON o.customer = p.customer AND {WITHIN_ORACLE} ASOF JOIN items i ON p.item = i.item AND o.seen >= i.seen WHERE paid < 4",
        1,
    ),
    "of four tables, aggregated": Case(
        "SELECT p.item, count(*) AS found, sum(i.price * paid) AS total FROM orders AS o LEFT JOIN items FOR SYSTEM_TIME AS OF o.seen AS i "
        f"ON o.item = i.item JOIN payments p ON p.customer = o.customer AND {WITHIN} LEFT JOIN items FOR SYSTEM_TIME AS OF o.seen AS j "
        "ON j.item = p.item WHERE j.price IS NULL OR j.price > 1 GROUP BY p.item, tumble(o.seen, interval '1 minute')",
        "SELECT p.item, count(*) AS found, sum(i.price * paid)::bigint AS total, o.seen // 60000 * 60000 AS window_start FROM orders o "
        "ASOF LEFT JOIN items i ON o.item = i.item AND o.seen >= i.seen "
        f"JOIN payments p ON p.customer = o.customer AND {WITHIN_ORACLE} ASOF LEFT JOIN items j ON j.item = p.item AND o.seen >= j.seen "
        "WHERE j.price IS NULL OR j.price > 1 GROUP BY p.item, o.seen // 60000",
        3,
        ("item", "window_start"),
    ),
    "inner, as of a table": Case(
        "SELECT o.seen, o.customer, price FROM orders o JOIN items FOR SYSTEM_TIME AS OF o.seen AS i ON i.item = o.item",
        "SELECT o.seen, o.customer, price FROM orders o ASOF JOIN items i ON o.item = i.item AND o.seen >= i.seen",
        1,
    ),
}
NAMES = st.sampled_from(["ann", "bob", "eve"])
ITEMS = st.none() | st.sampled_from(["", "cup", "pen"])
TIMES = st.integers(0, 3 * MINUTE_MS).map(lambda each: each // 500 * 500)
EVENT = st.one_of(
    st.tuples(st.just("orders"), TIMES, NAMES, ITEMS, st.integers(0, 5)),
    st.tuples(st.just("payments"), TIMES, NAMES, ITEMS, st.integers(0, 5)),
)
PRICE = st.tuples(st.just("items"), TIMES, st.sampled_from(["", "cup", "pen"]), st.integers(0, 5))
FIELDS = {
    "orders": ("seen", "customer", "item", "cents"),
    "payments": ("seen", "customer", "item", "paid"),
    "items": ("seen", "item", "price"),
}
Event = tuple[Any, ...]


def compiled(query: str, tables: str = TABLES) -> SqlApp:
    with_settings = "CREATE TABLE found WITH (semantics = 'exactly once', out_of_orderness = '10 minutes') AS"
    return compile_app(SqlText("app.sql", f"{tables}\n{with_settings} {query};"), __name__)


def results(app: SqlApp, events: list[Event], crashes: bool) -> list[dict[str, Any]]:
    """Return the records that the processors write for these events and for later ones, which close everything."""
    driver = Driver(app.processors, start_ms=2 * HOUR_MS)
    read = {category.name for processor in app.processors for category in plan_of(processor).inputs}
    events = [event for event in events if event[0] in read]
    size = len(events) // 3 + 1
    for start in range(0, len(events), size):
        part = events[start : start + size]
        for table in dict.fromkeys(event[0] for event in part):
            category = app.relations[table].category
            records = [
                category.record(**dict(zip(FIELDS[table], values, strict=True)))
                for name, *values in part
                if name == table
            ]
            driver.send(category, [*records, Crash()] if crashes and start == size else records)
    for table in read.intersection(FIELDS):
        names, category = FIELDS[table], app.relations[table].category
        closing = []
        for number in range(8):  # enough for every bucket; the keys match no row
            values: dict[str, Any] = {
                "cents": 0,
                "paid": 0,
                "price": 0,
                "item": None,
                "customer": None,
                "seen": HOUR_MS,
            }
            values[str(category.key)] = f"closing {table} {number}"
            closing.append(category.record(**{name: values[name] for name in names}))
        driver.send(category, closing)
    driver.advance(600)
    for processor in app.processors:
        assert driver.dead_letters(processor) == []
    return [msgspec.to_builtins(each) for each in driver.read(app.relations["found"].category)]


def of_duckdb(query: str, events: Iterable[Event]) -> list[dict[str, Any]]:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE orders (seen bigint, customer text, item text, cents bigint, id bigint)")
    connection.execute("CREATE TABLE payments (seen bigint, customer text, item text, paid bigint)")
    connection.execute("CREATE TABLE items (seen bigint, item text, price bigint)")
    for number, (table, *values) in enumerate(events):
        row = [*values, number] if table == "orders" else values
        connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    found = connection.execute(query)
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def as_list(records: Iterable[dict[str, Any]]) -> list[tuple[tuple[str, str], ...]]:
    return sorted(tuple(sorted((name, repr(value)) for name, value in record.items())) for record in records)


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
@settings(max_examples=8, deadline=None)
@given(
    events=st.lists(EVENT, max_size=24),
    prices=st.lists(PRICE, max_size=6, unique_by=lambda price: price[1:3]),
    order=st.randoms(use_true_random=False),
    crashes=st.booleans(),
)
def test_joins_are_those_of_duckdb(
    case: Case, events: list[Event], prices: list[Event], order: Any, crashes: bool
) -> None:
    """Each pair is written exactly once, in any order of arrival, with or without a crash; unmatched left rows have NULL."""
    app = compiled(case.query)
    mixed = [*events, *prices]
    order.shuffle(mixed)
    written = results(app, mixed, crashes)
    if case.updates_of is not None:
        written = list({tuple(record[name] for name in case.updates_of): record for record in written}.values())

    assert sum(processor.name.endswith("by_key") for processor in app.processors) == case.copies
    assert as_list(written) == as_list(of_duckdb(case.oracle, mixed))


def test_each_input_of_a_join_has_its_watermark() -> None:
    """A table of the file has the watermark of its processor; a category of another program has an estimate. Neither is copied."""
    tables = (
        f"{TABLES}CREATE TABLE large WITH (buckets = 2) AS SELECT seen, customer, cents FROM orders WHERE cents > 3;"
    )
    app = compiled(
        f"SELECT o.seen, o.customer, p.paid FROM large o JOIN payments p ON o.customer = p.customer AND {WITHIN}",
        tables,
    )
    [_, join] = app.processors

    assert plan_of(join).input_watermarks == {
        "large": ps.watermarks.UpstreamWatermark(),
        "payments": ps.watermarks.BoundedOutOfOrderness(timedelta(minutes=10)),
    }


AIRPORTS = """
CREATE LOOKUP TABLE airports (code text, city text, runways bigint) WITH (csv = '{file}', key = 'code');
CREATE CATEGORY flights (seen bigint, plane bigint, origin text) WITH (key = 'plane', time = 'seen', buckets = 2);
CREATE TABLE found AS SELECT f.*, city FROM flights f {join} airports a ON a.code = upper(f.origin) AND a.runways > 1 {rest};
"""
FLIGHTS = [(1, 7, "jfk"), (2, 7, None), (3, 8, "LCY"), (4, 9, "XXX"), (5, 9, "JFK")]


@pytest.mark.parametrize(
    ("join", "rest", "expected"),
    [
        ("JOIN", "", [(1, "New York"), (5, "New York")]),
        ("LEFT JOIN", "", [(1, "New York"), (2, None), (3, None), (4, None), (5, "New York")]),
        ("LEFT JOIN", "WHERE city IS NULL AND f.plane = 8", [(3, None)]),
    ],
)
def test_rows_of_a_lookup_table_are_joined(
    tmp_path: Path, join: str, rest: str, expected: list[tuple[int, str | None]]
) -> None:
    """Rows that do not satisfy the condition count as missing."""
    file = tmp_path / "airports.csv"
    file.write_text("code,city,runways\nJFK,New York,4\nLCY,London,1\n")
    app = compile_app(SqlText("app.sql", AIRPORTS.format(file=file, join=join, rest=rest)), __name__)
    driver = Driver(app.processors)
    flights = app.relations["flights"].category
    driver.send(flights, [flights.record(seen=seen, plane=plane, origin=origin) for seen, plane, origin in FLIGHTS])
    found = driver.read(app.relations["found"].category)

    assert sorted((each.seen, each.city) for each in found) == expected


def test_an_aggregate_over_a_lookup_join_needs_two_processors(tmp_path: Path) -> None:
    """The lookup join writes what the aggregator needs."""
    file = tmp_path / "airports.csv"
    file.write_text("code,city,runways\nJFK,New York,4\nLGA,New York,2\n")
    text = AIRPORTS.format(file=file, join="JOIN", rest="")
    text = text.replace("f.*, city FROM", "city, count(*) AS flights FROM").replace("> 1 ;", "> 1 GROUP BY city;")
    app = compile_app(SqlText("app.sql", text), __name__)
    driver = Driver(app.processors)
    flights = app.relations["flights"].category
    driver.send(
        flights, [flights.record(seen=n, plane=n, origin=origin) for n, origin in enumerate(["JFK", "LGA", "XXX"])]
    )
    [*_, last] = driver.read(app.relations["found"].category)

    assert [issubclass(app.processors[0], ps.LookupJoin), issubclass(app.processors[1], ps.Aggregator)] == [True, True]
    assert (last.city, last.flights) == ("New York", 2)


def test_settings_name_the_source_of_a_lookup_table() -> None:
    """PostgreSQL and Redis have addresses in environment variables, and caches."""
    text = """
CREATE LOOKUP TABLE users (id bigint, country text) WITH (postgres = 'shop.users', key = 'id', at = 'USERS', cache = '5 minutes');
CREATE LOOKUP TABLE flags (name text, is_on boolean) WITH (redis = 'flag:', key = 'name');
"""
    lookups = compile_app(SqlText("app.sql", text), __name__).lookups

    users, flags = lookups["users"].source, lookups["flags"].source
    assert isinstance(users, ps.lookups.PostgresTable)
    assert (users.table, users.key, users.at) == ("shop.users", "id", "USERS")
    assert lookups["users"].members["cache"].ttl.total_seconds() == 300
    assert isinstance(flags, ps.lookups.RedisTable)
    assert flags.prefix == "flag:"


@pytest.mark.parametrize("timestamps", [False, True])
def test_bounds_are_exact(timestamps: bool) -> None:
    """Bounds are in milliseconds or microseconds. Events at the bounds match, and later and earlier events do not."""
    kind = "timestamp" if timestamps else "bigint"
    tables = "".join(
        f"CREATE CATEGORY {name} (at {kind}, k text) WITH (key = 'k', time = 'at', buckets = 1);" for name in "ab"
    )
    query = "SELECT a.at, b.at AS other FROM a JOIN b ON a.k = b.k AND b.at > a.at - interval '1 second' AND b.at <= a.at + interval '2 seconds'"
    app = App.of("app", compiled(query, tables).processors)
    [join] = app.processors
    driver = Driver(join)
    a, b = plan_of(join).inputs
    scale = 1_000 if timestamps else 1

    def moment(value: int) -> Any:
        return (
            datetime.fromtimestamp(value // 1_000_000, UTC) + timedelta(microseconds=value % 1_000_000)
            if timestamps
            else value
        )

    driver.send(a, [a.record(at=moment(5_000 * scale), k="x")])
    step = 1
    values = [
        4_000 * scale - step,
        4_000 * scale,
        4_000 * scale + step,
        7_000 * scale - step,
        7_000 * scale,
        7_000 * scale + step,
    ]
    driver.send(b, [b.record(at=moment(value), k="x") for value in values])

    assert [each.other for each in driver.read(plan_of(join).outputs[0])] == [moment(value) for value in values[2:5]]


def test_a_table_without_a_key_of_the_join_follows_arrival() -> None:
    """AS OF current_timestamp joins the latest row that has arrived; a tombstone deletes it, also through a copy."""
    query = "SELECT o.seen, o.item, i.price FROM orders o LEFT JOIN items FOR SYSTEM_TIME AS OF current_timestamp AS i ON o.item = i.item"
    app = compiled(query)
    driver = Driver(app.processors)
    orders, items = app.relations["orders"].category, app.relations["items"].category
    for table, record in (
        (orders, orders.record(seen=9, customer="ann", item="cup", cents=1)),
        (items, items.record(seen=50, item="cup", price=3)),
        (orders, orders.record(seen=10, customer="ann", item="cup", cents=1)),
        (items, ps.Tombstone("cup")),
        (orders, orders.record(seen=11, customer="bob", item="cup", cents=1)),
    ):
        driver.send(table, [record])
    found = driver.read(app.relations["found"].category)

    assert sorted((each.seen, each.price) for each in found) == [(9, None), (10, 3), (11, None)]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("FROM orders o JOIN payments p ON o.customer = p.customer", "needs bounds of the time"),
        ("FROM orders o JOIN payments p ON o.customer = p.customer AND p.seen > o.seen", "needs bounds of the time"),
        (f"FROM orders o JOIN payments p ON {WITHIN}", "has no equal keys"),
        (
            f"FROM orders o RIGHT JOIN payments p ON o.item = p.item AND {WITHIN}",
            "Exchange the tables, and write LEFT JOIN",
        ),
        (f"FROM orders o FULL JOIN payments p ON o.item = p.item AND {WITHIN}", "FULL JOIN is not supported"),
        ("FROM orders o CROSS JOIN payments p", "CROSS JOIN is not supported"),
        ("FROM orders o, payments p", "The join has no condition"),
        ("FROM orders o JOIN payments p USING (customer)", "USING is not supported"),
        (f"FROM orders o JOIN payments p ON customer = p.customer AND {WITHIN}", "Write o.customer or p.customer"),
        (f"FROM orders o JOIN payments p ON o.customr = p.customer AND {WITHIN}", "There is no column o.customr"),
        (f"FROM orders o JOIN payments p ON o.customer = p.paid AND {WITHIN}", "The join compares text with bigint"),
        (
            f"FROM orders o JOIN payments p ON o.cents / 2.0 = p.paid / 2.0 AND {WITHIN}",
            "cannot compare keys of type double",
        ),
        ("FROM orders JOIN orders ON true", "Both tables are named orders"),
        (
            f", o.* FROM orders o JOIN payments p ON o.item = p.item AND {WITHIN} JOIN items i ON i.item = p.item",
            "* is not supported with several joins",
        ),
        (
            f", price FROM orders o JOIN payments p ON o.item = p.item AND {WITHIN} JOIN items i ON i.item = p.item AND cents = item",
            "Column item is in o and in p",
        ),
        (
            f"FROM orders o JOIN items FOR SYSTEM_TIME AS OF o.seen AS i ON o.item = i.item JOIN payments p ON p.paid = o.cents AND {WITHIN} WHERE customer = ''",
            "Column customer is in several tables",
        ),
        (
            f"FROM orders o JOIN payments p ON o.item = p.item AND {WITHIN} JOIN items i ON i.item = p.item",
            "needs bounds of the time",
        ),
        (
            "FROM orders o JOIN items FOR SYSTEM_TIME AS OF o.seen AS i ON o.cents = i.price",
            "does not compare the key of i, item",
        ),
        ("FROM orders o JOIN items FOR SYSTEM_TIME AS OF o.cents AS i ON o.item = i.item", "is not supported"),
        (
            "FROM orders o JOIN payments p ON o.customer = p.customer AND p.seen BETWEEN o.seen + 5 AND o.seen + 4",
            "No event can match",
        ),
    ],
)
def test_unsupported_joins_are_refused_with_their_place(query: str, message: str) -> None:
    """The place is line and column, and the error says what to write instead."""
    with pytest.raises(SqlRefused, match=r"app.sql, line 6, column \d+: ") as refused:
        compiled(f"SELECT o.seen {query}")

    assert message in str(refused.value)


PRICED = "CREATE CATEGORY sold (seen bigint, customer text NOT NULL, item text, day date NOT NULL) WITH (key = 'customer', time = 'seen');"


@pytest.mark.parametrize(
    ("key", "message", "advice", "advised"),
    [
        ("item", "The key of c, item, can be NULL", "group by coalesce(item, …)", "coalesce(item, '')"),
        ("day", "The key of c, day, is of type date", "group by day::text", "day::text"),
        ("customer, day", "The key of c is customer, day together", "customer || '/' || day", "customer || '/' || day"),
    ],
)
def test_a_key_that_no_join_can_compare_is_refused_with_one_that_works(
    key: str, message: str, advice: str, advised: str
) -> None:
    """The error names the key, its fault and a key that works."""
    counts = "CREATE TABLE counts AS SELECT {}, count(*) AS n FROM sold GROUP BY {};"
    join = "SELECT s.seen, c.n FROM sold s LEFT JOIN counts FOR SYSTEM_TIME AS OF s.seen AS c ON {} = c.{}"
    first = key.split(", ", maxsplit=1)[0]
    row = f"SELECT 1 FROM counts FOR SYSTEM_TIME AS OF seen AS c WHERE c.{first} = sold.{first}"

    for query in (join.format(f"s.{first}", first), f"SELECT seen, customer FROM sold WHERE NOT EXISTS ({row})"):
        with pytest.raises(SqlRefused) as refused:
            compiled(query, PRICED + counts.format(key, key))
        assert message in str(refused.value)
        assert advice in str(refused.value)
    compiled(join.format("s.customer", "item"), PRICED + counts.format(f"{advised} AS item", advised))


def test_a_table_without_a_declared_key_is_refused_with_the_setting() -> None:
    """Its rows would have no key."""
    table = "CREATE CATEGORY prices (seen bigint, item text, price bigint) WITH (time = 'seen'{});"
    join = "SELECT s.seen, c.price FROM sold s LEFT JOIN prices FOR SYSTEM_TIME AS OF s.seen AS c ON s.item = c.item"

    with pytest.raises(SqlRefused, match=r"c has no key.*WITH \(key = "):
        compiled(join, PRICED + table.format(""))
    compiled(join, PRICED + table.format(", key = 'item'"))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE LOOKUP TABLE t (a text) WITH (key = 'a')", "needs one source and a key"),
        ("CREATE LOOKUP TABLE t (a text) WITH (csv = 'a.csv', key = 'b')", "is not one of its columns: a"),
        ("CREATE LOOKUP TABLE t (a text) WITH (csw = 'a.csv', key = 'a')", "Did you mean `csv`?"),
        ("CREATE LOOKUP TABLE t (a text) WITH (csv = 'a.csv', key = 'a', at = 'X')", "A csv file has no address"),
        ("CREATE LOOKUP TABLE t (a) WITH (csv = 'a.csv', key = 'a')", "Column a has no type"),
        (
            "CREATE LOOKUP TABLE t (a text) WITH (csv = 'a.csv', key = 'a'); CREATE TABLE u AS SELECT a FROM t",
            "t is a lookup table, which has no events",
        ),
    ],
)
def test_invalid_lookup_tables_are_refused_with_their_place(statement: str, message: str) -> None:
    """They are refused before anything is read."""
    with pytest.raises(SqlRefused, match=r"app.sql, line 1, column \d+: ") as refused:
        compile_app(SqlText("app.sql", f"{statement};"), __name__)

    assert message in str(refused.value)
