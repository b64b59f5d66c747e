"""Where looked-up rows lie: in files that are loaded whole, in PostgreSQL, in Redis.

Each source is a pair: a value that is declared on a class, and what it opens. A library is imported when a source that needs it is opened.
"""

from .csv_table import CsvTable
from .parquet_table import ParquetTable
from .postgres_table import PostgresQuery, PostgresTable
from .redis_table import RedisForm, RedisTable

__all__ = ["CsvTable", "ParquetTable", "PostgresQuery", "PostgresTable", "RedisForm", "RedisTable"]
