"""Several clusters as one bus: categories on their clusters, checkpoints across them, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from support.outages import Switch
from typer.testing import CliRunner

import penstock as ps
from penstock.ops.kernel import LoopMonitor, Worker, prepare
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.shards.topic_watch import CHECK_EVERY_S
from penstock.ops.kernel.testing import YEAR_2100_MS, InlineExecutor
from penstock.ops.shell import SteeredClock
from penstock.ops.shell.command_line.main import app as penstock_app
from penstock.processors import DeclarationError, PenstockError
from penstock.processors.apps import App
from penstock.processors.declare import dead_letters_of
from penstock.processors.operators import merge_of
from penstock.state import MemoryStateFolder
from penstock.transport import (
    Bucket,
    BusError,
    BusUnreachable,
    CategorySpec,
    Clusters,
    DeliveryFailed,
    MissingCategory,
    Outgoing,
    Position,
    TopicRecreated,
    placement_of,
)
from penstock.transport.codecs import Codecs, decode_outputs, encoded_messages
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import SCHEMAS


class Reading(ps.Record, frozen=True):
    """A meter's reading."""

    meter: str
    at: ps.EventTime
    litres: int


class Total(ps.Record, frozen=True):
    """A meter's total so far."""

    meter: str
    at: ps.EventTime
    litres: int


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=2)
totals = ps.Category("totals", Total, key="meter", event_time="at", buckets=2, codec="avro", cluster="billing")
large = ps.Category("large", Reading, key="meter", event_time="at", buckets=2)


class Totals(ps.Stateful):
    """Writes totals to another cluster, and large readings to the main one."""

    reads, writes, state = readings, (totals, large), int
    on_error = ps.ErrorPolicy.DEAD_LETTER

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[ps.Record]]:
        if event.litres < 0:
            raise ValueError(f"{event.litres} litres")
        total = (state or 0) + event.litres
        return total, [Total(context.key, event.at, total), *([event] if event.litres >= 10 else [])]


class AtMostOnce(Totals):
    """The same with outputs at most once."""

    output_semantics = ps.Semantics.AT_MOST_ONCE


class Site:
    """A main cluster and the cluster "billing", with a switch in front of each."""

    def __init__(self) -> None:
        self.home_switch, self.billing_switch = Switch(), Switch()
        self.home = MemoryBus(network=self.home_switch)
        self.billing = MemoryBus(network=self.billing_switch)
        self.bus = Clusters(self.home, {"billing": self.billing}, placement_of([readings, totals, large]))
        for category in (readings, totals, large):
            self.bus.catalog.create(CategorySpec.of(category))
        self.clock = SteeredClock(YEAR_2100_MS)
        self.states = MemoryStateFolder(merge_of(Totals()))

    def send(self, *events: Reading) -> None:
        """Write readings."""
        writer = self.bus.writer()
        writer.send(readings.name, encoded_messages(readings, Codecs(self.bus).of(readings), events))
        writer.flush()

    def worker(self, kind: type[Totals] = Totals) -> Worker:
        """Start a worker, as after a restart."""
        self.home.kill_members(kind.name)
        config = WorkerConfig(self.bus, self.states, "worker")
        return Worker(prepare(kind, self.bus), config, InlineExecutor(), InlineExecutor(), clock=self.clock)

    def work(self, worker: Worker) -> None:
        """Read everything and save a checkpoint."""
        targets = {Bucket(readings.name, number): end for number, end in self.home.ends(readings.name).items()}
        worker.run_once()
        while not worker.has_reached(targets):
            worker.run_once()
        worker.save()

    def read_some(self, worker: Worker, pause_s: float = 0.0) -> None:
        """Let the worker read for some turns of its loop."""
        for _ in range(5):
            self.clock.advance(pause_s)
            worker.run_once()

    def totals(self) -> list[tuple[str, int]]:
        """Return the totals on the other cluster."""
        messages = [
            message
            for number, end in self.billing.ends(totals.name).items()
            for message in self.billing.slice(Bucket(totals.name, number), 0, end)
        ]
        decoded = decode_outputs(totals, Codecs(self.billing).of(totals), messages)
        return [(record.meter, record.litres) for _, record in decoded]


@pytest.fixture
def site() -> Site:
    """Two clusters with the categories of the processors."""
    return Site()


def test_each_output_is_on_its_cluster_and_everything_else_on_the_main_one(site: Site) -> None:
    """Another app reads the Avro outputs with the schemas of their own cluster; positions and dead letters are on the main cluster."""
    site.send(Reading("kitchen", 1, 4), Reading("kitchen", 2, 10), Reading("kitchen", 3, -1))
    site.work(site.worker())

    assert site.totals() == [("kitchen", 4), ("kitchen", 14)]
    assert sum(site.home.ends(large.name).values()) == 1
    assert sum(site.home.ends(dead_letters_of(Totals).name).values()) == 1
    assert sum(site.home.committed(Totals.name, readings.name).values()) == 3
    assert site.billing.names() == [SCHEMAS.name, totals.name]
    assert totals.name not in site.home.names()


def test_a_category_of_the_same_name_on_the_wrong_cluster_is_not_touched(site: Site) -> None:
    """A mirror or a former version may have left one on the main cluster."""
    site.home.create(CategorySpec.of(totals))
    site.billing.create(CategorySpec.of(readings))
    site.send(Reading("kitchen", 1, 4))
    site.work(site.worker())

    assert site.totals() == [("kitchen", 4)]
    assert set(site.home.ends(totals.name).values()) == {0}
    assert set(site.billing.ends(readings.name).values()) == {0}
    assert site.bus.catalog.names().count(totals.name) == site.bus.catalog.names().count(readings.name) == 1


def test_a_position_is_not_saved_before_the_outputs_on_the_other_cluster(site: Site) -> None:
    """While the other cluster is away, nothing is saved; after a restart, its outputs appear."""
    worker = site.worker()
    site.work(worker)
    site.billing_switch.is_cut = True
    site.send(Reading("kitchen", 1, 4), Reading("kitchen", 2, 10))
    site.read_some(worker)
    worker.save()
    assert not worker.is_saved
    assert sum(site.home.committed(Totals.name, readings.name).values()) == 0
    site.billing_switch.is_cut = False
    site.work(site.worker())

    assert set(site.totals()) == {("kitchen", 4), ("kitchen", 14)}
    assert sum(site.home.committed(Totals.name, readings.name).values()) == 2


def test_outputs_at_most_once_are_sent_after_the_position(site: Site) -> None:
    """An outage of the other cluster may lose them, but does not repeat them."""
    worker = site.worker(AtMostOnce)
    site.send(Reading("kitchen", 1, 1))
    site.work(worker)
    site.send(Reading("kitchen", 2, 4))
    site.billing_switch.is_cut = True
    site.read_some(worker)
    worker.save()
    assert sum(site.home.committed(AtMostOnce.name, readings.name).values()) == 2
    site.billing_switch.is_cut = False
    site.send(Reading("kitchen", 3, 5))
    site.work(site.worker(AtMostOnce))

    assert site.totals() == [("kitchen", 1), ("kitchen", 10)]


def test_a_deleted_input_is_noticed_while_the_other_cluster_is_away(site: Site) -> None:
    """The check of one cluster does not wait for the other one."""
    site.send(Reading("kitchen", 1, 4))
    worker = site.worker()
    site.work(worker)
    site.billing_switch.is_cut = True
    site.home.delete(readings.name)
    site.home.create(CategorySpec.of(readings))

    with pytest.raises(TopicRecreated, match="readings was deleted and created again"):
        site.read_some(worker, pause_s=3.0)


def test_errors_name_the_cluster_and_its_settings(site: Site) -> None:
    """The main cluster is not blamed for another one."""
    site.billing_switch.is_cut = True
    table = re.escape("[clusters.billing.kafka-settings]")
    with pytest.raises(BusUnreachable, match=rf"^Cluster billing: No broker answered .* {table}"):
        site.bus.catalog.describe(totals.name)
    writer = site.bus.writer()
    writer.send(totals.name, [Outgoing(b"kitchen", b"{}")])
    with pytest.raises(DeliveryFailed, match=r"^Cluster billing: "):
        writer.flush()
    site.billing_switch.is_cut = False
    site.billing.delete(totals.name)
    with pytest.raises(MissingCategory, match="needs category totals, which is not on cluster billing"):
        prepare(Totals, site.bus)
    site.home_switch.is_cut = True
    with pytest.raises(BusError, match=r"^No broker answered"):
        site.bus.catalog.describe(readings.name)


def test_a_scanner_reads_buckets_of_one_cluster(site: Site) -> None:
    """Offsets of two clusters have no common order."""
    site.send(Reading("kitchen", 1, 4))
    site.work(site.worker())
    [total] = [
        message
        for number in range(2)
        for batch in site.bus.scanner([Position(Bucket(totals.name, number), 0)]).poll(0).batches
        for message in batch.messages
    ]
    assert total.key() == b"kitchen"
    with pytest.raises(TypeError, match="one cluster"):
        site.bus.scanner([Position(Bucket(totals.name, 0), 0), Position(Bucket(readings.name, 0), 0)])


class Exact(Totals):
    """Outputs exactly once."""

    output_semantics = ps.Semantics.EXACTLY_ONCE


passed_on = ps.Category("passed_on", Total, key="meter", event_time="at", buckets=2)


class Downstream(ps.Stateless):
    """Reads a category of another cluster."""

    reads, writes = totals, passed_on

    def process(self, event: Total) -> Iterable[Total]:
        return [event]


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (Exact, "A Kafka transaction cannot include several clusters.*AT_LEAST_ONCE.*mirror"),
        (Downstream, "reads totals, which is on cluster billing. Inputs must be on the main cluster"),
    ],
)
def test_a_guarantee_that_two_clusters_cannot_give_is_refused(processor: type[ps.Processor], message: str) -> None:
    """The declaration is refused before the first event."""
    with pytest.raises(DeclarationError, match=message):
        App.of("app", [processor])


def test_two_clusters_of_one_category_are_two_declarations() -> None:
    """The name of a category identifies it in an app."""

    class Other(Totals):
        writes = (replace(totals, cluster="audit"), large)

    with pytest.raises(DeclarationError, match="totals is declared twice"):
        App.of("app", [Totals, Other])


def test_a_cluster_has_a_valid_name() -> None:
    """A name must fit into [clusters.NAME]."""
    with pytest.raises(
        DeclarationError, match=r"cluster='a b' is invalid. Declare the name of a table \[clusters.NAME\]"
    ):
        replace(totals, cluster="a b")


def test_a_producer_of_another_cluster_needs_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """PENSTOCK_KAFKA is the main cluster, so it is never used for another one."""
    monkeypatch.setenv("PENSTOCK_KAFKA", "localhost:1")
    with pytest.raises(
        BusError, match=r'on cluster billing, and PENSTOCK_KAFKA names the main cluster.*`kafka="HOST:PORT"`'
    ):
        ps.Producer(totals)
    both: list[ps.Category[ps.Record]] = [totals, large]  # type: ignore[list-item]  # a producer of unrelated records
    with pytest.raises(DeclarationError, match="totals on billing, large on the main cluster"):
        ps.Producer(*both, kafka="localhost:1")


APP = """
import penstock as ps

class Reading(ps.Record, frozen=True):
    meter: str
    at: ps.EventTime

readings = ps.Category("readings", Reading, key="meter", event_time="at")
latest = ps.Category("latest", Reading, key="meter", event_time="at", cluster="billing")

class Latest(ps.Stateful):
    reads, writes, state = readings, latest, int
    def process(self, event, state, context):
        return event.at, [event]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with an app and the address of its second cluster; no broker answers."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "penstock.toml").write_text('kafka = "127.0.0.1:1"\n[clusters.billing]\nkafka = "127.0.0.1:2"\n')
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        ["archive", "run", "app.py", "--category", "latest", "--until-end"],
        ["snapshot", "take", "app.py", "--backup", "backups"],
        ["serve", "results", "app.py:Latest"],
    ],
    ids=lambda command: command[0],
)
def test_commands_that_cannot_use_another_cluster_say_so(folder: Path, command: list[str]) -> None:
    """The refusal names the cluster, and comes before any request."""
    with pytest.raises(PenstockError, match="on cluster billing"):
        CliRunner().invoke(penstock_app, command, catch_exceptions=False)


def test_rights_are_granted_on_the_cluster_of_the_category(folder: Path) -> None:
    """A worker writes outputs and schemas to the other cluster, and needs everything else on the main one."""
    grants = json.loads(CliRunner().invoke(penstock_app, ["acls", "app.py", "--json"]).stdout)
    by_cluster = {
        cluster: {grant["name"] for grant in grants if grant["role"] == "worker" and grant["cluster"] == cluster}
        for cluster in (None, "billing")
    }
    printed = CliRunner().invoke(penstock_app, ["acls", "app.py", "--kafka", "main:9092"]).stdout.splitlines()

    assert by_cluster["billing"] == {"latest", SCHEMAS.name, "penstock-"}
    assert by_cluster[None] == {"readings", "latest.dead_letters", "penstock.", "latest", "penstock-"}
    assert all("127.0.0.1:2" in line for line in printed if "--topic latest " in f"{line} ")
    assert all("main:9092" in line for line in printed if "--topic readings" in line)


def test_a_worker_says_which_cluster_does_not_answer(site: Site) -> None:
    """Its reports name the other cluster; only its health can name the home cluster, which transports the reports."""
    worker, monitor = site.worker(), LoopMonitor()
    site.send(Reading("a", YEAR_2100_MS, 1))
    site.work(worker)

    def named(*, home: bool, billing: bool) -> tuple[str | None, str]:
        site.home_switch.is_cut, site.billing_switch.is_cut = home, billing
        site.read_some(worker, CHECK_EVERY_S)
        monitor.record_turn(worker)
        return worker.wait and worker.wait.name, monitor.health().waits_for

    assert named(home=False, billing=False) == (None, "")
    assert named(home=False, billing=True) == ("the Kafka cluster billing",) * 2
    assert named(home=False, billing=False) == (None, "")
    assert named(home=True, billing=False) == (None, "Kafka")
    assert named(home=False, billing=False) == (None, "")
