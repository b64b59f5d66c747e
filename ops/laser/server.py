"""The server of a Laser table: the Redis protocol on asyncio, in a thread beside the worker's loop.

connection --bytes--> RequestReader --requests--> Session --replies--> connection

Connections are protocols of asyncio and not streams: a stream costs a task and two timers for each request, more than its answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import cast

from .commands import LaserServices, Later, Session
from .resp import Failure, ProtocolError, Reply, RequestReader, encode_reply

_LOG = logging.getLogger("penstock.laser")
_SENT_TOGETHER_BYTES = 64 * 2**10
"""The size from which on replies to a pipeline are sent."""
_UNREAD_BYTES = 2**20
"""The size of unread replies from which on a connection answers no further requests."""
_SWEEP_EVERY_S = 0.1
"""How often the limits of time are enforced."""
_CLOSING_S = 1.0
"""How long clients may read their last replies when the server stops."""


@dataclass(frozen=True)
class Limits:
    """The limits of a server.

    Args:
        connections: open at a time; further ones receive an error.
        request_bytes: the size of one request, and of requests that wait in a pipeline.
        request_s: the time for the rest of a request after its first bytes, and for a client to read its replies.
        idle_s: the time between two requests.
    """

    connections: int = 1_000
    request_bytes: int = 2**20
    request_s: float = 10.0
    idle_s: float = 300.0


@contextmanager
def serving(
    services: LaserServices, listener: socket.socket, limits: Limits, tls: ssl.SSLContext | None = None
) -> Iterator[None]:
    """Answer clients in a thread during the block; then close their connections.

    Args:
        services: what connections share.
        listener: accepts connections.
        limits: the limits of the server.
        tls: the settings of connections with TLS; None without.
    """
    loop = asyncio.new_event_loop()
    server = _Server(services, limits, tls)
    thread = threading.Thread(target=loop.run_until_complete, args=(server.run(listener),), name="laser")
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(server.stop)
        thread.join()
        loop.close()


class _Server:
    """Accepts connections until `stop`; in its loop's thread."""

    def __init__(self, services: LaserServices, limits: Limits, tls: ssl.SSLContext | None) -> None:
        self._services = services
        self._limits = limits
        self._tls = tls
        self._stopping = asyncio.Event()
        self._opened: set[_Connection] = set()

    def stop(self) -> None:
        """Make `run` return."""
        self._stopping.set()

    async def run(self, listener: socket.socket) -> None:
        """Answer clients."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: _Connection(Session(self._services), self._opened, self._limits, loop),
            sock=listener,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else self._limits.request_s,
        )
        while not self._stopping.is_set():
            await _wait(self._stopping, _SWEEP_EVERY_S)
            for connection in list(self._opened):
                connection.end_if_late()
        server.close()
        await self._close(loop.time() + _CLOSING_S)

    async def _close(self, deadline_s: float) -> None:
        for connection in list(self._opened):
            connection.close()
        while self._opened:
            await asyncio.sleep(0.01)
            if asyncio.get_running_loop().time() > deadline_s:
                for connection in list(self._opened):
                    connection.abort()


async def _wait(event: asyncio.Event, limit_s: float) -> None:
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(event.wait(), limit_s)


class _Connection(asyncio.Protocol):
    """Reads requests and writes replies in their order.

    Args:
        session: runs the commands.
        opened: the open connections of the server; it adds and removes itself.
        limits: the limits of the server.
        loop: the loop of the server.
    """

    _transport: asyncio.Transport

    def __init__(
        self, session: Session, opened: set[_Connection], limits: Limits, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._session = session
        self._opened = opened
        self._limits = limits
        self._loop = loop
        self._reader = RequestReader(limits.request_bytes)
        self._requests: Iterator[Sequence[bytes]] = iter(())
        self._received = b""
        self._has_unread = False  # replies that the client has to read first
        self._waiting: asyncio.Task[None] | None = None
        self._has_begun = False  # a request whose rest has a deadline
        self._deadline_s = loop.time() + limits.idle_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(_UNREAD_BYTES)
        if len(self._opened) >= self._limits.connections:
            self._refuse("ERR max number of clients reached")
        else:
            self._opened.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - a client may leave in any way
        self._opened.discard(self)
        if self._waiting is not None:
            self._waiting.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._answer()

    def pause_writing(self) -> None:
        self._has_unread = True
        self._transport.pause_reading()
        self._deadline_s = self._loop.time() + self._limits.request_s

    def resume_writing(self) -> None:
        self._has_unread = False
        self._resume()

    def end_if_late(self) -> None:
        """End the connection if its client has exceeded a limit of time."""
        if self._waiting is not None or self._loop.time() < self._deadline_s:
            return
        if self._has_unread or self._transport.is_closing():
            self.abort()
        else:
            self.close()

    def close(self) -> None:
        """End the connection when the client has read its replies, for which it has a limited time."""
        self._deadline_s = self._loop.time() + self._limits.request_s
        self._transport.close()

    def abort(self) -> None:
        """End the connection at once."""
        self._transport.abort()

    @property
    def _is_blocked(self) -> bool:
        return self._has_unread or self._waiting is not None or self._transport.is_closing()

    def _resume(self) -> None:
        self._has_begun = False
        self._answer()
        if not self._is_blocked:
            self._transport.resume_reading()

    def _answer(self) -> None:
        """Answer all complete requests, until the client has to read, or a reply has to wait."""
        try:
            self._answer_parsed()
            while self._received and not self._is_blocked:
                self._requests, self._received = self._reader.feed(self._received), b""
                self._answer_parsed()
        except ProtocolError as error:
            self._refuse(f"ERR Protocol error: {error}")
        except Exception:  # noqa: BLE001 - the failure of one connection is logged and must not end the others
            self._fail()
        if not self._is_blocked:
            self._expect_more()

    def _answer_parsed(self) -> None:
        """Answer the parsed requests, up to one that has to wait."""
        replies, size = list[bytes](), 0
        try:
            for request in () if self._is_blocked else self._requests:
                self._has_begun = False
                reply = self._session.run(request)
                if isinstance(reply, Later):
                    self._transport.pause_reading()
                    self._waiting = self._loop.create_task(self._answer_later(reply.reply))
                    return
                replies.append(encode_reply(reply, self._session.version))
                size += len(replies[-1])
                if size > _SENT_TOGETHER_BYTES:
                    # A pipeline of small requests for large values would otherwise fill the memory while its client reads nothing.
                    self._transport.write(b"".join(replies))
                    replies, size = [], 0
                if self._has_unread or self._session.is_ended:
                    return
        finally:
            if replies:
                self._transport.write(b"".join(replies))
            if self._session.is_ended:
                self.close()

    async def _answer_later(self, reply: Awaitable[Reply]) -> None:
        try:
            encoded = encode_reply(await reply, self._session.version)
        except Exception:  # noqa: BLE001 - as above
            self._fail()
            return
        finally:
            self._waiting = None
        self._transport.write(encoded)
        self._resume()

    def _expect_more(self) -> None:
        """Set the time until which the client has to send the rest of a request, or the next one."""
        unparsed_bytes = self._reader.unparsed_bytes
        if unparsed_bytes > self._limits.request_bytes:
            self._refuse(f"ERR a request has more than {self._limits.request_bytes} bytes")
        elif not unparsed_bytes:
            self._deadline_s = self._loop.time() + self._limits.idle_s
        elif not self._has_begun:
            self._has_begun = True
            self._deadline_s = self._loop.time() + self._limits.request_s

    def _refuse(self, reason: str) -> None:
        self._transport.write(encode_reply(Failure(reason), self._session.version))
        self.close()

    def _fail(self) -> None:
        _LOG.exception("A connection of Laser failed and was closed. Other connections are not affected.")
        self.close()
