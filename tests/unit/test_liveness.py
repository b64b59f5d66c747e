"""Clients without an answer: when they are compared with a new one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.transport.kafka import KafkaSettings, liveness

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
    monkeypatch.setattr(liveness, "ASK_EVERY_S", 0.0)
    monkeypatch.setattr(liveness, "REPLACED_AFTER_S", 0.0)
    monkeypatch.setattr(liveness, "COMPARISON_LIMIT_S", 3.0)
    address, accepted = silent
    clients = [liveness.Liveness(KafkaSettings(address), f"client {number}") for number in range(CLIENTS)]
    monkeypatch.setattr(liveness, "ASK_EVERY_S", 1e6)  # no comparison is repeated

    with ThreadPoolExecutor(CLIENTS) as threads:
        lost = list(threads.map(lambda client: client.is_lost(Unanswered()), clients))

    wait_until(lambda: len(accepted) > 0)  # the connection is accepted in another thread
    assert (lost, len(accepted)) == ([False] * CLIENTS, 1)
