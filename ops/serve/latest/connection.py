"""One connection of a Laser server.

bytes of the client --RequestReader--> requests --Session--> replies --> bytes of the server

Requests are answered in their order and, except for the lag, where their bytes are received.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from selectors import EVENT_READ, EVENT_WRITE
from time import monotonic
from typing import Protocol

from .commands import ClientSession, Later
from .resp import Failure, ProtocolError, Reply, RequestReader, encode_reply

_LOG = logging.getLogger("penstock.laser")
_RECEIVED_BYTES = 64 * 2**10
"""The most bytes that are received at once."""
_SENT_TOGETHER_BYTES = 64 * 2**10
"""The size from which on replies to a pipeline are sent."""
_UNREAD_BYTES, _RESUMED_BYTES = 2**20, 2**18
"""The sizes of unread replies from which on a connection answers no further requests, and at which it goes on."""
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(frozen=True)
class Limits:
    """The limits of a server.

    Args:
        connections: open at a time. A further one takes the place of the oldest guest; without guests it receives an error.
        request_bytes: the size of one request, and of requests that wait in a pipeline.
        request_s: the time for the rest of a request after its first bytes, and for a client to read its replies.
        guest_s: the time in which a guest has to authenticate, or, where there is no token, to send a request.
        idle_s: the time between two requests.
    """

    connections: int = 1_000
    request_bytes: int = 2**20
    request_s: float = 10.0
    guest_s: float = 10.0
    idle_s: float = 300.0


class ConnectionLoop(Protocol):
    """Calls connections when their sockets are ready; in one thread."""

    def watch(self, connection: ClientConnection, events: int) -> None:
        """Call `connection.ready` after these events of its socket; with 0, after none."""
        ...

    def run_later(self, work: Callable[[], Reply], done: Callable[[Callable[[], Reply]], None]) -> None:
        """Run `work` in another thread, and then `done` in this one, with a function that returns or raises its result."""
        ...

    def forget(self, connection: ClientConnection) -> None:
        """A connection has ended."""
        ...


class ClientConnection:
    """Reads requests and writes replies in their order.

    Args:
        accepted: its socket, which does not block.
        session: runs the commands.
        loop: calls `ready`.
        limits: the limits of the server.
    """

    def __init__(self, accepted: socket.socket, session: ClientSession, loop: ConnectionLoop, limits: Limits) -> None:
        self.socket = accepted
        self._session = session
        self._loop = loop
        self._limits = limits
        self._reader = RequestReader(limits.request_bytes, is_trusted=session.is_authenticated)
        self._requests: Iterator[Sequence[bytes]] | None = None  # parsed, and not answered yet
        self._received = b""
        self._unsent = bytearray()
        self._tls = accepted if isinstance(accepted, ssl.SSLSocket) else None
        self._is_greeting = self._tls is not None
        self._has_unread = False  # replies that the client has to read first
        self._is_waiting = False  # for a reply of another thread
        self._is_ending = False
        self._is_closed = False
        self._has_begun = False  # a request whose rest has a deadline
        self._watched = EVENT_READ
        self.is_guest = True
        """Whether the client has not authenticated yet, or, where there is no token, not sent a request."""
        self._guest_deadline_s = monotonic() + limits.guest_s
        self._deadline_s = self._guest_deadline_s

    def refuse_crowd(self) -> None:
        """End the connection at once, because more are open than allowed."""
        if not self._is_greeting:
            self._write(encode_reply(Failure("ERR max number of clients reached"), self._session.version))
        self.abort()

    def ready(self, events: int) -> None:
        """Read and write what can be read and written now."""
        if self._is_closed:  # since the socket was found ready
            return
        if self._is_greeting:
            self._greet()
        elif events & EVENT_READ:
            self._read()
        if events & EVENT_WRITE:
            self._flush()
        self._watch()

    def end_if_late(self) -> None:
        """End the connection if its client has exceeded a limit of time."""
        if self._is_waiting or monotonic() < self._deadline_s:
            return
        if self._has_unread or self._is_ending or self._is_greeting:
            self.abort()
        else:
            self.close()

    def close(self) -> None:
        """End the connection when the client has read its replies, for which it has a limited time."""
        self._is_ending = True
        self._expect_within(self._limits.request_s)
        if not self._unsent:
            self.abort()
        self._watch()

    def abort(self) -> None:
        """End the connection at once."""
        if self._is_closed:
            return
        self._is_ending = self._is_closed = True
        self._watch()
        self._loop.forget(self)
        with self.socket, suppress(OSError):
            if self._tls is not None and not self._is_greeting:
                self._tls.unwrap()  # tells the client, and does not wait for its answer

    def _watch(self) -> None:
        """Say which events are expected next."""
        events = 0
        if not self._is_closed:
            events = (0 if self._is_blocked else EVENT_READ) | (EVENT_WRITE if self._unsent else 0)
        if events != self._watched:
            self._watched = events
            self._loop.watch(self, events)

    @property
    def _is_blocked(self) -> bool:
        return self._has_unread or self._is_waiting or self._is_ending

    def _greet(self) -> None:
        try:
            if self._tls is not None:
                self._tls.do_handshake()  # what it writes fits into the buffer of a new socket
        except _NOT_NOW:
            return
        except OSError:
            self.abort()
            return
        self._is_greeting = False

    def _read(self) -> None:
        """Receive bytes, and answer the requests that they complete."""
        while not self._is_blocked:
            try:
                received = self.socket.recv(_RECEIVED_BYTES)
            except _NOT_NOW:
                return
            except OSError:
                self.abort()  # a client may leave in any way
                return
            if not received:
                self.close()
                return
            self._received += received
            self._answer()
            if self._tls is None or not self._tls.pending():
                return  # the socket is ready again if it has more

    def _resume(self) -> None:
        """Go on after a time without reading."""
        self._has_begun = False
        self._answer()
        if self._tls is not None and self._tls.pending():
            self._read()

    def _answer(self) -> None:
        """Answer all complete requests, until the client has to read, or a reply has to wait."""
        try:
            while not self._is_blocked:
                if self._requests is None:
                    if not self._received:
                        self._expect_more()
                        return
                    self._requests, self._received = self._reader.feed(self._received), b""
                self._answer_parsed(self._requests)
        except ProtocolError as error:
            self._refuse(f"ERR Protocol error: {error}")
        except Exception:  # noqa: BLE001 - the failure of one connection is logged and must not end the others
            self._fail()

    def _answer_parsed(self, requests: Iterator[Sequence[bytes]]) -> None:
        """Answer the parsed requests, up to one that has to wait."""
        session, replies, size = self._session, list[bytes](), 0
        try:
            for request in requests:
                self._has_begun = False
                reply = session.run(request)
                if self.is_guest and session.is_authenticated:
                    self.is_guest = False
                    self._reader.trust()
                if isinstance(reply, Later):
                    self._is_waiting = True
                    self._loop.run_later(reply.reply, self._answer_later)
                    return
                encoded = encode_reply(reply, session.version)
                replies.append(encoded)
                size += len(encoded)
                if size > _SENT_TOGETHER_BYTES:
                    # A pipeline of small requests for large values would otherwise fill the memory while its client reads nothing.
                    self._write(b"".join(replies))
                    replies, size = [], 0
                if self._has_unread or session.is_ended:
                    return
            self._requests = None
        finally:
            if replies:
                self._write(b"".join(replies))
            if session.is_ended:
                self.close()

    def _answer_later(self, result: Callable[[], Reply]) -> None:
        self._is_waiting = False
        if self._is_closed:
            return
        try:
            self._write(encode_reply(result(), self._session.version))
            self._resume()
        except Exception:  # noqa: BLE001 - as above
            self._fail()
        self._watch()

    def _expect_more(self) -> None:
        """Set the time until which the client has to send the rest of a request, or the next one."""
        if not self._reader.unparsed_bytes:
            self._expect_within(self._limits.idle_s)
        elif not self._has_begun:
            self._has_begun = True
            self._expect_within(self._limits.request_s)

    def _expect_within(self, seconds: float) -> None:
        """Set the time until which the client has to do its part. The time of guests is never extended."""
        self._deadline_s = monotonic() + seconds
        if self.is_guest:
            self._deadline_s = min(self._deadline_s, self._guest_deadline_s)

    def _write(self, replies: bytes) -> None:
        """Send replies as far as the client reads them, and the rest when it does."""
        sent = 0 if self._unsent else self._send(replies)
        if sent == len(replies):
            return
        self._unsent += memoryview(replies)[sent:]
        if len(self._unsent) > _UNREAD_BYTES:
            self._has_unread = True
            self._expect_within(self._limits.request_s)

    def _flush(self) -> None:
        while self._unsent and (sent := self._send(self._unsent)):
            del self._unsent[:sent]
        if self._is_ending and not self._unsent:
            self.abort()
        elif self._has_unread and len(self._unsent) <= _RESUMED_BYTES:
            self._has_unread = False
            self._resume()

    def _send(self, replies: bytes | bytearray) -> int:
        """Return how many bytes need not be sent any more."""
        try:
            return self.socket.send(replies)
        except _NOT_NOW:
            return 0
        except OSError:
            self.abort()
            return len(replies)

    def _refuse(self, reason: str) -> None:
        self._write(encode_reply(Failure(reason), self._session.version))
        self.close()

    def _fail(self) -> None:
        _LOG.exception("A connection of Laser failed and was closed. Other connections are not affected.")
        self.close()
