"""A category as a lookup table, which every worker reads as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from ..declare import AnyCategory, Category
from ..errors import DeclarationError
from .protocols import LookupRefused

DEFAULT_LIMIT_BYTES = 256 * 1024**2
"""The default limit of a table, for small data that every worker needs."""


@dataclass(frozen=True)
class CategoryTable:
    """The last record of each key of a category, in the memory of every worker: a broadcast category, or a GlobalKTable.

    A worker reads the category to its end before the first event, and later records as they arrive. A tombstone deletes its key.

    Args:
        category: the category, compacted or with all its events retained.
        max_bytes: the limit for the messages that contain the rows. The rows of a worker need a multiple of it in memory. A larger table stops the worker.

    Raises:
        DeclarationError: `category` is no category, or the limit is no positive int.
    """

    category: AnyCategory
    max_bytes: int = DEFAULT_LIMIT_BYTES

    def __post_init__(self) -> None:
        if not isinstance(self.category, Category):
            raise DeclarationError(
                f"CategoryTable({self.category!r}): the argument is no category. Pass the category whose records are the rows."
            )

        limit: object = self.max_bytes
        if type(limit) is not int or limit < 1:
            raise DeclarationError(
                f"CategoryTable of {self.category.name}: max_bytes={limit!r} is no positive int. Declare the limit in bytes, such as 512 * 1024**2."
            )

    def open(self) -> NoReturn:
        """Refuse: only a process that is connected to the bus reads the table.

        Raises:
            LookupRefused: always.
        """
        raise LookupRefused(
            f"{self} is a table on the bus, and this process is not connected to it. Nothing was looked up. Use it in a processor that a worker, a "
            "replay or penstock.testing.Driver runs."
        )

    def __str__(self) -> str:
        return f"category {self.category.name}"
