"""The rows of all tables, in DuckDB: in memory, or in a file that only this process opens.

rows of a flush --one transaction with the next offsets--> segments of a table
oldest segments --dropped as a whole, by age and size--> nothing
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

import duckdb
import pyarrow as pa

from ....state.files import make_private_folder
from .errors import ScubaRefused
from .flat_columns import ARRIVED, RATE
from .sampling import ALL, SampleRate

MAX_SEGMENT_ROWS = 1_000_000
"""The number of rows at which a segment ends."""
TEXT_BYTES = 12
"""The bytes by which a text in DuckDB is larger than in Arrow: 16 for each, in place of 4."""
_BATCH = "scuba_batch"
_CREATE = """
CREATE SCHEMA IF NOT EXISTS segments;
CREATE SCHEMA IF NOT EXISTS scuba;
CREATE TABLE IF NOT EXISTS scuba.segments (
    number BIGINT PRIMARY KEY, name VARCHAR, rate DOUBLE, rows BIGINT, bytes BIGINT, first_ms BIGINT, last_ms BIGINT
);
CREATE TABLE IF NOT EXISTS scuba.positions (name VARCHAR, topic_id VARCHAR, bucket INTEGER, next_offset BIGINT);
"""


@dataclass(frozen=True)
class RowSegment:
    """Consecutive rows of one table, which are dropped together.

    Args:
        number: its number; later segments have larger ones.
        table: the table.
        rate: the sampling rate of its rows.
        rows: the number of rows.
        size_bytes: their estimated size.
        first_ms: the arrival of its first row (milliseconds since 1970, UTC).
        last_ms: the arrival of its last row.
    """

    number: int
    table: str
    rate: SampleRate
    rows: int = 0
    size_bytes: int = 0
    first_ms: int = 0
    last_ms: int = 0

    def with_rows(self, rows: pa.Table) -> RowSegment:
        """Return the segment after an append."""
        arrivals_ms = rows.column(ARRIVED).to_numpy()
        first_ms, last_ms = int(arrivals_ms.min()), int(arrivals_ms.max())
        return replace(
            self,
            rows=self.rows + rows.num_rows,
            size_bytes=self.size_bytes + size_of(rows),
            first_ms=min(self.first_ms, first_ms) if self.rows else first_ms,
            last_ms=max(self.last_ms, last_ms) if self.rows else last_ms,
        )


@dataclass(frozen=True)
class SavedPositions:
    """The next unread offsets of a category, as saved with its rows.

    Args:
        topic_id: the id of the topic with the offsets.
        offsets: by bucket number.
    """

    topic_id: str
    offsets: Mapping[int, int]


def size_of(rows: pa.Table) -> int:
    """Return the estimated size of rows in DuckDB, in bytes."""
    texts = sum(map(pa.types.is_string, rows.schema.types))
    return int(rows.nbytes) + TEXT_BYTES * texts * rows.num_rows


class ScubaStore:
    """Contains the tables. One thread appends and drops; other threads read through cursors.

    Args:
        schemas: the columns of each table.
        file: the file; None for memory.
        memory_bytes: the most memory of DuckDB, for rows and queries.
        rate: the sampling rate of appended rows.

    Raises:
        ScubaRefused: another process uses the file, it is no such file, or contains other columns.
    """

    def __init__(
        self, schemas: Mapping[str, pa.Schema], file: Path | None, memory_bytes: int, rate: SampleRate
    ) -> None:
        self._connection = _opened(file, memory_bytes)
        self._rate = rate
        self._lock = Lock()
        self._growing: dict[str, int] = {}
        # A process appends only to segments that it has begun, so that each segment has one rate.
        self._schemas = schemas
        try:
            self._connection.execute(_CREATE)
            found = self._connection.execute("SELECT * FROM scuba.segments ORDER BY number").fetchall()
            self._segments = [RowSegment(*row) for row in found]
            self._kinds = {name: self._expected_columns(name, schema) for name, schema in schemas.items()}
            with self._transaction(self._segments):
                for name in schemas:
                    self._show(name, self.segments(name))
        except BaseException:
            self._connection.close()
            raise

    def _expected_columns(self, name: str, schema: pa.Schema) -> dict[str, str]:
        """Return the columns of a table. Check that rows in the file have the same ones."""
        with self._registered(schema.empty_table()):
            expected = {**self._described(_BATCH), RATE: "DOUBLE"}
        for segment in self.segments(name):
            kept = self._described(f"segments.s{segment.number}")
            other = next((column for column, kind in kept.items() if expected.get(column, kind) != kind), None)
            if other is not None:
                raise ScubaRefused(
                    f"In the file of Scuba, column {other!r} of {name} has the type {kept[other]}, and now {expected[other]}. Nothing was started, and "
                    "the file is unchanged. Delete the file, or name another one with --file: the rows are read again from Kafka."
                )
        return expected

    def _described(self, table: str) -> dict[str, str]:
        found = self._connection.execute(f"DESCRIBE {table}").fetchall()
        return {name: kind for name, kind, *_ in found}

    @property
    def tables(self) -> Sequence[str]:
        """The names of the tables."""
        return list(self._schemas)

    def segments(self, name: str | None = None) -> list[RowSegment]:
        """Return the segments of one table or of all, oldest first. For any thread."""
        with self._lock:
            return [segment for segment in self._segments if name in (None, segment.table)]

    def is_sampled(self, name: str) -> bool:
        """Return whether a row of a table stands for several events."""
        return self._rate < ALL or any(segment.rate < ALL for segment in self.segments(name))

    def columns(self, name: str) -> Mapping[str, str]:
        """Return the columns of a table and their types in DuckDB, in order. For any thread."""
        return self._kinds[name]

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a connection for another thread. Close it."""
        return self._connection.cursor()

    def saved_positions(self, name: str) -> SavedPositions | None:
        """Return the positions that were saved with the last rows of a table; None without any."""
        found = self._connection.execute(
            "SELECT topic_id, bucket, next_offset FROM scuba.positions WHERE name = ?", [name]
        ).fetchall()
        return SavedPositions(found[0][0], {bucket: offset for _, bucket, offset in found}) if found else None

    def append(self, name: str, rows: pa.Table, positions: SavedPositions) -> None:
        """Add rows to a table and save the next offsets, both or neither.

        Args:
            name: the table.
            rows: the rows; may be empty.
            positions: the offsets after them, and after events that are not in the sample.

        Raises:
            duckdb.Error: DuckDB cannot store them. Neither was changed.
        """
        segments = {segment.number: segment for segment in self.segments()}
        growing = segments.get(self._growing.get(name, 0))
        if growing is None or growing.rows >= MAX_SEGMENT_ROWS:
            growing = RowSegment(max(segments, default=0) + 1, name, self._rate)
        if rows.num_rows:
            segments[growing.number] = growing.with_rows(rows)
        with self._transaction(segments.values()) as connection:
            if rows.num_rows:
                self._store(segments[growing.number], rows, is_new=not growing.rows)
            connection.execute("DELETE FROM scuba.positions WHERE name = ?", [name])
            for bucket, offset in positions.offsets.items():
                place = [name, positions.topic_id, bucket, offset]
                connection.execute("INSERT INTO scuba.positions VALUES (?, ?, ?, ?)", place)
        if rows.num_rows:
            self._growing[name] = growing.number

    def _store(self, segment: RowSegment, rows: pa.Table, *, is_new: bool) -> None:
        with self._registered(rows):
            if is_new:
                self._connection.execute(f"CREATE TABLE segments.s{segment.number} AS FROM {_BATCH}")
            else:
                self._connection.execute(f"INSERT INTO segments.s{segment.number} FROM {_BATCH}")
        values = [segment.number, segment.table, segment.rate, segment.rows, segment.size_bytes]
        self._connection.execute(
            "INSERT OR REPLACE INTO scuba.segments VALUES (?, ?, ?, ?, ?, ?, ?)",
            [*values, segment.first_ms, segment.last_ms],
        )
        if is_new:
            self._show(segment.table, [*self.segments(segment.table), segment])

    def drop(self, before_ms: int, max_bytes: int) -> int:
        """Drop segments with only rows from before a time, then the oldest ones beyond the largest size. Return the number of dropped rows.

        Args:
            before_ms: the time (milliseconds since 1970, UTC).
            max_bytes: the largest size of all tables.
        """
        kept = {segment.number: segment for segment in self.segments() if segment.last_ms >= before_ms}
        while sum(segment.size_bytes for segment in kept.values()) > max_bytes:
            del kept[min(kept.values(), key=lambda segment: segment.last_ms).number]
        dropped = [segment for segment in self.segments() if segment.number not in kept]
        if not dropped:
            return 0
        with self._transaction(kept.values()) as connection:
            for name in {segment.table for segment in dropped} & self._schemas.keys():
                self._show(name, [segment for segment in kept.values() if segment.table == name])
            for segment in dropped:
                connection.execute(f"DROP TABLE segments.s{segment.number}")
                connection.execute("DELETE FROM scuba.segments WHERE number = ?", [segment.number])
        return sum(segment.rows for segment in dropped)

    def end_segments(self) -> None:
        """Begin a new segment of each table with its next rows. A segment is dropped as a whole, so it must not grow for too long."""
        self._growing.clear()

    def _show(self, name: str, segments: Sequence[RowSegment]) -> None:
        """Let the view of a table contain its segments."""
        empty = ", ".join(f"NULL::{kind} AS {quoted(column)}" for column, kind in self._kinds[name].items())
        selects = [
            f"SELECT *, {segment.rate!r}::DOUBLE AS {RATE} FROM segments.s{segment.number}" for segment in segments
        ]
        union = " UNION ALL BY NAME ".join([f"(SELECT {empty} WHERE false)", *selects])
        self._connection.execute(f"CREATE OR REPLACE VIEW {quoted(name)} AS {union}")

    @contextmanager
    def _registered(self, rows: pa.Table) -> Iterator[None]:
        self._connection.register(_BATCH, rows)
        try:
            yield
        finally:
            self._connection.unregister(_BATCH)

    @contextmanager
    def _transaction(self, segments: Iterable[RowSegment]) -> Iterator[duckdb.DuckDBPyConnection]:
        """Run changes at once. Afterwards, these are the segments."""
        self._connection.begin()
        try:
            yield self._connection
            self._connection.commit()
        except BaseException:
            with suppress(duckdb.Error):  # DuckDB has ended the transaction itself after some errors
                self._connection.rollback()
            raise
        with self._lock:
            self._segments = sorted(segments, key=lambda segment: segment.number)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def quoted(name: str) -> str:
    """Return a name as an identifier of SQL."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _opened(file: Path | None, memory_bytes: int) -> duckdb.DuckDBPyConnection:
    """Return a database that can neither read other files, nor load extensions, nor change its limits."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{memory_bytes}B",
        "temp_directory": "" if file is None else f"{file}.tmp",
        "autoload_known_extensions": False,
        "autoinstall_known_extensions": False,
    }
    if file is not None:
        make_private_folder(file.parent)
    try:
        connection = duckdb.connect(":memory:" if file is None else str(file), config=config)
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        if file is not None:
            file.chmod(0o600)
    except duckdb.Error as error:
        raise ScubaRefused(
            f"The file {file} of Scuba cannot be opened: {error}. Nothing was started. End the process that uses it, or name another file with --file."
        ) from error
    return connection
