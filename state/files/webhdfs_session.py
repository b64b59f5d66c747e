"""HTTP requests to WebHDFS: each step of an exchange has a time limit, and only the redirects of the protocol are followed.

A general client is made for people who browse. It follows a redirect to a login page, which answers with 200 as if a file had been renamed, and
its time limit is for one operation of a socket, so it waits for as long as a byte arrives now and then.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any
from weakref import WeakSet

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool

from ..http_exchange import refusal_of
from ..socket_deadline import SocketDeadline

_PART_BYTES = 2**20
_TO_A_DATA_NODE = HTTPStatus.TEMPORARY_REDIRECT


class WebHdfsSession(requests.Session):
    """A session of one thread.

    Args:
        limit_s: the seconds for a request with its answer, and then for each part of a body.
    """

    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self._limit_s = limit_s
        self._deadline: SocketDeadline | None = None
        self._awaits_server = True
        self._connections = WeakSet[HTTPConnection]()
        for scheme in ("http://", "https://"):
            self.mount(scheme, _WatchedAdapter(self._watch))

    def request(self, method: str, url: str | bytes, *args: Any, **options: Any) -> requests.Response:
        """Return the answer to a request. The chunks of an iterator as its body are sent in parts.

        Raises:
            requests.RequestException: the answer did not arrive in time, is a redirect to another service, or is none.
        """
        if isinstance(options.get("data"), Iterator):
            options["data"] = self._parts_to_send(options["data"])
        with self._limited():
            answer = super().request(method, url, *args, **options)
        if answer.is_redirect and answer.status_code != _TO_A_DATA_NODE:
            raise requests.HTTPError(
                refusal_of(answer.status_code, answer.reason, answer.url, answer.headers.get("Location"))
            )
        return answer

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return where a redirect of the protocol leads; None for all others."""
        return super().get_redirect_target(resp) if resp.status_code == _TO_A_DATA_NODE else None

    def received(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield a body in parts, each of which must arrive in time. The server determines the size of its chunks.

        Raises:
            requests.ReadTimeout: a part did not.
        """
        while True:
            with self._limited():
                part = _joined_up_to(_PART_BYTES, chunks)
            if not part:
                return
            yield part

    def _parts_to_send(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield chunks in parts, each of which must be sent in time. The time in which a chunk is produced does not count."""
        self._awaits_server = False
        for chunk in chunks:
            for begin in range(0, len(chunk), _PART_BYTES):
                self._renew()
                self._awaits_server = True
                yield chunk[begin : begin + _PART_BYTES]
                self._awaits_server = False
        self._renew()
        self._awaits_server = True

    def _renew(self) -> None:
        if self._deadline is not None:
            self._deadline.renew()

    @contextmanager
    def _limited(self) -> Iterator[None]:
        outer = self._deadline, self._awaits_server  # of an upload whose chunks are read from this store
        self._awaits_server = True
        with SocketDeadline(self._limit_s, lambda: self._awaits_server) as deadline:
            for connection in self._connections:
                if connection.sock is not None:
                    deadline.watch(connection.sock.fileno())
            self._deadline = deadline
            try:
                yield
            except requests.RequestException as error:
                self._expect_in_time(deadline, error)
                raise
            finally:
                self._deadline, self._awaits_server = outer
            self._expect_in_time(deadline)  # the end of a connection can look like the end of an answer

    def _expect_in_time(self, deadline: SocketDeadline, error: Exception | None = None) -> None:
        if deadline.has_passed:
            raise requests.ReadTimeout(
                f"nothing, or too little of the answer, arrived within {self._limit_s:g} s"
            ) from error

    def _watch(self, connection: HTTPConnection, opened: socket.socket) -> None:
        self._connections.add(connection)
        if self._deadline is not None:
            self._deadline.watch(opened.fileno())


def _joined_up_to(size: int, chunks: Iterator[bytes]) -> bytes:
    """Return chunks together, from the next one on; empty at the end."""
    part = bytearray()
    for chunk in chunks:
        part += chunk
        if len(part) >= size:
            break
    return bytes(part)


class _Watched(HTTPConnection):
    on_open: Callable[[HTTPConnection, socket.socket], None]

    def _new_conn(self) -> socket.socket:  # before the handshake of TLS, which is a part of the exchange
        opened = super()._new_conn()
        self.on_open(self, opened)
        return opened


class _WatchedTls(_Watched, HTTPSConnection):
    pass


class _WatchedAdapter(HTTPAdapter):
    def __init__(self, on_open: Callable[[HTTPConnection, socket.socket], None]) -> None:
        self._on_open = on_open
        super().__init__()

    def get_connection_with_tls_context(
        self,
        request: requests.PreparedRequest,
        verify: bool | str,
        proxies: dict[str, str] | None = None,
        cert: tuple[str, str] | str | None = None,
    ) -> HTTPConnectionPool:
        """Return the connections to a server or a proxy."""
        pool = super().get_connection_with_tls_context(request, verify, proxies, cert)
        kind = _WatchedTls if pool.scheme == "https" else _Watched
        pool.ConnectionCls = partial(self._connection, kind)  # type: ignore[assignment]  # it is only called
        return pool

    def _connection(self, kind: type[_Watched], **options: Any) -> _Watched:
        connection = kind(**options)
        connection.on_open = self._on_open
        return connection
