"""The limits of the HTTP servers, against clients that send or read too slowly."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection

import pytest
from starlette.requests import Request
from starlette.types import Receive, Scope, Send
from support.laser_site import wait_for

from penstock.ops.http import body_of, http_server, listening_at, url_of
from penstock.ops.http.application import MAX_BODY, BodyRefused
from penstock.ops.http.server import HttpLimits, LimitedConnection

HEAD = b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\n"
LARGE = b"x" * (32 * 2**20)


class Application:
    """Answers with the size of the body, or with 32 MiB, or when it may."""

    def __init__(self) -> None:
        self.late = self.answered = 0
        self.may_answer = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            content = LARGE if scope["path"] == "/large" else b"%d" % len(await body_of(Request(scope, receive)))
            if scope["path"] == "/late":
                self.late += 1
                while not self.may_answer:  # noqa: ASYNC110 - the test sets it in another thread
                    await asyncio.sleep(0.01)
            status = 200
        except BodyRefused as error:
            status, content = error.status, str(error).encode()
        headers = [(b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        self.answered += 1


@contextmanager
def served(limits: HttpLimits, application: Application | None = None) -> Iterator[int]:
    """Serve the application in a thread; yield the port."""
    with listening_at("127.0.0.1", 0, "The server") as listener:
        server = http_server(application or Application(), limits=limits)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()


def ask(port: int, body: bytes = b"", path: str = "/echo") -> tuple[int, bytes]:
    """Return the status and the content of an answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def rest_of(client: socket.socket) -> bytes:
    """Return what a server sends until it ends the connection."""
    found = bytearray()
    with suppress(ConnectionError):
        while received := client.recv(1 << 16):
            found += received
    return bytes(found)


UNFINISHED = [
    b"",
    b"G",
    HEAD + b"X: ",
    HEAD + b"Content-Length: 9\r\n\r\n12",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n9\r\n12",
    HEAD + b"Content-Length: 0\r\n\r\n" + HEAD + b"X: ",
]


@pytest.mark.parametrize("sent", UNFINISHED)
def test_unfinished_requests_keep_no_other_client_out(sent: bytes) -> None:
    """The server receives more of them than it has connections, and still answers each further client at once."""
    with served(HttpLimits(connections=20)) as port, ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)).sendall(sent)

        assert [ask(port, b"four") for _ in range(3)] == [(200, b"4")] * 3


def test_a_further_client_costs_no_look_at_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that opens connections quickly would otherwise keep the server from the others."""
    looks, state = Counter[int](), vars(LimitedConnection)["waits_for_client"].fget

    def looked_at(connection: LimitedConnection) -> bool:
        looks[id(connection)] += 1
        return bool(state(connection))

    monkeypatch.setattr(LimitedConnection, "waits_for_client", property(looked_at))
    with served(HttpLimits(connections=100)) as port, ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)).sendall(UNFINISHED[1])
        assert ask(port, b"four") == (200, b"4")

    assert looks.total() < 1_000


def test_an_idle_connection_makes_room() -> None:
    """It has its answer, and waits for the client's next request."""
    with served(HttpLimits(connections=2)) as port, ExitStack() as stack:
        idle = [stack.enter_context(closing(HTTPConnection("127.0.0.1", port, timeout=60))) for _ in range(2)]
        for connection in idle:
            connection.request("POST", "/echo", b"four")
            assert connection.getresponse().read() == b"4"

        assert ask(port) == (200, b"0")


@pytest.mark.parametrize("sent", UNFINISHED)
def test_an_unfinished_request_ends_in_time(sent: bytes) -> None:
    """The client continues to send a byte now and then."""
    with (
        served(HttpLimits(request_s=2.0)) as port,
        socket.create_connection(("127.0.0.1", port), timeout=0.05) as client,
    ):
        client.sendall(sent)
        for _ in range(4_000):
            try:
                if not client.recv(1_000):
                    break
            except TimeoutError:
                with suppress(ConnectionError):
                    client.sendall(b"x")
            except ConnectionError:
                break
        else:
            pytest.fail("the server waits for ever")

        assert ask(port, b"four") == (200, b"4")


def test_whole_requests_are_never_given_up_for_others() -> None:
    """While all connections are busy with requests, further ones receive 503, and afterwards an answer."""
    late = b"POST /late HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    application = Application()
    limits = HttpLimits(connections=2, request_s=1.0)
    with served(limits, application) as port, ExitStack() as stack:
        busy = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(2)]
        for client in busy:
            client.sendall(late)
        wait_for(lambda: application.late == 2)
        refused = [ask(port)[0] for _ in range(5)]
        time.sleep(1.2 * limits.request_s)  # the limit is for the request, and not for its answer
        application.may_answer = True

        assert refused == [503] * 5
        assert all(rest_of(client).startswith(b"HTTP/1.1 200") for client in busy)
        assert ask(port) == (200, b"0")


def test_a_client_that_reads_nothing_is_disconnected() -> None:
    """Its answer would otherwise fill the memory of the server."""
    application = Application()
    with (
        served(HttpLimits(unread_s=0.5), application) as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as client,
    ):
        client.sendall(b"POST /large HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n")
        wait_for(lambda: application.answered == 1)

        assert len(rest_of(client)) < len(LARGE)


def test_a_body_has_a_limit() -> None:
    """It is read up to the limit only, and the answer says why."""
    with served(HttpLimits()) as port:
        assert ask(port, b"x" * MAX_BODY) == (200, b"%d" % MAX_BODY)
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(HEAD + b"Content-Length: 400000000\r\n\r\n" + b"x" * (MAX_BODY + 1))

            assert b"413" in client.recv(1_000)


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_a_url_of_a_server_can_be_copied(host: str, shown: str) -> None:
    """It contains the port that the system chose, and brackets around an IPv6 address."""
    with listening_at(host, 0, "The server") as listener:
        port = listener.getsockname()[1]

        assert url_of(listener, "rediss") == f"rediss://{shown}:{port}"
