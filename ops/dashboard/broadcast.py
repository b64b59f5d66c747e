"""One look for all browsers: a thread looks every few seconds, and tells whoever listens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Any, NamedTuple, Protocol

import msgspec

from ...processors.errors import PenstockError
from ..clock import SystemClock
from .history import History, moment_of
from .poller import PolledStatus

_LOG = logging.getLogger("penstock.dashboard")
EVERY_S = 2.0
WAITING_LIMIT = 30
"""How many messages wait for a slow browser before the oldest is dropped: the newest picture is the one that counts."""


class Looks(Protocol):
    """Gives what is seen. One thread; closed at the end."""

    def look(self) -> PolledStatus:
        """Return how everything stands now.

        Raises:
            PenstockError: the bus does not answer.
        """
        ...

    def close(self) -> None:
        """Look no more."""
        ...


class Message(NamedTuple):
    """What browsers are told.

    Args:
        kind: title, history, picture, trouble or nothing.
        content: as JSON has it.
    """

    kind: str
    content: Any

    def encoded(self) -> bytes:
        """Return it as a server-sent event."""
        return b"event: %s\ndata: %s\n\n" % (self.kind.encode(), msgspec.json.encode(self.content))


QUIET_S = 5.0
"""After how long a browser is told that there is nothing new: a bus that is slow to answer is no lost connection."""


class Listener:
    """One browser's messages, in the loop that it was made in."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()

    def tell(self, message: bytes | None) -> None:
        """Hand a message over, None for the end; any thread."""
        self._loop.call_soon_threadsafe(self._put, message)

    def _put(self, message: bytes | None) -> None:
        if self._waiting.qsize() >= WAITING_LIMIT:
            self._waiting.get_nowait()
        self._waiting.put_nowait(message)

    async def next(self) -> bytes | None:
        """Return the next message, when there is one, or after a while that there is none; None at the end."""
        try:
            return await asyncio.wait_for(self._waiting.get(), QUIET_S)
        except asyncio.TimeoutError:
            return Message("nothing", None).encoded()


class Broadcaster:
    """Looks again and again in a thread of its own. Start it once; close it.

    Args:
        looks: gives the pictures.
        every_s: how long to wait between two.
    """

    def __init__(self, looks: Looks, every_s: float = EVERY_S) -> None:
        self._looks = looks
        self._every_s = every_s
        self._history = History()
        self._newest: Message | None = None
        self._listeners: set[Listener] = set()
        self._told = Lock()
        self._ended = Event()
        self._thread = Thread(target=self._look_on, name="dashboard", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._looks.close()

    @property
    def newest(self) -> Message | None:
        """What was told last: a picture, or what is in its way; None before the first look."""
        return self._newest

    @contextmanager
    def listening(self) -> Iterator[Listener]:
        """Give what comes from now on, after the history and the newest message. In an event loop."""
        listener = Listener()
        with self._told:
            listener.tell(Message("history", self._history.columns()).encoded())
            if self._newest is not None:
                listener.tell(self._newest.encoded())
            self._listeners.add(listener)
        try:
            yield listener
        finally:
            with self._told:
                self._listeners.discard(listener)

    def end_streams(self) -> None:
        """Tell whoever listens that no more comes."""
        with self._told:
            for listener in self._listeners:
                listener.tell(None)

    def _look_on(self) -> None:
        while not self._ended.is_set():
            self._tell(self._looked())
            self._ended.wait(self._every_s)

    def _looked(self) -> Message:
        try:
            seen = self._looks.look()
        except PenstockError as error:
            return self._trouble(str(error))
        except Exception as error:  # noqa: BLE001 - logged
            # A page that stands still without a word would be worse than one that says this.
            _LOG.exception("The dashboard could not look")
            return self._trouble(f"The dashboard itself failed: {type(error).__name__}: {error}.")
        with self._told:
            self._history.add(moment_of(seen.picture))
        return Message("picture", seen.content())

    def _trouble(self, says: str) -> Message:
        before = self._newest
        since_ms = before.content["since_ms"] if before and before.kind == "trouble" else SystemClock().now_ms()
        return Message("trouble", {"says": says, "since_ms": since_ms})

    def _tell(self, message: Message) -> None:
        encoded = message.encoded()
        with self._told:
            self._newest = message
            for listener in self._listeners:
                listener.tell(encoded)
