"""Monoids: partial aggregates that combine in any grouping. Ready-made monoids, and a base class for your own."""

from .base import Monoid
from .counting import Count, Mean, Sum, Variance
from .laws import BrokenLaw, check_laws
from .nesting import MapOf, TopKeys, TupleOf
from .ordering import First, KLargest, Last, Max, Min
from .sketches import Distinct, Estimate, Quantiles

__all__ = [
    "BrokenLaw",
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
    "check_laws",
]
