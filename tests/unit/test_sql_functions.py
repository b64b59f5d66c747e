"""Functions in Python are called from SQL."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.ops.shell.command_line.main import app
from penstock.processors import PenstockError
from penstock.processors.apps import sql_app
from penstock.testing import Driver

FUNCTIONS = """
import penstock as ps

def domain(address: str) -> str | None:
    return address.partition("@")[2] or None

def shown(address: str | None, cents: int) -> str:
    return f"{address or 'unknown'}: {cents / 100:.2f}"

def untyped(address):
    return address

def listed(address: str) -> list[str]:
    return [address]

SOME = 5

class Product(ps.monoids.Monoid[int]):
    def identity(self) -> int:
        return 1

    def combine(self, left: int, right: int) -> int:
        return left * right

    def lift(self, observation: int) -> int:
        return observation

    def value(self, partial: int) -> int:
        return partial

class Untyped(ps.monoids.Monoid[int]):
    def identity(self):
        return 1

    def combine(self, left, right):
        return left * right
"""
FILE = """
CREATE FUNCTION domain USING 'udfs.py:domain';
CREATE FUNCTION shown USING 'udfs.py:shown';
CREATE FUNCTION product USING 'udfs.py:Product';
CREATE CATEGORY orders (at bigint, address text, cents bigint) WITH (key = 'address', time = 'at', buckets = 1);
"""
ORDERS = [(1, "ann@a.org", 200), (2, "bob", 300), (3, "eve@a.org", 500), (4, "max@b.org", None)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "udfs.py").write_text(FUNCTIONS)
    return tmp_path


def found(folder: Path, query: str) -> list[object]:
    """Return the rows of a query over the orders."""
    (folder / "shop.sql").write_text(f"{FILE} CREATE TABLE found AS {query};")
    compiled = sql_app(folder / "shop.sql", __name__)
    driver = Driver(compiled.processors)
    orders = compiled.relations["orders"].category
    driver.send(orders, [orders.record(at=at, address=address, cents=cents) for at, address, cents in ORDERS])
    return list(driver.read(compiled.relations["found"].category))


def test_a_function_is_called_for_each_row(folder: Path) -> None:
    """It is NULL for NULL, unless the annotation of the argument accepts None."""
    rows = found(
        folder,
        "SELECT at, domain(address) AS domain, shown(domain(address), cents) AS shown FROM orders WHERE domain(address) <> 'x' OR at = 2",
    )

    assert [(row.at, row.domain, row.shown) for row in rows] == [  # type: ignore[attr-defined]  # columns of the file
        (1, "a.org", "a.org: 2.00"),
        (2, None, "unknown: 3.00"),
        (3, "a.org", "a.org: 5.00"),
        (4, "b.org", None),
    ]


def test_a_monoid_is_an_aggregate(folder: Path) -> None:
    """It accepts FILTER, and an expression that calls another function. It skips NULL."""
    query = "SELECT domain(address) AS domain, product(cents / 100) AS product, product(cents) FILTER (WHERE at = 1) + 1 AS first FROM orders GROUP BY 1"
    rows = found(folder, query)

    assert {row.domain: (row.product, row.first) for row in rows} == {  # type: ignore[attr-defined]  # columns of the file
        "a.org": (10, 201),
        None: (3, None),
        "b.org": (None, None),
    }


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE FUNCTION f USING 'udfs.py:untyped'", "its argument address has no annotation"),
        (
            "CREATE FUNCTION f USING 'udfs.py:listed'",
            "its result has the annotation list[str], which is no type of SQL",
        ),
        ("CREATE FUNCTION f USING 'udfs.py:SOME'", "neither a function nor a class of monoids"),
        ("CREATE FUNCTION f USING 'udfs.py:Untyped'", "def value(self, partial: …) -> float"),
        ("CREATE FUNCTION f USING 'udfs.py:domian'", "Did you mean `domain`?"),
        ("CREATE FUNCTION f USING 'other.py:f'", "other.py does not exist"),
        ("CREATE FUNCTION lower USING 'udfs.py:domain'", "SQL has a function lower"),
        ("CREATE FUNCTION tumble USING 'udfs.py:domain'", "SQL has a function tumble"),
        ("CREATE TABLE t AS SELECT at, domain(address, 1) AS d FROM orders", "domain has 1 arguments, and 2 are given"),
        ("CREATE TABLE t AS SELECT at, domain(cents) AS d FROM orders", "text is required"),
        ("CREATE TABLE t AS SELECT product(address) AS d FROM orders", "bigint is required"),
    ],
)
def test_invalid_functions_are_refused(folder: Path, statement: str, message: str) -> None:
    """They are refused before anything is read. The message contains the correct form."""
    (folder / "shop.sql").write_text(f"{FILE}\n{statement};")
    with pytest.raises(PenstockError) as refused:
        sql_app(folder / "shop.sql", __name__)

    assert message in str(refused.value)


def test_tests_of_a_file_call_its_functions(folder: Path) -> None:
    """`penstock sql test` finds them beside the file."""
    (folder / "shop.sql").write_text(f"{FILE} CREATE TABLE t AS SELECT at, domain(address) AS d FROM orders;")
    (folder / "shop_test.sql").write_text(
        "INSERT INTO orders (at, address) VALUES (1, 'a@b'); EXPECT t VALUES (1, 'b');"
    )

    assert CliRunner().invoke(app, ["sql", "test", str(folder / "shop.sql")]).exit_code == 0
