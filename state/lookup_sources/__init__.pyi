from .file_tables import CsvTable as CsvTable
from .file_tables import FileTable as FileTable
from .file_tables import ParquetTable as ParquetTable
from .laser_table import LaserTable as LaserTable
from .postgres_table import PostgresQuery as PostgresQuery
from .postgres_table import PostgresTable as PostgresTable
from .redis_table import RedisForm as RedisForm
from .redis_table import RedisTable as RedisTable
