"""The server of a Laser table: the Redis protocol on asyncio, in a thread beside the worker's loop.

connection --bytes--> hiredis.Reader --requests--> Session --replies--> connection
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import hiredis

from .commands import LaserServices, Session
from .resp import Failure, encode_reply

_LOG = logging.getLogger("penstock.laser")
_READ_BYTES = 64 * 2**10


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
def serving(services: LaserServices, listener: socket.socket, limits: Limits) -> Iterator[None]:
    """Answer clients in a thread during the block; then close their connections."""
    loop = asyncio.new_event_loop()
    server = _Server(services, limits)
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

    def __init__(self, services: LaserServices, limits: Limits) -> None:
        self._services = services
        self._limits = limits
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Make `run` return."""
        self._stopping.set()

    async def run(self, listener: socket.socket) -> None:
        """Answer clients."""
        server = await asyncio.start_server(self._accept, sock=listener, limit=_READ_BYTES)
        await self._stopping.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("connections are accepted in tasks")
        self._tasks.add(task)
        try:
            if len(self._tasks) > self._limits.connections:
                writer.write(encode_reply(Failure("ERR max number of clients reached"), 2))
                return
            await _Connection(Session(self._services), reader, writer, self._limits).run()
        except (ConnectionError, asyncio.TimeoutError, asyncio.CancelledError):
            pass  # the client has left or is too slow, or the server stops: the connection ends
        except Exception:  # noqa: BLE001 - the failure of one connection is logged and must not end the others
            _LOG.exception("A connection of Laser failed and was closed. Other connections are not affected.")
        finally:
            self._tasks.discard(task)
            writer.close()


class _Connection:
    """Reads requests and writes replies in their order."""

    def __init__(
        self, session: Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: Limits
    ) -> None:
        self._session = session
        self._reader = reader
        self._writer = writer
        self._limits = limits
        self._requests = hiredis.Reader()
        self._unparsed_bytes = 0

    async def run(self) -> None:
        """Answer requests until the client leaves, breaks the protocol, or exceeds a limit."""
        while not self._session.is_ended:
            received = await self._receive()
            if not received:
                return
            self._requests.feed(received)
            self._unparsed_bytes += len(received)
            if not await self._answer():
                return

    async def _receive(self) -> bytes:
        limits = self._limits
        return await asyncio.wait_for(
            self._reader.read(_READ_BYTES), limits.request_s if self._unparsed_bytes else limits.idle_s
        )

    async def _answer(self) -> bool:
        """Answer all complete requests; return whether the connection stays open."""
        try:
            # False stands for an incomplete request; no request is a boolean.
            while not self._session.is_ended and (request := self._requests.gets()) is not False:
                self._writer.write(encode_reply(await self._session.run(request), self._session.version))
                self._unparsed_bytes = 0  # a begun next request counts from its next bytes on
        except hiredis.ProtocolError:
            return await self._refuse("ERR Protocol error")
        await asyncio.wait_for(self._writer.drain(), self._limits.request_s)
        if self._unparsed_bytes > self._limits.request_bytes:
            return await self._refuse(f"ERR a request has more than {self._limits.request_bytes} bytes")
        return True

    async def _refuse(self, reason: str) -> bool:
        self._writer.write(encode_reply(Failure(reason), self._session.version))
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._writer.drain(), self._limits.request_s)
        return False
