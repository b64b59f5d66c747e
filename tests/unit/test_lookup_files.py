"""Lookup tables in files: reloads, the previous rows after a failed load, and errors with line numbers."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.ops.kernel import Driver
from penstock.processors import DeclarationError

HEADER = "code,name,lines"


class City(ps.Record, frozen=True):
    """A city."""

    name: str
    lines: int | None
    metro: bool = False
    founded: str | None = None


class Visit(ps.Record, frozen=True):
    """A visit to a city."""

    code: str
    at: ps.EventTime


class Visited(Visit, frozen=True):
    """A visit with the city's name."""

    name: str | None


visits = ps.Category("visits", Visit, key="code", event_time="at", buckets=1)
visited = ps.Category("visited", Visited, key="code", event_time="at", buckets=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A CSV file with one city."""
    path = tmp_path / "cities.csv"
    path.write_text(f"{HEADER}\nr,Rome,3\n", encoding="utf-8")
    return path


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically."""
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


class Name(ps.LookupJoin):
    """Names the city."""

    reads, writes = visits, visited
    source = ps.lookups.MemoryTable({})

    def key_of(self, event: Visit) -> str:
        return event.code

    def join(self, event: Visit, row: City | None) -> Iterable[Visited]:
        yield Visited(event.code, event.at, row.name if row else None)


def test_a_changed_file_is_loaded_again(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After a failed load, the previous rows stay in use; each failure is logged once and counted."""
    driver = Driver(Name, sources={Name: ps.lookups.CsvTable(path, City, key="code")})

    def name() -> str | None:
        driver.send(visits, [Visit("r", 1)])
        return driver.read(visited)[-1].name

    assert name() == "Rome"
    with path.open("a", encoding="utf-8") as file:
        file.write("b,Bern,2\n")
    assert name() == "Rome"
    replace_file(path, f"{HEADER}\nr,Roma,3\n")
    assert name() == "Roma"
    replace_file(path, f"{HEADER}\nr,Rom,many\n")
    assert (name(), name()) == ("Roma", "Roma")
    path.unlink()
    assert (name(), name()) == ("Roma", "Roma")
    replace_file(path, f"{HEADER}\nr,Rom,4\n")
    assert name() == "Rom"

    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [text.startswith(f"{path} line 2 is not a valid City: Expected `int") for text in warnings] == [True, False]
    assert all("Lookups still use the previous version with 1 row." in text for text in warnings)
    counts = driver.metrics(Name).lookups
    assert counts is not None
    assert counts.failed_loads == 2
    assert "2 failed table loads" in str(driver.metrics(Name))


def test_a_table_in_a_file_does_not_use_the_cache(path: Path) -> None:
    """The next batch uses a changed file, even if a cache is declared."""

    class Cached(Name):
        """With a cache."""

        cache = ps.lookups.Cached()

    driver = Driver(Cached, sources={Cached: ps.lookups.CsvTable(path, City, key="code")})
    driver.send(visits, [Visit("r", 1)])
    replace_file(path, f"{HEADER}\nr,Roma,3\n")
    driver.send(visits, [Visit("r", 2)])

    assert [visit.name for visit in driver.read(visited)] == ["Rome", "Roma"]


def test_an_empty_cell_is_none_or_the_default(path: Path) -> None:
    """A required text field, which accepts neither, is an empty text."""
    path.write_text("﻿code,name,lines,metro,founded\nr,,,,\nb,Bern,2,TRUE,1191\n\n", encoding="utf-8")
    rows = ps.lookups.CsvTable(path, City, key="code").open()

    assert rows.fetch(["r", "b"]) == {
        "r": City("", None, metro=False, founded=None),
        "b": City("Bern", 2, True, "1191"),
    }


def test_a_quoted_cell_may_contain_line_breaks(path: Path) -> None:
    """Lines may also end with a carriage return and a line feed."""
    path.write_bytes('code,name,lines\r\nr,"Ro\r\nme, \u2028 ""x""",3\r\n'.encode())

    assert ps.lookups.CsvTable(path, City, key="code").open().fetch(["r"]) == {"r": City('Ro\r\nme, \u2028 "x"', 3)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no column 'code', 'name', 'lines', which the key needs"),
        (b"code,lines\nr,3\n", "has no column 'name', which City needs. It has: code, lines"),
        (b"name,lines\nRome,3\n", "has no column 'code', which the key needs"),
        (
            b"code,name,lines\nr,Rome,3\n\nb,Bern,2\nr,Roma,3\nb,Bern,4\n",
            r"'r' \(.*line 2, .*line 5\); 'b' \(.*line 4, .*line 6\)",
        ),
        (b"code,name,lines\nr,Rome\n", "line 2 has 2 cells, but the header has 3"),
        (b"code,name,lines\nr,Rome,3,4\n", "line 2 has 4 cells, but the header has 3"),
        (
            b"code,name,lines\nr,Rome,three\n",
            r"line 2 is not a valid City: Expected `int \| null`, got `str` - at `\$.lines`",
        ),
        (b"code,name,lines\nr,R\xffme,3\n", "is not a CSV file in UTF-8"),
        (b'code,name,lines\nr,"Rome,3\n', "is not a CSV file in UTF-8"),
    ],
)
def test_an_invalid_csv_file_is_refused_before_the_first_event(path: Path, content: bytes, message: str) -> None:
    """The error contains the line and the reason."""
    path.write_bytes(content)

    with pytest.raises(ps.lookups.LookupRefused, match=message):
        Driver(Name, sources={Name: ps.lookups.CsvTable(path, City, key="code")})


@pytest.mark.parametrize("kind", [ps.lookups.CsvTable, ps.lookups.ParquetTable])
def test_a_missing_file_is_refused(kind: Any, tmp_path: Path) -> None:
    """The error contains the path and the system's reason."""
    with pytest.raises(ps.lookups.LookupRefused, match=r"cities cannot be read: No such file"):
        kind(tmp_path / "cities", City, key="code").open()


@pytest.mark.parametrize("kind", [ps.lookups.CsvTable, ps.lookups.ParquetTable])
def test_the_row_type_must_be_a_struct(kind: Any) -> None:
    """The declaration of another type is refused."""
    with pytest.raises(DeclarationError, match=r"cannot be read as <class 'dict'>"):
        kind("cities", dict, key="code")


def test_a_parquet_file_may_have_integer_keys(tmp_path: Path) -> None:
    """They are looked up as text."""
    path = tmp_path / "cities.parquet"
    pq.write_table(pa.table({"code": pa.array([7, 8], pa.int16()), "name": ["Rome", "Bern"], "lines": [3, None]}), path)

    found = ps.lookups.ParquetTable(path, City, key="code").open().fetch(["8", "9"])
    assert found == {"8": City("Bern", None)}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"code": ["r", None], "name": ["Rome", "Bern"], "lines": [1, 2]}, "row 1 has the key None"),
        ({"code": [1.5], "name": ["Rome"], "lines": [1]}, "row 0 has the key 1.5"),
        ({"code": ["r", "r"], "name": ["Rome", "Roma"], "lines": [1, 2]}, r"'r' \(.*row 0, .*row 1\)"),
        ({"code": ["r"], "name": [b"Rome"], "lines": [1]}, r"row 0 is not a valid City: Expected `str`, got `bytes`"),
        ({"name": ["Rome"], "lines": [1]}, "has no column 'code'"),
    ],
)
def test_an_invalid_parquet_file_is_refused(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    """The error names the row or the missing column."""
    path = tmp_path / "cities.parquet"
    pq.write_table(pa.table(columns), path)

    with pytest.raises(ps.lookups.LookupRefused, match=message):
        ps.lookups.ParquetTable(path, City, key="code").open()


def test_a_file_of_another_format_is_refused_as_a_parquet_table(path: Path) -> None:
    """The error says that the file is not readable as Parquet."""
    with pytest.raises(ps.lookups.LookupRefused, match="is not a readable Parquet file"):
        ps.lookups.ParquetTable(path, City, key="code").open()
