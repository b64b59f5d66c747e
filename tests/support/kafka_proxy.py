"""A proxy of a real broker that understands enough of Kafka's protocol to falsify one kind of answer.

request   size int32, api key int16, version int16, correlation id int32, …
answer    size int32, correlation id int32, …
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from penstock.ops.dev_services import kafka as local_kafka
from penstock.ops.dev_services import running_kafka

LIST_OFFSETS = 2
METADATA = 3
OFFSET_FETCH = 9
FIND_COORDINATOR = 10
END_TXN = 26
DESCRIBE_CONFIGS = 32
_FLEXIBLE_SINCE = 3
"""From this version of EndTxn on, an answer has an empty list of tags after the correlation id."""

Falsify = Callable[[int], int | None]
"""Takes the number of earlier answers; returns an error code for this answer, or None."""

CUT = -1
"""Instead of an error code: lose the answer and its connection."""


class KafkaProxy:
    """Passes frames between clients and a broker, which has performed the request even if the answer is falsified."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.target_port = 0
        self.falsify: Falsify = lambda _: None
        self.cut_at: int | None = None
        """The kind of request, as an API key, that starts an outage instead of being passed on."""
        self.answers = 0
        self._counting = threading.Lock()
        self._cut = False
        self._connections: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop accepting connections."""
        self._listener.close()

    def cut_off(self) -> None:
        """Close all connections, and refuse new ones."""
        self._cut = True
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def let_through(self) -> None:
        """Accept connections again."""
        self._cut, self.cut_at = False, None

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                if self._cut:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self.target_port))
            except OSError:
                return
            self._connections |= {client, server}
            versions: dict[int, int] = {}
            threading.Thread(target=self._pass_requests, args=(client, server, versions), daemon=True).start()
            threading.Thread(target=self._pass_answers, args=(server, client, versions), daemon=True).start()

    def _pass_requests(self, client: socket.socket, server: socket.socket, versions: dict[int, int]) -> None:
        with suppress(OSError), client, server:
            for frame in _frames(client):
                key, version, correlation = struct.unpack_from(">hhi", frame)
                if key == self.cut_at:
                    self.cut_off()
                    return
                if key == END_TXN:
                    versions[correlation] = version
                server.sendall(struct.pack(">i", len(frame)) + frame)

    def _pass_answers(self, server: socket.socket, client: socket.socket, versions: dict[int, int]) -> None:
        with suppress(OSError), client, server:
            for frame in _frames(server):
                [correlation] = struct.unpack_from(">i", frame)
                version = versions.pop(correlation, None)
                answer = frame if version is None else self._falsified(frame, version)
                if answer is None:
                    return
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
            return {**settings(ports, data, listener), "advertised.listeners": f"BROKER://127.0.0.1:{proxy.port}"}

        patched.setattr(local_kafka, "_settings", through_proxy)
        with running_kafka(folder):
            yield f"127.0.0.1:{proxy.port}", proxy
