"""Penstock: stream processors on Kafka that also run, unchanged, as Spark batch jobs."""

from .processors.alerts import Alert
from .processors.categories import Category
from .processors.dead_letters import DeadLetter
from .processors.emission import AtCheckpoint, AtWatermark, OnLate
from .processors.errors import PenstockError
from .processors.joins import How, Join
from .processors.kinds import Aggregator, Context, Every, OnBad, Processor, Stateful, Stateless
from .processors.lookups import (
    Cached,
    LookupJoin,
    LookupRefused,
    LookupUnreachable,
    MemoryTable,
    OnMiss,
    OnUnreachable,
    Rows,
    Source,
    UnfitRow,
)
from .processors.monoids import (
    Count,
    Distinct,
    Estimate,
    First,
    Largest,
    Last,
    MapOf,
    Max,
    Mean,
    Min,
    Monoid,
    Quantiles,
    Sum,
    TopK,
    TupleOf,
)
from .processors.records import EventTime, Record
from .processors.rejections import DeadLetterLimit
from .processors.repartition import Repartition
from .processors.semantics import Semantics
from .processors.stores import Local, Remote, Writing
from .processors.tables import TableJoin
from .processors.timers import Clock, Timer
from .processors.watermarks import Behind, Confidence, Lateness, Promised, Watermark
from .processors.windowed import Windowed
from .processors.windows import Ever, Hopping, Session, Sliding, Spread, Tumbling, Window, Windowing
from .state.lookups import CsvTable, ParquetTable, PostgresQuery, PostgresTable, RedisForm, RedisTable
from .state.remote import RemoteResults, read_results
from .transport.injecting import Injector

__all__ = [
    "Aggregator",
    "Alert",
    "AtCheckpoint",
    "AtWatermark",
    "Behind",
    "Cached",
    "Category",
    "Clock",
    "Confidence",
    "Context",
    "Count",
    "CsvTable",
    "DeadLetter",
    "DeadLetterLimit",
    "Distinct",
    "Estimate",
    "EventTime",
    "Ever",
    "Every",
    "First",
    "Hopping",
    "How",
    "Injector",
    "Join",
    "Largest",
    "Last",
    "Lateness",
    "Local",
    "LookupJoin",
    "LookupRefused",
    "LookupUnreachable",
    "MapOf",
    "Max",
    "Mean",
    "MemoryTable",
    "Min",
    "Monoid",
    "OnBad",
    "OnLate",
    "OnMiss",
    "OnUnreachable",
    "ParquetTable",
    "PenstockError",
    "PostgresQuery",
    "PostgresTable",
    "Processor",
    "Promised",
    "Quantiles",
    "Record",
    "RedisForm",
    "RedisTable",
    "Remote",
    "RemoteResults",
    "Repartition",
    "Rows",
    "Semantics",
    "Session",
    "Sliding",
    "Source",
    "Spread",
    "Stateful",
    "Stateless",
    "Sum",
    "TableJoin",
    "Timer",
    "TopK",
    "Tumbling",
    "TupleOf",
    "UnfitRow",
    "Watermark",
    "Window",
    "Windowed",
    "Windowing",
    "Writing",
    "read_results",
]
