"""Backfills into sinks: the tables contain what workers would have written."""

from __future__ import annotations

import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support import team_tables
from support.databases import Postgres
from support.stores import new_database
from support.team_tables import Visit, by_page, long_turns, visits
from typer.testing import CliRunner

from penstock.backfill import BackfillRefused
from penstock.backfill.archive import Archiver
from penstock.backfill.run import Written, run_backfill
from penstock.backfill.spark import spark_session
from penstock.backfill.warehouse import DAY_MS, Warehouse, open_warehouse
from penstock.ops.shell.command_line.main import app as commands
from penstock.processors.apps import AppName
from penstock.transport import Bucket, CategorySpec
from penstock.transport.codecs import Codecs, encoded_messages
from penstock.transport.kafka import KafkaBus
from penstock.transport.memory import MemoryBus

MASTER = "local[2]"
START_MS = 15_706 * DAY_MS
FIRST, LAST = date(2013, 1, 2), date(2013, 1, 3)
"""Days in the middle of the archive."""


_TABLES = """
    CREATE TABLE newest ("user" text PRIMARY KEY, page text NOT NULL, number bigint NOT NULL);
    CREATE TABLE hourly (page text, hour timestamptz, visits bigint NOT NULL, PRIMARY KEY (page, hour));
    CREATE TABLE ended (page text NOT NULL, hour timestamptz NOT NULL, visits bigint NOT NULL);
    CREATE TABLE turns ("user" text NOT NULL, number bigint NOT NULL, turn bigint NOT NULL);
"""


def made_up_visits() -> list[Visit]:
    """Return visits on four days, in order of time except for some that are a little late."""
    dice = random.Random(3)
    times = sorted(dice.randrange(4 * DAY_MS) for _ in range(3_000))
    late = [time - dice.randrange(600_000) if dice.random() < 0.1 else time for time in times]
    return [
        Visit(f"u{dice.randrange(40)}", START_MS + max(time, 0), f"/{dice.randrange(9)}", number)
        for number, time in enumerate(late)
    ]


@dataclass
class World:
    """An archive, and an empty database."""

    warehouse: Warehouse
    url: str
    kafka: str
    folder: Path

    def run(self, processor: str, *more: str, days: tuple[date, date] = (FIRST, LAST)) -> Any:
        """Run the command; each processor has an output folder of its own."""
        output = f"sinks:{self.folder / processor}"
        places = ["--warehouse", str(self.folder.parent / "warehouse"), "--output", output, "--dir", str(self.folder)]
        when = ["--from", str(days[0]), "--to", str(days[1]), "--kafka", self.kafka, "--master", MASTER]
        name = f"{Path(team_tables.__file__)}:{processor}"
        return CliRunner().invoke(commands, ["backfill", name, *when, *places, *more], catch_exceptions=False)

    def rows(self, query: str) -> list[Any]:
        """Return the rows of a query."""
        with psycopg.connect(self.url) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of an archive of visits, in one Spark session."""
    if not shutil.which("java"):
        pytest.skip("Spark needs Java 17 or later on PATH: nothing of the backfill is tested")
    folder = tmp_path_factory.mktemp("sinks")
    bus = MemoryBus()
    ends: dict[Bucket, int] = {}
    for category in (visits, by_page):
        bus.create(CategorySpec.of(category))
        bus.writer().send(category.name, list(encoded_messages(category, Codecs(bus).of(category), made_up_visits())))
        ends |= {Bucket(category.name, number): end for number, end in bus.describe(category.name).ends.items()}
    warehouse = open_warehouse(folder / "warehouse")
    Archiver(bus, [visits, by_page], warehouse, segment_events=300).run(lambda it: it.has_reached(ends))
    with spark_session(MASTER):
        yield folder


@pytest.fixture
def world(
    archive: Path,
    postgres: Postgres,
    kafka_bus: KafkaBus,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    unique: str,
) -> World:
    """A new database for the rows."""
    url = new_database(postgres)
    monkeypatch.setenv("TEAM_TABLES", url)
    with psycopg.connect(url) as connection:
        connection.execute(_TABLES)
    folder = archive / unique[-40:]
    folder.mkdir()
    return World(open_warehouse(archive / "warehouse"), url, kafka_bus.settings.bootstrap, folder)


def within(visit: Visit) -> bool:
    """Return whether a visit is in the days of the backfill."""
    return START_MS + DAY_MS <= visit.at < START_MS + 3 * DAY_MS


@pytest.mark.exhaustive
def test_rows_with_a_key_are_the_newest_of_each_key(world: World) -> None:
    """They are in the order of the category, not of event time. A second run, with --overwrite, writes the same."""
    done = world.run("KeepNewest")
    newest = {visit.user: visit for visit in made_up_visits() if within(visit)}
    expected = sorted((visit.user, visit.page, visit.number) for visit in newest.values())

    assert done.exit_code == 0, done.output
    assert "each row replaces the row of its key" in done.output
    assert sorted(world.rows('SELECT "user", page, number FROM newest')) == expected
    again = world.run("KeepNewest", "--overwrite")
    assert again.exit_code == 0, again.output
    assert sorted(world.rows('SELECT "user", page, number FROM newest')) == expected


@pytest.mark.exhaustive
@pytest.mark.parametrize(("processor", "table"), [("CountHourly", "hourly"), ("CountEnded", "ended")])
def test_windows_that_begin_in_the_days_have_one_row_each(world: World, processor: str, table: str) -> None:
    """Windows that are written when they end have one row, too."""
    done = world.run(processor)
    counts = Counter((visit.page, visit.at // 3_600_000 * 3_600_000) for visit in made_up_visits() if within(visit))

    assert done.exit_code == 0, done.output
    found = world.rows(f"SELECT page, (extract(epoch FROM hour) * 1000)::bigint, visits FROM {table}")
    assert sorted(found) == sorted((*slot, count) for slot, count in counts.items())


@pytest.mark.exhaustive
def test_rows_without_a_key_are_appended_once(world: World) -> None:
    """A second run of these days is refused. A category beside the sink is in the folder."""
    done = world.run("Number")
    turns: defaultdict[str, int] = defaultdict(int)
    expected, tenth = [], []
    for visit in made_up_visits():
        turns[visit.user] += 1
        if within(visit):
            expected.append((visit.user, visit.number, turns[visit.user]))
            tenth += [visit.number] * (turns[visit.user] % 10 == 0)

    assert done.exit_code == 0, done.output
    assert sorted(world.rows('SELECT "user", number, turn FROM turns')) == sorted(expected)
    written = world.folder / "Number" / f"category={long_turns.name}"
    assert sum(1 for _ in written.rglob("*.parquet")) > 0
    with pytest.raises(
        BackfillRefused, match=r"table turns of PostgreSQL: the batch of .* is written already, with 1,551 records"
    ):
        world.run("Number", "--overwrite")
    with pytest.raises(BackfillRefused, match="the batch of 2013-01-02 to 2013-01-03 is written already"):
        world.run("Number", "--overwrite", days=(LAST, LAST))
    assert sorted(world.rows('SELECT "user", number, turn FROM turns')) == sorted(expected)


def test_what_a_backfill_cannot_write_is_refused_before_it_starts(archive: Path, tmp_path: Path) -> None:
    """It would write some of the outputs only, or rows of unknown days."""

    def run(processor: str, **how: Any) -> None:
        run_backfill(
            AppName(Path(team_tables.__file__), processor),
            open_warehouse(archive / "warehouse"),
            first=FIRST,
            last=LAST,
            output=open_warehouse(tmp_path),
            master=MASTER,
            **how,
        )

    with pytest.raises(BackfillRefused, match=r"Number writes table turns.* beside sinks\.turns.*--output sinks"):
        run("Number")
    with pytest.raises(BackfillRefused, match=r"KeepNewest writes table newest.*--output sinks"):
        run("KeepNewest")
    with pytest.raises(BackfillRefused, match=r"does not have exactly one field of type penstock\.EventTime"):
        run("RingLater", written=Written.ALL)
