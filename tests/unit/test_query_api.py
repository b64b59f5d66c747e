"""The HTTP interface of the query server: results, errors with what to do, and its limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from starlette.testclient import TestClient
from support.laser_site import wait_for

import penstock as ps
from penstock.ops.http import Access
from penstock.ops.serve import AsOf
from penstock.ops.serve.commands.server_options import RESULTS
from penstock.ops.serve.results.follower import ResultFollower
from penstock.ops.serve.results.http_api import create_api
from penstock.ops.serve.results.queries import Queries
from penstock.ops.serve.results.result_table import Result, ResultTable
from penstock.ops.serve.results.served import served_processors
from penstock.processors import PenstockError
from penstock.processors.apps import App
from penstock.processors.time import Window
from penstock.transport import CategorySpec, Outgoing
from penstock.transport.memory import MemoryBus

TOKEN = "a-token-of-the-tests"  # noqa: S105 - of no server
NOW_MS = 1_790_000_000_000


class View(ps.Record, frozen=True):
    """A view of a page."""

    page: str
    at: ps.EventTime


class Count(ps.Record, frozen=True):
    """The views of a page."""

    page: str
    at: ps.EventTime
    views: int


class Counts(ps.Aggregator):
    """Views per page and minute."""

    name = "views_per_page"
    reads = ps.Category("views", View, key="page", event_time="at")
    writes = ps.Category("counts", Count, key="page", event_time="at")
    monoid = ps.monoids.Count()
    window = ps.windows.Tumbling(timedelta(minutes=1))

    def result(self, key: str, window: Window, value: int) -> Count:
        return Count(key, ps.EventTime(window.start), value)


@pytest.fixture
def queries() -> Iterator[Queries]:
    """One result, which is not read before the follower starts."""
    app, bus = App.of("app", [Counts]), MemoryBus()
    for category in app.categories():
        bus.catalog.create(CategorySpec.of(category))
    writer = bus.writer()
    writer.send("counts", [Outgoing(b"/a", b'{"page":"/a","at":%d,"views":3}' % NOW_MS)])
    writer.flush()
    with closing(ResultFollower(served_processors(app), bus, timedelta(days=7))) as follower:
        as_of = AsOf(NOW_MS, "running", 0, 0.0, 0)
        yield Queries(follower, lambda _: as_of, lambda: NOW_MS, lambda _: None)


@pytest.fixture
def client(queries: Queries) -> TestClient:
    """A client of a server with all results."""
    read_all(queries)
    return TestClient(create_api(queries, Access(RESULTS)), base_url="http://127.0.0.1:8730")


def read_all(queries: Queries) -> None:
    """Read the result."""
    queries.follower.start()
    wait_for(lambda: not queries.follower.problem)


def test_results_are_found_by_key(client: TestClient) -> None:
    """No cache keeps them."""
    answer = client.get("/v1/processors/views_per_page/results?key=/a&last=1h")

    assert [row["result"]["views"] for row in answer.json()["results"]] == [3]
    assert (answer.headers["content-type"], answer.headers["cache-control"]) == ("application/json", "no-store")
    assert client.get("/").json() == {"service": "penstock", "processors": ["views_per_page"]}


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/v1/processors/Other/results?key=/a", 404, "does not serve 'Other'"),
        ("GET", "/v1/processors/views_per_page/other", 404, "See /openapi.json"),
        ("GET", "/other", 404, "See /openapi.json"),
        ("POST", "/other", 404, "See /openapi.json"),
        ("DELETE", "/v1/processors/views_per_page", 405, "See /openapi.json"),
        ("GET", "/query", 405, "See /openapi.json"),
        ("GET", "/v1/processors/views_per_page/results?key=/a&limit=ten", 400, "from 1 to"),
        ("GET", "/v1/processors/views_per_page/results?key=%ff", 400, "no UTF-8"),
        ("GET", "/v1/processors/views_per_page?key=/a", 400, "key"),
        ("POST", "/query", 400, "Send range and targets"),
    ],
)
def test_errors_are_json_with_what_to_do(client: TestClient, method: str, path: str, status: int, message: str) -> None:
    """Every kind of request has them."""
    answer = client.request(method, path)

    assert answer.status_code == status
    assert message in answer.json()["message"]


def test_a_server_that_still_reads_says_when_to_ask_again(queries: Queries) -> None:
    """An incomplete answer would be wrong. The health of the process does not depend on it."""
    client = TestClient(create_api(queries, Access(RESULTS)), base_url="http://127.0.0.1")
    answers = [client.get(path) for path in ("/ready", "/v1/processors/views_per_page/results?key=/a")]

    assert [(answer.status_code, answer.headers["retry-after"]) for answer in answers] == [(503, "1")] * 2
    assert client.get("/health").json() == {"status": "running"}


def test_a_query_with_a_large_body_is_refused_after_its_client_is_known(queries: Queries) -> None:
    """Strangers cannot fill the memory, and clients have a limit."""
    client = TestClient(create_api(queries, Access(RESULTS, TOKEN)), base_url="http://example.com")
    statuses = [
        client.post("/query", content=b"x" * 2_000_000, headers={"Authorization": f"Bearer {token}"}).status_code
        for token in ("wrong", TOKEN)
    ]

    assert statuses == [401, 413]
    assert client.get("/health").status_code == 200
    assert client.post("/health").status_code == 401


def test_an_unexpected_error_is_logged(queries: Queries, caplog: pytest.LogCaptureFixture) -> None:
    """Its client receives the message, with 500."""

    def failing(_: str) -> AsOf:
        raise PenstockError("the lag is broken")

    read_all(queries)
    client = TestClient(create_api(replace(queries, as_of=failing), Access(RESULTS)), base_url="http://127.0.0.1")
    answer = client.get("/v1/processors")

    assert (answer.status_code, answer.json()) == (500, {"message": "the lag is broken"})
    assert "the lag is broken" in caplog.text


def test_offsets_count_as_read_when_their_results_are_stored(queries: Queries, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an answer without a result would say that it has no lag."""
    read_all(queries)
    follower, put, found = queries.follower, ResultTable.put, list[int]()

    def note_and_put(table: ResultTable, result: Result, arrived_ms: int) -> None:
        found.append(max(follower.positions("views_per_page").values()))
        put(table, result, arrived_ms)

    monkeypatch.setattr(ResultTable, "put", note_and_put)
    writer = follower._bus.writer()
    writer.send("counts", [Outgoing(b"/a", b'{"page":"/a","at":%d,"views":4}' % NOW_MS)])
    writer.flush()
    wait_for(lambda: max(follower.positions("views_per_page").values()) == 2)

    assert found == [1]
