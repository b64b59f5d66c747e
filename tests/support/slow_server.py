"""HTTP servers that answer slowly, partly, or not at all."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def dripping(begin: bytes, repeated: bytes, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve clients that receive `begin`, and then `repeated` for ever; yield the address."""
    is_closed = threading.Event()

    def answer(client: socket.socket) -> None:
        with suppress(OSError), client if tls is None else tls.wrap_socket(client, server_side=True) as accepted:
            accepted.recv(1 << 16)
            accepted.sendall(begin)
            while not is_closed.wait(0.02):
                accepted.sendall(repeated)

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield f"http{'s' if tls else ''}://127.0.0.1:{listener.getsockname()[1]}/"
        is_closed.set()


@contextmanager
def answering(answer: bytes, times: int) -> Iterator[str]:
    """Answer some requests of one connection, and close it; yield the address."""

    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as accepted:
            for _ in range(times):
                accepted.recv(1 << 16)
                accepted.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        thread.join(30)
