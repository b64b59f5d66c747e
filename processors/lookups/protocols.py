"""Protocols of lookup sources, and their errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ..errors import PenstockError


class LookupUnreachable(PenstockError):
    """The source does not answer at the moment. A later attempt may succeed."""


class LookupRefused(PenstockError):
    """The source cannot be read as declared. Correct the source, its permissions or the declaration."""


class InvalidRow(PenstockError):
    """A row does not match the declared type. Correct the row or the type."""


class LookupClient(Protocol):
    """A connection to a lookup source. One thread calls `fetch` any number of times, then `close`."""

    def fetch(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """Return the row of each key that has one, in one request. A row of the wrong type is returned as an `InvalidRow`.

        The call is idempotent. With no keys, it checks that the source is readable and returns an empty mapping.

        Raises:
            LookupUnreachable: the source did not answer within a time limit.
            LookupRefused: the source can never answer.
        """
        ...

    def close(self) -> None:
        """Release the connection. Idempotent."""
        ...


class LookupSource(Protocol):
    """Where the rows of a lookup join are: a value on the processor class. Each process opens a client of its own."""

    def open(self) -> LookupClient:
        """Return a client of the source.

        Raises:
            LookupRefused: the source can never be read as declared.
        """
        ...


class TableSize(NamedTuple):
    """The size and the age of a table in memory.

    Args:
        rows: the number of rows.
        size_bytes: the size of the messages that contain them.
        unread: the number of messages that had arrived at the last check and were not applied then; 0 for an up-to-date table.
    """

    rows: int
    size_bytes: int
    unread: int


class PreloadedTable(ABC):
    """A client that keeps all rows in memory. The engine does not cache its rows again."""

    @property
    def size(self) -> TableSize | None:
        """The size of the table; None if it is unknown."""
        return None

    @property
    @abstractmethod
    def failed_loads(self) -> int:
        """The number of failed reloads. After each, the older rows stay in use."""
