"""Queries for results of processors that `penstock serve` serves, over HTTP."""

from .ops.serving.answers import AsOf, Keys, ProcessorInfo, Row, Rows, WindowBounds
from .ops.serving.client import QueryClient, QueryFailed, ServerUnavailable, Time

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
