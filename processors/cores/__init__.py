"""The pure step of each kind: batches of events in; outputs and changes of state out, as values.

A core runs one shard. Between two checkpoints it gathers what they changed (the overlay); nothing here sends, saves or
tells the time, so the same cores run under the worker, in the test driver and inside Spark.

    batch --feed--> Fed(outputs, rejected, late)  … any number of times
          --drain--> Drained(outputs, changes)    at a checkpoint, which saves them
"""

from __future__ import annotations

from ..changes import Join, StateReader
from ..kinds import Aggregator, Processor, Stateful, Stateless
from ..stores import Remote, Writing
from ..windows import Session, Sliding
from .aggregator import AggregatorCore, AppendingCore, ModifyingCore, RemoteCore
from .base import Core, Drained, Fed, Rejected
from .closing import ClosingCore
from .ordered import OrderedCore
from .sessions import SessionCore
from .sliding import SlidingCore
from .stateful import StatefulCore
from .stateless import StatelessCore

__all__ = [
    "AggregatorCore",
    "AppendingCore",
    "ClosingCore",
    "Core",
    "Drained",
    "Fed",
    "ModifyingCore",
    "OrderedCore",
    "Rejected",
    "RemoteCore",
    "SessionCore",
    "SlidingCore",
    "StatefulCore",
    "StatelessCore",
    "join_of",
    "open_core",
]


def open_core(processor: Processor, saved: StateReader) -> Core:
    """Return the core that runs one shard of `processor` over its saved state."""
    match processor:
        case Stateless():
            return StatelessCore(processor, saved)
        case Stateful() if processor.ordered:
            return OrderedCore(processor, saved)
        case Stateful():
            return StatefulCore(processor, saved)
        case Aggregator():
            return _aggregator_core(processor, saved)
        case _:
            raise TypeError(
                f"{type(processor).__name__} is of no kind: derive it from Stateless, Stateful or Aggregator"
            )


def _aggregator_core(processor: Aggregator, saved: StateReader) -> Core:
    match processor.store:
        case Remote(Writing.READ_MODIFY_WRITE):
            return ModifyingCore(processor, saved)
        case Remote(Writing.APPEND):
            return AppendingCore(processor, saved)
        case Remote():
            return RemoteCore(processor, saved)
        case _ if isinstance(processor.window, Session):
            return SessionCore(processor, saved)
        case _ if isinstance(processor.window, Sliding):
            return SlidingCore(processor, saved)
        case _:
            return ClosingCore(processor, saved) if processor.windows_end() else AggregatorCore(processor, saved)


def join_of(processor: Processor) -> Join:
    """Return what two changes of one key amount to: the later one, or, where changes are partials, both combined."""
    match processor:
        case Aggregator(store=Remote(Writing.APPEND)):
            monoid = processor.monoid
            return lambda earlier, later: monoid.encode(monoid.combine(monoid.decode(earlier), monoid.decode(later)))
        case _:
            return lambda _, later: later
