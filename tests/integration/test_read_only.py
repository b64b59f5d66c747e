"""Commands that only read create no topic: they work with read-only rights, on a cluster that Penstock has never used, too."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from support.foreign_brokers import (
    REDPANDA,
    create_by_policy,
    create_nothing,
    permitting,
    refuse_descriptions,
    report_only,
)
from typer.testing import CliRunner, Result

from penstock.ops.serve.dashboard.poller import Poller
from penstock.ops.shell.command_line.main import app
from penstock.ops.start.dev_services.services import running_kafka
from penstock.ops.status import Observer
from penstock.transport import CategorySpec, Outgoing
from penstock.transport.kafka import KafkaBus, KafkaSettings

APP = '''
import penstock as ps

class Reading(ps.Record, frozen=True):
    meter: str
    at: ps.EventTime
    litres: float

def category(name):
    return ps.Category(name, Reading, key="meter", event_time="at", buckets=2)

readings, totals = category("readings"), category("totals")

class Totals(ps.Stateful):
    """Sums each meter."""
    reads, writes, state = readings, totals, float
    output_semantics = ps.Semantics.EXACTLY_ONCE
    deterministic = False
    def process(self, event, state, context):
        total = (state or 0.0) + event.litres
        return total, [Reading(event.meter, event.at, total)]
'''
READINGS = [{"meter": f"m{n % 3}", "at": 1_700_000_000_000 + n, "litres": 1.0} for n in range(12)]
READING_COMMANDS = [
    "status",
    "status {app}",
    "status {app} --graph text",
    "category show",
    "category show other",
    "category tail other --from 0 --no-follow",
    "alerts list",
    "alerts rules",
    "dead-letters show",
    "audit",
    "deployments",
]
"""The commands that a user may run without the right to create topics."""
Penstock = Callable[..., Result]


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[str]:
    """A broker that Penstock has never used, with the category of another program."""
    with running_kafka(tmp_path / "kafka") as bootstrap:
        bus = KafkaBus(KafkaSettings(bootstrap))
        bus.catalog.create(CategorySpec("other", 1))
        with closing(bus.writer()) as writer:
            writer.send("other", [Outgoing(b"key", b'{"a": 1}')])
            writer.flush()
        yield bootstrap


@pytest.fixture
def penstock(fresh: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Penstock:
    """The command line in this process, so that its client's answers can be changed."""
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_KAFKA", fresh)

    def run(line: str, stdin: str = "") -> Result:
        return CliRunner().invoke(app, line.format(app="app.py").split(), input=stdin, catch_exceptions=False)

    return run


def run_app(penstock: Penstock) -> None:
    """Create the app's categories, send events and process them."""
    for line, stdin in (
        ("category create {app}", ""),
        ("category send readings --app {app}", "\n".join(map(json.dumps, READINGS))),
        ("run {app} --until-end", ""),
    ):
        done = penstock(line, stdin)
        assert done.exit_code == 0, f"{line}: {done.output}"


def poll_dashboard(bootstrap: str) -> list[str]:
    """Return the processors that a new dashboard shows."""
    bus = KafkaBus(KafkaSettings(bootstrap))
    with closing(Poller.open(bus, Observer.open(bus))) as poller:
        return [status.node.name for status in poller.poll().cluster.processors]


def test_commands_that_read_create_nothing(fresh: str, penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """They work before the first worker, and beside one that has run; nobody but the app's commands creates a topic."""
    failed = []
    catalog = KafkaBus(KafkaSettings(fresh)).catalog
    for has_run in (False, True):
        if has_run:
            run_app(penstock)
        before = catalog.names()
        with monkeypatch.context() as read_only:
            create_nothing(read_only)
            failed += [(has_run, line, done.output) for line in READING_COMMANDS if (done := penstock(line)).exit_code]
            assert poll_dashboard(fresh) == (["totals"] if has_run else [])
        assert catalog.names() == before
    assert failed == []


def test_an_observer_sees_reports_of_workers_that_start_after_it(fresh: str, penstock: Penstock) -> None:
    """Its categories are empty until the first worker creates them."""
    bus = KafkaBus(KafkaSettings(fresh))
    with closing(Observer.open(bus, now_ms=lambda: round(datetime.now(UTC).timestamp() * 1000))) as observer:
        before = observer.observe()
        run_app(penstock)
        after = observer.observe()

    assert before.processors == ()
    assert [(status.node.name, len(status.workers)) for status in after.processors] == [("totals", 1)]


def few_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report the settings that Redpanda does."""
    report_only(monkeypatch, REDPANDA)


def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse to report any, as to a user without the right."""
    refuse_descriptions(monkeypatch, KafkaError.TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.parametrize("reporting", [few_settings, no_settings])
def test_an_app_runs_on_a_service_that_reports_and_permits_few_settings(
    penstock: Penstock, reporting: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processor has a changelog; its outputs and its status are as on Apache Kafka."""
    reporting(monkeypatch)
    create_by_policy(monkeypatch, permitting("cleanup.policy", "retention.ms"))
    run_app(penstock)
    tail = penstock("category tail totals --from 0 --no-follow --json")
    status = penstock("status --json")
    totals = [json.loads(line)["value"]["litres"] for line in tail.stdout.splitlines()]

    assert sorted(totals) == [1.0] * 3 + [2.0] * 3 + [3.0] * 3 + [4.0] * 3
    assert json.loads(status.stdout)["processors"][0]["backlog_events"] == 0
