"""Time limits of whole exchanges with a server. The limit of a socket is for one operation: a server that sends a byte now and then never exceeds it."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from types import MappingProxyType
from typing import Any, Self
from urllib.parse import urlsplit

_PART_BYTES = 2**16
"""What must arrive of a body within a time limit."""
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class SocketDeadline:
    """Shuts down the sockets of an exchange if it takes too long, so that its reads and writes end. A context manager.

    Args:
        limit_s: seconds from the beginning, or from the last `renew` on.
        is_over: called in another thread at the end of the time; if it returns False, the time begins again.
    """

    def __init__(self, limit_s: float, is_over: Callable[[], bool] = lambda: True) -> None:
        self.has_passed = False
        self._limit_s = limit_s
        self._is_over = is_over
        self._due_s = time.monotonic() + limit_s
        self._sockets: list[socket.socket] = []
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._wait, name="deadline", daemon=True)

    def watch(self, descriptor: int) -> None:
        """Add a connected socket."""
        duplicate = socket.socket(fileno=os.dup(descriptor))
        with self._lock:
            self._sockets.append(duplicate)
        if self.has_passed:
            self._shut_down()

    def renew(self) -> None:
        """Begin the time again, because the exchange makes progress."""
        self._due_s = time.monotonic() + self._limit_s

    def __enter__(self) -> Self:
        """Begin the time."""
        self.renew()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the exchange."""
        self._over.set()
        self._thread.join()
        for duplicate in self._sockets:
            duplicate.close()

    def _wait(self) -> None:
        while not self._over.wait(max(self._due_s - time.monotonic(), 0.0)):
            if time.monotonic() < self._due_s:
                continue
            if not self._is_over():
                self.renew()
            elif not self._over.is_set():
                self.has_passed = True
                self._shut_down()
                return

    def _shut_down(self) -> None:
        with self._lock:
            for duplicate in self._sockets:
                with suppress(OSError):
                    duplicate.shutdown(socket.SHUT_RDWR)


class _Http(HTTPConnection):
    deadline: SocketDeadline

    def connect(self) -> None:
        super().connect()
        self.deadline.watch(self.sock.fileno())


class _Https(HTTPSConnection, _Http):
    """Its `connect` calls the method of `_Http` before the handshake, which is a part of the exchange."""


class DeadlineConnection:
    """A connection to an HTTP server, on which a server that sends a byte now and then exceeds the time limit. For one thread; close it.

    The limit is for connecting, the request and the status with its headers, and then for each part of the body, whose size has no limit.

    Args:
        url: the address; only its scheme, host and port are used.
        limit_s: the time limit in seconds.
        tls: the certificates to trust, for HTTPS; by default the ones of the system.
    """

    def __init__(self, url: str, limit_s: float, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        self._limit_s = limit_s
        self._connection = (
            _Https(host, port, timeout=limit_s, context=tls)
            if parts.scheme == "https"
            else _Http(host, port, timeout=limit_s)
        )

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = _NO_HEADERS
    ) -> tuple[int, bytes]:
        """Return the status and the body of an answer. After an error, close the connection.

        Raises:
            OSError: a part of the answer did not arrive in time, or the connection broke.
            HTTPException: the answer is no HTTP.
        """
        with SocketDeadline(self._limit_s) as deadline:
            self._connection.deadline = deadline
            if self._connection.sock is not None:
                deadline.watch(self._connection.sock.fileno())
            try:
                self._connection.request(method, path, body, dict(headers))
                response = self._connection.getresponse()
                content = _body(response, deadline)
            except TimeoutError as error:  # of the socket, which may be before the deadline
                raise self._late() from error
            except (OSError, HTTPException):
                self._expect_in_time(deadline)
                raise
            self._expect_in_time(deadline)  # the end of a connection can look like the end of headers or of a body
            return response.status, content

    def _expect_in_time(self, deadline: SocketDeadline) -> None:
        if deadline.has_passed:
            raise self._late()

    def _late(self) -> TimeoutError:
        return TimeoutError(f"nothing, or too little of the answer, arrived within {self._limit_s:g} s")

    def close(self) -> None:
        """Close the connection. The next request opens it again."""
        self._connection.close()


def _body(response: HTTPResponse, deadline: SocketDeadline) -> bytes:
    parts = []
    while part := response.read(_PART_BYTES):
        deadline.renew()
        parts.append(part)
    if response.length:
        raise IncompleteRead(b"", response.length)
    return b"".join(parts)


def _watched(kind: type[_Http], deadline: SocketDeadline, host: str, **options: Any) -> _Http:
    connection = kind(host, **options)
    connection.deadline = deadline
    return connection


class _HttpHandler(urllib.request.HTTPHandler):
    def __init__(self, deadline: SocketDeadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_watched, _Http, self._deadline), req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def __init__(self, deadline: SocketDeadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_watched, _Https, self._deadline), req)


def opener_until(deadline: SocketDeadline, *handlers: urllib.request.BaseHandler) -> urllib.request.OpenerDirector:
    """Return an opener whose requests end at a deadline: connecting, the handshake, headers and body."""
    return urllib.request.build_opener(_HttpHandler(deadline), _HttpsHandler(deadline), *handlers)
