"""How a worker is, for whoever keeps it alive: asked over HTTP, answered beside the loop.

    GET /health    200 while the loop turns, 503 before its first turn and when it has stood still for long
    GET /ready     200 while it also reads all the buckets that are its own, else 503

Both answer with what a `Health` says, as JSON. The loop only notes that it turned; who asks costs it nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import NamedTuple

import msgspec

from ...processors.errors import PenstockError
from .worker import Worker

DEPLOYMENT_VARIABLE = "PENSTOCK_DEPLOYMENT"
"""The variable by which a worker knows of which deployment it is: `scorer@3`."""
STUCK_S = 120.0
"""How long a loop may take for one turn before it counts as stuck: a large batch in slow code, or a slow last checkpoint, is not."""
LOOPBACK = "127.0.0.1"


class HealthUnavailable(PenstockError):
    """A worker cannot tell how it is where it was told to: name another address."""


class Address(NamedTuple):
    """Where a worker tells how it is."""

    host: str
    port: int

    @staticmethod
    def parse(text: str) -> Address:
        """Read what a user typed: a port of this machine alone, or host:port.

        Raises:
            HealthUnavailable: it is neither.
        """
        host, _, port = text.rpartition(":")
        if not port.isdigit() or int(port) > 65535:
            raise HealthUnavailable(
                f"--health {text}: give a port of this machine, as 8080, or HOST:PORT, as 0.0.0.0:8080."
            )
        return Address(host or LOOPBACK, int(port))


class Health(msgspec.Struct, frozen=True):
    """How a worker is.

    Args:
        deployment: of which deployment and version it is; empty where it is of none.
        pid: its process.
        since_turn_s: how long ago the loop turned, in seconds; None before its first turn.
        settled_s: for how long it has read all the buckets that are its own; None where it does not.
        buckets: those that are its own.
        checkpoints: how many it has saved.
    """

    deployment: str
    pid: int
    since_turn_s: float | None
    settled_s: float | None
    buckets: tuple[int, ...]
    checkpoints: int

    @property
    def turns(self) -> bool:
        """Whether the loop goes on."""
        return self.since_turn_s is not None and self.since_turn_s < STUCK_S

    @property
    def is_ready(self) -> bool:
        """Whether it goes on, and reads all the buckets that are its own."""
        return self.turns and self.settled_s is not None


class _Turn(NamedTuple):
    at_s: float
    settled_since_s: float | None
    buckets: tuple[int, ...]
    checkpoints: int


class Pulse:
    """Notes the turns of a loop, in its thread; tells in any other how it is.

    Args:
        now_s: tells the time that goes on, in seconds.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._last: _Turn | None = None

    def note(self, worker: Worker) -> None:
        """Note that the loop has turned."""
        now_s, last = self._now_s(), self._last
        since_s = None
        if worker.is_settled:
            stays = last is not None and last.buckets == worker.owned
            since_s = last.settled_since_s if last is not None and stays and last.settled_since_s is not None else now_s
        self._last = _Turn(now_s, since_s, worker.owned, worker.metrics.checkpoints)

    def health(self) -> Health:
        """Return how the worker is."""
        last, now_s, deployment = self._last, self._now_s(), os.environ.get(DEPLOYMENT_VARIABLE, "")
        if last is None:
            return Health(deployment, os.getpid(), None, None, (), 0)
        settled_s = None if last.settled_since_s is None else now_s - last.settled_since_s
        return Health(deployment, os.getpid(), now_s - last.at_s, settled_s, last.buckets, last.checkpoints)


@contextmanager
def told_at(address: Address | None, pulse: Pulse) -> Iterator[None]:
    """Answer at an address, in the block, how a worker is; nowhere, where there is none.

    Raises:
        HealthUnavailable: the address cannot be had.
    """
    if address is None:
        yield
        return
    server = _listening(address, pulse)
    thread = Thread(target=server.serve_forever, name="health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _listening(address: Address, pulse: Pulse) -> ThreadingHTTPServer:
    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            health = pulse.health()
            good = {"/health": health.turns, "/ready": health.is_ready}.get(self.path)
            body = b"" if good is None else msgspec.json.encode(health)
            self.send_response(404 if good is None else 200 if good else 503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that it has there
            """Say nothing: probes come every few seconds."""

    try:
        return ThreadingHTTPServer(address, Answering)
    except OSError as error:
        raise HealthUnavailable(
            f"The worker cannot tell how it is at {address.host}:{address.port}: {error.strerror or error}. Nothing was read. Name "
            "another port with --health."
        ) from error
