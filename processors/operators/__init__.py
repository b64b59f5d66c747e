"""Operators: the pure step of each kind of processor, from batches of events to outputs and state changes.

An operator runs one shard and collects its changes between two checkpoints. It performs no I/O and reads no clock, so the same
operators run in the worker, in replays, in the test driver and in Spark.

    batch --feed--> StepResult(outputs, rejected, late)      any number of times
          --drain--> CheckpointResult(outputs, changes)      at a checkpoint, which saves them
"""

from __future__ import annotations

from ..declare.aggregator import Aggregator
from ..declare.processor import Processor
from ..declare.stateful import Stateful
from ..declare.stateless import Stateless
from ..declare.stores import RemoteStore, WriteMode
from ..keyed_state.changes import MergeChanges, StateReader
from ..time.windows import Session, Sliding
from .aggregator import AggregatorOperator, AppendOnlyOperator, ReadModifyWriteOperator, RemoteAggregatorOperator
from .base import CheckpointResult, Operator, Rejected, StepResult
from .closing_windows import ClosingWindowsOperator
from .ordered_delivery import OrderedDeliveryOperator
from .sessions import SessionOperator
from .sliding import SlidingOperator
from .stateful import StatefulOperator
from .stateless import StatelessOperator

__all__ = [
    "AggregatorOperator",
    "AppendOnlyOperator",
    "CheckpointResult",
    "ClosingWindowsOperator",
    "Operator",
    "OrderedDeliveryOperator",
    "ReadModifyWriteOperator",
    "Rejected",
    "RemoteAggregatorOperator",
    "SessionOperator",
    "SlidingOperator",
    "StatefulOperator",
    "StatelessOperator",
    "StepResult",
    "merge_of",
    "open_operator",
]


def open_operator(processor: Processor, saved: StateReader, number: int = 0) -> Operator:
    """Return the operator that runs one shard of `processor`, by its number, over its saved state."""
    match processor:
        case Stateless():
            return StatelessOperator(processor, saved)
        case Stateful() if processor.ordered:
            return OrderedDeliveryOperator(processor, saved, number)
        case Stateful():
            return StatefulOperator(processor, saved, number=number)
        case Aggregator():
            return _aggregator_operator(processor, saved)
        case _:
            raise TypeError(
                f"{type(processor).__name__} is no known kind of processor. Derive it from Stateless, Stateful or Aggregator."
            )


def _aggregator_operator(processor: Aggregator, saved: StateReader) -> Operator:
    match processor.store:
        case RemoteStore(WriteMode.READ_MODIFY_WRITE):
            return ReadModifyWriteOperator(processor, saved)
        case RemoteStore(WriteMode.APPEND):
            return AppendOnlyOperator(processor, saved)
        case RemoteStore():
            return RemoteAggregatorOperator(processor, saved)
        case _ if isinstance(processor.window, Session):
            return SessionOperator(processor, saved)
        case _ if isinstance(processor.window, Sliding):
            return SlidingOperator(processor, saved)
        case _:
            return (
                ClosingWindowsOperator(processor, saved)
                if processor.windows_end()
                else AggregatorOperator(processor, saved)
            )


def merge_of(processor: Processor) -> MergeChanges:
    """Return the function that merges two changes of one key: the later one wins, but partial aggregates combine."""
    match processor:
        case Aggregator(store=RemoteStore(WriteMode.APPEND)):
            monoid = processor.monoid
            return lambda earlier, later: monoid.encode(monoid.combine(monoid.decode(earlier), monoid.decode(later)))
        case _:
            return lambda _, later: later
