"""Deployments on a real broker under a real supervisord: under load, with good and bad versions."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from support.cli import Cli
from support.feeding import Feeding
from support.meters import readings
from support.plain import values
from typer.testing import CliRunner, Result

from penstock.ops.deploy import DeploymentFiles, NotDeployed, all_deployments, find_deployment
from penstock.ops.deploy.deployment_status import DeploymentStatus, deployment_status
from penstock.ops.deploy.errors import NameTaken, UpdateFailed
from penstock.ops.shell.command_line.main import app
from penstock.ops.start import Daemon
from penstock.transport.kafka import KafkaBus

METERS = 7
LIMIT_S = 120.0

APP = """
import penstock as ps

class Reading(ps.Record, frozen=True):
    meter: str
    at: ps.EventTime
    litres: int

class Total(ps.Record, frozen=True):
    meter: str
    at: ps.EventTime
    litres: int
    readings: int

readings = ps.Category("{prefix}.readings", Reading, key="meter", event_time="at", buckets=4)
totals = ps.Category("{prefix}.totals", Total, key="meter", event_time="at", buckets=4)

class State(ps.Record, frozen=True):
    litres: int = 0
    readings: int = 0

class Totals(ps.Stateful):
    name = "{prefix}.totals"
    reads, writes, state = readings, totals, State
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def process(self, event, state, context):
        state = state or State()
        state = State(state.litres + event.litres, state.readings + 1)
        return state, [Total(event.meter, event.at, state.litres, state.readings)]
"""


def readings_from(begin: int) -> list[tuple[str, str]]:
    """Return the keys and values of twenty readings."""
    return [(json.loads(line)["meter"], line) for line in readings(20, start=begin).splitlines()]


@pytest.fixture
def dir_(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose path is longer than a socket's may be; its deployments are stopped at the end."""
    folder = tmp_path_factory.mktemp("dir") / ("a-name-that-is-rather-long" * 5)
    folder.mkdir()
    yield folder
    Daemon("supervisord", folder / "supervisor").stop(limit_s=60)


@pytest.fixture
def totals(cli: Cli, kafka: str, prefix: str, dir_: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An app of one processor, on existing categories; commands run in its folder."""
    monkeypatch.setenv("PENSTOCK_DIR", str(dir_))
    monkeypatch.setenv("PENSTOCK_KAFKA", kafka)
    path = cli.folder / "totals.py"
    path.write_text(APP.replace("{prefix}", prefix))
    penstock("category", "create", str(path))
    return path


def penstock(*arguments: str, answer: str | None = None) -> Result:
    """Run a command in this process to save time; errors for the user are raised."""
    done = CliRunner().invoke(app, arguments, input=answer)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def expect_each_counted_once(kafka: str, prefix: str, sent: int) -> None:
    """Compare the totals with all sent readings: for each meter the reading numbers in order, without a gap, and their sum."""
    found = values(kafka, f"{prefix}.totals")
    for meter in range(METERS):
        litres = [n % 25 for n in range(sent) if n % METERS == meter]
        own = [total for total in found if total["meter"] == f"m{meter}"]
        assert [total["readings"] for total in own] == list(range(1, len(litres) + 1))
        assert own[-1]["litres"] == sum(litres)


def seen(folder: Path, name: str) -> DeploymentStatus:
    """Return the status of a deployment."""
    return deployment_status(folder, find_deployment(folder, name))


def run_by(folder: Path, name: str) -> list[int | None]:
    """Return the version of each worker, when all are ready: one may answer late, or wait for its buckets in a rebalance."""
    deadline_s = time.monotonic() + LIMIT_S
    while (found := seen(folder, name)).ready < len(found.workers):
        assert time.monotonic() < deadline_s, found.problems
        time.sleep(0.1)
    return [worker.version for worker in found.workers]


def test_deployments_under_load_count_each_reading_once(
    totals: Path, dir_: Path, prefix: str, kafka: str, kafka_bus: KafkaBus, wait_until: Callable[..., None]
) -> None:
    """The steps are deploy, scale up, update, fail an update, scale down, roll back and take down."""
    name, good = f"{prefix}.totals", totals.read_text()
    with Feeding(kafka, f"{prefix}.readings", readings_from, every_s=0.02) as feeding:
        penstock("deploy", str(totals))
        penstock("scale", name, "--workers", "2")
        assert run_by(dir_, name) == [1, 1]

        totals.write_text(good + "\n# second\n")
        penstock("deploy", str(totals))
        assert run_by(dir_, name) == [2, 2]

        totals.write_text(good.replace("state = state or State()", "raise ValueError('third')"))
        with pytest.raises(UpdateFailed) as failed:
            penstock("deploy", str(totals))
        for words in (f"{name}@3 ended right after", "ValueError: third", f"{name}@2 was restored"):
            assert words in str(failed.value)
        assert run_by(dir_, name) == [2, 2]

        penstock("scale", name, "--workers", "1")
        penstock("rollback", name)
        assert run_by(dir_, name) == [1]
        feeding.stop()

        def done() -> bool:
            committed = kafka_bus.catalog.committed(name, f"{prefix}.readings")
            return sum(committed.values()) == feeding.sent

        wait_until(done)
    penstock("undeploy", name)

    expect_each_counted_once(kafka, prefix, feeding.sent)
    assert all_deployments(dir_) == []
    with pytest.raises(NotDeployed):
        penstock("undeploy", name)


def test_other_users_cannot_read_a_deployment(
    totals: Path, dir_: Path, prefix: str, kafka: str, wait_until: Callable[..., None]
) -> None:
    """State, code, logs and the supervisor's socket are in closed folders, even with a umask that closes nothing."""
    before = os.umask(0)
    try:
        penstock("deploy", str(totals))
    finally:
        os.umask(before)
    state = dir_ / "state" / f"{prefix}.totals"
    wait_until(lambda: list(state.glob("*/*/CURRENT")))
    penstock("undeploy", f"{prefix}.totals")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in dir_.iterdir() if path.is_dir()}

    assert modes == dict.fromkeys(("deployments", "logs", "state", "supervisor"), 0o700)


def test_a_purged_processor_starts_from_the_beginning(
    totals: Path, dir_: Path, prefix: str, kafka_bus: KafkaBus, wait_until: Callable[..., None]
) -> None:
    """Purge removes its data on this machine, in the backup store and on the bus, also after a kill."""
    name, backups = f"{prefix}.totals", dir_ / "backups"
    dry = penstock("deploy", str(totals), "--dry-run", "--workers", "6")
    assert f"[program:{name}@5]" in dry.stdout
    assert "2 of 6 workers will stand by" in " ".join(dry.stderr.split())
    assert all_deployments(dir_) == []
    penstock("deploy", str(totals), "--backup", str(backups))
    killed = DeploymentFiles(dir_, name).last_start(0)
    assert killed is not None
    os.kill(killed.pid, signal.SIGKILL)
    wait_until(lambda: DeploymentFiles(dir_, name).last_start(0) != killed and seen(dir_, name).ready == 1)
    other = dir_ / totals.name
    other.write_text(totals.read_text())
    with pytest.raises(NameTaken):
        penstock("deploy", str(other))
    assert "is deployed already" in penstock("deploy", str(totals), "--backup", str(backups)).stderr
    assert penstock("undeploy", name, "--purge", answer="n\n").exit_code == 1
    assert run_by(dir_, name) == [1]
    penstock("undeploy", name, "--purge", "--yes")

    assert kafka_bus.catalog.committed(name, f"{prefix}.readings") == {}
    assert f"{name}.dead_letters" not in kafka_bus.catalog.names()
    for left in (dir_ / "state" / name, dir_ / "logs" / name, dir_ / "deployments" / name):
        assert not left.exists()
    assert [path for path in backups.rglob("*") if path.is_file()] == []


def test_autoscaling_follows_the_load(
    totals: Path,
    dir_: Path,
    prefix: str,
    kafka: str,
    kafka_bus: KafkaBus,
    cli: Cli,
    wait_until: Callable[..., None],
) -> None:
    """A slow deployment gains workers up to its maximum and loses them when the backlog is processed; each reading counts once."""
    name, sent = f"{prefix}.totals", 12_000
    slow = totals.read_text().replace("state = state or", "time.sleep(0.002)\n        state = state or")
    totals.write_text(f"import time\n{slow}")
    penstock("deploy", str(totals))
    often = ("--lag", "1s", "--catch-up", "2s", "--scale-up-after", "1s", "--scale-down-after", "1s", "--every", "0.5")
    scaling = cli.start("autoscale", name, "--apply", "--json", "--max", "3", *often, PENSTOCK_DIR=str(dir_))
    decisions: list[dict[str, Any]] = []

    def listen() -> None:
        for line in scaling.stdout or ():
            decisions.extend([json.loads(line)])

    listening = Thread(target=listen, daemon=True)
    listening.start()
    wait_until(lambda: bool(decisions))  # the worker could process all events before the command has started
    producer = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2_random"})
    for line in readings(sent).splitlines():
        producer.produce(f"{prefix}.readings", line, json.loads(line)["meter"])
    producer.flush()

    def is_over() -> bool:
        return len(decisions) > 1 and decisions[-1]["workers"] == 1 and any(one["workers"] > 1 for one in decisions)

    # On a busy machine, more workers may not help, and are removed while events still wait.
    wait_until(lambda: sum(kafka_bus.catalog.committed(name, f"{prefix}.readings").values()) == sent, 600)
    wait_until(is_over)
    scaling.send_signal(signal.SIGTERM)
    assert scaling.wait(60) == 0
    listening.join()
    penstock("undeploy", name)

    numbers = [number for number, _ in groupby(one["workers"] for one in decisions)]
    if any("more do not help" in one["reason"] for one in decisions):
        assert (numbers[0], numbers[-1], max(numbers) <= 3) == (1, 1, True)
    else:  # one more worker at a time if the workers mostly wait, and the required number if a processor limits them
        assert numbers in ([1, 2, 3, 2, 1], [1, 2, 1], [1, 3, 2, 1])
    reasons = [one["reason"] for one in decisions if one["decided"] > one["workers"]]
    assert all("events/s arrive" in reason and "wait, the oldest for" in reason for reason in reasons)
    expect_each_counted_once(kafka, prefix, sent)


def owners(kafka: str, group: str) -> dict[str, frozenset[int]]:
    """Return the buckets of each member of a group, by the end of its name."""
    admin = AdminClient({"bootstrap.servers": kafka})
    members = admin.describe_consumer_groups([group])[group].result(timeout=60).members
    return {
        str(member.group_instance_id).partition("-")[2]: frozenset(
            p.partition for p in member.assignment.topic_partitions
        )
        for member in members
    }


def test_no_operation_takes_a_bucket_from_its_worker(
    totals: Path,
    dir_: Path,
    prefix: str,
    kafka: str,
    kafka_bus: KafkaBus,
    wait_until: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker stays a member of its group after a deploy, a kill, and a supervisor's repair. A removed one leaves at once."""
    # On a busy machine, a worker may need longer than a usual session to start again.
    configuration = dir_ / "penstock.toml"
    configuration.write_text('[kafka-settings]\n"session.timeout.ms" = 300000\n')
    monkeypatch.setenv("PENSTOCK_CONFIG", str(configuration))
    name, files, code = f"{prefix}.totals", DeploymentFiles(dir_, f"{prefix}.totals"), totals.read_text()
    supervisor = Daemon("supervisord", dir_ / "supervisor")
    with Feeding(kafka, f"{prefix}.readings", readings_from, every_s=0.02) as feeding:
        penstock("deploy", str(totals), "--workers", "3")
        penstock("scale", name, "--workers", "2")
        assert owners(kafka, name).keys() == {"numbered-0", "numbered-1"}
        wait_until(lambda: sorted(map(len, owners(kafka, name).values())) == [2, 2])
        before = owners(kafka, name)
        killed = files.last_start(1)
        assert killed is not None
        os.kill(killed.pid, signal.SIGKILL)
        wait_until(lambda: files.last_start(1) != killed and seen(dir_, name).ready == 2)
        assert owners(kafka, name) == before

        totals.write_text(f"{code}\n# second\n")
        penstock("deploy", str(totals))
        assert (run_by(dir_, name), owners(kafka, name)) == ([2, 2], before)

        process = supervisor.process()
        assert process is not None
        process.kill()
        process.wait(90)
        orphans = [psutil.Process(worker.pid) for worker in map(files.last_start, range(2)) if worker is not None]
        penstock("scale", name, "--workers", "2")
        while any(map(psutil.Process.is_running, orphans)):
            assert owners(kafka, name) == before
        wait_until(lambda: seen(dir_, name).ready == 2)
        assert owners(kafka, name) == before
        feeding.stop()
        wait_until(lambda: sum(kafka_bus.catalog.committed(name, f"{prefix}.readings").values()) == feeding.sent)
    repaired = supervisor.process()
    assert repaired is not None
    repaired.kill()
    repaired.wait(90)
    penstock("scale", name, "--workers", "2")
    penstock("undeploy", name)  # while the workers of the killed supervisor still run

    assert owners(kafka, name) == {}
    expect_each_counted_once(kafka, prefix, feeding.sent)
    totals.write_text(f"{code}\n# third\n")
    assert "start 2 workers" in penstock("deploy", str(totals), "--dry-run").stderr


def test_a_killed_supervisor_is_reported_with_the_workers_that_it_left(
    totals: Path, prefix: str, dir_: Path, wait_until: Callable[..., None]
) -> None:
    """The state follows each step: running, unsupervised, lost, running again by the suggested command, stopped and purged."""
    name = f"{prefix}.totals"

    def current() -> dict[str, Any]:
        status: dict[str, Any] = json.loads(penstock("status", "--json").stdout)
        return status

    def state() -> str:
        return str(next(each["state"] for each in current()["processors"] if each["processor"] == name))

    def message() -> str:
        return " ".join(each["message"] for each in current()["findings"] if each["processor"] == name)

    penstock("deploy", str(totals), "--workers", "1")
    wait_until(lambda: state() == "running")
    [worker] = seen(dir_, name).workers
    assert worker.pid is not None
    supervisor = Daemon("supervisord", dir_ / "supervisor").process()
    assert supervisor is not None
    supervisor.kill()
    supervisor.wait(90)
    wait_until(lambda: state() == "unsupervised" and seen(dir_, name).ready == 1)
    advice = f"penstock scale {name} --workers 1"
    assert advice in message()
    left = seen(dir_, name)
    assert (left.ready, left.workers[0].pid) == (1, worker.pid)
    assert "Worker 0 has no running supervisor" in left.problems[0]
    os.kill(worker.pid, signal.SIGKILL)
    wait_until(lambda: state() == "lost")
    assert advice in message()
    penstock("scale", name, "--workers", "1")
    wait_until(lambda: state() == "running")
    penstock("undeploy", name)
    wait_until(lambda: state() == "stopped")
    penstock("undeploy", name, "--purge", answer="y")

    assert state() == "purged"
    assert message() == ""
