"""The seam to rows that lie outside: in a store, in a file, or wherever a user's own source finds them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..errors import PenstockError


class LookupUnreachable(PenstockError):
    """Whoever has the rows gives no answer just now: a later attempt may succeed."""


class LookupRefused(PenstockError):
    """The rows cannot be had as they are declared: mend the source, the rights or the declaration."""


class InvalidRow(PenstockError):
    """There is a row, and it does not fit the type that is declared: mend the row or the type."""


class LookupClient(Protocol):
    """Rows that can be asked for. One thread calls: fetch, any number of times; then close."""

    def fetch(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """Return the row of each key that has one, in one request; for a row that does not fit its type, the InvalidRow that says why.

        May be repeated. Asked for no keys, it returns nothing, and finds out what can be wrong before the first key is known.

        Raises:
            LookupUnreachable: no answer came, within a time that is limited.
            LookupRefused: there will be none.
        """
        ...

    def close(self) -> None:
        """Let go of what was opened. May be repeated."""
        ...


class LookupSource(Protocol):
    """Where rows are: a value, declared on a class, that is carried to wherever events are processed and opened there."""

    def open(self) -> LookupClient:
        """Return what can be asked.

        Raises:
            LookupRefused: it can never be asked as it is declared.
        """
        ...


class PreloadedTable(ABC):
    """Rows that are all in memory already: a cache before them would only make them older."""

    @property
    @abstractmethod
    def failed_loads(self) -> int:
        """How often newer rows were there, could not be taken, and the older ones were kept."""
