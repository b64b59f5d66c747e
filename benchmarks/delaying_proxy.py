"""A TCP proxy that delays all bytes between clients and a server on this machine, as a network between them would."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from threading import Thread

CHUNK_BYTES = 65_536

Delayed = SimpleQueue[tuple[float, bytes]]
"""Bytes with the time at which they are due; without bytes, the end of the connection."""


@contextmanager
def delaying_proxy(port: int, delay_s: float) -> Iterator[int]:
    """Run a proxy in the block, and yield its port.

    Args:
        port: the port of the server.
        delay_s: the delay in each direction. Bytes wait side by side, so the delay does not limit the bandwidth.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    Thread(target=_accept, args=(listener, port, delay_s), daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        # Closing alone would leave the thread waiting for a client.
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _accept(listener: socket.socket, port: int, delay_s: float) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            server = socket.create_connection(("127.0.0.1", port))
            for source, sink in ((client, server), (server, client)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                delayed: Delayed = SimpleQueue()
                Thread(target=_receive, args=(source, delayed, delay_s), daemon=True).start()
                Thread(target=_send, args=(delayed, sink), daemon=True).start()


def _receive(source: socket.socket, delayed: Delayed, delay_s: float) -> None:
    received = b"unknown"
    while received:
        try:
            received = source.recv(CHUNK_BYTES)
        except OSError:
            received = b""
        delayed.put((time.monotonic() + delay_s, received))


def _send(delayed: Delayed, sink: socket.socket) -> None:
    with suppress(OSError):
        while True:
            due_s, sent = delayed.get()
            time.sleep(max(0.0, due_s - time.monotonic()))
            if not sent:
                sink.shutdown(socket.SHUT_WR)
                return
            sink.sendall(sent)
