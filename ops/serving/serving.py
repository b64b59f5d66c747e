"""The process of the query server: HTTP in its main thread, reading in others, until SIGINT or SIGTERM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import uvicorn

from ..clock import SystemClock
from ..listening import Certificate
from .access import Access
from .follower import ResultFollower
from .freshness import FreshnessReader
from .http_api import QueryApi
from .queries import Queries
from .read_counter import ReadCounter

_DRAIN_S = 5
"""The time for open requests at the end."""
CONNECTIONS = 1_000
"""The most connections at a time; further ones receive 503."""


def create_server(
    follower: ResultFollower,
    freshness: FreshnessReader,
    reads: ReadCounter,
    access: Access,
    certificate: Certificate | None,
) -> uvicorn.Server:
    """Return the server. Its `run` answers clients until `should_exit`."""
    queries = Queries(follower, freshness.as_of, SystemClock().now_ms, reads.count)
    return http_server(QueryApi(queries, access), certificate)


def http_server(application: Callable[..., Any], certificate: Certificate | None) -> uvicorn.Server:
    """Return a server of an ASGI application, with the limits of the query server."""
    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=_DRAIN_S,
        ssl_certfile=None if certificate is None else str(certificate.file),
        ssl_keyfile=None if certificate is None else str(certificate.key),
    )
    return uvicorn.Server(config)
