"""Batch runs on a real Spark cluster, whose executors have neither the app nor its files."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.cli import Cli
from support.spark_cluster import SETTINGS, SparkCluster, running_cluster

from penstock.backfill.archive import Archiver, group_of
from penstock.backfill.run import BootstrapTarget, NodeResult, bootstrap, run_backfill
from penstock.backfill.warehouse import Warehouse, open_warehouse
from penstock.ops.kernel import Driver
from penstock.processors.apps import AppName
from penstock.processors.declare import plan_of
from penstock.state.files import LocalFileStore
from penstock.transport import Bucket, CategorySpec, Outgoing, Position
from penstock.transport.memory import MemoryBus

LIMIT_S = 400.0
pytestmark = pytest.mark.exhaustive
"""Time limit of a command whose executors start beside the other tests."""
DAY = date(1970, 1, 1)
EVENTS = 400
APP = '''
from datetime import timedelta
from pathlib import Path

import beside
import penstock as ps
import psutil

class Reading(ps.Record, frozen=True):
    meter: str
    at: ps.EventTime
    litres: int

class Placed(Reading, frozen=True):
    place: str

class Seen(Reading, frozen=True):
    files: list[str]

class Place(ps.Record, frozen=True):
    name: str

def category(name, record, key="meter"):
    return ps.Category(name, record, key=key, event_time="at", buckets=2)

readings = category("readings", Reading)
placed = category("placed", Placed)
numbered = category("numbered", Reading)
summed = category("summed", Reading)
seen = category("seen", Seen)

class FindPlace(ps.LookupJoin):
    """Looks up the place of a meter in a file of the driver's machine."""
    reads, writes = readings, placed
    source = ps.lookups.CsvTable("places.csv", Place, key="meter")
    on_miss = ps.lookups.OnMiss.DROP
    def key_of(self, event):
        return event.meter
    def join(self, event, row):
        yield Placed(event.meter, event.at, event.litres, beside.shout(row.name))

class Number(ps.Stateful):
    """Numbers a meter's readings."""
    reads, writes, state = readings, numbered, int
    def process(self, event, state, context):
        return (state or 0) + 1, [Reading(event.meter, event.at, (state or 0) + 1)]

KILL = Path("{kill}")

def executor():
    return next(one for one in psutil.Process().parents() if one.name() == "java")

class SumUp(ps.Aggregator):
    """Sums each minute; on request kills one executor that has read events."""
    reads, writes = readings, summed
    monoid, window = ps.monoids.Sum(), ps.windows.Tumbling(timedelta(minutes=1))
    def observe(self, event):
        if KILL.exists():
            KILL.with_name(f"took-{executor().pid}").touch()
        return event.litres
    def result(self, key, window, value):
        if KILL.exists() and KILL.with_name(f"took-{executor().pid}").exists():
            KILL.unlink(missing_ok=True)
            executor().kill()
        return Reading(key, window.start, value)

class See(ps.Stateless):
    """Reports the location of the running code."""
    reads, writes = readings, seen
    def process(self, event):
        yield Seen(event.meter, event.at, event.litres, [__file__, beside.__file__, ps.__file__])
'''


@dataclass
class World:
    """A processed stream, its archive, and a cluster."""

    folder: Path
    cluster: SparkCluster
    warehouse: Warehouse
    bus: MemoryBus
    stream: dict[str, list[Any]]

    @property
    def app(self) -> Path:
        """The app file."""
        return self.folder / "app.py"

    def rows(self, output: str, category: str) -> list[dict[str, Any]]:
        """Return the outputs of a backfill."""
        return pq.read_table(self.folder / output / f"category={category}").to_pylist()

    def backfill(self, processor: str, output: str) -> NodeResult:
        """Run one processor from this process."""
        app = AppName(self.app, processor)
        [result] = run_backfill(
            app,
            self.warehouse,
            first=DAY,
            last=DAY,
            output=open_warehouse(self.folder / output),
            master=self.cluster.master,
            overwrite=True,
        )
        return result


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One archived stream through all processors except the one that reports the code's location."""
    if not shutil.which("java"):
        pytest.skip("Spark needs Java 17 or later on PATH: nothing of a cluster is tested")
    folder = tmp_path_factory.mktemp("world")
    (folder / "app.py").write_text(APP.replace("{kill}", str(folder / "kill")))
    (folder / "beside.py").write_text("def shout(word): return word.upper()\n")
    (folder / "places.csv").write_text("meter,name\n" + "".join(f"m{n},place {n}\n" for n in range(6)))
    warehouse = open_warehouse(folder / "warehouse")
    with pytest.MonkeyPatch.context() as here:
        here.chdir(folder)
        bus, written = streamed(AppName(folder / "app.py"), warehouse)
        with running_cluster(folder / "cluster") as cluster:
            yield World(folder, cluster, warehouse, bus, written)


def streamed(name: AppName, warehouse: Warehouse) -> tuple[MemoryBus, dict[str, list[Any]]]:
    """Process and archive the stream; return its bus, and its last output for each key and time."""
    app = name.load()
    driver = Driver([processor for processor in app.processors if processor.__name__ != "See"])
    [readings] = plan_of(app.processor("See")).inputs
    driver.send(readings, [readings.record(f"m{n % 7}", n * 1000, n % 25) for n in range(EVENTS)])
    categories = driver.app.categories()
    ends = {Bucket(c.name, number): end for c in categories for number, end in driver.bus.describe(c.name).ends.items()}
    Archiver(driver.bus, categories, warehouse, segment_events=100).run(lambda it: it.has_reached(ends))
    return driver.bus, {
        c.name: list({(one.meter, one.at): one for one in driver.read(c)}.values()) for c in driver.app.categories()
    }


@pytest.fixture(scope="module")
def by_command(world: World) -> dict[str, Any]:
    """The report of `penstock backfill` for each processor, on the cluster, with Spark's settings in Spark's own file."""
    settings = world.folder / "conf" / "spark-defaults.conf"
    settings.parent.mkdir()
    one_executor = {**SETTINGS, "spark.cores.max": "1"}
    settings.write_text("".join(f"{name} {value}\n" for name, value in one_executor.items()))
    cli = Cli("unreachable:1", world.folder, LIMIT_S)
    days = ("--from", str(DAY), "--to", str(DAY), "--json")
    done = cli(
        "backfill", "app.py", "--master", world.cluster.master, *days, "--warehouse", "warehouse", "--output", "batch",
        SPARK_CONF_DIR=str(settings.parent),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {result["processor"]: result for result in json.loads(done.stdout)}


@pytest.fixture(scope="module")
def spark(world: World) -> Iterator[None]:
    """A session of this process on the cluster, which all its runs share."""
    builder = SparkSession.builder.master(world.cluster.master)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as here:
        here.setenv("PYSPARK_PYTHON", sys.executable)
        session = builder.getOrCreate()
    yield
    session.stop()


@pytest.mark.parametrize("category", ["placed", "numbered", "summed"])
def test_a_cluster_produces_the_streams_results(world: World, by_command: dict[str, Any], category: str) -> None:
    """Every kind of processor agrees, with a module beside the app and a lookup file of the driver's machine."""
    given = [tuple(row[name] for name in ("meter", "at", "litres")) for row in world.rows("batch", category)]

    assert sorted(given) == sorted((one.meter, one.at, one.litres) for one in world.stream[category])


def test_a_cluster_run_reports_its_event_counts(by_command: dict[str, Any]) -> None:
    """Each event counts once."""
    assert {name: (one["events_in"], one["rejected"]) for name, one in by_command.items()} == {
        "FindPlace": (EVENTS, sum(n % 7 == 6 for n in range(EVENTS))),
        "Number": (EVENTS, 0),
        "SumUp": (EVENTS, 0),
        "See": (EVENTS, 0),
    }


def test_executors_run_the_code_that_was_sent_to_them(world: World, by_command: dict[str, Any]) -> None:
    """App, module and Penstock are not imported from the files that the command read."""
    files = Counter(tuple(row["files"]) for row in world.rows("batch", "seen"))

    assert sum(files.values()) == EVENTS
    for app, beside, penstock in files:
        assert Path(app).is_relative_to(world.cluster.folder)
        assert Path(beside).parent == Path(app).parent
        assert ".zip" in penstock


@pytest.mark.usefixtures("spark")
def test_running_python_workers_load_changed_code(world: World) -> None:
    """The context and its Python workers stay; a module beside the app and a row of the lookup table change."""
    world.backfill("FindPlace", "before")
    beside, places = world.app.with_name("beside.py"), world.app.with_name("places.csv")
    beside.write_text("def shout(word): return word + '!'\n")
    places.write_text(places.read_text() + "m6,place 6\n")
    world.backfill("FindPlace", "after")

    assert {row["place"] for row in world.rows("before", "placed")} == {f"PLACE {n}" for n in range(6)}
    assert {row["place"] for row in world.rows("after", "placed")} == {f"place {n}!" for n in range(7)}


def not_run(world: World) -> MemoryBus:
    """Return a bus with archived readings that no processor has read."""
    bus = MemoryBus(lambda: 10**10)
    for category in AppName(world.app).load().categories():
        bus.create(CategorySpec.of(category))
    for number, end in world.bus.ends("readings").items():
        for message in world.bus.slice(Bucket("readings", number), 0, end):
            bus.append("readings", Outgoing(message.key(), message.value(), number))
        bus.set_committed(group_of("readings"), [Position(Bucket("readings", number), end)])
    return bus


@pytest.mark.usefixtures("spark")
def test_executors_back_up_the_states_that_they_build(world: World) -> None:
    """A worker finds a backup of each bucket in the shared backup store."""
    bus, place = not_run(world), LocalFileStore(world.folder / "backups")
    done = bootstrap(
        AppName(world.app, "Number"), world.warehouse, BootstrapTarget(bus, place), master=world.cluster.master
    )

    assert sum(shard.events for shard in done.shards) == EVENTS
    assert bus.committed("number", "readings") == {shard.bucket: shard.position["readings"] for shard in done.shards}
    assert len(place.list_folder("number")) == 2


@pytest.mark.usefixtures("spark")
def test_a_lost_executor_changes_neither_results_nor_counts(world: World) -> None:
    """Its tasks run again on another executor, and count once."""
    (world.folder / "kill").touch()
    result = world.backfill("SumUp", "survived")
    given = [(row["meter"], row["at"], row["litres"]) for row in world.rows("survived", "summed")]

    assert not (world.folder / "kill").exists()
    assert sorted(given) == sorted((one.meter, one.at, one.litres) for one in world.stream["summed"])
    assert (result.events_in, result.events_out) == (EVENTS, len(given))
