"""Monoids: partial aggregates that merge in any grouping, for aggregators and tests."""

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
    Variance,
)

__all__ = [
    "Count",
    "Distinct",
    "Estimate",
    "First",
    "KLargest",
    "Last",
    "MapOf",
    "Max",
    "Mean",
    "Min",
    "Monoid",
    "Quantiles",
    "Sum",
    "TopKeys",
    "TupleOf",
    "Variance",
]
