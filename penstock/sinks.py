"""Sinks of processors: PostgreSQL tables, Parquet files, HTTP endpoints, tables in memory, or your own."""

from .backfill.outputs.parquet_sink import ParquetFiles
from .processors.declare.sinks import (
    ALL_SEMANTICS,
    RefusedRow,
    Sink,
    SinkBatch,
    SinkFenced,
    SinkRefused,
    SinkUnreachable,
    SinkWriter,
)
from .state.sinks import HttpEndpoint, MemoryTable, PostgresTable

__all__ = [
    "ALL_SEMANTICS",
    "HttpEndpoint",
    "MemoryTable",
    "ParquetFiles",
    "PostgresTable",
    "RefusedRow",
    "Sink",
    "SinkBatch",
    "SinkFenced",
    "SinkRefused",
    "SinkUnreachable",
    "SinkWriter",
]
