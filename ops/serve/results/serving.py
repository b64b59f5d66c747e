"""The process of the query server: HTTP in its main thread, reading in others, until SIGINT or SIGTERM."""

from __future__ import annotations

import uvicorn

from ...http import Access, Certificate, http_server
from ...shell import SystemClock
from .follower import ResultFollower
from .freshness import FreshnessReader
from .http_api import create_api
from .queries import Queries
from .read_counter import ReadCounter


def create_server(
    follower: ResultFollower,
    freshness: FreshnessReader,
    reads: ReadCounter,
    access: Access,
    certificate: Certificate | None,
) -> uvicorn.Server:
    """Return the server. Its `run` answers clients until `should_exit`."""
    queries = Queries(follower, freshness.as_of, SystemClock().now_ms, reads.count)
    return http_server(create_api(queries, access), certificate)
