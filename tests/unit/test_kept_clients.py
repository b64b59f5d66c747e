"""Kept clients: when those without an answer are compared with a new one, and how they end."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from penstock.transport import CLIENT_COUNTS, BusError, NoAnswer
from penstock.transport.kafka import KafkaSettings, kept_client

CLIENTS = 6


class Unanswered:
    """A client without an answer."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> object:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


@pytest.fixture
def silent() -> Iterator[tuple[str, list[socket.socket]]]:
    """The address of a server that accepts connections and never answers, and these connections."""
    accepted: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                accepted.append(server.accept()[0])
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as server:
        accepting = threading.Thread(target=accept)
        accepting.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", accepted
        server.shutdown(socket.SHUT_RDWR)
        accepting.join()
    for connection in accepted:
        connection.close()


def test_a_process_compares_one_client_at_a_time(
    silent: tuple[str, list[socket.socket]],
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[[Callable[[], bool]], None],
) -> None:
    """In an outage, a worker of many clients has one more connection, and only for a part of the time."""
    monkeypatch.setattr(kept_client, "ASK_EVERY_S", 0.0)
    monkeypatch.setattr(kept_client, "REPLACED_AFTER_S", 0.0)
    monkeypatch.setattr(kept_client, "COMPARISON_LIMIT_S", 3.0)
    address, accepted = silent
    clients = [
        kept_client.KeptClient(KafkaSettings(address), lambda _: Unanswered(), {}, f"client {number}")
        for number in range(CLIENTS)
    ]
    monkeypatch.setattr(kept_client, "ASK_EVERY_S", 1e6)  # no comparison is repeated

    with ThreadPoolExecutor(CLIENTS) as threads:
        lost = list(threads.map(lambda client: client.is_lost(), clients))

    wait_until(lambda: len(accepted) > 0)  # the connection is accepted in another thread
    assert (lost, len(accepted)) == ([False] * CLIENTS, 1)


class Closing(Consumer):
    """A consumer whose end waits for an event. It names the thread that ends it."""

    ended: str

    def __init__(self, ends: threading.Event) -> None:
        super().__init__({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
        self._ends = ends
        self.ended = ""

    def close(self) -> None:
        self._ends.wait()
        super().close()
        self.ended = threading.current_thread().name


def keep(client: object, *, calls_back: bool = False) -> kept_client.KeptClient[object]:
    """Return the keeper of a client."""
    settings = KafkaSettings("127.0.0.1:1")
    return kept_client.KeptClient(settings, lambda _: client, {}, "The test", calls_back=calls_back)


def test_the_end_of_a_client_that_hangs_is_left_to_its_thread(
    monkeypatch: pytest.MonkeyPatch, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """Its user goes on after the limit. A client that calls its user back ends in the user's thread, without a limit."""
    monkeypatch.setattr(kept_client, "CLOSE_LIMIT_S", 0.01)
    ends = threading.Event()
    hanging, member = Closing(ends), Closing(ends)
    keep(hanging).close()
    before = hanging.ended
    ends.set()
    wait_until(lambda: bool(hanging.ended))
    keep(member, calls_back=True).close()

    assert before == ""
    assert hanging.ended != member.ended == threading.current_thread().name


def test_a_client_with_a_call_that_does_not_return_ends_after_it(
    wait_until: Callable[[Callable[[], bool]], None],
) -> None:
    """Nothing else touches it until then: the library allows no end during a call."""
    ends, returns = threading.Event(), threading.Event()
    ends.set()
    client = Closing(ends)
    kept = keep(client, calls_back=True)
    with pytest.raises(NoAnswer):
        kept.call(returns.wait, 0.0)
    kept.close()
    before = client.ended
    returns.set()
    wait_until(lambda: bool(client.ended))

    assert (before, kept.is_stuck) == ("", True)
    with pytest.raises(BusError, match="The test: the Kafka client is closed"):
        kept.client  # noqa: B018 - raises the error


def test_open_clients_are_counted_once() -> None:
    """A client in the place of another is no further one, and a keeper that is forgotten does not count."""
    before = CLIENT_COUNTS.open
    one, other = keep(object()), keep(object())
    one.replace()
    during = CLIENT_COUNTS.open
    one.close()
    del other

    assert (during - before, CLIENT_COUNTS.open - before) == (2, 0)


def test_only_keepers_open_clients() -> None:
    """Otherwise a client has no limit, is not replaced, or is not counted."""
    modules = Path(kept_client.__file__).parent.glob("*.py")
    opens = re.compile(r"\b(?:Consumer|Producer|AdminClient|open_client|open_with_handle)\((?!self)")
    found = {
        path.name
        for path in modules
        if any(opens.search(line) for line in path.read_text().splitlines() if not line.startswith("def "))
    }

    assert found == {"kept_client.py", "client_handle.py"}
