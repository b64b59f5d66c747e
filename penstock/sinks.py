"""Sinks of processors: PostgreSQL tables, Parquet files, HTTP endpoints, tables in memory, or your own."""

from .backfill.outputs import ParquetSink
from .processors.declare import (
    ALL_SEMANTICS,
    RefusedRow,
    RowsRefused,
    Sink,
    SinkBatch,
    SinkFenced,
    SinkRefused,
    SinkUnreachable,
    SinkWriter,
)
from .state.sinks import HttpSink, MemorySink, PostgresSink

__all__ = [
    "ALL_SEMANTICS",
    "HttpSink",
    "MemorySink",
    "ParquetSink",
    "PostgresSink",
    "RefusedRow",
    "RowsRefused",
    "Sink",
    "SinkBatch",
    "SinkFenced",
    "SinkRefused",
    "SinkUnreachable",
    "SinkWriter",
]
