"""`penstock serve scuba` and `penstock explore` on a real Kafka."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.cli import Cli
from support.kubectl import is_ready, pod_command
from support.query_site import APP, random_views

from penstock.ops.serve import QueryFailed
from penstock.ops.serve.rows.client import ScubaClient
from penstock.ops.shell import free_port
from penstock.ops.start import Daemon

TOKEN = "a-token-of-the-tests"  # noqa: S105 - of a temporary server
WaitUntil = Callable[[Callable[[], bool]], None]


class ScubaSite:
    """An app with views, and a server of them."""

    def __init__(self, cli: Cli, prefix: str, wait_until: WaitUntil) -> None:
        self.cli, self.table, self._wait_until = cli, f"{prefix}.views", wait_until
        self.app = cli.folder / "site.py"
        self.app.write_text(APP.replace("{prefix}", prefix))
        cli.ok("category", "create", str(self.app))

    def send(self, views: list[dict[str, Any]], *more: str) -> None:
        lines = "".join(json.dumps(view) + "\n" for view in views) + "".join(more)
        self.cli.ok("category", "send", self.table, "--app", str(self.app), stdin=lines)

    def serve(self, *options: str, **environment: str) -> subprocess.Popen[str]:
        """Start a server, and let `penstock explore` ask it."""
        process = self.cli.start(
            "serve", "scuba", self.table, "--app", str(self.app), "--port", "0", *options, **environment
        )
        assert process.stderr is not None
        lines: list[str] = []
        while not (found := re.search(r"at (https?://\S+)", "".join(lines[-1:]))):  # it may log something first
            lines.append(process.stderr.readline())
            assert lines[-1], "".join(lines)
        url = found[1].replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - the address of the test
        self.cli.environment["PENSTOCK_SCUBA"] = url
        self.client = ScubaClient(url, token=environment.get("PENSTOCK_SCUBA_TOKEN"))
        return process

    def rows(self) -> int:
        """Return the number of stored rows."""
        return self.client.tables().tables[0].rows or 0

    def wait_for(self, rows: int) -> None:
        self._wait_until(lambda: self.rows() == rows and self.client.tables().tables[0].lag_events == 0)


def test_events_are_explored_soon_after_they_arrive(cli: Cli, prefix: str, wait_until: WaitUntil) -> None:
    """Events come before and after the start. Queries are options or SQL, with a table, JSON lines or CSV as output."""
    site = ScubaSite(cli, prefix, wait_until)
    views = random_views(400, seed=1)
    site.send(views[:300])
    process = site.serve()
    site.wait_for(300)
    site.send(views[300:])
    site.wait_for(400)
    per_page = Counter(view["page"] for view in views)
    slow = Counter(view["page"] for view in views if view["ms"] > 250)

    lines = cli.ok("explore", "--table", site.table, "--by", "page", "--limit", "30", "--json").splitlines()
    assert {line["page"]: line["count"] for line in map(json.loads, lines)} == per_page
    assert len(lines) == len(per_page)

    options = ["--table", site.table, "--by", "page", "--where", "ms > 250", "--limit", "3", "--csv"]
    rows = list(csv.reader(io.StringIO(cli.ok("explore", *options))))
    assert rows[0] == ["page", "count"]
    assert [int(row[1]) for row in rows[1:]] == sorted(slow.values(), reverse=True)[:3]

    printed = cli("explore", "--table", site.table, "--every", "5m", "--aggregate", "max(ms)")
    assert f"{max(view['ms'] for view in views)}" in printed.stdout
    assert "no lag" in printed.stderr

    sql = f'SELECT page, sum(ms) AS total FROM "{site.table}" GROUP BY page ORDER BY page'
    sums: Counter[str] = Counter()
    for view in views:
        sums[view["page"]] += view["ms"]
    assert [json.loads(line) for line in cli.ok("explore", sql, "--json").splitlines()] == [
        {"page": page, "total": total} for page, total in sorted(sums.items())
    ]

    shown = cli.ok("explore", "--table", site.table, "--rows", "2", "--json").splitlines()
    assert [json.loads(line)["_event_time"] for line in shown] == sorted((view["at"] for view in views), reverse=True)[
        :2
    ]

    refused = cli("explore", "SELECT * FROM read_csv('/etc/passwd')")
    assert (refused.returncode, "There is no table" in refused.stderr, "Traceback" in refused.stderr) == (
        1,
        True,
        False,
    )

    process.terminate()
    assert process.wait(timeout=90) == 0
    gone = cli("explore")
    assert (gone.returncode, "penstock serve scuba" in gone.stderr) == (1, True)


def test_a_killed_server_continues_and_duplicates_no_row(
    cli: Cli, prefix: str, wait_until: WaitUntil, tmp_path: Path
) -> None:
    """It has a file and a token, and is killed while it reads."""
    site = ScubaSite(cli, prefix, wait_until)
    options = ("--file", str(tmp_path / "views.duckdb"), "--host", "0.0.0.0")  # noqa: S104 - guarded by the token
    for number in range(2):
        site.send(random_views(2_000, seed=number))
        process = site.serve(*options, PENSTOCK_SCUBA_TOKEN=TOKEN)
        wait_until(lambda: site.rows() > 0)
        process.kill()
        process.wait(timeout=90)
    site.serve(*options, PENSTOCK_SCUBA_TOKEN=TOKEN)
    site.wait_for(4_000)
    counted = f'SELECT count(*), count(DISTINCT _bucket * 1000000 + _offset) FROM "{site.table}"'

    assert site.client.select(counted).rows == [[4_000, 4_000]]
    with pytest.raises(QueryFailed, match="needs its token"):
        ScubaClient(cli.environment["PENSTOCK_SCUBA"], token=TOKEN + "!").tables()


def test_the_manifests_of_a_cluster_serve_events(cli: Cli, prefix: str, wait_until: WaitUntil, tmp_path: Path) -> None:
    """Their command serves clients with the token, with rows in a file, in a folder of this machine and at other ports."""
    site, port, health = (
        ScubaSite(cli, prefix[-20:], wait_until),
        free_port(),
        free_port(),
    )  # names of objects are limited
    site.send(random_views(100, seed=1))
    cluster = ("--target", "kubernetes", "--image", "registry/app:7", "--dry-run", "--dir", str(tmp_path / "dir"))
    printed = cli.ok("serve", "scuba", site.table, "--deploy", "--app", str(site.app), *cluster)
    elsewhere = {"/penstock/app": str(site.app.parent), "/penstock/data": str(tmp_path / "pod")}
    elsewhere |= {"8740": str(port), "0.0.0.0:8080": str(health)}
    cli.start(*pod_command(json.loads(printed)["items"], elsewhere), PENSTOCK_SCUBA_TOKEN=TOKEN)
    wait_until(lambda: is_ready(health))
    site.client = ScubaClient(f"http://127.0.0.1:{port}", token=TOKEN)
    site.wait_for(100)

    assert (tmp_path / "pod" / "state" / f"scuba.{site.table}" / "rows.duckdb").exists()


def test_a_deployed_server_returns_after_a_kill_with_each_event_once(
    cli: Cli, prefix: str, tmp_path_factory: pytest.TempPathFactory, wait_until: WaitUntil
) -> None:
    """Its supervisor restarts it, and its file continues. A deleted server leaves nothing behind."""
    site, folder = ScubaSite(cli, prefix, wait_until), tmp_path_factory.mktemp("dir")
    where, views = ("--dir", str(folder)), random_views(300, seed=5)
    try:
        site.send(views[:200])
        # Other tests may use the default port.
        port = str(free_port())
        options = ("--app", str(site.app), "--port", port, "--json")
        [deployed] = json.loads(cli.ok("serve", "scuba", site.table, "--deploy", *options, *where))
        name, pid = deployed["name"], deployed["worker_status"][0]["pid"]
        site.client = ScubaClient(deployed["urls"][0])
        site.wait_for(200)
        os.kill(pid, signal.SIGKILL)
        site.send(views[200:])

        def has_returned() -> bool:
            [found] = json.loads(cli.ok("deployments", "--json", *where))
            return bool(found["ready"] == 1 and found["worker_status"][0]["pid"] != pid)

        wait_until(has_returned)
        site.wait_for(300)
        rows = site.client.select(f'SELECT count(*), count(DISTINCT (_bucket, _offset)) FROM "{site.table}"').rows
        assert rows == [[300, 300]]
        assert [server["name"] for server in json.loads(cli.ok("status", "--json", *where))["servers"]] == [name]
        cli.ok("undeploy", name, "--purge", "--yes", *where)

        assert list((folder / "state").glob("*")) == []
        assert list((folder / "deployments").glob("scuba.*")) == []
    finally:
        Daemon("supervisord", folder / "supervisor").stop(limit_s=60)
