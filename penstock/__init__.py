"""Penstock: stream processors on Kafka that also run, unchanged, as Spark batch jobs."""

from .processors.categories import Category
from .processors.dead_letters import DeadLetter
from .processors.errors import PenstockError
from .processors.kinds import Aggregator, Context, Every, OnBad, Processor, Stateful, Stateless
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
from .processors.semantics import Semantics
from .processors.stores import Local, Remote, Writing
from .processors.windows import Ever, Tumbling, Window
from .state.remote import RemoteResults, read_results

__all__ = [
    "Aggregator",
    "Category",
    "Context",
    "Count",
    "DeadLetter",
    "Distinct",
    "Estimate",
    "EventTime",
    "Ever",
    "Every",
    "First",
    "Largest",
    "Last",
    "Local",
    "MapOf",
    "Max",
    "Mean",
    "Min",
    "Monoid",
    "OnBad",
    "PenstockError",
    "Processor",
    "Quantiles",
    "Record",
    "Remote",
    "RemoteResults",
    "Semantics",
    "Stateful",
    "Stateless",
    "Sum",
    "TopK",
    "Tumbling",
    "TupleOf",
    "Window",
    "Writing",
    "read_results",
]
