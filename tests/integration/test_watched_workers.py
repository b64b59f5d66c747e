"""Monitoring of real workers on a real broker, from the command line."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.cli import Cli
from support.meters import APP, readings

from penstock.ops.start.dev_services.services import running_kafka


@pytest.fixture
def hook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An HTTP receiver: its address, and the notifications that it received."""
    received: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()


def test_a_killed_worker_raises_an_alert(
    cli: Cli, app: Path, prefix: str, wait_until: Callable[..., None], hook: tuple[str, list[dict[str, Any]]]
) -> None:
    """Status, metrics, alerts and graph show the worker, its loss and its restart; the webhook receives one notification of each rule."""
    url, received = hook
    with app.open("a") as file:
        file.write(
            '\nunattended = ps.Alert("unattended", "workers", below=1, duration=__import__("datetime").timedelta(0))\n'
        )
    large = f"{app}:Large"
    cli.ok("category", "create", str(app))
    worker = cli.start("run", large)

    def current_status() -> dict[str, Any]:
        seen: dict[str, Any] = json.loads(cli.ok("status", large, "--json"))["processors"][0]
        return seen

    wait_until(lambda: len(current_status()["workers"]) == 1)
    watch = cli.start("alerts", "run", large, "--every", "0.5", "--webhook", url, "--json")
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(400))
    wait_until(lambda: current_status()["backlog_events"] == 0 and current_status()["events_in_per_s"] > 0)
    running = current_status()
    scraped = {
        (sample.name, sample.labels.get("processor")): sample.value
        for family in text_string_to_metric_families(cli.ok("serve", "metrics", "--once"))
        for sample in family.samples
    }
    worker.send_signal(signal.SIGKILL)
    worker.communicate()
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(40, start=400))
    wait_until(lambda: any(notice["rule"] == "unattended" for notice in received))
    raised = json.loads(cli.ok("alerts", "list", "--json"))["alerts"]
    shown = cli.ok("status", large)
    wait_until(lambda: any(notice["rule"] == "lost" for notice in received))
    notified = list(received)  # the alerts resolve after the restart
    assert sorted(notice["rule"] for notice in notified) == ["lost", "unattended"]
    again = cli.start("run", large)
    wait_until(lambda: bool(current_status()["workers"][0]["restarts"]))
    drawn = cli.ok("status", large, "--graph", "text")
    for process in (again, watch):
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)

    assert sorted({shard["owner"] for shard in running["shards"]}) == [running["workers"][0]["worker"]]
    assert scraped["penstock_workers", f"{prefix}.large"] == 1
    assert 0 < running["workers"][0]["disk_free_share"] < 1
    assert 0 < scraped["penstock_disk_free_share", f"{prefix}.large"] < 1
    assert {(notice["processor"], notice["status"]) for notice in notified} == {(f"{prefix}.large", "firing")}
    assert ("unattended", True) in {(one["rule"], one["firing"]) for one in raised}
    assert "has not reported for" in shown
    assert "backlog is 40 events" in shown
    assert f"[{prefix}.large]  1 worker" in drawn


def test_a_processor_that_never_ran_is_shown_with_its_lag(cli: Cli, app: Path, prefix: str) -> None:
    """Status reports that no worker runs it."""
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(10))
    shown = cli.ok("status", str(app))

    assert "No worker runs it, and its backlog is 10 events" in shown
    assert cli("alerts", "silence", "--end", "nothing").returncode == 1


def test_status_shows_what_standbys_can_take_over(
    cli: Cli, app: Path, prefix: str, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    """Two machines share four buckets. Each can take over the other's two from a copy, or from its own earlier state."""
    totals, options = f"{app}:Totals", ("--backup", str(tmp_path / "backups"), "--backup-every", "1", "--standby")
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.large", "--app", str(app), stdin=readings(400))
    cli.start("run", totals, "--dir", str(tmp_path / "left"), *options)

    def workers() -> list[tuple[int, int]]:
        [seen] = json.loads(cli.ok("status", totals, "--json"))["processors"]
        return [(len(worker["buckets"]), worker["standby_shards"]) for worker in seen["workers"]]

    wait_until(lambda: workers() == [(4, 0)])
    cli.start("run", totals, "--dir", str(tmp_path / "right"), *options)
    wait_until(lambda: workers() == [(2, 2), (2, 2)])
    assert cli.ok("status", totals, "--workers").count("2 shards") == 2


RULES = """
unattended = ps.Alert("unattended", "workers", below=1, duration=__import__("datetime").timedelta(0))
not_running = ps.Alert("not running", "not_running", above=0, duration=__import__("datetime").timedelta(0))
"""


@pytest.mark.exhaustive
def test_monitoring_continues_through_an_outage_of_kafka(
    tmp_path: Path, wait_until: Callable[..., None], hook: tuple[str, list[dict[str, Any]]]
) -> None:
    """Notifications report the outage, its end, and the problems after it."""
    url, received = hook
    bus, path = tmp_path / "bus", tmp_path / "app.py"
    path.write_text(APP.replace("{prefix}", "away") + RULES)
    with ExitStack() as ending:
        with running_kafka(bus) as bootstrap:
            cli = Cli(bootstrap, tmp_path)
            ending.callback(cli.end_all)
            cli.ok("category", "create", str(path))
            often = ("--every", "0.5", "--unreachable-after", "1s")
            watch = cli.start("alerts", "run", f"{path}:Large", *often, "--webhook", url)
            wait_until(lambda: len(received) == 1)
        wait_until(lambda: len(received) == 2)
        with running_kafka(bus):
            wait_until(lambda: len(received) == 3)
            cli.ok("category", "send", "away.readings", "--app", str(path), stdin=readings(10))
            wait_until(lambda: len(received) == 4)
            watch.send_signal(signal.SIGTERM)
            errors = watch.communicate(timeout=60)[1]

    assert [(notice["status"], notice["rule"]) for notice in received] == [
        ("firing", "unattended"),
        ("firing", "kafka unreachable"),
        ("resolved", "kafka unreachable"),
        ("firing", "not running"),
    ]
    assert watch.returncode == 0
    assert "No Kafka broker answers" in received[1]["message"]
    assert "answers again" in received[2]["message"]
    assert errors.count("WARNING Kafka does not answer") == errors.count("WARNING Kafka answers again") == 1
