"""`penstock serve results` on a real Kafka, queried over HTTP."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest
from support.cli import Cli
from support.query_site import MINUTE, START, Server, Site, WaitUntil, ask, counts, minute_of, random_views
from support.secured_kafka import certificate

from penstock.query import AsOf, QueryClient

TOKEN = "a-token-of-the-tests"  # noqa: S105 - of a temporary server


@pytest.fixture
def site(cli: Cli, prefix: str, wait_until: WaitUntil) -> Site:
    """An app with its categories."""
    return Site(cli, prefix, wait_until)


def test_answers_equal_a_recount_of_the_input(site: Site, wait_until: WaitUntil) -> None:
    """Queries are by key in a window, in a time span, latest, ranked, and listed in pages, also for updates of a window."""
    early, late = random_views(3_000, 1), random_views(1_000, 2)
    site.send(early)
    site.run()
    server = site.serve("Counts", "Hops", "Totals")
    site.send(late)
    site.run()
    expected = Counter((view["page"], minute_of(view)) for view in early + late)
    path = site.path("counts", "results")
    written_ms = time.time() * 1000
    with QueryClient(server.url) as client:
        wait_until(lambda: counts(ask(client, site)) == expected)
        # The server reads the results of the other processors at the same time, and may be later with them.
        wait_until(lambda: all(is_read(each.as_of, written_ms) for each in client.processors()))

    for page in ("/p0", "/p7", "/p29"):
        mine = {start: count for (name, start), count in expected.items() if name == page}
        spanned = server.get(path, key=page, **{"from": START + 2 * MINUTE, "to": START + 5 * MINUTE})["results"]
        assert {row["window"]["start"]: row["result"]["views"] for row in spanned} == {
            start: count for start, count in mine.items() if START + 2 * MINUTE <= start < START + 5 * MINUTE
        }
        assert all(one["event_time"] < other["event_time"] for one, other in pairwise(spanned))
        [at] = server.get(path, key=page, at=START + MINUTE + 5)["results"]
        assert at["result"] == {"page": page, "at": START + MINUTE, "views": mine[START + MINUTE]}
        [latest] = server.get(path, key=page)["results"]
        assert (latest["window"]["start"], latest["result"]["views"]) == (max(mine), mine[max(mine)])
        hops = server.get(site.path("hops", "results"), key=page, at=START + 3 * MINUTE + 1)["results"]
        assert [row["result"]["views"] for row in hops] == [
            mine.get(start, 0) + mine.get(start + MINUTE, 0) for start in (START + 2 * MINUTE, START + 3 * MINUTE)
        ]
        [totals] = server.get(site.path("totals", "results"), key=page)["results"]
        assert totals["result"]["ms"] == sum(view["ms"] for view in early + late if view["page"] == page)

    ranked = server.get(site.path("counts", "top"), at=START + 4 * MINUTE, count=5)["results"]
    largest = sorted((-count, page) for (page, start), count in expected.items() if start == START + 4 * MINUTE)[:5]
    assert [(-row["result"]["views"], row["key"]) for row in ranked] == largest

    pages: list[str] = []
    after: str | None = ""
    while after is not None:
        page_of_keys = server.get(site.path("counts", "keys"), limit=7, after=after)
        pages += page_of_keys["keys"]
        after = page_of_keys["next"]
    assert pages == sorted({view["page"] for view in early + late})
    assert server.get(path, key="/unknown")["results"] == []


def is_read(as_of: AsOf, since_ms: float) -> bool:
    """Return whether a measurement after a time has found no unread result."""
    return as_of.measured_at > since_ms and as_of.unread_results == 0


def test_a_killed_worker_makes_answers_old_but_not_wrong(site: Site, wait_until: WaitUntil) -> None:
    """Answers continue with the lag; after a new worker has caught up, they are complete, also from a restarted server."""
    first, second = random_views(500, 3), random_views(700, 4)
    server = site.serve("Counts")
    worker = site.cli.start("run", f"{site.app}:Counts")
    site.send(first)
    before = Counter((view["page"], minute_of(view)) for view in first)
    after = before + Counter((view["page"], minute_of(view)) for view in second)
    with QueryClient(server.url) as client:
        wait_until(lambda: counts(ask(client, site)) == before)
        # Results are written before positions: a worker killed in between would read the first events again. A lag that was measured
        # before the events were sent does not count.
        counted_ms = time.time() * 1000
        wait_until(lambda: (latest := ask(client, site).as_of).lag_events == 0 and latest.measured_at > counted_ms)
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
        site.send(second)
        wait_until(lambda: ask(client, site).as_of.lag_events == len(second))
        stale = ask(client, site)
        assert counts(stale) == before
        assert stale.as_of.lag_s is not None
        assert stale.as_of.lag_s > 0

        site.cli.start("run", f"{site.app}:Counts")
        wait_until(lambda: counts(ask(client, site)) == after)
        wait_until(lambda: ask(client, site).as_of.lag_events == 0)
    server.process.terminate()
    server.process.communicate(timeout=90)

    assert server.process.returncode == 0
    with QueryClient(server.url, site.serve("Counts").url) as client:
        assert counts(ask(client, site)) == after


def test_a_category_that_is_created_again_is_read_again(site: Site, wait_until: WaitUntil) -> None:
    """No result of the earlier topic remains, and the server needs no restart."""
    site.send([{"page": "/old", "at": START, "ms": 1}])
    site.run()
    server = site.serve("Counts")
    path = site.path("counts", "keys")
    assert server.get(path)["keys"] == ["/old"]

    site.cli.ok("category", "delete", f"{site.prefix}.counts", "--yes")
    site.cli.ok("category", "create", str(site.app))
    wait_until(lambda: server.get(path)["keys"] == [])


SQL = """
CREATE CATEGORY views (at bigint, customer text, page text, ms bigint)
WITH (category = '{prefix}.views', key = 'customer', time = 'at', buckets = 2);

CREATE TABLE "{prefix}.per_page" WITH (buckets = 2, semantics = 'exactly once') AS
SELECT page, window_start, count(*) AS views FROM views GROUP BY page, tumble(at, interval '5 minutes');

CREATE TABLE "{prefix}.top" AS
SELECT customer, page, topk(ms, 3) AS total FROM views [5 minutes] GROUP BY customer;

CREATE TABLE "{prefix}.visits" AS
SELECT customer, window_start, window_end, count(*) AS views FROM views GROUP BY customer, session(at, interval '20 seconds');
"""


def test_tables_of_an_sql_file_are_served(cli: Cli, prefix: str, wait_until: WaitUntil) -> None:
    """Nullable groups are found by their plain value, items of topk together, and sessions by time span."""
    file = cli.folder / "shop.sql"
    file.write_text(SQL.replace("{prefix}", prefix))
    dice = random.Random(8)
    sent = [{**view, "customer": f"c{dice.randrange(3)}"} for view in random_views(600, 9)]
    cli.ok("category", "create", str(file))
    cli.ok(
        "category",
        "send",
        f"{prefix}.views",
        "--app",
        str(file),
        stdin="".join(json.dumps(each) + "\n" for each in sent),
    )
    cli.ok("run", str(file), "--until-end")
    server = Server(cli.start("serve", "results", str(file), "--port", "0"))
    wait_until(server.is_ready)
    in_window = [view for view in sent if view["at"] < START + 5 * MINUTE]
    sums = Counter[str]()
    for view in in_window:
        if view["customer"] == "c1":
            sums[view["page"]] += view["ms"]

    with QueryClient(server.url) as client:
        # A transaction's results become readable with its markers.
        wait_until(lambda: all(each.as_of.unread_results == 0 for each in client.processors()))
        pages = client.results(f"{prefix}.per_page", "/p4", "/p5", at=START)
        ranks = client.results(f"{prefix}.top", "c1", at=START + 1)
        visits = client.results(f"{prefix}.visits", "c2", begin=START, end=START + 10 * MINUTE).results
    assert [row.result["views"] for row in pages.results] == [
        sum(view["page"] == page for view in in_window) for page in ("/p4", "/p5")
    ]
    assert [(row.result["page"], row.result["total"]) for row in ranks.results] == sorted(
        sums.items(), key=lambda one: (-one[1], one[0])
    )[:3]
    times = [view["at"] for view in sent if view["customer"] == "c2"]
    starts = [times[0], *(later for earlier, later in pairwise(times) if later - earlier >= 20_000)]
    assert [row.result["window_start"] for row in visits] == starts[: len(visits)]
    assert len(visits) >= len(starts) - 2


def test_answers_have_the_documented_form(site: Site) -> None:
    """The test covers each operation of the OpenAPI document, with its own parameters, and a record's fields."""
    site.send(random_views(50, 12))
    site.run()
    server = site.serve("Counts", "Totals")
    document = server.get("/openapi.json")
    samples = {"key": "/p1", "count": 3, "limit": 3, "last": "52w", "prefix": "/"}
    checked = []
    for path, operations in document["paths"].items():
        operation = operations["get"]
        names = [parameter["name"] for parameter in operation["parameters"]]
        answer = server.get(path, **{name: samples[name] for name in names if name in samples})
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema.validate(answer, {**schema, "components": document["components"]})
        checked.append(operation["operationId"])
    record = {"$ref": "#/components/schemas/Count", "components": document["components"]}

    assert len(set(checked)) == 2 + 2 * 4
    jsonschema.validate({"page": "/p1", "at": 1, "views": 2}, record)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"page": "/p1", "at": 1, "views": "2"}, record)


def test_only_the_token_opens_the_server(site: Site, tmp_path: Path) -> None:
    """The health check needs no token. An address for other machines is refused without a token."""
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    server = site.serve("Counts", "--token-file", str(file), token=TOKEN)
    assert server.get(site.path("counts", "keys"))["keys"] == []
    path = site.path("counts", "keys")
    assert [server.send("GET", path, token=token)[0] for token in (TOKEN, "wrong", None)] == [200, 401, 401]
    assert server.send("GET", "/health")[0] == 200

    refused = site.cli("serve", "results", str(site.app), "--host", "0.0.0.0")  # noqa: S104 - must be refused
    assert refused.returncode == 1
    assert "--token-file" in refused.stderr


def test_a_client_reads_over_tls(site: Site, tmp_path: Path, wait_until: WaitUntil) -> None:
    """It trusts the server's certificate only if the certificate is named. The command does the same."""
    authority = certificate(tmp_path)
    site.send([{"page": "/p0", "at": START, "ms": 1}])
    site.run()
    options = ("--tls-cert", str(authority), "--tls-key", str(tmp_path / "key.pem"))
    server = Server(site.cli.start("serve", "results", str(site.app), "Counts", "--port", "0", *options))
    name = f"{site.prefix}.counts"
    command = ("query", name, "/p0", "--server", server.url)

    def is_ready() -> bool:
        return site.cli(*command, "--tls-ca", str(authority)).returncode == 0

    wait_until(is_ready)
    with QueryClient(server.url, ca_file=authority) as client:
        row = client.latest(name, "/p0")
    missing = site.cli(*command, "--tls-ca", "missing.pem")
    untrusted = site.cli(*command)

    assert server.url.startswith("https://")
    assert row is not None
    assert row.result["views"] == 1
    assert "cannot be read" in missing.stderr
    assert "certificate verify failed" in untrusted.stderr
    assert "Traceback" not in missing.stderr + untrusted.stderr


def test_grafana_draws_the_counts(site: Site) -> None:
    """Its JSON data source requests the test, the search, a panel with series, and a table."""
    views = random_views(2_000, 5)
    site.send(views)
    site.run()
    server, metric = site.serve("Counts"), f"{site.prefix}.counts:views"
    by_page = defaultdict[str, Counter[int]](Counter)
    for view in views:
        by_page[view["page"]][minute_of(view)] += 1
    panel = {
        "app": "dashboard",
        "panelId": 2,
        "intervalMs": 1000,
        "maxDataPoints": 500,
        "range": {"from": iso(START), "to": iso(START + 10 * MINUTE), "raw": {"from": "now-10m", "to": "now"}},
        "scopedVars": {},
        "adhocFilters": [],
    }

    assert server.get("/")["service"] == "penstock"
    assert server.post("/search", {"target": ""}) == [metric]
    assert server.post("/metrics", {"metric": "", "payload": {}}) == [{"label": metric, "value": metric}]
    target = {"refId": "A", "target": f"{metric}:/p3", "type": "timeserie"}
    [series] = server.post("/query", {**panel, "targets": [target]})
    assert series["target"] == "/p3"
    assert series["datapoints"] == [[by_page["/p3"][at], at] for at in sorted(by_page["/p3"])]
    all_pages = server.post("/query", {**panel, "targets": [{**target, "target": metric}]})
    expected = sorted(by_page, key=lambda page: (-max(by_page[page].values()), page))[:20]
    assert [each["target"] for each in all_pages] == expected
    [table] = server.post("/query", {**panel, "targets": [{**target, "type": "table"}]})
    assert [column["text"] for column in table["columns"]] == ["Time", "Key", "page", "at", "views"]
    assert [[row[0], row[4]] for row in table["rows"]] == [[at, by_page["/p3"][at]] for at in sorted(by_page["/p3"])]


def test_the_command_prints_results_with_their_lag(site: Site) -> None:
    """It prints one key, a ranking, the keys, and the served processors. A mistake is explained without a traceback."""
    site.send([{"page": f"/p{n % 3}", "at": START + n, "ms": n} for n in range(10)])
    site.run()
    url, name = site.serve("Counts").url, f"{site.prefix}.counts"

    one = site.cli("query", name, "/p0", "--at", "2020-01-01T10:00", "--server", url)
    [line] = site.cli.ok("query", name, "/p0", "--json", "--server", url).splitlines()
    ranked = site.cli.ok("query", name, "--top", "2", "--json", "--server", url).splitlines()
    keys = site.cli.ok("query", name, "--server", url)
    listed = site.cli.ok("query", "--server", url)
    wrong = site.cli("query", name, "--top", "2", "--by", "view", "--server", url)
    alone = site.cli("query", name, "/p0", "--server", "http://127.0.0.1:1")

    assert "There is no result" in one.stderr
    assert "no lag" in one.stderr
    assert json.loads(line)["result"] == {"page": "/p0", "at": START, "views": 4}
    assert [json.loads(each)["key"] for each in ranked] == ["/p0", "/p1"]
    assert keys.split() == ["key", "/p0", "/p1", "/p2"]
    assert "Tumbling(size=0:01:00)" in listed
    assert wrong.returncode == 1
    assert "Did you mean" in wrong.stderr
    assert alone.returncode == 1
    assert "penstock serve" in alone.stderr
    assert "Traceback" not in wrong.stderr + alone.stderr


def iso(time_ms: int) -> str:
    """Return a time as Grafana sends it."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
