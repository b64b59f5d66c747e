"""The three kinds of processors, as users declare them.

A processor stands between categories. What it reads, writes and promises is declared on the class, and what it does is
a pure function of its arguments; how its events arrive, where its state lives and who saves it is the engine's work.
"""

from .aggregator import Aggregator
from .base import Every, Fate, OnBad, Processor
from .context import Context, Request
from .stateful import Stateful
from .stateless import Stateless

__all__ = ["Aggregator", "Context", "Every", "Fate", "OnBad", "Processor", "Request", "Stateful", "Stateless"]
