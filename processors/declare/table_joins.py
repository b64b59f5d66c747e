"""Joins of a stream with a table: a category of which the latest record of each key counts.

    table record --> the key's state         stream event --> given with the state of its key

The table lies in the shards' states, and is backed up and restored as any state is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, final

from .categories import AnyCategory, Tombstone
from .context import Context
from .join_inputs import declares, expect_declared, expect_told_apart
from .records import Record
from .stateful import Stateful


class TableJoin(Stateful):
    """Gives each event of a stream the table's record of its key.

    A message of the table without a value deletes the row of its key, at the time at which it arrived. What is given is the latest that has come; with `ordered = True` the latest as of the event's own time, whatever came first. Both categories are
    keyed alike, and have records of different types. A table that is seldom written is idle most of the time: in order, events wait for
    it up to `idle_after`.

    Class attributes:
        stream: the category whose events are given.
        table: the category that says what is known of a key.
    """

    stream: ClassVar[AnyCategory]
    table: ClassVar[AnyCategory]
    buffers_events: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if declares(cls, "stream", "table"):
            cls.reads = (cls.table, cls.stream)  # of one time, what is known comes first
            cls.state = cls.table.record

    @abstractmethod
    def join(self, event: Any, row: Any, context: Context) -> Iterable[Record]:
        """Return, or yield, what an event gives with the table's record of its key; None where there is none."""

    @final
    def process(self, event: Any, state: Any, context: Context) -> tuple[Any, Iterable[Record]]:
        """Keep a record of the table, or forget it; or join an event with it."""
        if type(event) is Tombstone:
            return None, ()
        if type(event) is self.table.record:
            return event, ()
        return state, self.join(event, state, context)

    @classmethod
    def is_compaction_safe(cls) -> bool:
        """Whether its state can be built again from the latest event of each key: as of earlier times, it takes earlier records, too."""
        return cls.compaction_safe or not cls.ordered

    @classmethod
    def reads_tombstones(cls, category: AnyCategory) -> bool:
        """Whether a message without a value is a row that is gone: in the table it is."""
        return category is cls.table

    @classmethod
    def check(cls) -> None:
        """Also: two categories that can be told apart."""
        expect_declared(cls, "stream", "table")
        super().check()
        expect_told_apart(cls)
