"""Stateless processors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Generic

from ..errors import DeclarationError
from .method_check import Method, check_methods
from .processor import Processor, expect_columns
from .type_parameters import Event, Output

if TYPE_CHECKING:
    import pyarrow as pa


class Stateless(Processor, Generic[Event, Output]):
    """Maps each event to outputs, without state. `Stateless[Event, Output]` names the record types for type checkers.

    Class attributes:
        columns: the fields that `process_columns` needs. Default: all. Backfills read no other columns.

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

    @abstractmethod
    def process(self, event: Event) -> Iterable[Output]:
        """Return or yield the outputs of an event."""

    def process_columns(self, events: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
        """Return the outputs of many events as columns. Backfills call it instead of `process` if it is defined.

        It must return the outputs of `process`, in order, and must not raise for any event. The backfill compares both methods on the first events
        of each task.

        Args:
            events: one column per field, or per field in `columns`.
        """
        raise DeclarationError(
            f"Stateless {type(self).__name__} does not define `process_columns`; it was called for {events.num_rows} events."
        )

    @classmethod
    def routes_outputs(cls) -> bool:
        """Return True."""
        return True

    @classmethod
    def has_columns_step(cls) -> bool:
        """Return whether the class defines `process_columns`."""
        return cls.process_columns is not Stateless.process_columns

    @classmethod
    def check(cls) -> None:
        """Also check the columns and `process`."""
        super().check()
        check_methods(cls, {"process": Method(("event",), "[…]", may_yield=True)})
        if cls.has_columns_step():
            expect_columns(cls, "process_columns", cls.columns)

    def for_batch(self, events: Sequence[Event]) -> Callable[[Event], Iterable[Output]]:  # noqa: ARG002 - lookups use them
        """Return the function that processes the events of a batch, one after the other, each once.

        Raises:
            Deferred: retry the batch later.
            Halted: the batch cannot be processed.
        """
        return self.process
