"""Several servers of one Laser table: reads that survive the loss of one, HTTP, and their deployments."""

from __future__ import annotations

import re
import subprocess
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis
from starlette.applications import Starlette
from starlette.testclient import TestClient
from support.laser_site import Ranking, bus_of_rankings, rankings, redis_server, send, tier, wait_for
from support.secured_kafka import certificate

import penstock as ps
from penstock.ops.deploy import (
    DeployedProcessor,
    DeployedServer,
    DeploymentFiles,
    DeploymentRequest,
    DeploymentSettings,
    IncompatibleState,
    plan_deployment,
    run_arguments,
    stand_in_for,
)
from penstock.ops.deploy.registry import DesiredState
from penstock.ops.http import Access, Certificate
from penstock.ops.http.listening import AddressUnavailable
from penstock.ops.serve.commands.server_options import LASER
from penstock.ops.serve.latest.daily_pairs import DailyPairs
from penstock.ops.serve.latest.days import DailyTable
from penstock.ops.serve.latest.http_api import MAX_KEYS, create_api
from penstock.ops.serve.latest.pairs import NotServed, Pairs
from penstock.ops.serve.latest.table import LatestTable
from penstock.ops.status.servers import server_findings, servers_of
from penstock.processors.apps import AppName
from penstock.processors.lookups import LookupUnreachable
from penstock.state.files import LocalFileStore
from penstock.transport.memory import MemoryBus

SENT = [Ranking("UA", 1_000, "SFO", 3), Ranking("DL", 1_000, "ATL", 5), Ranking("UA", 2_000, "EWR", 4)]


class Top(ps.Record, frozen=True):
    """The value of one column."""

    top: str


class TopFlights(ps.Record, frozen=True):
    """The value of two columns."""

    top: str
    flights: int


def test_a_lookup_reads_from_each_server_that_lives(tmp_path: Path) -> None:
    """A server that has ended, or answers LOADING, loses no row. Without any server, the lookup is unreachable until one returns."""
    tables = [LatestTable(f"rankings.{number}", rankings, ("carrier",), ("top", "flights")) for number in (1, 2)]
    expected = {"UA": TopFlights("EWR", 4), "DL": TopFlights("ATL", 5)}
    with ExitStack() as workers:
        # The workers run in threads at the same time, and one bus in memory is not for two threads.
        first, second = [
            workers.enter_context(tier(_sent(), tmp_path / str(at), table)) for at, table in enumerate(tables)
        ]
        with ExitStack() as one, ExitStack() as two:
            ports = [one.enter_context(redis_server("1", first)), two.enter_context(redis_server("2", second))]
            addresses = ",".join(f"redis://127.0.0.1:{port}" for port in ports)
            with closing(ps.LaserTable(addresses, TopFlights).open()) as rows:
                assert rows.fetch(["UA", "AA", "DL"]) == expected
                one.close()
                assert rows.fetch(["UA", "AA", "DL"]) == expected
                one.enter_context(redis_server("1", _Starting(first), ports[0]))
                assert rows.fetch(["UA", "DL"]) == expected
                two.close()
                with pytest.raises(LookupUnreachable, match=r"LOADING|not served"):
                    rows.fetch(["UA"])
                two.enter_context(redis_server("2", second, ports[1]))
                assert rows.fetch(["UA", "DL"]) == expected
                assert rows.fetch([]) == {}


def test_the_client_in_the_documents_fails_over(tmp_path: Path) -> None:
    """It reads from the other server after one has ended, and says so when both have."""
    text = (Path(__file__).parents[2] / "docs" / "laser.md").read_text(encoding="utf-8")
    program = re.findall(r"^```python\n(import redis\n.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)[0]
    bus = _sent()
    table = LatestTable("rankings", rankings, ("carrier",), ("top",))
    with tier(bus, tmp_path, table) as pairs, ExitStack() as one, ExitStack() as two:
        ports = [stack.enter_context(redis_server("rankings", pairs)) for stack in (one, two)]
        names: dict[str, Any] = {}
        exec(program.replace("(8720, 8721)", str(tuple(ports))), names)  # noqa: S102 - the example of the documents
        assert names["mget"]("UA", "AA") == ["EWR", None]
        one.close()
        assert [names["mget"]("UA") for _ in range(3)] == [["EWR"]] * 3
        one.enter_context(redis_server("rankings", pairs, ports[0]))
        two.close()
        assert names["mget"]("UA") == ["EWR"]
        one.close()
        with pytest.raises(redis.ConnectionError, match="no server"):
            names["mget"]("UA")


def _sent() -> MemoryBus:
    bus = bus_of_rankings()
    send(bus, *SENT)
    return bus


class _Starting:
    """The pairs of a server that still reads."""

    def __init__(self, pairs: Pairs) -> None:
        self._pairs = pairs
        self.is_complete = False

    def fetch(self, keys: Any) -> Any:
        raise NotServed("bucket 0 is not served here yet")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pairs, name)


def test_a_row_with_one_field_is_a_single_value(tmp_path: Path) -> None:
    """A text stays as it is, and a number is parsed."""

    class Flights(ps.Record, frozen=True):
        flights: int

    bus = _sent()
    found = []
    for column, row in (("top", Top), ("flights", Flights)):
        table = LatestTable(column, rankings, ("carrier",), (column,))
        with (
            tier(bus, tmp_path / column, table) as pairs,
            redis_server(column, pairs) as port,
            closing(ps.LaserTable(f"redis://127.0.0.1:{port}", row).open()) as rows,
        ):
            found.append(rows.fetch(["UA", "AA"]))

    assert found == [{"UA": Top("EWR")}, {"UA": Flights(4)}]


def test_clients_read_over_tls(tmp_path: Path) -> None:
    """They must trust the certificate. A client that does not, or has no TLS, reads nothing and disturbs no other client."""
    authority = certificate(tmp_path)
    bus = _sent()
    tls = Certificate(authority, tmp_path / "key.pem").context()
    with (
        tier(bus, tmp_path, LatestTable("rankings", rankings, ("carrier",), ("top",))) as pairs,
        redis_server("rankings", pairs, tls=tls) as port,
        closing(redis.Redis("127.0.0.1", port, ssl=True, ssl_ca_certs=str(authority), decode_responses=True)) as client,
    ):
        pipeline = client.pipeline(transaction=False)
        for _ in range(2_000):
            pipeline.mget("UA", "AA")
        assert pipeline.execute() == [["EWR", None]] * 2_000
        with closing(ps.LaserTable(f"rediss://127.0.0.1:{port}?ssl_ca_certs={authority}", Top).open()) as rows:
            assert rows.fetch(["UA", "AA"]) == {"UA": Top("EWR")}
        for stranger in (redis.Redis("127.0.0.1", port, ssl=True), redis.Redis("127.0.0.1", port, socket_timeout=20)):
            with closing(stranger), pytest.raises(redis.ConnectionError):
                stranger.get("UA")

        assert client.get("UA") == "EWR"


@pytest.mark.parametrize("content", ["", "no certificate"])
def test_a_certificate_that_cannot_be_loaded_is_refused(tmp_path: Path, content: str) -> None:
    """The error names its files. A key with a password is refused, too, instead of a question at the terminal."""
    authority, key = certificate(tmp_path), tmp_path / "key.pem"
    if content:
        authority.write_text(content)
    else:
        words = ["openssl", "rsa", "-aes256", "-passout", "pass:secret", "-in", str(key), "-out", str(key)]
        subprocess.run(words, check=True, capture_output=True)

    with pytest.raises(AddressUnavailable, match=r"ca\.pem.*cannot be loaded"):
        Certificate(authority, key).context()


def asked(api: Starlette, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, str], Any]:
    """Return the status, the headers and the JSON value of an answer."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = TestClient(api, base_url="http://127.0.0.1").request(method, path, content=body, headers=names)
    return answer.status_code, dict(answer.headers), answer.json()


def test_http_answers_many_keys_with_the_lag(tmp_path: Path) -> None:
    """Texts are strings and other values are JSON. A server that still reads answers 503."""
    bus = _sent()
    with tier(bus, tmp_path / "texts", LatestTable("texts", rankings, ("carrier",), ("top",))) as pairs:
        wait_for(lambda: pairs.events_behind() == 0)
        texts = create_api(pairs, Access(LASER))
        status, headers, found = asked(texts, "GET", "/v1/values?key=UA&key=AA")
        assert (status, headers["penstock-lag"], found) == (200, "0", {"values": {"UA": "EWR", "AA": None}})
        starting = create_api(_Starting(pairs), Access(LASER))
        assert asked(starting, "GET", "/v1/values?key=UA")[0] == asked(starting, "GET", "/health")[0] == 503
    with tier(bus, tmp_path / "objects", LatestTable("objects", rankings, ("carrier",), ("top", "flights"))) as pairs:
        objects = create_api(pairs, Access(LASER))
        posted = asked(objects, "POST", "/v1/values", b'{"keys": ["UA"]}', content_type="application/json")

        assert posted[2] == {"values": {"UA": {"top": "EWR", "flights": 4}}}


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("GET", "/v1/values?key=UA", {"host": "evil.example"}, b"", 403),
        ("GET", "/v1/values", {}, b"", 400),
        ("GET", "/v1/values?" + "&".join(["key=x"] * (MAX_KEYS + 1)), {}, b"", 400),
        ("GET", "/v1/values?keys=UA", {}, b"", 400),
        ("POST", "/v1/values", {}, b'{"keys": ["UA"]}', 400),
        ("POST", "/v1/values", {"content_type": "application/json"}, b'{"key": "UA"}', 400),
        ("DELETE", "/v1/values", {}, b"", 405),
        ("GET", "/", {}, b"", 404),
    ],
)
def test_http_refuses_bad_requests(method: str, path: str, headers: dict[str, str], body: bytes, status: int) -> None:
    """They are refused before any pair is read. The message says what to send."""
    answer = asked(create_api(_Starting(None), Access(LASER)), method, path, body, **headers)  # type: ignore[arg-type]

    assert answer[0] == status
    assert answer[2]["message"]


def test_http_names_the_day_of_a_warehouse_table(tmp_path: Path) -> None:
    """The day replaces the lag."""
    folder = tmp_path / "w" / "ds=2026-11-24"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"carrier": ["UA"], "top": ["EWR"]}), folder / "0.parquet")
    pairs = DailyPairs(
        DailyTable("t", LocalFileStore(tmp_path / "w"), ("carrier",), ("top",)), tmp_path / "s", look_every_s=0.01
    )
    with closing(pairs):
        pairs.start()
        wait_for(lambda: pairs.is_complete)
        status, headers, found = asked(create_api(pairs, Access(LASER)), "GET", "/v1/values?key=UA")

    assert (status, found) == (200, {"values": {"UA": "EWR"}})
    assert headers["penstock-day"] == "2026-11-24"
    assert "penstock-lag" not in headers


def test_http_needs_the_token(tmp_path: Path) -> None:
    """The Authorization header contains it."""
    with tier(bus_of_rankings(), tmp_path, LatestTable("t", rankings, ("carrier",), ("top",))) as pairs:
        api = create_api(pairs, Access(LASER, "a-token-of-the-tests"))

        assert asked(api, "GET", "/v1/values?key=UA")[0] == 401
        assert asked(api, "GET", "/v1/values?key=UA", authorization="Bearer a-token-of-the-tests")[0] == 200


def request_for(folder: Path, value: str, port: int = 8720) -> DeploymentRequest:
    """Return a request for the first tier of a table."""
    app = folder / "app.py"
    folder.mkdir(exist_ok=True)
    app.touch()
    table = LatestTable("rankings.1", rankings, ("carrier",), (value,))
    options = ("--key", "carrier", "--value", value, "--port", str(port))
    server = DeployedServer(
        ("serve", "laser", table.name, "--app"), options, (f"redis://127.0.0.1:{port}",), has_worker=True
    )
    settings = DeploymentSettings("broker:9092", str(folder / "dir"), str(folder))
    return DeploymentRequest(AppName(app), table.processor(), settings, 1, take_over=True, server=server)


def test_a_tier_is_a_deployment_of_its_own_processor(tmp_path: Path) -> None:
    """The same request changes nothing, and another port is a new version. Other values are refused: saved pairs have the earlier ones."""
    bus = bus_of_rankings()
    first = plan_deployment(request_for(tmp_path, "top"), bus, {}, print)
    files = DeploymentFiles(tmp_path / "dir", "laser.rankings.1")
    files.add_version(first.version, first.code)
    files.save_desired_state(DesiredState(1, (1,)))
    words = run_arguments(files.version(1), "/code", "9000", "0")

    assert words[:5] == ["serve", "laser", "rankings.1", "--app", "/code/app.py"]
    assert " ".join(words).count("--port 8720") == 1
    assert not plan_deployment(request_for(tmp_path, "top"), bus, {}, print).is_new
    assert plan_deployment(request_for(tmp_path, "top", port=8721), bus, {}, print).is_new
    with pytest.raises(IncompatibleState, match="flights"):
        plan_deployment(request_for(tmp_path, "flights"), bus, {}, print)


def test_servers_without_a_worker_are_deployments(tmp_path: Path) -> None:
    """Scuba's has the buckets of its categories as inputs; a warehouse table has no app and no inputs."""
    (tmp_path / "app.py").touch()
    settings = DeploymentSettings("broker:9092", str(tmp_path / "dir"), str(tmp_path))
    scuba = DeployedServer(
        ("serve", "scuba", "rankings", "--app"), ("--port", "1"), ("http://127.0.0.1:1",), has_worker=False
    )
    days = DeployedServer(
        ("serve", "laser", "t.1"), ("--parquet", "/w"), ("redis://h:1",), has_worker=False, reads_app=False
    )
    versions = [
        plan_deployment(
            DeploymentRequest(AppName(path), stand_in_for(name, inputs), settings, 1, take_over=True, server=server),
            bus_of_rankings(),
            {},
            print,
        ).version
        for path, name, inputs, server in (
            (tmp_path / "app.py", "scuba.rankings", [rankings], scuba),
            (tmp_path, "laser.t.1", [], days),
        )
    ]

    assert [version.shape.inputs for version in versions] == [{"rankings": 3}, {}]
    assert run_arguments(versions[0], "/code", "9")[:5] == ["serve", "scuba", "rankings", "--app", "/code/app.py"]
    assert run_arguments(versions[1], "/code", "9")[:5] == ["serve", "laser", "t.1", "--parquet", "/w"]
    assert not any(word.startswith("--backup") for version in versions for word in run_arguments(version, "/code", "9"))


def test_a_server_without_a_process_is_a_finding() -> None:
    """A running server is not, and a processor's workers are not a server."""
    urls = ("redis://127.0.0.1:8720",)
    servers = servers_of(
        {
            "laser.b.1": DeployedProcessor("laser.b.1@1", 1, urls=urls),
            "laser.a.1": DeployedProcessor("laser.a.1@1", 1, restarting=1, urls=urls),
            "scuba.c": DeployedProcessor("scuba.c@1", 1, unsupervised=1, urls=urls),
            "totals": DeployedProcessor("totals@1", 1),
            "laser.stopped.1": DeployedProcessor("", 0),
        },
        now_ms=0,
    )

    assert [server.name for server in servers] == ["laser.a.1", "laser.b.1", "scuba.c"]
    assert [finding.processor for finding in server_findings(servers)] == ["laser.a.1", "scuba.c"]
