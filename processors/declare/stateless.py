"""The kind that remembers nothing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import DeclarationError
from .processor import Processor, expect_columns
from .records import Record

if TYPE_CHECKING:
    import pyarrow as pa


class Stateless(Processor):
    """Events in, events out; nothing is remembered.

    Class attributes:
        columns: which fields of its input `process_columns` looks at; by default all. Others are not read from the warehouse.
    """

    columns: ClassVar[tuple[str, ...] | None] = None

    @abstractmethod
    def process(self, event: Any) -> Iterable[Record]:
        """Return, or yield, the outputs of one event."""

    def process_columns(self, events: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
        """Return the outputs of many events as columns: for backfills, which take it in place of `process` where a class defines it.

        It gives the outputs that `process` gives, event by event, in order; the beginning of each task is tried in both ways. No event may
        raise in it.

        Args:
            events: a column for each field, or for those in `columns`.
        """
        raise DeclarationError(
            f"Stateless {type(self).__name__} has no `process_columns` (asked for {events.num_rows} events)."
        )

    @classmethod
    def has_columns_step(cls) -> bool:
        """Whether it defines `process_columns`."""
        return cls.process_columns is not Stateless.process_columns

    @classmethod
    def check(cls) -> None:
        """Also: columns that exist."""
        super().check()
        if cls.has_columns_step():
            expect_columns(cls, "process_columns", cls.columns)

    def for_batch(self, events: Sequence[Any]) -> Callable[[Any], Iterable[Record]]:  # noqa: ARG002 - for those that fetch
        """Return what is to be asked for the outputs of the events of a batch, one after the other, each once.

        Raises:
            Deferred: the batch is to be given again.
            Halted: it cannot be processed.
        """
        return self.process
