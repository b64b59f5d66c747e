"""Routing of outputs to categories by record type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .categories import AnyCategory
from .processor import Processor
from .record_check import RecordCheck


@dataclass(frozen=True)
class Routes:
    """Routes each output to the category of its type."""

    processor: type[Processor]

    def split(self, outputs: Sequence[Any]) -> list[tuple[AnyCategory, Sequence[Any]]]:
        """Group outputs by category, in order.

        Raises:
            TypeError: the processor writes no category of an output's type.
        """
        categories = self.processor.outputs()
        if len(categories) == 1 and set(map(type, outputs)) <= {categories[0].record}:
            return [(categories[0], outputs)]
        by_type: dict[type, list[Any]] = {category.record: [] for category in categories}
        for output in outputs:
            if type(output) not in by_type:
                raise TypeError(
                    f"Processor {self.processor.__name__} returned a {type(output).__name__}, but writes only "
                    f"{', '.join(f'{c.record.__name__} to {c.name}' for c in categories) or 'nothing'}."
                )
            by_type[type(output)].append(output)
        return [(category, by_type[category.record]) for category in categories if by_type[category.record]]

    def expect(self, outputs: Sequence[Any]) -> None:
        """Check the outputs of one event.

        Raises:
            TypeError: the processor writes no category of an output's type, or a value is invalid.
        """
        for category, records in self.split(outputs):
            for record in records:
                self._checks[category.name].expect_one(record)

    @cached_property
    def _checks(self) -> dict[str, RecordCheck]:
        return {category.name: RecordCheck(category.record) for category in self.processor.outputs()}
