"""A proxy of a real broker that understands enough of Kafka's protocol to falsify two kinds of answers.

request   size int32, api key int16, version int16, correlation id int32, …
answer    size int32, correlation id int32, …
metadata  (from version 9 on) correlation id int32, tags, throttle time int32, brokers, cluster id, controller int32, topics, …
broker    node id int32, host, port int32, rack, tags

Lists and strings start with their length plus one, or zero for null; short ones need one byte for it. Empty tags are a zero byte.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from penstock.ops.shell import LOOPBACK, free_port
from penstock.ops.start.dev_services import kafka as local_kafka
from penstock.ops.start.dev_services.services import running_kafka

LIST_OFFSETS = 2
METADATA = 3
OFFSET_FETCH = 9
FIND_COORDINATOR = 10
END_TXN = 26
DESCRIBE_CONFIGS = 32
_FLEXIBLE_SINCE = 3
"""From this version of EndTxn on, an answer has an empty list of tags after the correlation id."""
_COMPACT_SINCE = 9
"""From this version on, an answer with metadata has the format above."""

Versions = dict[int, tuple[int, int]]
"""The kind of a request, as an API key, and its version, by its correlation id."""
Falsify = Callable[[int], int | None]
"""Takes the number of earlier answers; returns an error code for this answer, or None."""

CUT = -1
"""The value that loses the answer and its connection, instead of an error code."""


class KafkaProxy:
    """Passes frames between clients and a broker, which has performed the request even if the answer is falsified."""

    def __init__(self) -> None:
        # No port that the system gives to outgoing connections: while the proxy refuses connections, one of these could take it.
        self._listener = socket.create_server((LOOPBACK, free_port()))
        self.port: int = self._listener.getsockname()[1]
        self.target_port = 0
        self.falsify: Falsify = lambda _: None
        self.cut_at: int | None = None
        """The kind of request, as an API key, that starts an outage instead of being passed on."""
        self.hides_brokers = False
        """Whether metadata contains topics but no brokers, as when the controller considers the only broker dead."""
        self.answers = 0
        self._counting = threading.Lock()
        self._cut = False
        self._silenced: set[socket.socket] = set()
        self._answering = threading.Event()
        self._answering.set()
        self._asking = threading.Event()
        self._asking.set()
        self._bytes_per_s: float | None = None
        self._connections: set[socket.socket] = set()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        """Stop accepting connections: the system refuses them."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends `accept`, which keeps a closed socket open
        self._listener.close()

    def refuse(self) -> None:
        """Close all connections, and let the system refuse new ones, as without a broker."""
        self.close()
        self.cut_off()

    def cut_off(self) -> None:
        """Close all connections, and refuse new ones."""
        self._cut = True
        self.disconnect()

    def disconnect(self) -> None:
        """Close all connections, and accept new ones."""
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def let_through(self) -> None:
        """Accept connections, and pass answers again."""
        self._cut, self.cut_at, self.hides_brokers = False, None, False
        if self._listener.fileno() < 0:
            self._listener = socket.create_server((LOOPBACK, self.port))
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        self._bytes_per_s = None
        self._asking.set()
        self._answering.set()

    def hold_answers(self) -> None:
        """Let all answers wait, with open connections, until `let_through`."""
        self._answering.clear()

    def hold_requests(self) -> None:
        """Let all requests wait, with open connections, until `let_through`."""
        self._asking.clear()

    def slow_down(self, bytes_per_s: float) -> None:
        """Pass the requests of each connection on at this rate, until `let_through`."""
        self._bytes_per_s = bytes_per_s

    def silence_present(self) -> None:
        """Lose all further answers to the present connections, which stay open; serve new ones."""
        self._silenced |= self._connections

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
                server = socket.create_connection((LOOPBACK, self.target_port))
            except OSError:
                return
            self._connections |= {client, server}
            if self._cut:  # an outage that begins after this ends the connection, which it knows
                client.close()
                server.close()
                continue
            versions: Versions = {}
            threading.Thread(target=self._pass_requests, args=(client, server, versions), daemon=True).start()
            threading.Thread(target=self._pass_answers, args=(server, client, versions), daemon=True).start()

    def _pass_requests(self, client: socket.socket, server: socket.socket, versions: Versions) -> None:
        with suppress(OSError), client, server:
            for frame in _frames(client):
                key, version, correlation = struct.unpack_from(">hhi", frame)
                if key == self.cut_at:
                    self.cut_off()
                    return
                if key in {END_TXN, METADATA}:
                    versions[correlation] = (key, version)
                self._asking.wait()
                if self._bytes_per_s is not None:
                    time.sleep(len(frame) / self._bytes_per_s)
                server.sendall(struct.pack(">i", len(frame)) + frame)

    def _pass_answers(self, server: socket.socket, client: socket.socket, versions: Versions) -> None:
        with suppress(OSError), client, server:
            for frame in _frames(server):
                [correlation] = struct.unpack_from(">i", frame)
                key, version = versions.pop(correlation, (None, 0))
                answer: bytes | None = frame
                if key == END_TXN:
                    answer = self._falsified(frame, version)
                elif key == METADATA and self.hides_brokers:
                    answer = _without_brokers(frame, version)
                if answer is None:
                    return
                self._answering.wait()
                if client in self._silenced:
                    continue
                client.sendall(struct.pack(">i", len(answer)) + answer)

    def _falsified(self, frame: bytes, version: int) -> bytes | None:
        with self._counting:
            code = self.falsify(self.answers)
            self.answers += 1
        if code is None:
            return frame
        if code == CUT:
            return None
        changed = bytearray(frame)
        # correlation id, perhaps tags, throttle time, error code
        struct.pack_into(">h", changed, 4 + (version >= _FLEXIBLE_SINCE) + 4, code)
        return bytes(changed)


def _without_brokers(frame: bytes, version: int) -> bytes:
    """Return an answer with metadata with an empty list of brokers, and without a controller."""
    assert version >= _COMPACT_SINCE, f"metadata of version {version}"
    begin = 4 + 1 + 4
    end = begin + 1
    for _ in range(frame[begin] - 1):
        end = _string_end(frame, end + 4)  # the host
        end = _string_end(frame, end + 4) + 1  # the rack
    controller = _string_end(frame, end)
    return frame[:begin] + b"\x01" + frame[end:controller] + struct.pack(">i", -1) + frame[controller + 4 :]


def _string_end(frame: bytes, begin: int) -> int:
    return begin + max(frame[begin], 1)


def _frames(source: socket.socket) -> Iterator[bytes]:
    """Yield each frame without its size."""
    with source.makefile("rb") as stream:
        while len(head := stream.read(4)) == 4:
            yield stream.read(struct.unpack(">i", head)[0])


@contextmanager
def proxied_kafka(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, KafkaProxy]]:
    """Run a broker that clients reach only through a proxy; yield the address and the proxy."""
    settings = local_kafka._settings
    with closing(KafkaProxy()) as proxy, monkeypatch.context() as patched:

        def through_proxy(ports: dict[str, int], data: Path, listener: local_kafka.Listener) -> dict[str, object]:
            proxy.target_port = ports["broker"]
            return {**settings(ports, data, listener), "advertised.listeners": f"BROKER://{LOOPBACK}:{proxy.port}"}

        patched.setattr(local_kafka, "_settings", through_proxy)
        with running_kafka(folder):
            yield f"{LOOPBACK}:{proxy.port}", proxy
