"""The server of a Laser table: the Redis protocol, in a thread beside the worker's loop.

The thread waits for sockets itself. With asyncio, each request would also pay for a handle, a transport and its timers, about as much as for its answer.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from selectors import EVENT_READ, DefaultSelector
from time import monotonic

from .commands import ClientSession, LaserServices
from .connection import ClientConnection, Limits
from .resp import Reply

__all__ = ["Limits", "serving"]

_LOG = logging.getLogger("penstock.laser")
_SWEEP_EVERY_S = 0.1
"""How often the limits of time are enforced."""
_CLOSING_S = 1.0
"""How long clients may read their last replies when the server stops."""
_PAUSE_S = 1.0
"""The pause after a connection could not be accepted, for example because too many files are open."""
_THREADS = 8
"""The most replies that wait for Kafka at a time."""


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
    server = _Server(services, listener, limits, tls)
    thread = threading.Thread(target=server.run, name="laser")
    thread.start()
    try:
        yield
    finally:
        server.stop()
        thread.join()


class _Server:
    """Accepts connections, and calls them when their sockets are ready, until `stop`; in its own thread."""

    def __init__(
        self, services: LaserServices, listener: socket.socket, limits: Limits, tls: ssl.SSLContext | None
    ) -> None:
        self._services = services
        self._listener = listener
        self._limits = limits
        self._tls = tls
        self._selector = DefaultSelector()
        self._connections: dict[ClientConnection, None] = {}  # in the order in which they were accepted
        self._threads = ThreadPoolExecutor(_THREADS, "laser-lag")
        self._done: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._wakes, self._woken = socket.socketpair()
        self._accept_again_s = 0.0  # while no connections are accepted
        self._is_stopping = False

    def stop(self) -> None:
        """Make `run` return. For any thread."""
        self._call_soon(self._stop)

    def run(self) -> None:
        """Answer clients."""
        self._woken.setblocking(False)
        self._listener.setblocking(False)
        self._selector.register(self._woken, EVENT_READ, self._run_done)
        self._selector.register(self._listener, EVENT_READ, self._accept)
        sweep_s = 0.0
        while not self._is_stopping:
            self._run_once()
            if monotonic() >= sweep_s:
                self._sweep()
                sweep_s = monotonic() + _SWEEP_EVERY_S
        self._close()

    def _run_once(self) -> None:
        for key, events in self._selector.select(_SWEEP_EVERY_S):
            key.data(events)

    def _sweep(self) -> None:
        for connection in list(self._connections):
            connection.end_if_late()
        if self._accept_again_s and monotonic() >= self._accept_again_s:
            self._accept_again_s = 0.0
            self._selector.register(self._listener, EVENT_READ, self._accept)

    def _close(self) -> None:
        if not self._accept_again_s:
            self._selector.unregister(self._listener)
        for connection in list(self._connections):
            connection.close()
        deadline_s = monotonic() + _CLOSING_S
        while self._connections and monotonic() < deadline_s:
            self._run_once()
        for connection in list(self._connections):
            connection.abort()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._selector.close()
        self._wakes.close()
        self._woken.close()

    def _accept(self, events: int) -> None:  # noqa: ARG002 - it only reads
        try:
            accepted, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            _LOG.warning("Laser cannot accept a connection: %s. Open connections are not affected.", error)
            self._accept_again_s = monotonic() + _PAUSE_S
            self._selector.unregister(self._listener)
            return
        accepted.setblocking(False)
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                accepted = self._tls.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
        except OSError:  # it has left already
            accepted.close()
            return
        connection = ClientConnection(accepted, ClientSession(self._services), self, self._limits)
        self._selector.register(accepted, EVENT_READ, connection.ready)
        self._connections[connection] = None
        self._make_room()

    def _make_room(self) -> None:
        """End a connection if more are open than allowed: the oldest guest, so that clients with the token find a place among strangers."""
        if len(self._connections) > self._limits.connections:
            next(each for each in self._connections if each.is_guest).refuse_crowd()  # the last one is a guest

    def watch(self, connection: ClientConnection, events: int) -> None:
        """Call `connection.ready` after these events of its socket; with 0, after none."""
        known = connection.socket in self._selector.get_map()
        if not events:
            self._selector.unregister(connection.socket)
        elif known:
            self._selector.modify(connection.socket, events, connection.ready)
        else:
            self._selector.register(connection.socket, events, connection.ready)

    def forget(self, connection: ClientConnection) -> None:
        """A connection has ended."""
        self._connections.pop(connection, None)

    def run_later(self, work: Callable[[], Reply], done: Callable[[Callable[[], Reply]], None]) -> None:
        """Run `work` in another thread, and then `done` in this one, with a function that returns or raises its result."""

        def finish(future: Future[Reply]) -> None:
            self._call_soon(lambda: done(future.result))

        self._threads.submit(work).add_done_callback(finish)

    def _call_soon(self, call: Callable[[], None]) -> None:
        self._done.put(call)
        with suppress(OSError):  # the server has ended, or is awake anyway
            self._wakes.send(b"\0")

    def _run_done(self, events: int) -> None:  # noqa: ARG002 - it only reads
        with suppress(BlockingIOError):
            self._woken.recv(4096)
        with suppress(Empty):
            while True:
                self._done.get_nowait()()

    def _stop(self) -> None:
        self._is_stopping = True
