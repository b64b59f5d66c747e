"""A small HTTP server for health and metrics, which needs no extra. Its limits are those of `http_server`, for clients that are few.

Each connection is one GET request in a thread of its own. Clients that send slowly, or never, neither fill the memory nor keep others out.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any, BinaryIO, NamedTuple, cast

from ...state import SocketDeadline

_LOG = logging.getLogger("penstock.http")
_PART_BYTES = 2**16


@dataclass(frozen=True)
class SmallLimits:
    """The limits of a server.

    Args:
        connections: open at a time. A further one takes the place of the oldest one.
        request_s: the time for a client to send a whole request.
        request_bytes: the size of a request.
        unread_s: the time in which a client has to read something of an answer.
    """

    connections: int = 64
    request_s: float = 10.0
    request_bytes: int = 2**16
    unread_s: float = 60.0


class Answer(NamedTuple):
    """An answer.

    Args:
        status: its status code.
        content_type: the type of its body.
        body: its body.
    """

    status: int
    content_type: str
    body: bytes


class SmallHttpServer(ThreadingHTTPServer):
    """A server of GET requests. `serve_forever` answers until `shutdown`.

    Args:
        host: the name or address to listen on, of IPv4 or IPv6.
        port: the port; 0 for a free one.
        answer: returns the answer to a request for a path with headers; called in several threads at once.
        limits: its limits.

    Raises:
        OSError: it cannot listen there.
    """

    def __init__(
        self, host: str, port: int, answer: Callable[[str, Message], Answer], limits: SmallLimits | None = None
    ) -> None:
        self.answer = answer
        self.limits = limits or SmallLimits()
        self._open: dict[socket.socket, None] = {}
        self._lock = Lock()
        self.address_family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        super().__init__(cast("tuple[str, int]", address), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread, and end the oldest one if there are too many."""
        with self._lock:
            self._open[request] = None
            oldest = next(iter(self._open)) if len(self._open) > self.limits.connections else None
        if oldest is not None:
            self._end(oldest)
        super().process_request(request, client_address)

    def _end(self, connection: socket.socket) -> None:
        """Make the reads and writes of a connection end."""
        with self._lock:
            self._open.pop(connection, None)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's signature
        """Log an error; clients that have gone are none."""
        _LOG.debug("A request was not answered.", exc_info=True)


class _LimitedReader:
    """Reads the lines of a request up to a size, and refuses the request then."""

    def __init__(self, file: BinaryIO, left: int) -> None:
        self._file = file
        self._left = left

    def readline(self, limit: int = -1) -> bytes:
        if self._left <= 0:
            raise HTTPException("the request is too large")
        line = self._file.readline(self._left if limit < 0 else min(limit, self._left))
        self._left -= len(line)
        return line

    def close(self) -> None:
        self._file.close()


class _Handler(BaseHTTPRequestHandler):
    server: SmallHttpServer

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.limits.unread_s)  # of one operation
        self._has_request = False
        self.rfile = cast("Any", _LimitedReader(cast("BinaryIO", self.rfile), self.server.limits.request_bytes))

    def handle(self) -> None:
        with SocketDeadline(self.server.limits.request_s, lambda: not self._has_request) as deadline:
            deadline.watch(self.connection.fileno())
            super().handle()

    def parse_request(self) -> bool:
        self._has_request = super().parse_request()
        return self._has_request

    def do_GET(self) -> None:
        try:
            answer = self.server.answer(self.path, self.headers)
        except Exception as error:  # noqa: BLE001 - of one request
            _LOG.debug("A request was not answered.", exc_info=True)
            answer = Answer(500, "text/plain; charset=utf-8", f"{error}\n".encode())
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        for at in range(0, len(answer.body), _PART_BYTES):  # the time limit is for each part
            self.wfile.write(answer.body[at : at + _PART_BYTES])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing, since probes come every few seconds."""
