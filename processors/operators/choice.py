"""Which operator runs a processor."""

from __future__ import annotations

from ..declare import Aggregator, Processor, RemoteStore, Stateful, Stateless, WriteMode, plan_of
from ..keyed_state import MergeChanges, StateReader
from ..time import Session, Sliding
from .aggregator import AggregatorOperator, AppendOnlyOperator, ReadModifyWriteOperator, RemoteAggregatorOperator
from .base import Operator
from .closing_windows import ClosingWindowsOperator
from .ordered_delivery import OrderedDeliveryOperator
from .sessions import SessionOperator
from .sliding import SlidingOperator
from .stateful import StatefulOperator
from .stateless import StatelessOperator


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
                if plan_of(processor).windows_end
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
