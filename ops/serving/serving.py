"""The process of the query server: HTTP in its main thread, reading in others, until SIGINT or SIGTERM."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from ...processors.errors import PenstockError
from ..clock import SystemClock
from .access import Access
from .follower import ResultFollower
from .freshness import FreshnessReader
from .http_api import QueryApi
from .queries import Queries

_DRAIN_S = 5
"""The time for open requests at the end."""
CONNECTIONS = 1_000
"""The most connections at a time; further ones receive 503."""


class AddressUnavailable(PenstockError):
    """The server cannot listen at this address, or its certificate is unusable: choose another one."""


@dataclass(frozen=True)
class Certificate:
    """The certificate of a server with TLS.

    Args:
        file: the certificate and its chain (PEM).
        key: its private key (PEM).
    """

    file: Path
    key: Path


@contextmanager
def listening_at(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket that listens for clients.

    Raises:
        AddressUnavailable: another process uses the port, or the address is not one of this machine.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=1024)
        # Accepted connections inherit it. Otherwise a body waits for the acknowledgement of its head, about 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise AddressUnavailable(
            f"The query server cannot listen on {host}, port {port}: {error.strerror or error}. It was not started. Choose another port with "
            "--port (0 for a free one), or an address of this machine with --host."
        ) from error
    with listener:
        yield listener


def create_server(
    follower: ResultFollower, freshness: FreshnessReader, access: Access, certificate: Certificate | None
) -> uvicorn.Server:
    """Return the server. Its `run` answers clients until `should_exit`.

    Raises:
        AddressUnavailable: the certificate cannot be loaded.
    """
    queries = Queries(follower, freshness.as_of, SystemClock().now_ms)
    config = uvicorn.Config(
        QueryApi(queries, access),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=_DRAIN_S,
        ssl_certfile=None if certificate is None else str(certificate.file),
        ssl_keyfile=None if certificate is None else str(certificate.key),
    )
    try:
        config.load()
    except OSError as error:
        raise AddressUnavailable(
            f"The certificate cannot be loaded: {error}. Nothing was started. Pass files in PEM format with --tls-cert and --tls-key."
        ) from error
    return uvicorn.Server(config)
