"""A TCP proxy that loses connections at chosen moments: between two calls, within a call, or with an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

_CHUNK_BYTES = 65_536

Target = tuple[str, int] | str
"""Host and port, or the path of a unix socket."""


class Proxy:
    """Passes bytes between clients and one server. Use it within `contextlib.closing`."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._refusing = False
        self._silent = False
        self._fatal_answer: Callable[[bytes], bool] | None = None
        self._bytes_left: int | None = None
        self.losses = 0
        self.refusals = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close every connection, and accept new ones."""
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for one in sockets:
            _close(one)

    def refuse(self) -> None:
        """Close every connection, and refuse new ones."""
        self._refusing = True
        self.cut()

    def resume(self) -> None:
        """Accept connections and pass answers again."""
        self._refusing = self._silent = False

    def fall_silent(self) -> None:
        """Withhold all answers with open connections, until `resume`."""
        self._silent = True

    def lose_answer(self, containing: bytes = b"", *, after: int = 0) -> None:
        """Lose the answer that contains these bytes, and cut the connections; `after` such answers pass first."""
        seen = 0

        def is_fatal(answer: bytes) -> bool:
            nonlocal seen
            seen += containing in answer
            return seen > after

        self._fatal_answer = is_fatal

    def cut_after(self, size_bytes: int) -> None:
        """Cut the connections after clients have sent this many further bytes; the rest is lost."""
        self._bytes_left = size_bytes

    def close(self) -> None:
        """Close the proxy."""
        self.refuse()
        _close(self._listener)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                self.refusals += 1
                _close(client)
            else:
                self._join(client)

    def _join(self, client: socket.socket) -> None:
        try:
            server = _connected(self._target)
        except OSError:
            _close(client)
            return
        with self._lock:
            self._sockets |= {client, server}
        if self._refusing:
            self.cut()  # an outage that began meanwhile did not know this connection
        for source, sink, keeps in ((client, server, self._request), (server, client, self._answer)):
            threading.Thread(target=self._pass_on, args=(source, sink, keeps), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, keep: Callable[[bytes], bytes | None]) -> None:
        with suppress(OSError):
            while passing := source.recv(_CHUNK_BYTES):
                kept = keep(passing)
                if kept is None:
                    self.losses += 1
                    self.cut()
                    return
                sink.sendall(kept)
        for one in (source, sink):
            _close(one)

    def _request(self, sent: bytes) -> bytes | None:
        with self._lock:  # of several connections
            if self._bytes_left is None:
                return sent
            self._bytes_left -= len(sent)
            if self._bytes_left >= 0:
                return sent
            self._bytes_left = None
            return None

    def _answer(self, answered: bytes) -> bytes | None:
        if self._silent:
            return b""
        with self._lock:
            if self._fatal_answer is None or not self._fatal_answer(answered):
                return answered
            self._fatal_answer = None
            return None


def _connected(target: Target) -> socket.socket:
    if isinstance(target, tuple):
        return socket.create_connection(target)
    unix = socket.socket(socket.AF_UNIX)
    unix.connect(target)
    return unix


def _close(connection: socket.socket) -> None:
    # Closing alone would block a thread that reads from the socket.
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
