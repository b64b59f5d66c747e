"""Penstock: stream processors on Kafka that also run, unchanged, as Spark batch jobs."""

from .processors.declare.aggregator import Aggregator
from .processors.declare.alerts import Alert
from .processors.declare.categories import Category
from .processors.declare.context import Context
from .processors.declare.dead_letter_limit import DeadLetterLimit
from .processors.declare.dead_letters import DeadLetter
from .processors.declare.emission import AtCheckpoint, AtWatermark, OnLate
from .processors.declare.joins import Join, JoinType
from .processors.declare.processor import CheckpointInterval, ErrorPolicy, Processor
from .processors.declare.records import EventTime, Record
from .processors.declare.repartition import Repartition
from .processors.declare.semantics import Semantics
from .processors.declare.stateful import Stateful
from .processors.declare.stateless import Stateless
from .processors.declare.stores import LocalStore, RemoteStore, WriteMode
from .processors.declare.table_joins import TableJoin
from .processors.declare.windowed import Windowed
from .processors.errors import PenstockError
from .processors.lookups import (
    Cached,
    InvalidRow,
    LookupClient,
    LookupJoin,
    LookupRefused,
    LookupSource,
    LookupUnreachable,
    MemoryTable,
    OnMiss,
    OnUnreachable,
)
from .processors.monoids import (
    Count,
    Distinct,
    Estimate,
    First,
    KLargest,
    Last,
    MapOf,
    Max,
    Mean,
    Min,
    Monoid,
    Quantiles,
    Sum,
    TopKeys,
    TupleOf,
)
from .processors.time.timers import Clock, Timer
from .processors.time.watermarks import BoundedOutOfOrderness, Confidence, Lateness, UpstreamWatermark, Watermark
from .processors.time.windows import (
    GlobalWindow,
    Hopping,
    Session,
    Sliding,
    Tumbling,
    Window,
    WindowAssigner,
    WindowAssignment,
)
from .state.lookup_sources import CsvTable, ParquetTable, PostgresQuery, PostgresTable, RedisForm, RedisTable
from .state.remote import RemoteResults, read_results
from .transport.watermark_writer import WatermarkWriter

__all__ = [
    "Aggregator",
    "Alert",
    "AtCheckpoint",
    "AtWatermark",
    "BoundedOutOfOrderness",
    "Cached",
    "Category",
    "CheckpointInterval",
    "Clock",
    "Confidence",
    "Context",
    "Count",
    "CsvTable",
    "DeadLetter",
    "DeadLetterLimit",
    "Distinct",
    "ErrorPolicy",
    "Estimate",
    "EventTime",
    "First",
    "GlobalWindow",
    "Hopping",
    "InvalidRow",
    "Join",
    "JoinType",
    "KLargest",
    "Last",
    "Lateness",
    "LocalStore",
    "LookupClient",
    "LookupJoin",
    "LookupRefused",
    "LookupSource",
    "LookupUnreachable",
    "MapOf",
    "Max",
    "Mean",
    "MemoryTable",
    "Min",
    "Monoid",
    "OnLate",
    "OnMiss",
    "OnUnreachable",
    "ParquetTable",
    "PenstockError",
    "PostgresQuery",
    "PostgresTable",
    "Processor",
    "Quantiles",
    "Record",
    "RedisForm",
    "RedisTable",
    "RemoteResults",
    "RemoteStore",
    "Repartition",
    "Semantics",
    "Session",
    "Sliding",
    "Stateful",
    "Stateless",
    "Sum",
    "TableJoin",
    "Timer",
    "TopKeys",
    "Tumbling",
    "TupleOf",
    "UpstreamWatermark",
    "Watermark",
    "WatermarkWriter",
    "Window",
    "WindowAssigner",
    "WindowAssignment",
    "Windowed",
    "WriteMode",
    "read_results",
]
