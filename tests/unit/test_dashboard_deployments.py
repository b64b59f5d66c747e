"""What the dashboard shows of deployments: logs, versions, and the moments at which they changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from support.deployed import on_a_cluster, stored_versions, version_of
from support.statuses import NOW_MS, cluster_status, processor_status, shard_status, worker_status

from penstock.ops.deploy.registry import DesiredState
from penstock.ops.deploy.version import PodSettings
from penstock.ops.http import Access
from penstock.ops.serve.commands.server_options import DASHBOARD
from penstock.ops.serve.dashboard.broadcast import Broadcaster
from penstock.ops.serve.dashboard.deployment import LINE_LIMIT
from penstock.ops.serve.dashboard.history import History, Sample
from penstock.ops.serve.dashboard.poller import PolledStatus
from penstock.ops.serve.dashboard.site import MAX_LIMIT, SiteContent, create_site
from penstock.ops.status import status_to_json
from penstock.processors.apps import Contents
from penstock.transport.memory import MemoryBus


class NeverPolled:
    """A source that no test starts."""

    def poll(self) -> PolledStatus:
        raise AssertionError

    def close(self) -> None:
        return


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of a dashboard for the deployments of a folder."""
    with closing(Broadcaster(NeverPolled())) as broadcaster:
        site = create_site(SiteContent(MemoryBus(), None, tmp_path, "a title"), broadcaster, Access(DASHBOARD))
        yield TestClient(site, base_url="http://127.0.0.1:8710")


def deploy(folder: Path, *, failed: tuple[int, ...] = ()) -> Path:
    """Deploy version 3 of three versions of totals, and return the folder of its logs."""
    stored_versions(folder, 1, 2, 3).save_desired_state(DesiredState(3, (3, 3), failed))
    logs = folder / "logs" / "totals"
    logs.mkdir(parents=True)
    return logs


def test_logs_are_those_of_the_command(client: TestClient, tmp_path: Path) -> None:
    """The page shows the last lines of all workers or of one, in the order of time, with control characters escaped."""
    logs = deploy(tmp_path)
    (logs / "0-0.log").write_text("2026-11-25 10:00:01 WARNING a\n2026-11-25 10:00:03 ERROR \x1b[31mc\n")
    (logs / "1-1.log").write_text("2026-11-25 10:00:02 WARNING b\n")
    everything = client.get("/api/processors/totals/logs").json()
    one = client.get("/api/processors/totals/logs?worker=1&limit=5").json()

    assert everything["workers"] == [0, 1]
    assert [line["worker"] for line in everything["lines"]] == [0, 1, 0]
    assert everything["lines"][-1]["text"].endswith("ERROR \\x1b[31mc")
    assert [line["worker"] for line in one["lines"]] == [1]
    assert client.get("/api/processors/totals/logs?limit=1").json()["lines"][0]["text"].endswith("c")


def test_logs_are_bounded(client: TestClient, tmp_path: Path) -> None:
    """No request gets more than a maximum of lines, and long lines are cut."""
    logs = deploy(tmp_path)
    (logs / "0-0.log").write_text("x" * 3 * LINE_LIMIT + "\n" + "short\n" * 2 * MAX_LIMIT)
    found = client.get("/api/processors/totals/logs?limit=100000").json()["lines"]
    (logs / "0-0.log").write_text("x" * 3 * LINE_LIMIT)
    [long] = client.get("/api/processors/totals/logs").json()["lines"]

    assert len(found) == MAX_LIMIT
    assert long["text"] == f"{'x' * LINE_LIMIT} … {2 * LINE_LIMIT:,} more characters"


def test_no_path_leads_out_of_the_logs(client: TestClient, tmp_path: Path) -> None:
    """A name is one of a deployment, and nothing else is read."""
    deploy(tmp_path)
    (tmp_path / "0-0.log").write_text("secret\n")
    for name in ("..", "%2e%2e", "../..", "totals/..", "..%2f..%2flogs"):
        answer = client.get(f"/api/processors/{name}/logs")

        assert "secret" not in answer.text


def test_missing_logs_are_explained(client: TestClient, tmp_path: Path) -> None:
    """The processor is not deployed here, has logged nothing, or runs on a cluster."""
    unknown = client.get("/api/processors/totals/logs").json()["message"]
    deploy(tmp_path)
    silent = client.get("/api/processors/totals/logs").json()["message"]
    files = stored_versions(tmp_path)
    on_cluster = on_a_cluster(version_of(tmp_path, 4), PodSettings("image"))
    files.add_version(on_cluster, Contents({"app.py": tmp_path / "app.py"}))
    files.save_desired_state(DesiredState(4, (4,)))
    elsewhere = client.get("/api/processors/totals/logs").json()["message"]

    assert "is not deployed from" in unknown
    assert "have logged nothing" in silent
    assert "on Kubernetes. `penstock logs totals`" in elsewhere


def test_versions_are_those_of_the_deployment(client: TestClient, tmp_path: Path) -> None:
    """The newest version comes first. The current and the failed ones are marked."""
    assert client.get("/api/processors/totals/versions").json() == {"versions": []}
    deploy(tmp_path, failed=(2,))
    versions = client.get("/api/processors/totals/versions").json()["versions"]

    assert [(version["number"], version["status"]) for version in versions] == [(3, "runs"), (2, "failed"), (1, "")]
    assert versions[0]["by"] == "ann"
    assert versions[0]["time_ms"] == 1_700_000_000_003


def test_the_history_records_the_version_that_started_last() -> None:
    """During an update it is the new version, and after a rollback the old one. A worker that a user started has no version."""
    older = worker_status("0", deployment="totals@2", started_ms=NOW_MS - 60_000)
    newer = worker_status("1", deployment="totals@3", started_ms=NOW_MS - 1_000)
    back = worker_status("1", deployment="totals@2", started_ms=NOW_MS)
    ended = worker_status("1", deployment="totals@9", started_ms=NOW_MS, end_reason="stopped")
    history = History()
    for number, workers in enumerate([(older,), (older, newer), (older, back), (older, ended), (worker_status(),)]):
        status = cluster_status(processor_status(shard_status(0), workers=workers), at_ms=NOW_MS + number)
        history.add(Sample.of(status))

    assert history.to_json()["processors"]["scorer"]["version"] == [2, 3, 2, 2, None]
    both = cluster_status(processor_status(shard_status(0), workers=(older, newer)))
    assert status_to_json(both)["processors"][0]["versions"] == (3, 2)
