"""Health of a worker over HTTP, for process supervisors and probes.

    GET /health    200 while the loop runs, 503 before its first turn and when a turn takes too long
    GET /ready     200 while the worker also reads all buckets that it owns, else 503
    GET /metrics   the metrics of the worker and of its user's code, for Prometheus

The first two return a `Health` as JSON. The loop only records its turns, so requests do not slow it down.
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
from .metrics import Metrics
from .worker import Worker

DEPLOYMENT_VARIABLE = "PENSTOCK_DEPLOYMENT"
"""The environment variable with the worker's deployment and version, such as `scorer@3`."""
STUCK_S = 120.0
"""How long one turn of the loop may take before it counts as stuck. Large batches in slow code and slow checkpoints take less."""
LOOPBACK = "127.0.0.1"


class HealthUnavailable(PenstockError):
    """A worker cannot listen at its health address: choose another address."""


class Address(NamedTuple):
    """The address of a worker's health endpoint."""

    host: str
    port: int

    @staticmethod
    def parse(text: str) -> Address:
        """Parse a port, which is reachable on this machine only, or host:port.

        Raises:
            HealthUnavailable: the text is neither.
        """
        host, _, port = text.rpartition(":")
        if not port.isdigit() or int(port) > 65535:
            raise HealthUnavailable(
                f"--health {text} is no address. Use a port of this machine, such as 8080, or HOST:PORT, such as 0.0.0.0:8080."
            )
        return Address(host or LOOPBACK, int(port))


class Health(msgspec.Struct, frozen=True):
    """The health of a worker.

    Args:
        deployment: its deployment and version; empty without a deployment.
        pid: its process id.
        since_turn_s: seconds since the last turn of the loop; None before the first turn.
        settled_s: for how many seconds it has read all buckets that it owns; None if it does not.
        buckets: the buckets that it owns.
        checkpoints: the number of saved checkpoints.
    """

    deployment: str
    pid: int
    since_turn_s: float | None
    settled_s: float | None
    buckets: tuple[int, ...]
    checkpoints: int

    @property
    def turns(self) -> bool:
        """Whether the loop is running, and not stuck."""
        return self.since_turn_s is not None and self.since_turn_s < STUCK_S

    @property
    def is_ready(self) -> bool:
        """Whether the loop is running, and reads all buckets that the worker owns."""
        return self.turns and self.settled_s is not None


class _LoopState(NamedTuple):
    at_s: float
    settled_since_s: float | None
    buckets: tuple[int, ...]
    checkpoints: int


class LoopMonitor:
    """Records the turns of a loop in its thread, and reports its health in any thread.

    Args:
        now_s: a monotonic clock in seconds.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._last: _LoopState | None = None
        self._metrics: tuple[str, Metrics] | None = None

    def record_turn(self, worker: Worker) -> None:
        """Record a turn of the loop."""
        now_s, last = self._now_s(), self._last
        since_s = None
        if worker.is_settled:
            since_s = now_s
            if last is not None and last.buckets == worker.owned and last.settled_since_s is not None:
                since_s = last.settled_since_s
        self._last = _LoopState(now_s, since_s, worker.owned, worker.metrics.checkpoints)
        self._metrics = worker.processor_name, worker.metrics

    def metrics(self) -> tuple[str, Metrics] | None:
        """Return the name of the worker's processor and its metrics; None before the first turn."""
        return self._metrics

    def health(self) -> Health:
        """Return the worker's health."""
        last, now_s, deployment = self._last, self._now_s(), os.environ.get(DEPLOYMENT_VARIABLE, "")
        if last is None:
            return Health(deployment, os.getpid(), None, None, (), 0)
        settled_s = None if last.settled_since_s is None else now_s - last.settled_since_s
        return Health(deployment, os.getpid(), now_s - last.at_s, settled_s, last.buckets, last.checkpoints)


@contextmanager
def serve_health(address: Address | None, monitor: LoopMonitor) -> Iterator[None]:
    """Serve a worker's health at an address during the block. Without an address, do nothing.

    Raises:
        HealthUnavailable: the address is in use, or not one of this machine.
    """
    if address is None:
        yield
        return
    server = _http_server(address, monitor)
    thread = Thread(target=server.serve_forever, name="health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _http_server(address: Address, monitor: LoopMonitor) -> ThreadingHTTPServer:
    from .exposition import WorkerCollector, exposition  # noqa: PLC0415 - only for workers with this endpoint

    worker = WorkerCollector(monitor.metrics)

    class HealthHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, "text/plain; version=0.0.4; charset=utf-8", exposition(worker))
                return
            health = monitor.health()
            is_well = {"/health": health.turns, "/ready": health.is_ready}.get(self.path)
            body = b"" if is_well is None else msgspec.json.encode(health)
            self._answer(404 if is_well is None else 200 if is_well else 503, "application/json", body)

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Log nothing, since probes come every few seconds."""

    try:
        return ThreadingHTTPServer(address, HealthHandler)
    except OSError as error:
        raise HealthUnavailable(
            f"The health endpoint cannot listen at {address.host}:{address.port}: {error.strerror or error}. Nothing was read. Choose "
            "another port with --health."
        ) from error
