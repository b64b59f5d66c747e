"""The tables of shards in PostgreSQL."""

from __future__ import annotations

import psycopg

_LOCK = 0x70656E73746F636B
"""The advisory lock for creating the tables: the bytes of "penstock" as a number."""

_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS penstock_shards (
        shard integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        processor text NOT NULL,
        bucket integer NOT NULL,
        format integer NOT NULL,
        shape text NOT NULL,
        owner text NOT NULL,
        epoch bigint NOT NULL DEFAULT 1,
        saves bigint NOT NULL DEFAULT 0,
        position jsonb NOT NULL DEFAULT '{}',
        outbox bytea NOT NULL DEFAULT '',
        appended boolean NOT NULL DEFAULT false,
        UNIQUE (processor, bucket)
    )
    """,
    # Free space on each page lets an updated row stay there, which saves index updates.
    """
    CREATE TABLE IF NOT EXISTS penstock_parts (
        shard integer NOT NULL,
        slot bytea NOT NULL,
        place bigint NOT NULL,
        encoded bytea,
        whole numeric,
        fraction double precision,
        observed numeric,
        rank bytea,
        PRIMARY KEY (shard, slot, place)
    ) WITH (fillfactor = 80)
    """,
    "COMMENT ON COLUMN penstock_parts.place IS '0: a whole value; 1: merged by the database; from 2: partials, by save'",
)


def create_missing_tables(connection: psycopg.Connection) -> None:
    """Create missing tables within a transaction; workers that start together take turns."""
    if not _exist(connection):
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if not _exist(connection):
            for statement in _TABLES:
                connection.execute(statement)


def _exist(connection: psycopg.Connection) -> bool:
    row = connection.execute(
        "SELECT to_regclass('penstock_shards') IS NOT NULL AND to_regclass('penstock_parts') IS NOT NULL"
    )
    return row.fetchone() == (True,)
