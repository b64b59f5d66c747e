"""Queries for results of processors that `penstock serve results` serves, over HTTP."""

from .ops.serve import (
    AsOf,
    Keys,
    ProcessorInfo,
    QueryClient,
    QueryFailed,
    Row,
    Rows,
    ServerUnavailable,
    Time,
    WindowBounds,
)

__all__ = [
    "AsOf",
    "Keys",
    "ProcessorInfo",
    "QueryClient",
    "QueryFailed",
    "Row",
    "Rows",
    "ServerUnavailable",
    "Time",
    "WindowBounds",
]
