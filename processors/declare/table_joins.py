"""Joins of a stream with a table: a category whose latest record per key counts.

    table record --> the state of the key         stream event --> joined with the state of its key

The state of the shards contains the table; backups include it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, final

from ..errors import DeclarationError
from .categories import AnyCategory
from .context import Context
from .join_inputs import declares, expect_declared, expect_distinct_records
from .method_check import Method, check_methods
from .mutability import unshared
from .row_updates import RowUpdate
from .stateful import Stateful, StatefulPlan
from .tombstones import RowDeletion
from .type_parameters import Event, Output, Parameter, Row


class TableJoin(Stateful[Any, Any, Output], Generic[Event, Row, Output]):
    """Joins each event of a stream with the table's row of its key.

    `TableJoin[Event, Row | None, Output]` names the types of `join` for type checkers.

    The row is the latest one that has arrived; with `ordered = True`, it is the latest one as of the event time. A table message without a
    value deletes the row of its key at its time of arrival. Both categories have the same keys and different record types. With `ordered`,
    events wait up to `idle_after` for a table that is rarely written.

    Class attributes:
        stream: the category of the events.
        table: the category of the rows.

    Examples:
        >>> import penstock as ps
        >>> class Click(ps.Record, frozen=True):
        ...     user: str
        ...     at: int
        >>> class User(Click, frozen=True):
        ...     country: str
        >>> class Countries(ps.TableJoin):
        ...     stream = ps.Category("clicks", Click, key="user", event_time="at")
        ...     table = ps.Category("users", User, key="user", event_time="at")
        ...     writes = ps.Category("click_countries", User, key="user", event_time="at")
        ...
        ...     def join(self, event, row, context):
        ...         if row is not None:
        ...             yield User(event.user, event.at, row.country)
        >>> from penstock.testing import Driver
        >>> driver = Driver(Countries)
    """

    stream: ClassVar[AnyCategory]
    table: ClassVar[AnyCategory]
    buffers_events: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if declares(cls, "stream", "table"):
            cls.reads = (cls.table, cls.stream)  # at equal times, the table comes first
            cls.state = cls.table.record

    @abstractmethod
    def join(self, event: Event, row: Row, context: Context) -> Iterable[Output]:
        """Return or yield the outputs of an event.

        Args:
            event: the event of the stream.
            row: the table's row of its key; None without a row.
            context: the key and the event time.
        """

    @final
    def process(self, event: Any, state: Any, context: Context) -> tuple[Any, Iterable[Output]]:
        """Store or delete a row, or join an event with the row."""
        if type(event) is RowDeletion:
            return None, ()
        if type(event) is RowUpdate:
            return event.onto(state), ()
        if type(event) in self.table.record_types:
            return event, ()
        return state, self.join(event, unshared(state), context)


class TableJoinPlan(StatefulPlan, of=TableJoin):
    """The plan of a `TableJoin`."""

    declaration: type[TableJoin[Any, Any, Any]]

    @property
    def is_compaction_safe(self) -> bool:
        """Whether the latest row of each key suffices to rebuild the state. With `ordered`, it does not: older rows count for older events."""
        return self.declaration.compaction_safe or not self.declaration.ordered

    def reads_tombstones(self, category: AnyCategory) -> bool:
        """Return whether the category is the table."""
        return category is self.declaration.table

    @property
    def inputs_by_parameter(self) -> Mapping[Parameter, Sequence[AnyCategory]]:
        """The two inputs."""
        cls = self.declaration
        return {"Event": (cls.stream,), "Row": (cls.table,)}

    def check(self) -> None:
        """Also check the two categories."""
        cls = self.declaration
        expect_declared(cls, "stream", "table")
        super().check()
        check_methods(cls, {"join": Method(("event", "row", "context"), "[…]", may_yield=True)})
        expect_distinct_records(cls)
        if len(cls.table.record_types) > 1:
            raise DeclarationError(
                f"Join {cls.__name__}: the table {cls.table.name} has several record types ({cls.table.record_name}), but the row of a key has one type. Copy the "
                "events of one type to a category of their own, and declare that as the table."
            )
