"""Queries of the warehouse's Parquet files: each event once, and no file of a day that the query does not need."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.scuba_site import hits, new_bus, scuba_on
from typer.testing import CliRunner

from penstock.backfill import WarehouseError
from penstock.backfill.warehouse import (
    ARCHIVE,
    DAY_MS,
    ArchivedFile,
    ArchiveSettings,
    DayOf,
    Note,
    Warehouse,
    open_warehouse,
    write_note,
)
from penstock.ops.serve.results.parameters import BadQuery
from penstock.ops.serve.rows import warehouse_files, warehouse_tables
from penstock.ops.serve.rows.explorer import Explorer
from penstock.ops.serve.rows.queries import Aggregation, ExploreQuery, Filter, HistogramQuery, SampleQuery
from penstock.ops.serve.rows.warehouse_files import WarehouseUnreadable
from penstock.ops.serve.rows.warehouse_tables import WarehouseTables
from penstock.ops.shell import SteeredClock
from penstock.ops.shell.command_line.main import app
from penstock.state.files import FileStore, LocalFileStore

DAYS = ("2026-11-22", "2026-11-23", "2026-11-24")


def start_ms(day: str) -> int:
    """Return the start of a day (milliseconds since 1970)."""
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000)


def archived(
    root: Path,
    day: str,
    bucket: int,
    segment: int,
    pages: list[str],
    *,
    last: int = -1,
    epoch: int = 1,
    more: dict[str, list[Any]] | None = None,
) -> Path:
    """Write a file of the archive of views: an event every ten minutes."""
    path = root / ArchivedFile("views", day, bucket, segment, last, epoch).path
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = list(range(len(pages)))
    columns = {
        "page": pages,
        "ms": numbers,
        "device": [{"os": "ab"[number % 2]} for number in numbers],
        **(more or {}),
        "_bucket": pa.array([bucket] * len(pages), pa.int32()),
        "_offset": [segment + number for number in numbers],
        "_event_time": [start_ms(day) + number * 600_000 for number in numbers],
        "_arrived": [start_ms(day) + number * 600_000 for number in numbers],
    }
    pq.write_table(pa.table(columns), path)
    return path


def damaged(path: Path) -> None:
    """Overwrite a file, so that a query that opens it fails."""
    path.write_bytes(b"no Parquet")


@contextmanager
def asking(root: Path, prefix: str = "") -> Iterator[Explorer]:
    """Yield an explorer of a warehouse."""
    with closing(WarehouseTables(root, prefix=prefix)) as tables:
        yield Explorer([tables])


def test_each_event_of_the_archive_is_read_once(tmp_path: Path) -> None:
    """Files that a compaction or a later owner of a bucket has replaced are skipped. Other tables are in the same folder."""
    for day in DAYS:
        archived(tmp_path, day, 0, 0, ["/a", "/b"])
        archived(tmp_path, day, 1, 0, ["/c"], epoch=1)
        archived(tmp_path, day, 1, 0, ["/c", "/a"], epoch=2)
    archived(tmp_path, DAYS[0], 0, 10, ["/d"])
    archived(tmp_path, DAYS[0], 0, 0, ["/a", "/b", "/d"], last=10, epoch=0)
    prices = tmp_path / "prices" / "region=eu"
    prices.mkdir(parents=True)
    pq.write_table(pa.table({"page": ["/a", "/c"], "price": [3, 4]}), prices / "x.parquet")
    with asking(tmp_path) as explorer:
        found = explorer.select("SELECT page, count(*) FROM views GROUP BY page")
        joined = explorer.select(
            "SELECT sum(price), min(region) FROM views JOIN prices USING (page) WHERE ds = '2026-11-24'"
        )
        counted = explorer.explore(ExploreQuery(table="views", group_by=["page"]))
        of_prices = explorer.explore(
            ExploreQuery(table="prices", aggregates=[Aggregation("sum", "price")], group_by=["region"], every="1d")
        )

    expected = Counter(["/a", "/a", "/b", "/c"] * 3 + ["/d"])
    assert dict(map(tuple, found.rows)) == expected
    assert joined.rows == [[3 + 3 + 4, "eu"]]
    assert {row.group[0]: row.values[0].value for row in counted.rows} == expected
    assert [(row.group, row.values[0].value) for row in of_prices.rows] == [["eu"], 7] or of_prices.points == []


def test_all_widgets_of_the_page_answer_for_archived_days(tmp_path: Path) -> None:
    """The widgets have groups of nested fields, time series, a comparison with the day before, histograms, rows and files."""
    for number, day in enumerate(DAYS):
        archived(tmp_path, day, 0, 0, ["/a", "/b"] * (number + 1))
    begin = start_ms(DAYS[2])
    query = ExploreQuery(
        table="warehouse/views", group_by=["device.os"], begin=begin, end=begin + DAY_MS, every="30m", compare="1d"
    )
    with asking(tmp_path, "warehouse/") as explorer:
        found = explorer.explore(query)
        bins = explorer.histogram(HistogramQuery(table="warehouse/views", column="ms", bins=2)).bins
        rows = explorer.samples(SampleQuery(table="warehouse/views", limit=1))
        [info] = explorer.tables().tables
        saved = pq.read_table(io.BytesIO(explorer.exported(query, "parquet")))

    assert {row.group[0]: row.values[0].value for row in found.rows} == {"a": 3, "b": 3}
    assert [before and before[0].value for before in found.compared] == [2, 2]
    assert not found.is_compared_partly
    assert {(point.start_ms - begin) // 60_000 for point in found.points} == {0, 30}
    assert found.days is not None
    assert (found.days.read, found.days.total) == (2, 3)
    assert sum(each.events.value for each in bins) == 2 + 4 + 6
    assert dict(zip(rows.columns, rows.rows[0], strict=True))["_event_time"] == begin + 5 * 600_000
    assert (info.days, info.rows, info.last_ms) == (3, None, begin + DAY_MS - 1)
    assert {column.name for column in info.columns} >= {"page", "device.os", "ds", "_event_time"}
    assert sum(int(each or 0) for each in saved["count"].to_pylist()) == 6


QUESTIONS: list[dict[str, Any]] = [
    {"begin": start_ms(DAYS[1]), "end": start_ms(DAYS[2])},
    {"begin": f"{DAYS[1]}T00:00", "end": f"{DAYS[1]}T23:59:59.999"},
    {"filters": [Filter("ds", "=", DAYS[1])]},
    {"filters": [Filter("ds", "in", [DAYS[1], "2020-01-01"])]},
    {"filters": [Filter("ds", ">", DAYS[0]), Filter("ds", "<", DAYS[2])]},
]


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_a_query_opens_no_file_of_other_days(tmp_path: Path, question: dict[str, Any]) -> None:
    """The files of other days are damaged, which only a query of them finds."""
    for day in DAYS:
        path = archived(tmp_path, day, 0, 0, [f"/{number}" for number in range(100)])
        if day != DAYS[1]:
            damaged(path)
    settings = ArchiveSettings.of(
        DayOf.EVENT_TIME,
        1_000,
        pa.table({"page": pa.array([], pa.string()), "added": pa.array([], pa.int64())}).schema,
    )
    write_note(open_warehouse(tmp_path), Note("views", ARCHIVE), settings)
    with asking(tmp_path) as explorer:
        answer = explorer.explore(ExploreQuery(table="views", aggregates=[Aggregation("distinct", "page")], **question))
        assert answer.rows[0].values[0].value == 100
        assert answer.days is not None
        assert (answer.days.read, answer.days.total) == (1, 3)
        with pytest.raises(BadQuery, match="DuckDB refuses"):
            explorer.explore(ExploreQuery(table="views"))


SELECTS = {
    "SELECT count(*) FROM views WHERE ds = '2026-11-23'": 1,
    "SELECT count(*) FROM views v WHERE v.ds BETWEEN '2026-11-23' AND '2026-11-23' AND page <> 'x'": 1,
    "WITH one AS (SELECT page FROM views WHERE ds = DATE '2026-11-23') SELECT count(*) FROM one": 1,
    "SELECT count(*) FROM (SELECT * FROM views WHERE ds > '2026-11-22') WHERE page LIKE '/%'": 2,
    "SELECT count(*) FROM views WHERE ds = '2026-11-23' OR page = '/1'": 3,
    "SELECT count(*) FROM views a JOIN views b USING (page) WHERE a.ds = '2026-11-23'": 3,
    "SELECT count(*) FROM views": 3,
}


@pytest.mark.parametrize("sql", SELECTS)
def test_a_condition_on_the_day_selects_the_days_of_a_select(tmp_path: Path, sql: str) -> None:
    """The condition must hold for all rows of the table. The answers equal those over all files."""
    for number, day in enumerate(DAYS):
        archived(tmp_path, day, 0, 0, [f"/{page}" for page in range(number + 1)])
    with asking(tmp_path) as explorer:
        found = explorer.select(sql)
    days = {day: number + 1 for number, day in enumerate(DAYS)}
    truth = {1: days[DAYS[1]], 2: days[DAYS[1]] + days[DAYS[2]]}

    assert found.days is not None
    assert found.days.read == SELECTS[sql]
    if SELECTS[sql] in truth:
        assert found.rows == [[truth[SELECTS[sql]]]]


def test_columns_that_came_later_are_null_in_earlier_days(tmp_path: Path) -> None:
    """Only an earlier day may be read, and a field may have the name of a folder of the warehouse."""
    archived(tmp_path, DAYS[0], 0, 0, ["/a"])
    archived(tmp_path, DAYS[1], 0, 0, ["/b"], more={"category": ["toys"], "tags": [["x", "y"]], "raw": [b"\x01\xff"]})
    with asking(tmp_path) as explorer:
        both = explorer.select("SELECT ds::VARCHAR, page, category, tags, raw FROM views ORDER BY ds")
        first = explorer.explore(
            ExploreQuery(table="views", group_by=["category"], filters=[Filter("ds", "=", DAYS[0])])
        )

    assert both.rows == [[DAYS[0], "/a", None, None, None], [DAYS[1], "/b", "toys", '["x","y"]', "01ff"]]
    assert [(row.group, row.values[0].value) for row in first.rows] == [([None], 1)]


class Elsewhere:
    """A file store on another machine: it counts reads."""

    def __init__(self, files: FileStore) -> None:
        self._files = files
        self.location = "hdfs://there:9000/w"
        self.reads: list[str] = []

    def read(self, path: str, start: int = 0) -> Iterator[bytes]:
        """Read a file."""
        self.reads.append(path)
        return self._files.read(path, start)

    def list_folder(self, folder: str) -> dict[str, int | None]:
        """List a folder."""
        return self._files.list_folder(folder)


def test_files_elsewhere_are_copied_when_a_query_needs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only files of the queried days are copied, and only once. The oldest copies make room for new ones."""
    for day in DAYS:
        archived(tmp_path, day, 0, 0, ["/a", "/b"])
    store: Any = Elsewhere(LocalFileStore(tmp_path))
    monkeypatch.setattr(warehouse_files, "open_warehouse", lambda *_: Warehouse(store))
    of_day = "SELECT count(*) FROM views WHERE ds = '{}'"
    size = archived(tmp_path, DAYS[0], 0, 0, ["/a", "/b"]).stat().st_size
    monkeypatch.setattr(warehouse_files, "MAX_COPIED_BYTES", 2 * size + 100)
    with asking(Path("elsewhere")) as explorer:
        counts = [explorer.select(of_day.format(day)).rows for day in (DAYS[2], DAYS[2], DAYS[0], DAYS[1])]
        read = [path for path in store.reads if path.endswith("parquet")]
        with pytest.raises(WarehouseUnreadable, match="is the most"):
            explorer.select("SELECT count(*) FROM views")
        [tables] = explorer._sources
        copies = list(tables._files.folder.rglob("*.parquet"))  # type: ignore[attr-defined]

    assert counts == [[[2]]] * 4
    assert [path.split("/")[1] for path in read] == [f"ds={day}" for day in (DAYS[2], DAYS[0], DAYS[1])]
    assert len(copies) == 2
    assert not tables._files.folder.exists()  # type: ignore[attr-defined]


def test_an_unreachable_warehouse_leaves_the_newest_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server answers for the tables that it knows; a command reports the reason."""
    archived(tmp_path, DAYS[0], 0, 0, ["/a"])
    monkeypatch.setattr(warehouse_tables, "LISTED_S", -1.0)
    clock = SteeredClock(start_ms(DAYS[0]))
    with closing(WarehouseTables(tmp_path, prefix="warehouse/")) as tables, scuba_on(new_bus(clock), clock) as scuba:
        explorer = Explorer([scuba.source, tables])
        assert len(explorer.tables().tables) == 2

        def unreachable(*_: object) -> None:
            raise WarehouseError("No NameNode answers.")

        monkeypatch.setattr(Warehouse, "list_folder", unreachable)
        assert len(explorer.tables().tables) == 2
        assert explorer.select('SELECT page FROM "warehouse/views"').rows == [["/a"]]
        with closing(WarehouseTables(tmp_path, prefix="warehouse/")) as unknown:
            assert Explorer([scuba.source, unknown]).explore(ExploreQuery(table=hits.name)).matched == 0
    with asking(tmp_path) as asked, pytest.raises(WarehouseUnreadable, match="No NameNode answers"):
        asked.tables()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_parquet('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "DROP VIEW views",
        "SELECT * FROM other",
        "SET lock_configuration = false",
    ],
)
def test_only_a_select_of_the_tables_is_run(tmp_path: Path, sql: str) -> None:
    """The server has the same rule."""
    archived(tmp_path, DAYS[0], 0, 0, ["/a"])
    with asking(tmp_path) as explorer, pytest.raises(BadQuery):
        explorer.select(sql)


def test_the_command_prints_and_saves(tmp_path: Path) -> None:
    """It prints tables, groups and rows as JSON, and saves Parquet. A missing folder is an error with the reason."""
    archived(tmp_path / "w", DAYS[0], 0, 0, ["/a", "/b"])
    runner, where, file = CliRunner(), ["--warehouse", str(tmp_path / "w")], tmp_path / "saved.parquet"
    listed = runner.invoke(app, ["explore", *where, "--json"])
    shown = runner.invoke(app, ["explore", *where])
    groups = runner.invoke(app, ["explore", "--table", "views", "--by", "page", *where, "--csv"])
    rows = runner.invoke(app, ["explore", "SELECT page FROM views ORDER BY page", *where, "--json"])
    saved = runner.invoke(app, ["explore", "SELECT page FROM views", *where, "--parquet", str(file)])
    missing = runner.invoke(app, ["explore", "SELECT 1", "--warehouse", str(tmp_path / "none")])

    assert json.loads(listed.stdout)["days"] == 1
    assert "1 day" in shown.stdout
    assert groups.stdout.splitlines() == ["page,count", "/a,1", "/b,1"]
    assert [json.loads(line) for line in io.StringIO(rows.stdout)] == [{"page": "/a"}, {"page": "/b"}]
    assert "from 1 of 1 day" in rows.stderr
    assert saved.exit_code == 0
    assert pq.read_table(file).num_rows == 2
    assert isinstance(missing.exception, WarehouseUnreadable)
