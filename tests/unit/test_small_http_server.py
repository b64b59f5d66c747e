"""The HTTP server of health and metrics: clients that send slowly, much or nothing neither keep others out nor fill the memory."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from email.message import Message
from http.client import HTTPConnection

import pytest
from prometheus_client import CollectorRegistry, Gauge

from penstock.ops.http import Answer, SmallHttpServer
from penstock.ops.http.small_server import SmallLimits
from penstock.ops.status.commands.metrics import metrics_server

HOST = "127.0.0.1"
PATIENT = SmallLimits(connections=4, request_s=60.0)
HASTY = SmallLimits(request_s=2.0)  # which the requests of other clients meet on a busy machine
LIMIT_S = 30.0


def echo(path: str, headers: Message) -> Answer:
    """Answer with the path, or fail."""
    if path == "/bad":
        raise ValueError("a bug")
    return Answer(200, headers.get("Accept", "text/plain"), path.encode() * (100_000 if path == "/large" else 1))


@contextmanager
def serving(limits: SmallLimits) -> Iterator[int]:
    """Serve during the block; yield the port."""
    with running(SmallHttpServer(HOST, 0, echo, limits)) as port:
        yield port


@contextmanager
def running(server: SmallHttpServer) -> Iterator[int]:
    """Run a server during the block; yield the port."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def asked(port: int, path: str) -> tuple[int, bytes]:
    """Return the status and the body of an answer."""
    with closing(HTTPConnection(HOST, port, timeout=LIMIT_S)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_requests_are_answered() -> None:
    """Large requests are among them, and requests after an error of the code."""
    with serving(SmallLimits()) as port:
        assert [asked(port, path)[0] for path in ("/", "/bad", "/")] == [200, 500, 200]
        assert asked(port, "/large")[1] == b"/large" * 100_000


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.0\r\nX: "], ids=["nothing", "a part"])
def test_unfinished_requests_do_not_keep_others_out(sent: bytes) -> None:
    """A further client takes the place of the oldest one, whose connection ends."""
    with serving(PATIENT) as port, ExitStack() as opened:
        idle = [opened.enter_context(socket.create_connection((HOST, port), LIMIT_S)) for _ in range(8)]
        for each in idle:
            each.sendall(sent)

        assert asked(port, "/")[0] == 200
        assert idle[0].recv(1) == b""


@pytest.mark.parametrize("part", [b"GET / HTTP/1.0\r\nX: 1\r\n", b"G"], ids=["headers", "the first line"])
def test_a_request_has_one_time_limit(part: bytes) -> None:
    """The client may send a byte of it now and then."""
    with serving(HASTY) as port, socket.create_connection((HOST, port), LIMIT_S) as client:
        client.sendall(part)
        client.settimeout(0.01)
        ended = threading.Event()
        while not ended.is_set():
            try:
                client.sendall(b"x")
                if client.recv(1) == b"":
                    ended.set()
            except TimeoutError:
                continue
            except OSError:
                ended.set()

        assert asked(port, "/")[0] == 200


def test_a_request_has_a_size_limit() -> None:
    """It is refused, and the rest of its headers is not read."""
    with serving(SmallLimits(request_bytes=1_000)) as port, socket.create_connection((HOST, port), LIMIT_S) as client:
        client.sendall(b"GET / HTTP/1.0\r\n")
        client.sendall(b"".join(b"X-%d: %s\r\n" % (number, b"x" * 100) for number in range(90)) + b"\r\n")
        with client.makefile("rb") as answer:
            status = answer.readline()

        assert b" 431 " in status
        assert asked(port, "/")[0] == 200


def test_penstock_metrics_serves_a_registry() -> None:
    """The client accepts the format."""
    registry = CollectorRegistry()
    Gauge("penstock_test", "a value", registry=registry).set(7)
    with running(metrics_server(HOST, 0, registry)) as port:
        status, body = asked(port, "/metrics")

    assert status == 200
    assert b"penstock_test 7.0" in body
