"""Repartition: copy a category under another key, number of buckets or partitioner."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from ..errors import DeclarationError
from .records import Record, type_name
from .stateless import Stateless, StatelessPlan


class Repartition(Stateless):
    """Copies its input to a category with the same record type and another key, number of buckets, partitioner or key codec.

    Records with the same old key and the same new key keep their order. Records with different old keys interleave as their buckets are read.
    """

    @final
    def process(self, event: Record) -> Iterable[Record]:
        """Return the event. The output category determines its new bucket."""
        return (event,)


class RepartitionPlan(StatelessPlan, of=Repartition):
    """The plan of a `Repartition`."""

    declaration: type[Repartition]

    def check(self) -> None:
        """Also check that there is one output of the input's record type, whose keys are in other buckets."""
        cls = self.declaration
        super().check()
        outputs = self.outputs
        records = {category.record for category in self.sources}
        if len(self.destinations) != 1 or not outputs or records != {outputs[0].record}:
            read = ", ".join(sorted(map(type_name, records)))
            raise DeclarationError(
                f"Repartition {cls.__name__} copies its input. Declare `writes` as one category of the input's record type ({read})."
            )
        same = [
            category.name
            for category in self.sources
            if (category.key, category.partitioning) == (outputs[0].key, outputs[0].partitioning)
        ]
        if same:
            raise DeclarationError(
                f"Repartition {cls.__name__}: {outputs[0].name} has the same key, number of buckets and partitioner as {', '.join(same)}. "
                f"Declare another one of these, or read {same[0]} directly."
            )
