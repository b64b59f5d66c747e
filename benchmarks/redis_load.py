"""Load on a server of the Redis protocol: each connection sends its next request when it has the answer of the last one.

Requests are encoded beforehand, and answers are only counted, so that the client costs as little as possible. Keys and values have fixed sizes.
"""

from __future__ import annotations

import random
import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

KEY_BYTES, VALUE_BYTES = 10, 100
_REQUESTS = 2_000
_WARM_UP_S = 0.5
_VALUE_REPLY_BYTES = len(b"$%d\r\n" % VALUE_BYTES) + VALUE_BYTES + 2


@dataclass(frozen=True)
class Rate:
    """A measurement.

    Args:
        keys: keys per second.
        p50_us: the median time of a request, in microseconds.
        p99_us: its 99th percentile.
    """

    keys: float
    p50_us: float
    p99_us: float

    def __str__(self) -> str:
        return f"{self.keys:>9,.0f} keys/s {self.p50_us:>7,.0f} {self.p99_us:>7,.0f} µs"


def key_of(number: int) -> bytes:
    """Return a key of the fixed size."""
    return b"k%0*d" % (KEY_BYTES - 1, number)


def value_of(number: int) -> bytes:
    """Return a value of the fixed size, which compresses little."""
    return random.Random(number).randbytes(VALUE_BYTES // 2).hex().encode()


def load(port: int, connections: int, keys: int, per_request: int, seconds: float) -> Rate:
    """Send requests for random keys.

    Args:
        port: the port of the server.
        connections: the number of connections.
        keys: the number of keys that the server has.
        per_request: the keys of a request: 1 for GET, more for MGET.
        seconds: the time.

    Raises:
        RuntimeError: an answer has another size than expected.
    """
    requests = _requests(keys, per_request)
    expected = (
        _VALUE_REPLY_BYTES if per_request == 1 else len(b"*%d\r\n" % per_request) + per_request * _VALUE_REPLY_BYTES
    )
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        clients = [
            _Client(stack.enter_context(socket.create_connection(("127.0.0.1", port))), requests, place, expected)
            for place in range(connections)
        ]
        for client in clients:
            client.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(client.connection, selectors.EVENT_READ, client)
            client.send()
        _exchange(selector, _WARM_UP_S)
        for client in clients:
            client.times_s.clear()
        took_s = _exchange(selector, seconds)
    times_s = sorted(each for client in clients for each in client.times_s)
    return Rate(
        len(times_s) * per_request / took_s,
        times_s[len(times_s) // 2] * 1e6,
        times_s[len(times_s) * 99 // 100] * 1e6,
    )


def _requests(keys: int, per_request: int) -> Sequence[bytes]:
    dice = random.Random(1)
    return [
        _encoded([b"GET" if per_request == 1 else b"MGET", *(key_of(dice.randrange(keys)) for _ in range(per_request))])
        for _ in range(_REQUESTS)
    ]


def _encoded(words: Sequence[bytes]) -> bytes:
    """Return a request."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


class _Client:
    """A connection with one request at a time."""

    def __init__(self, connection: socket.socket, requests: Sequence[bytes], place: int, expected: int) -> None:
        self.connection = connection
        self._requests = requests
        self._next = place
        self._expected = self._missing = expected
        self._sent_s = 0.0
        self.times_s: list[float] = []

    def send(self) -> None:
        """Send the next request."""
        self._missing = self._expected
        self._next = (self._next + 7) % len(self._requests)
        self._sent_s = time.perf_counter()
        self.connection.sendall(self._requests[self._next])

    def receive(self) -> None:
        """Receive a part of the answer; after its end, send the next request."""
        received = self.connection.recv(1 << 18)
        self._missing -= len(received)
        if not received or self._missing < 0:
            raise RuntimeError(f"unexpected answer: {received[:100]!r}")
        if not self._missing:
            self.times_s.append(time.perf_counter() - self._sent_s)
            self.send()


def _exchange(selector: selectors.BaseSelector, seconds: float) -> float:
    began_s = time.perf_counter()
    while (took_s := time.perf_counter() - began_s) < seconds:
        for key, _ in selector.select(1.0):
            key.data.receive()
    return took_s
