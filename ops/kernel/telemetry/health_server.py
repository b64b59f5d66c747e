"""Health of a worker over HTTP, for process supervisors and probes.

    GET /health    200 while the loop runs, 503 before its first turn and when a turn takes too long
    GET /live      200 unless a turn hangs in the code of the processor: whether a restart could help. An outage of Kafka does not matter
    GET /ready     200 while the worker also reads all buckets that it owns, else 503
    GET /metrics   the metrics of the worker and of its user's code, for Prometheus

The first three return a `Health` as JSON.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message

import msgspec

from ...http import Answer, SmallHttpServer
from .health import HealthSource, HealthUnavailable, ListenAddress

END_POLL_S = 0.05
"""How often the server checks whether it is to end, for which the worker waits."""


@contextmanager
def serve_health(address: ListenAddress | None, monitor: HealthSource) -> Iterator[None]:
    """Serve a worker's health at an address during the block. Without an address, do nothing.

    Raises:
        HealthUnavailable: the address is in use, or not one of this machine.
    """
    if address is None:
        yield
        return
    server = _http_server(address, monitor)
    thread = threading.Thread(target=server.serve_forever, args=(END_POLL_S,), name="health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _http_server(address: ListenAddress, monitor: HealthSource) -> SmallHttpServer:
    from .exposition import WorkerCollector, exposition  # noqa: PLC0415 - only for workers with this endpoint

    worker = WorkerCollector(monitor.metrics)

    def answer(path: str, headers: Message) -> Answer:
        if path == "/metrics":
            metrics = exposition(worker, headers.get("Accept", ""))
            return Answer(200, metrics.content_type, metrics.text)
        health = monitor.health()
        is_well = {"/health": health.turns, "/live": monitor.is_live(), "/ready": health.is_ready}.get(path)
        body = b"" if is_well is None else msgspec.json.encode(health)
        return Answer(404 if is_well is None else 200 if is_well else 503, "application/json", body)

    try:
        return SmallHttpServer(*address, answer)
    except OSError as error:
        raise HealthUnavailable(
            f"The health endpoint cannot listen at {address.host}:{address.port}: {error.strerror or error}. Nothing was read. Choose "
            "another port with --health."
        ) from error
