"""An app with counts of views, its events, and query servers of its results."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

from support.cli import Cli

from penstock.query import QueryClient, Rows

MINUTE = 60_000
START = 1_790_000_000_000 // (5 * MINUTE) * 5 * MINUTE
APP = """
import penstock as ps
from datetime import timedelta

class View(ps.Record, frozen=True):
    page: str
    at: ps.EventTime
    ms: int

class Count(ps.Record, frozen=True):
    page: str
    at: ps.EventTime
    views: int

class Total(ps.Record, frozen=True):
    page: str
    at: ps.EventTime
    ms: int

views = ps.Category("{prefix}.views", View, key="page", event_time="at", buckets=2)

class Counts(ps.Aggregator):
    name = "{prefix}.counts"
    reads = views
    writes = ps.Category("{prefix}.counts", Count, key="page", event_time="at", buckets=2)
    monoid = ps.monoids.Count()
    window = ps.windows.Tumbling(timedelta(minutes=1))
    def result(self, key, window, value):
        return Count(key, window.start, value)

class Hops(ps.Aggregator):
    name = "{prefix}.hops"
    reads = views
    writes = ps.Category("{prefix}.hops", Count, key="page", event_time="at", buckets=2)
    monoid = ps.monoids.Count()
    window = ps.windows.Hopping(timedelta(minutes=2), step=timedelta(minutes=1))
    def result(self, key, window, value):
        return Count(key, window.start, value)

class Totals(ps.Stateful):
    name = "{prefix}.totals"
    reads = views
    writes = ps.Category("{prefix}.totals", Total, key="page", event_time="at", buckets=2)
    state = int
    def process(self, event, state, context):
        total = (state or 0) + event.ms
        return total, [Total(context.key, event.at, total)]
"""
WaitUntil = Callable[[Callable[[], bool]], None]
View = dict[str, Any]


def random_views(count: int, seed: int) -> list[View]:
    """Return views of 30 pages in ten minutes, in order of time."""
    dice = random.Random(seed)
    times = sorted(START + dice.randrange(10 * MINUTE) for _ in range(count))
    return [{"page": f"/p{dice.randrange(30)}", "at": at, "ms": dice.randrange(500)} for at in times]


class Server:
    """A running query server."""

    def __init__(self, process: subprocess.Popen[str], token: str | None = None) -> None:
        self.process = process
        self._token = token
        assert process.stderr is not None
        line = ""
        while not (found := re.search(r"at (https?://\S+)", line)):
            line = process.stderr.readline()
            assert line, "the server ended"
        self.url = found[1]

    def get(self, path: str, **parameters: Any) -> Any:
        """Return the answer to a request."""
        status, answer = self.send("GET", f"{path}?{urlencode(parameters, doseq=True)}", token=self._token)
        assert status == 200, answer
        return answer

    def post(self, path: str, body: Any) -> Any:
        """Return the answer to a POST."""
        status, answer = self.send("POST", path, json.dumps(body))
        assert status == 200, answer
        return answer

    def send(self, method: str, path: str, body: str | None = None, token: str | None = None) -> tuple[int, Any]:
        """Return the status and the answer to a request."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        with closing(HTTPConnection(urlsplit(self.url).netloc, timeout=60)) as connection:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def is_ready(self) -> bool:
        """Return whether it answers."""
        return self.send("GET", "/ready")[0] == 200


class Site:
    """An app, its events, and servers of its results."""

    def __init__(self, cli: Cli, prefix: str, wait_until: WaitUntil) -> None:
        self.cli, self.prefix, self._wait_until = cli, prefix, wait_until
        self.app = cli.folder / "site.py"
        self.app.write_text(APP.replace("{prefix}", prefix))
        cli.ok("category", "create", str(self.app))

    def send(self, views: list[View]) -> None:
        lines = "".join(json.dumps(view) + "\n" for view in views)
        self.cli.ok("category", "send", f"{self.prefix}.views", "--app", str(self.app), stdin=lines)

    def serve(self, *options: str, token: str | None = None) -> Server:
        server = Server(self.cli.start("serve", "results", str(self.app), *options, "--port", "0"), token)
        self._wait_until(server.is_ready)
        return server

    def run(self) -> None:
        self.cli.ok("run", str(self.app), "--until-end")

    def path(self, name: str, what: str) -> str:
        return f"/v1/processors/{self.prefix}.{name}/{what}"


def minute_of(view: View) -> int:
    return int(view["at"]) // MINUTE * MINUTE


def ask(client: QueryClient, site: Site) -> Rows:
    """Return all counts."""
    keys = [f"/p{number}" for number in range(30)]
    return client.results(f"{site.prefix}.counts", *keys, begin=START, end=START + 10 * MINUTE)


def counts(rows: Rows) -> dict[tuple[str, int], int]:
    return {(row.key, row.event_time): row.result["views"] for row in rows.results}
