"""Repartition: a category's records under another key, or in more buckets, through a category of their own.

Events of one key lie in one bucket of a category. Who needs them by another key reads them from a category that is keyed by that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from ..errors import DeclarationError
from .records import Record
from .stateless import Stateless


class Repartition(Stateless):
    """Writes what it reads, to a category of the same records whose key, or number of buckets, is another.

    Records of one former key and one new key keep their order; of several former keys they come as their buckets are read.
    """

    @final
    def process(self, event: Record) -> Iterable[Record]:
        """Return the event: its new category says where it goes."""
        return (event,)

    @classmethod
    def check(cls) -> None:
        """Also: one category of the records that are read, and something about it that is another."""
        super().check()
        outputs = cls.outputs()
        records = {category.record for category in cls.inputs()}
        if len(outputs) != 1 or records != {outputs[0].record}:
            read = ", ".join(sorted(record.__name__ for record in records))
            raise DeclarationError(
                f"Repartition {cls.__name__} writes what it reads, so it `writes` one category of the record that it reads ({read})."
            )
        same = [one.name for one in cls.inputs() if (one.key, one.buckets) == (outputs[0].key, outputs[0].buckets)]
        if same:
            raise DeclarationError(
                f"Repartition {cls.__name__}: {outputs[0].name} has the key and the number of buckets of {', '.join(same)}, so nothing would "
                "change. Declare another key, or read the first category itself."
            )
