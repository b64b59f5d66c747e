"""The event streams of the dashboard: one thread polls the status, and all browsers receive it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from threading import Lock
from typing import Any, NamedTuple, Protocol

import msgspec

from ....processors import BackgroundThread, PenstockError
from ...shell import SystemClock
from .history import History, Sample
from .poller import PolledStatus

_LOG = logging.getLogger("penstock.dashboard")
POLL_INTERVAL_S = 2.0
"""The interval between two polls."""
QUEUE_LIMIT = 30
"""The number of messages that a slow browser may have in its queue. Beyond it, the oldest one is dropped."""
HEARTBEAT_S = 5.0
"""The time without a message after which a browser gets a heartbeat, so that a slow answer of Kafka is not a lost connection."""


class StatusSource(Protocol):
    """The source of the status. One thread; closed at the end."""

    def poll(self) -> PolledStatus:
        """Return the current status.

        Raises:
            PenstockError: Kafka does not answer.
        """
        ...

    def close(self) -> None:
        """Release its connections."""
        ...


class MessageKind(StrEnum):
    """The kind of a message to a browser; the name of the server-sent event."""

    VISITOR = "visitor"
    """The visitor of the page, and whether operations are offered."""
    TITLE = "title"
    """The title of the page."""
    COLUMNS = "columns"
    """The figures with a column in the tables of workers and buckets, with titles."""
    HISTORY = "history"
    """The figures of the last hour."""
    STATUS = "status"
    """The current status, or, before a failure, the last known one."""
    FAILURE = "failure"
    """The reason why there is no current status, the time of the first such failure, and the present time."""
    HEARTBEAT = "heartbeat"
    """Nothing new."""


class PageMessage(NamedTuple):
    """A message to a browser.

    Args:
        kind: its kind.
        content: its content, as JSON values.
    """

    kind: MessageKind
    content: Any

    def encoded(self) -> bytes:
        """Return it as a server-sent event."""
        return b"event: %s\ndata: %s\n\n" % (self.kind.value.encode(), msgspec.json.encode(self.content))


class Subscription:
    """The queue of messages for one browser. Create it in the event loop that reads it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    def send(self, message: bytes | None) -> None:
        """Append a message; None ends the stream. Any thread."""
        self._loop.call_soon_threadsafe(self._put, message)

    def _put(self, message: bytes | None) -> None:
        if self._queue.qsize() >= QUEUE_LIMIT:
            self._queue.get_nowait()
        self._queue.put_nowait(message)

    async def next(self) -> bytes | None:
        """Return the next message, or a heartbeat after `HEARTBEAT_S`; None at the end of the stream."""
        try:
            return await asyncio.wait_for(self._queue.get(), HEARTBEAT_S)
        except TimeoutError:
            return PageMessage(MessageKind.HEARTBEAT, None).encoded()


class Broadcaster:
    """Polls the status in its own thread, and sends it to all browsers. Start it once; close it.

    Args:
        source: returns the status; closed with this.
        interval_s: the pause between two polls.
        history: the history of the last hour; by default empty, in memory.
    """

    def __init__(
        self, source: StatusSource, interval_s: float = POLL_INTERVAL_S, history: History | None = None
    ) -> None:
        self._source = source
        self._interval_s = interval_s
        self._history = history or History()
        self._latest: PageMessage | None = None
        self._subscriptions: set[Subscription] = set()
        self._lock = Lock()
        """Guards the history, the latest message and the subscriptions, so that a browser misses no message and gets none twice."""
        self._thread = BackgroundThread("dashboard", self._run)

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def close(self) -> None:
        """Stop polling, and close the source."""
        self._thread.close()
        self._history.store_status()
        self._source.close()

    @property
    def latest(self) -> PageMessage | None:
        """The latest status, or the latest failure; None before the first poll."""
        return self._latest

    @property
    def last_status(self) -> dict[str, Any] | None:
        """The last known status as JSON values, perhaps of an earlier dashboard; None without one."""
        return self._history.last_status

    @contextmanager
    def subscribed(self) -> Iterator[Subscription]:
        """Yield a subscription to the history, the latest message, and all later messages. In an event loop."""
        subscription = Subscription()
        with self._lock:
            subscription.send(PageMessage(MessageKind.HISTORY, self._history.to_json()).encoded())
            for message in self._known():
                subscription.send(message.encoded())
            self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            with self._lock:
                self._subscriptions.discard(subscription)

    def _known(self) -> Iterator[PageMessage]:
        """Yield the last known status, and what keeps the dashboard from a newer one."""
        if self._history.last_status is not None:
            yield PageMessage(MessageKind.STATUS, self._history.last_status)
        if self._latest is None and self._history.last_status is not None:
            yield self._failure("The dashboard has started, and reads its first status.")
        elif self._latest is not None and self._latest.kind is MessageKind.FAILURE:
            yield self._latest

    def end_streams(self) -> None:
        """End the streams of all browsers."""
        with self._lock:
            for subscription in self._subscriptions:
                subscription.send(None)

    def _run(self) -> None:
        while not self._thread.is_closed:
            self._send(self._poll())
            self._thread.wait(self._interval_s)

    def _poll(self) -> PageMessage:
        try:
            polled = self._source.poll()
        except PenstockError as error:
            self._history.store_status()
            return self._failure(str(error))
        except Exception as error:  # noqa: BLE001 - logged
            # Without this message, the page would show an outdated status without a reason.
            _LOG.exception("The dashboard failed to poll the status.")
            return self._failure(f"The dashboard itself failed: {type(error).__name__}: {error}.")
        with self._lock:
            self._history.add(Sample.of(polled.cluster))
        return PageMessage(MessageKind.STATUS, polled.to_json())

    def _failure(self, message: str) -> PageMessage:
        latest, now_ms = self._latest, SystemClock().now_ms()
        is_repeated = latest is not None and latest.kind is MessageKind.FAILURE
        since_ms = latest.content["since_ms"] if latest is not None and is_repeated else now_ms
        return PageMessage(MessageKind.FAILURE, {"message": message, "since_ms": since_ms, "at_ms": now_ms})

    def _send(self, message: PageMessage) -> None:
        encoded = message.encoded()
        with self._lock:
            self._latest = message
            if message.kind is MessageKind.STATUS:
                self._history.note_status(message.content)
            for subscription in self._subscriptions:
                subscription.send(encoded)
