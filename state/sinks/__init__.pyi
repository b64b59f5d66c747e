from .http_sink import HttpSink as HttpSink
from .memory_sink import MemoryRows as MemoryRows
from .memory_sink import MemorySink as MemorySink
from .owned_rows import OwnedRows as OwnedRows
from .postgres_sink import PostgresSink as PostgresSink
