"""`penstock serve laser` on a real Kafka, read by redis-py."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
import redis
from support.cli import Cli
from support.kubectl import Kubectl, is_ready, pod_command
from support.secured_kafka import certificate

import penstock as ps
from penstock.ops.serve.results.client import trusting
from penstock.ops.shell import choose_ports, free_port
from penstock.ops.start import Daemon

APP = """
import penstock as ps

class Ranking(ps.Record, frozen=True):
    carrier: str
    origin: str
    at: ps.EventTime
    top: str
    flights: int

rankings = ps.Category("{prefix}.rankings", Ranking, key="carrier", event_time="at", buckets=3)

old = ps.Category("{prefix}.rankings.old", Ranking, key="carrier", event_time="at", buckets=3)

class Unused(ps.Stateless):
    name = "{prefix}.unused"
    reads = (rankings, old)
    def process(self, event):
        return ()
"""
TOKEN = "a-token-of-the-tests"  # noqa: S105 - of a temporary server
WaitUntil = Callable[[Callable[[], bool]], None]


class Top(ps.Record, frozen=True):
    """The value of two columns."""

    top: str
    flights: int


class Single(ps.Record, frozen=True):
    """The value of one column."""

    top: str


class Laser:
    """One category of rankings, and servers of its tables."""

    def __init__(self, cli: Cli, prefix: str) -> None:
        self.cli = cli
        self.category = f"{prefix}.rankings"
        self.table = prefix
        self.app = cli.folder / "rankings.py"
        self.app.write_text(APP.replace("{prefix}", prefix))
        cli.ok("category", "create", str(self.app))

    def send(self, *rankings: dict[str, Any]) -> None:
        lines = "".join(json.dumps({"at": now_ms(), **ranking}) + "\n" for ranking in rankings)
        self.cli.ok("category", "send", self.category, "--app", str(self.app), stdin=lines)

    def delete(self, key: str) -> None:
        self.cli.ok("category", "send", self.category, "--app", str(self.app), "--tombstones", stdin=key + "\n")

    def start(self, *options: str, port: int, suffix: str = "", **environment: str) -> subprocess.Popen[str]:
        where = ("--app", str(self.app), "--category", self.category, "--port", str(port))
        return self.cli.start("serve", "laser", self.table + suffix, *where, *options, **environment)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def ranking(carrier: str, top: str, origin: str = "EWR", flights: int = 1, **more: int) -> dict[str, Any]:
    return {"carrier": carrier, "origin": origin, "top": top, "flights": flights, **more}


@pytest.fixture
def laser(cli: Cli, prefix: str) -> Laser:
    """A category of rankings."""
    return Laser(cli, prefix)


@pytest.fixture
def port() -> int:
    """A free port, which no outgoing connection takes before the server has started."""
    return free_port()


def two_ports() -> int:
    """Return the first of two consecutive free ports."""
    while True:
        first = free_port()
        if choose_ports(("second",), {"second": first + 1})["second"] == first + 1:
            return first


@contextmanager
def client_of(port: int, wait_until: WaitUntil, **options: Any) -> Iterator[Any]:
    """A client, as soon as the server answers for each bucket."""
    with closing(redis.Redis("127.0.0.1", port, decode_responses=True, **options)) as client:

        def answers() -> bool:
            try:
                return bool(client.mget([f"{letter}{digit}" for letter in "abc" for digit in range(9)]))
            except (redis.ConnectionError, redis.exceptions.BusyLoadingError):
                return False

        wait_until(answers)
        yield client


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_client_reads_the_latest_value_of_each_key(
    laser: Laser, port: int, wait_until: WaitUntil, protocol: int
) -> None:
    """The events come before and after the start. A tombstone deletes the pair."""
    laser.send(ranking("UA", "LAX"), ranking("DL", "ATL"), ranking("UA", "SFO"))
    laser.start("--key", "carrier", "--value", "top", port=port)
    with client_of(port, wait_until, protocol=protocol) as client:
        assert client.mget("UA", "DL", "AA") == ["SFO", "ATL", None]
        assert client.get("UA") == "SFO"
        assert client.exists("UA", "AA", "UA") == 2
        assert (client.ttl("UA"), client.ttl("AA")) == (-1, -2)

        laser.send(ranking("AA", "MIA"))
        wait_until(lambda: client.get("AA") == "MIA")
        laser.delete("UA")
        wait_until(lambda: client.get("UA") is None)
        wait_until(lambda: client.execute_command("PENSTOCK.LAG") == 0)
        assert client.mget("UA", "DL", "AA") == [None, "ATL", "MIA"]


def test_several_columns_are_joined_in_the_key_and_an_object_in_the_value(
    laser: Laser, port: int, wait_until: WaitUntil
) -> None:
    """They have the order of the command line, and a separator within a column is escaped. Lookup joins can read the objects."""
    laser.send(ranking("UA", "LAX", "EWR", 7), ranking("a:b", "x", "c", 8))
    laser.start("--key", "origin,carrier", "--value", "flights,top", port=port)
    with client_of(port, wait_until) as client:
        assert client.get("EWR:UA") == '{"flights":7,"top":"LAX"}'
        assert client.get("c:a\\:b") == '{"flights":8,"top":"x"}'
    source = ps.lookups.RedisTable("", Top, ps.lookups.RedisForm.JSON, at=f"redis://127.0.0.1:{port}")
    with closing(source.open()) as rows:
        assert rows.fetch(["EWR:UA", "EWR:DL"]) == {"EWR:UA": Top("LAX", 7)}


def test_a_key_in_several_buckets_has_its_latest_pair_by_event_time(
    laser: Laser, port: int, wait_until: WaitUntil
) -> None:
    """The category is keyed by another column."""
    at = now_ms()
    laser.send(*(ranking(f"c{number}", f"t{number}", at=at - abs(number - 5)) for number in range(12)))
    laser.start("--key", "origin", "--value", "top", port=port)
    with client_of(port, wait_until) as client:
        assert client.get("EWR") == "t5"


def test_a_pair_ends_with_its_lifetime(laser: Laser, port: int, wait_until: WaitUntil) -> None:
    """The lifetime begins at the event time, and an expired pair is neither found nor scanned, even while no event moves the watermark."""
    laser.send(ranking("UA", "LAX", at=now_ms() - 3_600_000))
    laser.start("--key", "carrier", "--value", "top", "--keep", "30m", port=port)
    with client_of(port, wait_until) as client:
        assert client.mget("UA") == [None]
        assert list(client.scan_iter()) == []

        sent_ms = now_ms()
        laser.send(ranking("DL", "ATL", at=sent_ms))
        wait_until(lambda: client.get("DL") == "ATL")
        left_s, passed_s = client.ttl("DL"), (now_ms() - sent_ms) / 1000
        assert 1800 - passed_s - 1 <= left_s <= 1800
        assert list(client.scan_iter()) == ["DL"]


def test_a_scan_returns_every_key(laser: Laser, port: int, wait_until: WaitUntil) -> None:
    """It covers all buckets and pages, also with a pattern."""
    laser.send(*(ranking(f"k{number}", "x") for number in range(50)))
    laser.start("--key", "carrier", "--value", "top", port=port)
    with client_of(port, wait_until) as client:
        assert sorted(client.scan_iter(count=7)) == sorted(f"k{number}" for number in range(50))
        assert sorted(client.scan_iter("k1?")) == [f"k1{number}" for number in range(10)]


def test_only_the_token_opens_the_table(laser: Laser, port: int, tmp_path: Path, wait_until: WaitUntil) -> None:
    """The connection uses TLS, with both protocols. Neither log nor message contains the token."""
    authority = certificate(tmp_path)
    tls: dict[str, Any] = {"ssl": True, "ssl_ca_certs": str(authority)}
    http = free_port()
    options = ("--tls-cert", str(authority), "--tls-key", str(tmp_path / "key.pem"), "--http", str(http))
    laser.send(ranking("UA", "LAX"))
    process = laser.start("--key", "carrier", "--value", "top", *options, port=port, PENSTOCK_LASER_TOKEN=TOKEN)
    with client_of(port, wait_until, password=TOKEN, **tls) as client:
        assert client.get("UA") == "LAX"
    for password in (None, "wrong"):
        with (
            closing(redis.Redis("127.0.0.1", port, password=password, **tls)) as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.get("UA")
    request = Request(f"https://127.0.0.1:{http}/v1/values?key=UA", headers={"Authorization": f"Bearer {TOKEN}"})
    with urlopen(request, context=trusting(authority), timeout=90) as answer:  # noqa: S310 - https
        assert json.load(answer) == {"values": {"UA": "LAX"}}
    process.terminate()
    printed = "".join(process.communicate(timeout=60))

    assert process.returncode == 0
    assert TOKEN not in printed


def test_a_restarted_server_has_the_same_pairs(laser: Laser, port: int, wait_until: WaitUntil) -> None:
    """It continues from its saved state after kill -9, too."""
    laser.send(ranking("UA", "LAX"))
    killed = laser.start("--key", "carrier", "--value", "top", port=port)
    with client_of(port, wait_until) as client:
        assert client.get("UA") == "LAX"
    killed.kill()
    laser.send(ranking("DL", "ATL"))
    laser.start("--key", "carrier", "--value", "top", port=port)
    with client_of(port, wait_until) as client:
        assert client.mget("UA", "DL") == ["LAX", "ATL"]


def test_no_read_fails_while_one_of_two_deployed_servers_lives(
    laser: Laser, tmp_path_factory: pytest.TempPathFactory, wait_until: WaitUntil
) -> None:
    """They are killed in turn under reads, and restarted by their supervisor. A deleted table leaves nothing behind.

    The configuration declares the table.
    """
    folder = tmp_path_factory.mktemp("dir")
    where = ("--dir", str(folder))
    laser.send(ranking("UA", "LAX"))
    try:
        configuration = folder / "penstock.toml"
        configuration.write_text(
            f'[laser-tables."{laser.table}"]\napp = "{laser.app}"\ncategory = "{laser.category}"\nkey = "carrier"\nvalue = ["top"]\nreplicas = 2\n'
        )
        declared = ("--config", str(configuration))
        # Other tests may use the default ports.
        port = ("--port", str(two_ports()))
        tiers = json.loads(laser.cli.ok(*declared, "serve", "laser", laser.table, "--deploy", *port, "--json", *where))
        addresses = ",".join(tier["urls"][0] for tier in tiers)
        with closing(ps.LaserTable(addresses, Single).open()) as rows:

            def has_restarted(name: str, pid: int) -> bool:
                assert rows.fetch(["UA"]) == {"UA": Single("LAX")}
                found = json.loads(laser.cli.ok("deployments", name, "--json", *where))
                return bool(found["ready"] == 1 and found["worker_status"][0]["pid"] != pid)

            for tier in tiers:
                name, pid = tier["name"], tier["worker_status"][0]["pid"]
                os.kill(pid, signal.SIGKILL)
                wait_until(lambda name=name, pid=pid: has_restarted(name, pid))  # type: ignore[misc]  # binds the loop's values
        seen = json.loads(laser.cli.ok("status", "--json", *where))
        assert [server["name"] for server in seen["servers"]] == [tier["name"] for tier in tiers]
        retried = laser.cli("dead-letters", "retry", tiers[0]["name"], "--all", "--yes", *where)
        assert "has no pending letters" in retried.stderr
        configuration.write_text("")
        undeclared = laser.cli(*declared, "serve", "laser", "--all", "--deploy", *where)
        assert f"penstock undeploy laser.{laser.table} --purge" in undeclared.stderr
        other = ("--app", str(laser.app), "--category", f"{laser.category}.old", "--key", "carrier", "--value", "top")
        changed = laser.cli("serve", "laser", laser.table, "--deploy", *other, *where)
        assert changed.returncode == 1
        assert f"Laser table {laser.table} was not changed" in " ".join(changed.stderr.split())
        laser.cli.ok("undeploy", f"laser.{laser.table}", "--purge", "--yes", *where)

        assert laser.cli.ok("deployments", "--json", *where).strip() in {"", "[]"}
        assert list((folder / "state").glob("*")) == []
        assert list((folder / "deployments").glob("laser.*")) == []
    finally:
        Daemon("supervisord", folder / "supervisor").stop(limit_s=60)


def test_the_manifests_of_a_cluster_serve_a_table(
    laser: Laser, tmp_path: Path, port: int, wait_until: WaitUntil
) -> None:
    """Their command serves clients with the token, in a folder of this machine and at other ports, and reports that it is ready.

    Kubectl receives the manifests, and later the names of the objects to delete. The command names the volumes, which stay.
    """
    kubectl, health = Kubectl(tmp_path / "bin"), free_port()
    table = laser.table[-24:]  # names of objects are limited
    where = ("--dir", str(tmp_path / "dir"))
    options = ("--app", str(laser.app), "--category", laser.category, "--key", "carrier", "--value", "top")
    cluster = ("--target", "kubernetes", "--image", "registry/app:7", "--namespace", "streams")
    laser.send(ranking("UA", "LAX"))
    deployed = laser.cli(
        "serve",
        "laser",
        table,
        "--deploy",
        *options,
        *cluster,
        *where,
        "--json",
        PATH=kubectl.path,
        PENSTOCK_LASER_TOKEN=TOKEN,
    )
    assert deployed.returncode == 0, deployed.stderr
    [(apply, manifests), (wait, _)] = kubectl.calls()
    elsewhere = {"/penstock/app": str(laser.app.parent), "/penstock/data": str(tmp_path / "pod"), "8720": str(port)}
    elsewhere["0.0.0.0:8080"] = str(health)
    process = laser.cli.start(*pod_command(manifests["items"], elsewhere), PENSTOCK_LASER_TOKEN=TOKEN)
    with client_of(port, wait_until, password=TOKEN) as client:
        assert client.get("UA") == "LAX"
    wait_until(lambda: is_ready(health))
    process.terminate()
    process.communicate(timeout=60)
    laser.cli("logs", f"laser.{table}.1", *where, PATH=kubectl.path)
    deleted = laser.cli("undeploy", f"laser.{table}", "--purge", "--yes", *where, PATH=kubectl.path)
    [(logs, _), (delete, _)] = kubectl.calls()
    [status] = json.loads(deployed.stdout)

    assert apply == ["--namespace", "streams", "apply", "--filename", "-"]
    assert "rollout" in wait
    assert TOKEN not in json.dumps(manifests)
    assert [urlsplit(url).port for url in status["urls"]] == [8720, 8720]
    assert {urlsplit(url).hostname for url in status["urls"]} == {
        f"{each['metadata']['name']}.streams.svc" for each in manifests["items"] if each["kind"] == "Service"
    }
    assert "logs" in logs
    assert deleted.returncode == 0, deleted.stderr
    assert "kubectl --namespace streams delete persistentvolumeclaim" in deleted.stderr
    assert "delete" in delete
    assert laser.cli.ok("deployments", "--json", *where).strip() in {"", "[]"}


def test_a_pipeline_and_bad_requests(laser: Laser, port: int, wait_until: WaitUntil) -> None:
    """Replies are in the order of the requests. A bad request ends its own connection, and a crowd ends the oldest silent one."""
    laser.send(ranking("UA", "LAX"))
    laser.start("--key", "carrier", "--value", "top", "--connections", "3", port=port)
    with client_of(port, wait_until) as client:
        pipeline = client.pipeline(transaction=False)
        for _ in range(500):
            pipeline.get("UA")
            pipeline.get("AA")
        assert pipeline.execute() == ["LAX", None] * 500
        with pytest.raises(redis.ResponseError, match="Laser only reads"):
            client.set("UA", "x")

        assert b"Protocol error" in exchanged(port, b"POST / HTTP/1.1\r\n\r\n")
        assert b"more than 1048576 bytes" in exchanged(port, b"*2\r\n$3\r\nGET\r\n$9000000\r\n" + b"x" * 1_100_000)
        assert client.get("UA") == "LAX"
        with (
            socket.create_connection(("127.0.0.1", port), timeout=90) as oldest,
            socket.create_connection(("127.0.0.1", port)),
            socket.create_connection(("127.0.0.1", port)),
        ):
            assert b"max number of clients" in oldest.recv(65536)
            assert client.get("UA") == "LAX"


def exchanged(port: int, request: bytes) -> bytes:
    """Send bytes on a new connection, and return everything up to its end."""
    with socket.create_connection(("127.0.0.1", port), timeout=90) as connection:
        received = b""
        try:
            connection.sendall(request)
            while part := connection.recv(65536):
                received += part
        except ConnectionResetError:
            pass
        return received


def test_other_machines_need_a_token(laser: Laser, port: int) -> None:
    """Without a token, or with a token that could be guessed, nothing is served or deployed."""
    options = ("serve", "laser", laser.table, "--app", str(laser.app), "--category", laser.category, "--key", "carrier")
    refused = laser.cli(*options, "--value", "top", "--host", "0.0.0.0", "--port", str(port))  # noqa: S104 - refused
    short = laser.cli(*options, "--value", "top", "--port", str(port), PENSTOCK_LASER_TOKEN="short")  # noqa: S106 - refused
    deploy = (*options, "--deploy", "--value", "top", "--host", "0.0.0.0", "--dry-run")  # noqa: S104 - refused
    deployed = laser.cli(*deploy)
    file = laser.cli.folder / "token"
    file.write_text(TOKEN)
    protected = laser.cli(*deploy, "--token-file", str(file))

    assert (refused.returncode, short.returncode, deployed.returncode) == (1, 1, 1)
    assert "PENSTOCK_LASER_TOKEN" in refused.stderr
    assert "PENSTOCK_LASER_TOKEN" in deployed.stderr
    assert "could be guessed" in short.stderr
    assert "with the value of PENSTOCK_LASER_TOKEN" in protected.stdout
    assert TOKEN not in protected.stdout + protected.stderr
