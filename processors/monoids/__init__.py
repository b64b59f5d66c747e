"""Monoids: partial aggregates that merge in any grouping, ready-made and as a base for one's own."""

from .base import Monoid
from .counting import Count, Mean, Sum
from .laws import BrokenLaw, check_laws
from .nesting import MapOf, TopK, TupleOf
from .ordering import First, Largest, Last, Max, Min
from .sketches import Distinct, Estimate, Quantiles

__all__ = [
    "BrokenLaw",
    "Count",
    "Distinct",
    "Estimate",
    "First",
    "Largest",
    "Last",
    "MapOf",
    "Max",
    "Mean",
    "Min",
    "Monoid",
    "Quantiles",
    "Sum",
    "TopK",
    "TupleOf",
    "check_laws",
]
