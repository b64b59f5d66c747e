"""The names of `import penstock`."""

from typing import TYPE_CHECKING

from . import errors, metadata, monoids, watermarks, windows
from .ops.cli.script import run
from .processors.declare.aggregator import Aggregator
from .processors.declare.alerts import Alert
from .processors.declare.categories import Category
from .processors.declare.composite_keys import composite_key
from .processors.declare.context import Context
from .processors.declare.dead_letter_limit import DeadLetterLimit
from .processors.declare.dead_letters import DeadLetter
from .processors.declare.emission import AtCheckpoint, AtWatermark, OnLate
from .processors.declare.event_times import TimeField, TimeUnit
from .processors.declare.joins import Join, JoinType
from .processors.declare.keys import KeyCodec
from .processors.declare.partitioner import Partitioner
from .processors.declare.processor import CheckpointInterval, ErrorPolicy, Processor
from .processors.declare.records import EventTime, Record
from .processors.declare.repartition import Repartition
from .processors.declare.retries import Retry
from .processors.declare.routes import To
from .processors.declare.semantics import Semantics
from .processors.declare.stateful import Stateful
from .processors.declare.stateless import Stateless
from .processors.declare.stores import LocalStore, RemoteStore, WriteMode
from .processors.declare.table_joins import TableJoin
from .processors.declare.tombstones import Tombstone
from .processors.declare.two_phase import TwoPhase
from .processors.declare.windowed import Windowed
from .processors.errors import PenstockError
from .processors.lookups import LookupJoin
from .processors.pipes import Line, Pipe
from .processors.time.schedules import Cron, Firing, Interval
from .processors.time.timers import Clock, Timer
from .state.remote import RemoteResults, read_results
from .transport.producer import Producer

if TYPE_CHECKING:  # the package imports them at their first use
    from . import codecs, lookups, sinks
    from .state.lookup_sources import LaserTable

__all__ = [
    "Aggregator",
    "Alert",
    "AtCheckpoint",
    "AtWatermark",
    "Category",
    "CheckpointInterval",
    "Clock",
    "Context",
    "Cron",
    "DeadLetter",
    "DeadLetterLimit",
    "ErrorPolicy",
    "EventTime",
    "Firing",
    "Interval",
    "Join",
    "JoinType",
    "KeyCodec",
    "LaserTable",
    "Line",
    "LocalStore",
    "LookupJoin",
    "OnLate",
    "Partitioner",
    "PenstockError",
    "Pipe",
    "Processor",
    "Producer",
    "Record",
    "RemoteResults",
    "RemoteStore",
    "Repartition",
    "Retry",
    "Semantics",
    "Stateful",
    "Stateless",
    "TableJoin",
    "TimeField",
    "TimeUnit",
    "Timer",
    "To",
    "Tombstone",
    "TwoPhase",
    "Windowed",
    "WriteMode",
    "codecs",
    "composite_key",
    "errors",
    "lookups",
    "metadata",
    "monoids",
    "read_results",
    "run",
    "sinks",
    "watermarks",
    "windows",
]
