"""Routing of outputs to categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .categories import AnyCategory
from .processor import Processor
from .record_check import RecordCheck
from .records import Record


class To(Record, frozen=True):
    """An output for a named category, where its type does not select the category.

    Args:
        category: one of the processor's `writes`.
        record: a record of the category's type.

    Examples:
        >>> import penstock as ps
        >>> class Click(ps.Record, frozen=True):
        ...     user: str
        ...     at: int
        >>> new, known = (ps.Category(name, Click, key="user", event_time="at") for name in ("new", "known"))
        >>> class Split(ps.Stateful):
        ...     reads, writes, state = ps.Category("clicks", Click, key="user", event_time="at"), (new, known), bool
        ...
        ...     def process(self, event, state, context):
        ...         return True, [ps.To(known if state else new, event)]
    """

    category: Any
    record: Any


@dataclass(frozen=True)
class Routes:
    """Routes each output to its category: the one that `To` names, or the one of its type."""

    processor: type[Processor]

    def split(self, outputs: Sequence[Any]) -> list[tuple[AnyCategory, Sequence[Any]]]:
        """Group outputs by category, in order for each.

        Raises:
            TypeError: the processor writes no such category, or several of an output's type.
        """
        if len(self._categories) == 1 and set(map(type, outputs)) <= {self._categories[0].record}:
            return [(self._categories[0], outputs)]
        grouped: dict[str, list[Any]] = {category.name: [] for category in self._categories}
        for category, record in map(self.route, outputs):
            grouped[category.name].append(record)
        return [(category, grouped[category.name]) for category in self._categories if grouped[category.name]]

    def route(self, output: Any) -> tuple[AnyCategory, Any]:
        """Return the category and the record of an output.

        Raises:
            TypeError: as in `split`.
        """
        if type(output) is To:
            return self._named(output), output.record
        found = self._by_type.get(type(output), ())
        if len(found) == 1:
            return found[0], output
        if found:
            raise TypeError(
                f"Processor {self.processor.__name__} returned a {type(output).__name__}, but {', '.join(one.name for one in found)} have this type. "
                "Return penstock.To(category, record)."
            )
        raise self._unknown(type(output).__name__)

    def _named(self, output: To) -> AnyCategory:
        name = getattr(output.category, "name", output.category)
        found = next((category for category in self._categories if category.name == name), None)
        if found is None or type(output.record) is not found.record:
            raise self._unknown(f"{type(output.record).__name__} for {name}")
        return found

    def _unknown(self, output: str) -> TypeError:
        written = ", ".join(f"{category.record.__name__} to {category.name}" for category in self._categories)
        return TypeError(
            f"Processor {self.processor.__name__} returned a {output}, but writes only {written or 'nothing'}."
        )

    @cached_property
    def _categories(self) -> tuple[AnyCategory, ...]:
        return self.processor.outputs()

    @cached_property
    def _by_type(self) -> dict[type, list[AnyCategory]]:
        found: dict[type, list[AnyCategory]] = {}
        for category in self._categories:
            found.setdefault(category.record, []).append(category)
        return found

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
        return {category.name: RecordCheck(category.record) for category in self._categories}
