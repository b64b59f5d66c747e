"""Sources of looked-up rows: files, which are loaded whole, PostgreSQL and Redis.

Each source is a pair: a value that a class declares, and the client that it opens. Opening a source imports its library.
"""

from .file_tables import CsvTable, ParquetTable
from .laser_table import LaserTable
from .postgres_table import PostgresQuery, PostgresTable
from .redis_table import RedisForm, RedisTable

__all__ = ["CsvTable", "LaserTable", "ParquetTable", "PostgresQuery", "PostgresTable", "RedisForm", "RedisTable"]
