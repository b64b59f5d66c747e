"""Sinks: PostgreSQL tables, HTTP endpoints, and tables in memory for tests."""

from .http_endpoint import HttpEndpoint
from .memory_table import MemoryTable
from .postgres_table import PostgresTable

__all__ = ["HttpEndpoint", "MemoryTable", "PostgresTable"]
