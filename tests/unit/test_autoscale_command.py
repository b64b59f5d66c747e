"""`penstock autoscale`: rejected options, and reports without --apply."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.deployed import on_a_cluster, stored_versions, version_of
from support.statuses import NODE, report, shard_report
from typer.testing import CliRunner, Result

from penstock.ops.deploy import DeploymentFiles, NotDeployed, find_deployment
from penstock.ops.deploy.registry import DesiredState
from penstock.ops.deploy.version import PodSettings
from penstock.ops.kernel import REPORTS, Node
from penstock.ops.kernel.telemetry.reports import report_message
from penstock.ops.shell.command_line.main import app
from penstock.ops.status.commands import autoscale as autoscale_command
from penstock.processors import PenstockError
from penstock.processors.apps import Contents
from penstock.transport import BusUnreachable, CategorySpec, Outgoing, create_missing_categories
from penstock.transport.memory import MemoryBus

TOTALS = replace(NODE, name="totals")
BACKLOG_AGE_MS = 600_000


class ObservedBus(MemoryBus):
    """A bus with the backlog of a slow worker. It stops the command after some observations, and may fail at one of them."""

    def __init__(self, observations: int, fails_at: int | None = None) -> None:
        self.clock_offset_ms = BACKLOG_AGE_MS
        super().__init__(lambda: time.time_ns() // 1_000_000 - self.clock_offset_ms)
        self._remaining, self._fails_at = observations, fails_at
        self.create(CategorySpec("enriched", 4))
        for number in range(100):
            self.append("enriched", Outgoing(b"k", b"v", number % 4))
        self.clock_offset_ms = 0
        create_missing_categories(self, REPORTS)

    def work(self, node: Node = TOTALS) -> None:
        """Report a worker that reads ten events per second."""
        now_ms = time.time_ns() // 1_000_000
        for at_ms, events in ((now_ms - 2_000, 10), (now_ms, 30)):
            shards = tuple(shard_report(n, events // 4, at_ms) for n in range(4))
            self.append(REPORTS.name, report_message(report(at_ms, events, node=node, shards=shards)))

    def names(self) -> list[str]:
        if self._remaining - 1 == self._fails_at:
            self._remaining -= 1
            raise BusUnreachable("No broker answers.")
        return super().names()

    def committed(self, group: str, name: str) -> dict[int, int]:
        self._remaining -= 1
        if not self._remaining:
            signal.raise_signal(signal.SIGTERM)
        return super().committed(group, name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a deployment of one worker."""
    stored_versions(tmp_path, 1).save_desired_state(DesiredState(1, (1,)))
    return tmp_path


def autoscale(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["autoscale", *arguments, "--dir", str(folder), "--kafka", "unreachable:9"])


def error_of(folder: Path, *arguments: str) -> str:
    error = autoscale(folder, *arguments).exception
    assert isinstance(error, PenstockError)
    return str(error)


def test_contradictory_limits_are_rejected(folder: Path) -> None:
    """A catch-up time of zero is rejected, too."""
    assert "--min 3 must not be greater than --max 2" in error_of(folder, "totals", "--min", "3", "--max", "2")
    assert "--catch-up 0s must be greater than zero" in error_of(folder, "totals", "--catch-up", "0s")


@pytest.mark.parametrize("option", ["--lag", "--catch-up", "--scale-up-after", "--scale-down-after"])
def test_an_invalid_duration_is_a_usage_error(folder: Path, option: str) -> None:
    """The error contains the syntax."""
    done = autoscale(folder, "totals", option, "soon")

    assert done.exit_code == 2
    assert "'soon' is not a duration" in " ".join(done.output.split())


def test_an_unknown_name_is_an_error_with_all_names(folder: Path) -> None:
    """The error precedes any request to Kafka."""
    with pytest.raises(NotDeployed, match=r"scorer is not deployed from .*Deployed are: totals"):
        raise autoscale(folder, "scorer").exception or AssertionError


def test_on_kubernetes_keda_scales(tmp_path: Path) -> None:
    """Two autoscalers would undo each other's decisions."""
    files = DeploymentFiles(tmp_path, "totals")
    files.add_version(on_a_cluster(version_of(tmp_path, 1), PodSettings("image")), Contents({}))
    files.save_desired_state(DesiredState(1, (1,)))

    assert "KEDA" in error_of(tmp_path, "totals", "--apply")


def test_without_apply_decisions_are_only_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each report contains the figures and the number of workers. An outage is logged once."""
    bus = ObservedBus(observations=4, fails_at=2)
    bus.work()
    monkeypatch.setattr(autoscale_command, "connect", lambda *_: bus)
    done = autoscale(folder, "totals", "--json", "--scale-up-after", "0s", "--every", "0.5")
    first, last = map(json.loads, done.stdout.splitlines()[::2])

    assert done.exit_code == 0
    assert "Decisions are only reported. Use --apply to apply them." in done.stderr
    assert caplog.text.count("Kafka does not answer") == caplog.text.count("Kafka answers again") == 1
    assert (first["workers"], first["decided"], "First status" in first["reason"]) == (1, 1, True)
    assert (last["name"], last["workers"], last["decided"]) == ("totals", 1, 2)
    assert "10 are read, 100 wait" in last["reason"]
    assert find_deployment(folder, "totals").workers == 1


def test_missing_reports_are_noted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of other processors do not count."""
    bus = ObservedBus(observations=1)
    bus.work(NODE)
    monkeypatch.setattr(autoscale_command, "connect", lambda *_: bus)

    assert "none of its workers has reported on this Kafka cluster yet" in autoscale(folder, "totals", "--apply").stderr
