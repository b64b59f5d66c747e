"""`penstock autoscale`: what it refuses, and what it says while it only looks."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.deployed import on_a_cluster, stored_versions, version_of
from support.pictures import NODE, report
from typer.testing import CliRunner, Result

from penstock.ops.cli import autoscale as autoscale_command
from penstock.ops.cli.main import app
from penstock.ops.deploy.errors import NotDeployed
from penstock.ops.deploy.registry import DeploymentFiles, DesiredState, find_deployment
from penstock.ops.deploy.version import PodSettings
from penstock.ops.monitoring.reports import REPORTS, Node, ShardReport, outgoing
from penstock.processors.declare.app_files import Contents
from penstock.processors.errors import PenstockError
from penstock.transport.category_spec import CategorySpec
from penstock.transport.errors import BusUnreachable
from penstock.transport.internal_topics import create_missing_categories
from penstock.transport.memory import MemoryBus
from penstock.transport.messages import Outgoing

TOTALS = replace(NODE, name="totals")
WAITED_MS = 600_000


class Looked(MemoryBus):
    """Holds events of a worker that is too slow; told to end after some looks, at one of which it may not answer."""

    def __init__(self, looks: int, silent_at: int | None = None) -> None:
        self.behind_ms = WAITED_MS
        super().__init__(lambda: time.time_ns() // 1_000_000 - self.behind_ms)
        self._left, self._silent_at = looks, silent_at
        self.create(CategorySpec("enriched", 4))
        for number in range(100):
            self.append("enriched", Outgoing(b"k", b"v", number % 4))
        self.behind_ms = 0
        create_missing_categories(self, REPORTS)

    def work(self, node: Node = TOTALS) -> None:
        """Report as a worker that reads ten events a second."""
        now_ms = time.time_ns() // 1_000_000
        for at_ms, events in ((now_ms - 2_000, 10), (now_ms, 30)):
            shards = tuple(ShardReport(n, {"enriched": 0}, events // 4, 0, at_ms) for n in range(4))
            self.append(REPORTS.name, outgoing(report(at_ms, events, node=node, shards=shards)))

    def names(self) -> list[str]:
        if self._left - 1 == self._silent_at:
            self._left -= 1
            raise BusUnreachable("Nobody is there.")
        return super().names()

    def committed(self, group: str, name: str) -> dict[int, int]:
        self._left -= 1
        if not self._left:
            signal.raise_signal(signal.SIGTERM)
        return super().committed(group, name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder from which a processor is deployed, with one worker."""
    stored_versions(tmp_path, 1).save_desired_state(DesiredState(1, (1,)))
    return tmp_path


def autoscale(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["autoscale", *arguments, "--dir", str(folder), "--kafka", "nobody:9"])


def refused(folder: Path, *arguments: str) -> str:
    error = autoscale(folder, *arguments).exception
    assert isinstance(error, PenstockError)
    return str(error)


def test_bounds_that_exclude_one_another_are_refused(folder: Path) -> None:
    """As is a time in which nothing can be done."""
    assert "--min 3 must not be greater than --max 2" in refused(folder, "totals", "--min", "3", "--max", "2")
    assert "--catch-up 0s must be greater than zero" in refused(folder, "totals", "--catch-up", "0s")


@pytest.mark.parametrize("option", ["--lag", "--catch-up", "--more-after", "--fewer-after"])
def test_what_is_no_span_of_time_is_wrong_usage(folder: Path, option: str) -> None:
    """It says how one is written."""
    done = autoscale(folder, "totals", option, "soon")

    assert done.exit_code == 2
    assert "'soon' is not a duration" in " ".join(done.output.split())


def test_what_is_not_deployed_is_named_with_what_is(folder: Path) -> None:
    """Before anybody is asked."""
    with pytest.raises(NotDeployed, match=r"scorer is not deployed from .*Deployed are: totals"):
        raise autoscale(folder, "scorer").exception or AssertionError


def test_on_a_cluster_another_does_it_already(tmp_path: Path) -> None:
    """Two would undo each other's work; looking does no harm."""
    files = DeploymentFiles(tmp_path, "totals")
    files.add_version(on_a_cluster(version_of(tmp_path, 1), PodSettings("image")), Contents({}))
    files.save_desired_state(DesiredState(1, (1,)))

    assert "KEDA" in refused(tmp_path, "totals", "--apply")


def test_without_apply_it_says_what_it_would_do_and_does_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At each look: the figures, and how many workers there would be; what went wrong in between is told."""
    bus = Looked(looks=4, silent_at=2)
    bus.work()
    monkeypatch.setattr(autoscale_command, "connect", lambda *_: bus)
    done = autoscale(folder, "totals", "--json", "--more-after", "0s", "--every", "0.5")
    first, last = map(json.loads, done.stdout.splitlines()[::2])

    assert done.exit_code == 0
    assert "Decisions are only reported. Use --apply to apply them." in done.stderr
    assert caplog.text.count("The bus cannot be asked") == caplog.text.count("The bus answers again") == 1
    assert (first["workers"], first["decided"], "first look" in first["why"]) == (1, 1, True)
    assert (last["name"], last["workers"], last["decided"]) == ("totals", 1, 2)
    assert "10 are read, 100 wait" in last["why"]
    assert find_deployment(folder, "totals").workers == 1


def test_until_a_worker_has_said_something_it_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And waits; what others say is no answer."""
    bus = Looked(looks=1)
    bus.work(NODE)
    monkeypatch.setattr(autoscale_command, "connect", lambda *_: bus)

    assert "none of its workers has reported on this Kafka cluster yet" in autoscale(folder, "totals", "--apply").stderr
