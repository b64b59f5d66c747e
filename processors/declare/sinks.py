"""Sinks: places outside the bus to which a processor writes rows, beside or instead of categories.

outputs --Routes--> rows of a shard, kept in memory --checkpoint--> `SinkWriter.write`, in one call for each shard and sink
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import DeclarationError, PenstockError
from ..wording import counted
from .records import RecordType, members_of, type_name
from .semantics import Semantics

if TYPE_CHECKING:
    from .plan import ProcessorPlan
    from .processor import Processor

ALL_SEMANTICS = frozenset(Semantics)


class SinkUnreachable(PenstockError):
    """The sink does not answer at the moment. The worker returns to its last checkpoint and waits for the sink."""


class SinkFenced(PenstockError):
    """Another worker has claimed the shard: drop its unwritten rows, and claim it again if the group still assigns it."""


class SinkRefused(PenstockError):
    """The sink cannot be written as declared, or refuses a row. The worker stops. Correct the sink, its permissions or the declaration."""


@dataclass(frozen=True)
class SinkBatch:
    """The rows of one shard in one checkpoint.

    Args:
        processor: the processor's name.
        bucket: the shard's bucket number.
        first: by input, the next unread offset before the first event of the batch. A batch that is written again after a crash has the same
            one, and may end later or earlier. A position is saved only after the batch before it. Of a backfill, the only input is a name of its
            days, and offsets are numbers of rows.
        rows: records and tombstones, in order.
        position: the position after the batch, as text. Exactly once: save it with the rows, as one. Otherwise it is empty.
        semantics: the processor's output semantics.
        resets: the number of maintenance operations, such as resets, that have set the positions so far. Only offsets of the same number can be
            compared: after a reset, events are read again, or come from another topic.
    """

    processor: str
    bucket: int
    first: dict[str, int]
    rows: Sequence[Any]
    position: str
    semantics: Semantics
    resets: int = 0


@dataclass(frozen=True)
class RefusedRow:
    """A row that a sink refuses, so that it is not written.

    Args:
        row: the row.
        reason: why.
    """

    row: Any
    reason: str


class RowsRefused(PenstockError):
    """The sink refuses some rows of a batch, and has written nothing of it. They go to the dead letters, then the batch is written without them.

    Args:
        rows: the rows, with the reasons.
    """

    def __init__(self, rows: Sequence[RefusedRow]) -> None:
        super().__init__(f"{counted(len(rows), 'row')} refused, the first since {rows[0].reason}")
        self.rows = rows


class SinkWriter(Protocol):
    """A worker's connection to a sink.

    The worker claims a shard before it reads the shard's first event, then calls `write` once for each checkpoint with rows, and for the first
    checkpoint after a claim also without rows: what earlier workers have written from its first offset on was not committed. It claims the
    shard again after each failure, and after the bucket returns to it. Several threads claim; only one thread at a time writes. All calls may
    block, and repeat requests themselves as long as an outage is expected to be short.

    What each of the semantics requires:

    - at least once: `write` is durable on return. The worker may write the rows of a batch again, in batches of other sizes.
    - at most once: `write` never writes a row of a batch twice, even if it repeats a request whose answer was lost.
    - exactly once: `write` saves rows and position in one transaction, unless another worker has claimed the shard. The worker then also
      writes batches without rows.
    """

    def claim(self, processor: str, bucket: int) -> str:
        """Become the writer of a shard, and return the position of its last batch; empty text without one.

        Exactly once: no earlier claim can write any more when this returns. Otherwise, it may return empty text and do nothing.

        Raises:
            SinkUnreachable: the sink does not answer. The worker claims the shard again later, and reads nothing until then.
            SinkRefused: the sink cannot be written as declared.
        """
        ...

    def write(self, batch: SinkBatch) -> Sequence[RefusedRow] | None:
        """Write a batch; durable on return. Return rows that were left out; they go to the processor's dead letters.

        Raises:
            SinkUnreachable: it is unknown whether the batch was written.
            SinkFenced: another worker has claimed the shard; nothing was written.
            RowsRefused: the sink refuses rows, and nothing was written. Exactly once, this is the way to leave rows out: their dead letters
                must be durable before the position is.
            SinkRefused: the sink refuses the batch, and the worker stops.
        """
        ...

    def close(self) -> None:
        """Release the connection. Idempotent."""
        ...


def write_accepted(
    writer: SinkWriter, batch: SinkBatch, reject: Callable[[SinkBatch, Sequence[RefusedRow]], None]
) -> None:
    """Write the rows of a batch that a sink accepts.

    Args:
        writer: the sink's writer.
        batch: the batch.
        reject: gets refused rows, before the others are written if the sink allows it. They are durable on return.
    """
    while True:
        try:
            refused = writer.write(batch)
        except RowsRefused as error:
            reject(batch, error.rows)
            batch = replace(batch, rows=_without(batch.rows, error.rows))
            continue
        if refused:
            reject(batch, refused)
        return


def _without(rows: Sequence[Any], refused: Sequence[RefusedRow]) -> list[Any]:
    """Return rows without the refused ones. Of an object that is a row several times, the last ones are left out."""
    left_out = Counter(id(each.row) for each in refused)
    kept: list[Any] = []
    for row in reversed(rows):
        if left_out[id(row)]:
            left_out[id(row)] -= 1
        else:
            kept.append(row)
    return kept[::-1]


class Sink(ABC):
    """A place for rows of one record type: a value in `writes`. Implement it for a store of your own.

    Attributes:
        record: the type of the rows.
    """

    record: RecordType

    @property
    @abstractmethod
    def name(self) -> str:
        """The name for messages and `To`. Two outputs of a processor have different names."""

    @property
    @abstractmethod
    def semantics(self) -> frozenset[Semantics]:
        """The output semantics that it supports."""

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables with its addresses and secrets, which a deployment stores for its workers."""
        return ()

    @property
    def replaces_rows(self) -> bool:
        """Whether a row replaces the earlier row of its key, so that a backfill may write its days again. By default, rows are appended."""
        return False

    @property
    def keeps_each_row(self) -> bool:
        """Whether every row stays, also each version of a result. By default, if no row replaces another."""
        return not self.replaces_rows

    def expect_processor(self, processor: type[Processor]) -> None:  # noqa: B027 - most sinks take the rows of any
        """Raise DeclarationError if the rows of a processor cannot reach this sink with its semantics."""

    @abstractmethod
    def open(self) -> SinkWriter:
        """Return a writer. Called once per worker; connects later.

        Raises:
            SinkRefused: the sink can never be written as declared, such as without an address.
        """

    def expect_tombstone(self, key: object) -> None:
        """Raise TypeError unless the sink can delete the row of a key. By default, it cannot."""
        raise TypeError(
            f"The tombstone of {key!r} cannot be written to {self.name}, which does not delete rows. Return a record that marks the deletion."
        )

    @property
    def record_types(self) -> tuple[Any, ...]:
        """The classes of the records; several only in a union."""
        return members_of(self.record)

    @property
    def record_name(self) -> str:
        """The name of the record type."""
        return type_name(self.record)


def expect_sinks(plan: ProcessorPlan) -> None:
    """Raise DeclarationError if the outputs of a processor cannot reach its sinks as declared."""
    processor = plan.declaration
    name, semantics = processor.__name__, processor.output_semantics
    for sink in plan.sinks:
        if semantics not in sink.semantics:
            supported = " or ".join(f"`penstock.Semantics.{one.name}`" for one in Semantics if one in sink.semantics)
            raise DeclarationError(
                f"Processor {name} declares outputs {semantics.value}, but {sink.name} cannot guarantee that. Nothing was read. Declare "
                f"`output_semantics = {supported}`; or write to a category {semantics.value}, and let a second processor copy it to {sink.name}."
            )
        sink.expect_processor(processor)
    if plan.sinks and semantics is Semantics.EXACTLY_ONCE and len(plan.destinations) > 1:
        names = ", ".join(destination.name for destination in plan.destinations)
        raise DeclarationError(
            f"Processor {name} writes {names} exactly once, but no transaction includes several stores: a crash between two of them would lose or "
            "repeat outputs. Nothing was read. Write exactly once to one category, and let a stateless processor for each sink copy it from "
            "there exactly once. Or declare `output_semantics = penstock.Semantics.AT_LEAST_ONCE`, with keys by which rows are replaced."
        )


def expect_repeatable(plan: ProcessorPlan) -> None:
    """Raise DeclarationError for state that could differ from the rows of an exactly-once sink after the loss of a disk."""
    processor = plan.declaration
    if plan.sinks and processor.output_semantics is Semantics.EXACTLY_ONCE and not plan.is_repeatable:
        raise DeclarationError(
            f"Processor {processor.__name__} writes {plan.sinks[0].name} exactly once, but its results depend on more than the events of one "
            "input (several inputs, upstream watermarks, early results or differences, or `deterministic = False`). After the loss of its state, "
            "it would not produce the same rows again. Nothing was read. Write to a category exactly once, which keeps a changelog, and let a "
            "stateless processor copy that category to the sink exactly once."
        )
