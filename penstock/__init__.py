"""Penstock: stream processors on Kafka that also run, unchanged, as Spark batch jobs."""

from .processors.categories import Category
from .processors.dead_letters import DeadLetter
from .processors.errors import PenstockError
from .processors.kinds import Aggregator, Context, Every, OnBad, Stateful, Stateless
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
from .processors.windows import Ever, Tumbling, Window

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
    "MapOf",
    "Max",
    "Mean",
    "Min",
    "Monoid",
    "OnBad",
    "PenstockError",
    "Quantiles",
    "Record",
    "Stateful",
    "Stateless",
    "Sum",
    "TopK",
    "Tumbling",
    "TupleOf",
    "Window",
]
