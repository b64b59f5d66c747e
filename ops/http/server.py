"""The HTTP servers of Penstock, and their limits: of connections, of the time for a request, and of the time to read its answer."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .listening import Certificate

_DRAIN_S = 5
"""The time for open requests at the end."""


@dataclass(frozen=True)
class HttpLimits:
    """The limits of a server.

    Args:
        connections: open at a time. A further one takes the place of the one that has waited longest for its client; if all
            are busy with requests, it receives 503.
        request_s: the time for a client to send a whole request, from its first byte on; of a new connection, from its begin on.
        unread_s: the time in which a client has to read something of an answer.
    """

    connections: int = 1_000
    request_s: float = 30.0
    unread_s: float = 60.0


LIMITS = HttpLimits()


class LimitedConnection(H11Protocol):
    """A connection that ends when its client is too slow. Uvicorn itself waits for ever, so a few unfinished requests would lock every client out.

    Args:
        limits: the limits of the server.
        waiting: the connections of the server that wait for their clients, the longest wait first. Further clients cost no look at all of them.
        arguments: of uvicorn.
    """

    def __init__(self, limits: HttpLimits, waiting: Waiting, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._limits = limits
        self._waiting = waiting
        self._request, self._reading = _Deadline(self.loop, self.end), _Deadline(self.loop, self.end)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for the connection, and expect its first request."""
        super().connection_made(transport)
        self._expect_request()
        if len(self.connections) > self._limits.connections:
            self._make_room()

    def _make_room(self) -> None:
        longest = next(iter(self._waiting))
        if longest is not self:
            longest.end()
        else:
            self.limit_concurrency = 0  # uvicorn answers 503

    def _expect_request(self) -> None:
        self._request.begin(self._limits.request_s)
        self._waiting[self] = None
        self._waiting.move_to_end(self)

    def data_received(self, data: bytes) -> None:
        """Parse bytes, and expect the rest of the request."""
        super().data_received(data)
        if not self.waits_for_client:
            self._request.clear()
            self._waiting.pop(self, None)
        elif not self._request.is_set:
            self._expect_request()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if self.waits_for_client and not self.transport.is_closing():
            self._waiting.setdefault(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clear the deadlines."""
        self._waiting.pop(self, None)
        self._request.clear()
        self._reading.clear()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Expect the client to read."""
        super().pause_writing()
        self._reading.begin(self._limits.unread_s)

    def resume_writing(self) -> None:
        """Go on, since the client has read."""
        self._reading.clear()
        super().resume_writing()

    @property
    def waits_for_client(self) -> bool:
        """Whether the client has not sent a whole request."""
        return self.conn.their_state in {h11.IDLE, h11.SEND_BODY}

    def end(self) -> None:
        """End the connection at once: its client may not read, so nothing more is sent."""
        self.connections.discard(self)  # now, since the event loop calls `connection_lost` only later
        self._waiting.pop(self, None)
        self.transport.abort()


Waiting: TypeAlias = "OrderedDict[LimitedConnection, None]"


class _Deadline:
    """Calls a function some seconds after `begin`, unless it is cleared before."""

    def __init__(self, loop: asyncio.AbstractEventLoop, exceeded: Callable[[], None]) -> None:
        self._loop = loop
        self._exceeded = exceeded
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        return self._timer is not None

    def begin(self, seconds: float) -> None:
        self.clear()
        self._timer = self._loop.call_later(seconds, self._exceeded)

    def clear(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None


def server_config(
    application: Callable[..., Any], certificate: Certificate | None = None, limits: HttpLimits = LIMITS
) -> uvicorn.Config:
    """Return the settings of a server of an ASGI application."""
    return uvicorn.Config(
        application,
        http=cast("type[asyncio.Protocol]", partial(LimitedConnection, limits, OrderedDict[LimitedConnection, None]())),
        log_level="warning",
        access_log=False,  # URLs may contain a token
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=_DRAIN_S,
        ssl_certfile=None if certificate is None else str(certificate.file),
        ssl_keyfile=None if certificate is None else str(certificate.key),
    )


def http_server(
    application: Callable[..., Any], certificate: Certificate | None = None, limits: HttpLimits = LIMITS
) -> uvicorn.Server:
    """Return a server of an ASGI application. Its `run` answers clients until `should_exit`."""
    return uvicorn.Server(server_config(application, certificate, limits))
