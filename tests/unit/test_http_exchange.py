"""HTTP requests to servers that answer slowly, partly, or not at all."""

from __future__ import annotations

import ssl
import threading
import urllib.request
from contextlib import closing
from http.client import HTTPException, IncompleteRead
from pathlib import Path

import pytest
from support.secured_kafka import certificate
from support.slow_server import answering, dripping

from penstock.state import DeadlineConnection, SocketDeadline, exchange


def request(url: str) -> urllib.request.Request:
    """Return a request with rows."""
    return urllib.request.Request(url, b"rows")  # noqa: S310 - of this test


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1", b"HTTP/1.1 200 OK\r\nX: "])
@pytest.mark.parametrize("repeated", [b"a", b""])
def test_an_exchange_ends_in_time(begin: bytes, repeated: bytes) -> None:
    """The server may send a byte now and then. Such an answer does not count as received."""
    with dripping(begin, repeated) as url, pytest.raises(TimeoutError, match=r"no complete answer within 0\.3 s"):
        exchange(request(url), 0.3)


@pytest.mark.parametrize("repeated", [b"a", b""])
def test_a_refusal_whose_text_does_not_end_is_the_answer(repeated: bytes) -> None:
    """Its status has arrived, and the text is only for people."""
    with dripping(b"HTTP/1.1 500 No\r\nContent-Length: 99999\r\n\r\n", repeated) as url:
        assert exchange(request(url), 2.0).status == 500


def test_a_handshake_of_tls_ends_in_time() -> None:
    """It is a part of the exchange."""
    with dripping(b"", b"\x16") as url, pytest.raises((TimeoutError, OSError, HTTPException)):
        exchange(request(url.replace("http:", "https:")), 0.3)


def test_an_answer_over_tls_is_limited_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit applies after the handshake, whose certificate is checked."""
    authority = certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority, tmp_path / "key.pem")
    whole = b"HTTP/1.1 204 Done\r\nContent-Length: 0\r\n\r\n"
    with dripping(whole, b"", context) as url:
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            exchange(request(url), 60.0)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))

        assert exchange(request(url), 60.0).status == 204
    with dripping(b"HTTP/1.1 200 OK\r\nX: ", b"a", context) as url, pytest.raises(TimeoutError):
        exchange(request(url), 0.5)


def test_an_answer_in_time_leaves_nothing_behind() -> None:
    """The thread of the deadline has ended."""
    with dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"") as url:
        answer = exchange(request(url), 60.0)

        assert (answer.status, answer.is_accepted) == (200, True)
        assert "deadline" not in {thread.name for thread in threading.enumerate()}


STARTED = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("begin", "repeated"),
    [
        (b"", b""),
        (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
        (STARTED, b"a"),
        (STARTED, b""),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"a"),
        (CHUNKED, b"1\r\na\r\n"),
    ],
    ids=["nothing", "headers", "body", "no body", "body without length", "chunks"],
)
def test_an_answer_that_arrives_too_slowly_is_none(begin: bytes, repeated: bytes) -> None:
    """Neither its headers nor a part of its body may take longer than the limit, however often a byte arrives."""
    with (
        dripping(begin, repeated) as url,
        closing(DeadlineConnection(url, 0.3)) as connection,
        pytest.raises(TimeoutError, match=r"arrived within 0\.3 s"),
    ):
        connection.request("GET", "/")


def test_an_answer_of_any_size_is_received_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time begins again with each part, and the connection is used again."""
    renewals = list[float]()
    monkeypatch.setattr(SocketDeadline, "renew", lambda deadline: renewals.append(deadline._limit_s))
    size = 1_000_000
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (size, b"x" * size)
    with answering(answer, 2) as url, closing(DeadlineConnection(url, 60.0)) as connection:
        answers = [connection.request("GET", "/") for _ in range(2)]

    assert answers == [(200, b"x" * size)] * 2
    assert len(renewals) > 2 * 10


def test_an_answer_that_ends_too_early_is_none() -> None:
    """A part of a body is never taken for the whole."""
    with (
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", 1) as url,
        closing(DeadlineConnection(url, 60.0)) as connection,
        pytest.raises(IncompleteRead),
    ):
        connection.request("GET", "/")
