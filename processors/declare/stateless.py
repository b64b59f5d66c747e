"""Stateless processors."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from ..errors import DeclarationError
from ..validation import is_library_class
from ..wording import counted
from .categories import AnyCategory, Category
from .declaration_checks import expect_columns
from .flat_records import flat_fields
from .method_check import Method, check_methods, engine_method, is_async
from .mutability import unshared
from .plan import ProcessorPlan, needed_columns, plan_of
from .processor import Destination, Processor
from .semantics import Semantics
from .tombstones import expect_own_process, with_tombstones
from .type_parameters import Event, Output

if TYPE_CHECKING:
    import pyarrow as pa

    from ..event_loop import EventLoop, Outcome


class Stateless(Processor, Generic[Event, Output]):
    """Maps each event to outputs, without state. `Stateless[Event, Output]` names the record types for type checkers.

    Class attributes:
        columns: the fields that `process_columns` needs. Default: all. No other columns are read.
        concurrency: the greatest number of concurrent calls of an `async def process`.
        tombstones: whether `process` receives a message with a key and a null value, as a `Tombstone`. Otherwise, it does not decode.

    Examples:
        >>> import penstock as ps
        >>> class Click(ps.Record, frozen=True):
        ...     user: str
        ...     at: int
        >>> class KnownUsers(ps.Stateless):
        ...     reads = ps.Category("clicks", Click, key="user", event_time="at")
        ...     writes = ps.Category("known_clicks", Click, key="user", event_time="at")
        ...
        ...     def process(self, event):
        ...         if event.user:
        ...             yield event
        >>> list(KnownUsers().process(Click("", 5)))
        []
    """

    columns: ClassVar[tuple[str, ...] | None] = None
    concurrency: ClassVar[int] = 100
    tombstones: ClassVar[bool] = False

    @abstractmethod
    def process(self, event: Event) -> Iterable[Output] | Awaitable[Iterable[Output]] | AsyncIterable[Output]:
        """Return or yield the outputs of an event.

        An `async def process` runs concurrently for the events of a batch, but one after the other for events of the same key of the input
        category. The outputs have the order of the events.
        """

    def process_columns(self, events: pa.RecordBatch) -> pa.RecordBatch | pa.Table | None:
        """Return the outputs of many events as columns; None if they must be processed one by one. Workers and backfills call it instead of `process`.

        It must return the outputs of `process`, in order, and raise if `process` raises for one of the events; a worker then calls `process` for
        each of them, and a backfill ends. Both methods are compared on the first events of each shard or task.

        Args:
            events: one column per field, or per field in `columns`.
        """
        raise DeclarationError(
            f"Stateless {type(self).__name__} does not define `process_columns`; it was called for {counted(events.num_rows, 'event')}."
        )

    @engine_method
    def for_batch(self, category: AnyCategory, events: Sequence[Event]) -> Callable[[Event], Iterable[Output]]:
        """Return the function that returns the outputs of a batch's events, or raises; for one event after the other, each once.

        An asynchronous processor has processed the events by then, up to the first one that stops it.

        Args:
            category: the input.
            events: the events.

        Raises:
            Deferred: retry the batch later.
            Halted: the batch cannot be processed.
        """
        process: Callable[[Event], Any] = with_tombstones(self.process) if self.tombstones else self.process
        if not is_async(self.process):
            return process
        outcomes = self._event_loop.outcomes(
            process,
            events,
            category.keys_of(events),
            concurrency=self.concurrency,
            stops=lambda error: plan_of(self).error_action(error).stops,
        )
        return BatchOutcomes(iter(outcomes))

    @engine_method
    def blocking(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls a method and returns its result: if it is `async def`, it runs on the processor's event loop."""
        return partial(self._event_loop.run, method) if is_async(method) else method

    @engine_method
    def close_event_loop(self) -> None:
        """Close the event loop of asynchronous methods, if there is one."""
        if "_event_loop" in vars(self):
            self._event_loop.close()
            del self._event_loop

    @cached_property
    def _event_loop(self) -> EventLoop:
        from ..event_loop import EventLoop  # noqa: PLC0415 - imports asyncio, which few processors need

        loop = EventLoop(type(self).__name__, unshared)
        weakref.finalize(self, loop.close)  # test drivers and Spark's workers close no processor
        return loop


class StatelessPlan(ProcessorPlan, of=Stateless):
    """The plan of a `Stateless`."""

    declaration: type[Stateless[Any, Any]]

    def reads_tombstones(self, category: AnyCategory) -> bool:  # noqa: ARG002 - of any input
        """Return whether the class declares it."""
        return self.declaration.tombstones

    @property
    def routes_outputs(self) -> bool:
        """True."""
        return True

    @property
    def has_columns_step(self) -> bool:
        """Whether the class defines `process_columns`."""
        return self.declaration.process_columns is not Stateless.process_columns

    @property
    def stream_columns(self) -> tuple[str, ...] | None:
        """The fields that `process_columns` needs; None where an output needs its event, or its format has limits of its own."""
        if (
            not self.has_columns_step
            or self.declaration.trace_context
            or not all(map(_takes_columns, self.destinations))
        ):
            return None
        return needed_columns(self.sources[0], self.declaration.columns) if self.destinations else None

    def check(self) -> None:
        """Also check the columns and `process`."""
        cls = self.declaration
        super().check()
        expect_own_process(cls)
        check_methods(cls, {"process": Method(("event",), "[…]", may_yield=True, may_be_async=True)})
        if cls.concurrency < 1:
            raise DeclarationError(
                f"Stateless {cls.__name__}: `concurrency = {cls.concurrency}` must be at least 1. Nothing was read. Declare the number of calls of "
                "`process` that may run at the same time."
            )
        own = {name for base in cls.__mro__ if not is_library_class(base) for name in vars(base)}
        if {"process", "concurrency"} <= own and not is_async(cls.process):
            raise DeclarationError(
                f"Stateless {cls.__name__} declares `concurrency = {cls.concurrency}`, but its `process` is no `async def`, so events are processed one after "
                "the other. Nothing was read. Write `async def process(self, event):`, or remove `concurrency`."
            )
        if self.has_columns_step:
            expect_columns(self, "process_columns", cls.columns)

    def _expect_retries(self) -> None:
        """Raise DeclarationError if a waiting event could be lost."""
        cls = self.declaration
        if cls.output_semantics is Semantics.AT_MOST_ONCE:
            raise DeclarationError(
                f"Stateless {cls.__name__} declares outputs at most once, so a failure would also lose events that wait for a retry. Nothing was read. "
                "Declare `output_semantics` as penstock.Semantics.AT_LEAST_ONCE or EXACTLY_ONCE, or no `penstock.Retry`."
            )

    @property
    def min_batch(self) -> int:
        """The number of concurrent calls."""
        cls = self.declaration
        return cls.concurrency if is_async(cls.process) else 1


def _takes_columns(destination: Destination) -> bool:
    """Return whether every flat record with finite numbers is a valid output."""
    return (
        isinstance(destination, Category)
        and destination.codec == "json"
        and destination.times.column is not None
        and flat_fields(destination.record) is not None
    )


class BatchOutcomes:
    """Returns the outputs of one event after the other, or raises its exception.

    Args:
        outcomes: the outcome of each event of a batch, in order.
    """

    def __init__(self, outcomes: Iterator[Outcome]) -> None:
        self._outcomes = outcomes

    def __call__(self, event: Any) -> Iterable[Any]:  # noqa: ARG002 - the events arrive in order
        """Return the outputs of the next event."""
        outcome = next(self._outcomes)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome
