"""A join and a function in SQL on a real broker: run, killed, deployed."""

from __future__ import annotations

import json
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest
from support.cli import Cli
from support.plain import values

from penstock.ops.start import Daemon

MINUTE_MS = 60_000
APP = """
CREATE FUNCTION domain USING 'udfs.py:domain';
CREATE LOOKUP TABLE countries (domain text, country text) WITH (csv = '{folder}/countries.csv', key = 'domain');
CREATE CATEGORY orders (at bigint, number bigint, address text) WITH (category = '{prefix}.orders', key = 'number', time = 'at', buckets = 2);
CREATE CATEGORY payments (at bigint, payment text, number bigint, cents bigint)
WITH (category = '{prefix}.payments', key = 'payment', time = 'at', buckets = 3);

CREATE TABLE "{prefix}_paid" WITH (category = '{prefix}.paid', semantics = 'exactly once', out_of_orderness = '10 minutes') AS
WITH placed AS (SELECT o.at, o.number, o.address, c.country FROM orders o LEFT JOIN countries c ON domain(o.address) = c.domain)
SELECT o.at, o.number, o.country, p.cents
FROM placed o JOIN payments p ON o.number = p.number AND p.at BETWEEN o.at AND o.at + interval '1 minute';
"""


class Shop(NamedTuple):
    """An app, its orders and its payments."""

    file: Path
    orders: list[tuple[Any, ...]]
    payments: list[tuple[Any, ...]]

    def expected(self) -> Counter[tuple[Any, ...]]:
        """Return the joined rows, as DuckDB computes them."""
        connection = duckdb.connect()
        connection.execute("CREATE TABLE orders (seen bigint, number bigint, address text)")
        connection.execute("CREATE TABLE payments (seen bigint, payment text, number bigint, cents bigint)")
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?)", self.orders)
        connection.executemany("INSERT INTO payments VALUES (?, ?, ?, ?)", self.payments)
        query = (
            "SELECT o.seen, o.number, CASE split_part(address, '@', 2) WHEN 'a.fr' THEN 'France' WHEN 'b.it' THEN 'Italy' END, p.cents "
            "FROM orders o JOIN payments p ON o.number = p.number AND p.seen BETWEEN o.seen AND o.seen + 60000"
        )
        return Counter(connection.execute(query).fetchall())


@pytest.fixture
def shop(cli: Cli, prefix: str) -> Shop:
    """Return an app with its files beside it."""
    (cli.folder / "udfs.py").write_text(
        'def domain(address: str) -> str | None:\n    return address.partition("@")[2] or None\n'
    )
    (cli.folder / "countries.csv").write_text("domain,country\na.fr,France\nb.it,Italy\n")
    (cli.folder / "shop.sql").write_text(APP.format(prefix=prefix, folder=cli.folder))
    dice = random.Random(8)
    orders = [
        (dice.randrange(5 * MINUTE_MS), number, f"x@{dice.choice(['a.fr', 'b.it', 'c.de'])}") for number in range(150)
    ]
    payments = [(dice.randrange(5 * MINUTE_MS), f"p{n}", dice.randrange(150), dice.randrange(999)) for n in range(600)]
    return Shop(cli.folder / "shop.sql", orders, payments)


def send(cli: Cli, category: str, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    lines = "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    cli.ok("category", "send", category, "--app", "shop.sql", stdin=lines)


def send_half(cli: Cli, prefix: str, shop: Shop, half: int) -> None:
    """Send the first or the second half of the events."""
    orders, payments = (
        rows[half * len(rows) // 2 : (half + 1) * len(rows) // 2] for rows in (shop.orders, shop.payments)
    )
    send(cli, f"{prefix}.orders", ("at", "number", "address"), orders)
    send(cli, f"{prefix}.payments", ("at", "payment", "number", "cents"), payments)


def paid(kafka: str, prefix: str) -> Counter[tuple[Any, ...]]:
    return Counter(
        (each["at"], each["number"], each.get("country"), each["cents"]) for each in values(kafka, f"{prefix}.paid")
    )


def test_a_killed_app_joins_each_pair_once(
    cli: Cli, shop: Shop, prefix: str, kafka: str, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """The app has a lookup join, two copies under the key of the join, and the join. The kill comes after half of the events."""
    expected = shop.expected()
    cli.ok("category", "create", "shop.sql")
    send_half(cli, prefix, shop, 0)
    *upstream, join = [json.loads(line)["name"] for line in cli.ok("sql", "explain", "shop.sql", "--json").splitlines()]
    for name in upstream:
        cli.ok("run", f"shop.sql:{name}", "--until-end")
    worker = cli.start("run", f"shop.sql:{join}")
    wait_until(lambda: paid(kafka, prefix).total() > 10 or worker.poll() is not None)
    worker.send_signal(signal.SIGKILL)
    worker.communicate(timeout=90)
    send_half(cli, prefix, shop, 1)
    cli.ok("run", "shop.sql", "--until-end")

    assert expected.total() > 60
    assert paid(kafka, prefix) == expected


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Path]:
    """A folder for deployments, which are stopped at the end."""
    yield tmp_path / "deployments"
    Daemon("supervisord", tmp_path / "deployments" / "supervisor").stop(limit_s=60)


def test_a_deployed_file_takes_its_functions_along(
    cli: Cli, shop: Shop, prefix: str, kafka: str, supervised: Path, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """The workers run a copy of the file and its functions: changes beside the file do not reach them."""
    expected = shop.expected()
    cli.ok("category", "create", "shop.sql")
    cli.ok("deploy", "shop.sql", "--dir", str(supervised))
    shop.file.with_name("udfs.py").unlink()
    shop.file.rename(shop.file.with_name("moved.sql"))
    (cli.folder / "shop.sql").write_text(
        (cli.folder / "moved.sql").read_text().replace("domain(o.address)", "o.address")
    )
    (cli.folder / "udfs.py").write_text("def domain(address: str) -> str:\n    return ''\n")
    for half in (0, 1):
        send_half(cli, prefix, shop, half)
    wait_until(lambda: paid(kafka, prefix).total() >= expected.total())

    assert paid(kafka, prefix) == expected
