"""The columnar methods of processors, as operators call them: checked against the methods for single events on the first events of a shard.

Where a method raises, its events are processed one by one: an event may be the reason, and is then rejected as always.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from ..declare import Aggregator, AnyCategory, ColumnEvents, Processor, Stateless, column_outputs, plan_of
from ..errors import USER_CODE_ERRORS, ProcessorFailed
from ..monoids import is_nan
from ..wording import counted, with_article

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = logging.getLogger("penstock.processors")
CHECKED_EVENTS = 200
"""The number of a shard's first events that are also processed one by one."""


class _ColumnStep:
    """Calls a columnar method.

    Args:
        processor: defines it.
        method: the method.
        columns: the fields that it needs, by their names on the bus; None for all.
        by_event: the name of the method for single events.
    """

    def __init__(
        self,
        processor: Processor,
        method: Callable[[pa.RecordBatch], Any],
        columns: Sequence[str] | None,
        by_event: str,
    ) -> None:
        self._processor = type(processor).__name__
        self._method = method
        self._columns = columns
        self._by_event = by_event
        self._is_checked = self._has_warned = False

    def _called(self, events: ColumnEvents, expected: str) -> Any:
        """Return the result of the method; None if it raised, or returned None.

        Raises:
            ProcessorFailed: the result does not have the attribute of the expected type.
        """
        try:
            columns = events.columns if self._columns is None else events.selected(self._columns)
            result = self._method(columns)
        except USER_CODE_ERRORS as error:
            self._warn(f"raised {type(error).__name__}: {error}")
            return None
        if result is not None and not hasattr(result, expected):
            raise self._differs(f"returns {with_article(type(result).__name__)}, not Arrow columns,")
        return result

    def _warn(self, what: str) -> None:
        if not self._has_warned:
            _LOG.warning(
                "%s.%s %s. These events are processed one by one, with the same result, but slower. Further batches like this are not logged.",
                self._processor,
                self._method.__name__,
                what,
            )
        self._has_warned = True

    def _expect_same(self, at_once: Sequence[Any], one_by_one: Sequence[Any]) -> None:
        """Raise ProcessorFailed if the methods return different values for the first events."""
        for left, right in zip(at_once, one_by_one, strict=False):
            if type(left) is not type(right) or not (left == right or is_nan(left)):
                raise self._differs(f"returns {left!r} where `{self._by_event}` returns {right!r}")
        if len(at_once) != len(one_by_one):
            raise self._differs(
                f"returns {counted(len(at_once), 'value')} for events for which `{self._by_event}` returns {len(one_by_one)}"
            )
        self._is_checked = True

    def _differs(self, how: str) -> ProcessorFailed:
        return ProcessorFailed(
            f"{self._processor}.{self._method.__name__} {how}. Results would depend on the sizes of batches, so nothing of this batch was saved. Correct one "
            f"of the methods, or remove `{self._method.__name__}`."
        )


class ObservedColumns(_ColumnStep):
    """Calls `observe_columns`.

    Args:
        processor: defines it.
    """

    def __init__(self, processor: Aggregator) -> None:
        super().__init__(processor, processor.observe_columns, processor.columns, "observe")
        self._observe = processor.observe

    def of(self, events: ColumnEvents) -> pa.Array[Any] | None:
        """Return the observation of each event; None if the events must be observed one by one.

        Raises:
            ProcessorFailed: the first ones differ from those of `observe`.
        """
        observed = self._called(events, "null_count")
        if observed is None:
            return None
        if len(observed) != len(events):
            raise self._differs(f"returns {counted(len(observed), 'observation')} for {counted(len(events), 'event')}")
        if not self._is_checked:
            self._expect_same(plain(observed[:CHECKED_EVENTS]), self._one_by_one(events[:CHECKED_EVENTS]))
        found: pa.Array[Any] = observed
        return found

    def _one_by_one(self, events: Iterable[Any]) -> list[Any]:
        try:
            return [self._observe(event) for event in events]
        except USER_CODE_ERRORS as error:
            raise self._differs(
                f"returns observations where `observe` raises {type(error).__name__}: {error}"
            ) from error


class ProcessedColumns(_ColumnStep):
    """Calls `process_columns`.

    Args:
        processor: defines it.
    """

    def __init__(self, processor: Stateless) -> None:
        super().__init__(processor, processor.process_columns, processor.columns, "process")
        self._for_batch = processor.for_batch
        [self._output] = plan_of(processor).outputs

    def of(self, category: AnyCategory, events: ColumnEvents) -> Sequence[Any] | None:
        """Return the outputs of events; None if they must be processed one by one.

        Raises:
            ProcessorFailed: the first ones differ from those of `process`.
        """
        outputs = self._outputs(events)
        if outputs is None or self._is_checked:
            return outputs
        first = events[:CHECKED_EVENTS]
        at_once = self._outputs(first)
        if at_once is not None:
            self._expect_same(at_once, self._one_by_one(category, first))
        return outputs

    def _outputs(self, events: ColumnEvents) -> Sequence[Any] | None:
        columns = self._called(events, "schema")
        if columns is None:
            return None
        outputs = column_outputs(self._output, columns)
        if outputs is None:
            self._warn(f"returned columns that are not exactly the fields of {self._output.name} ({columns.schema})")
        return outputs

    def _one_by_one(self, category: AnyCategory, events: ColumnEvents) -> list[Any]:
        process = self._for_batch(category, events)
        try:
            return [output for event in events for output in process(event)]
        except USER_CODE_ERRORS as error:
            raise self._differs(f"returns outputs where `process` raises {type(error).__name__}: {error}") from error


def plain(observations: pa.Array[Any]) -> list[Any]:
    """Return observations as the user's `observe` returns them: structs as tuples, and maps as dicts."""
    convert = _plain_from(observations.type)
    values: list[Any] = observations.to_pylist()
    return values if convert is None else list(map(convert, values))


def _plain_from(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the conversion of Arrow's Python values of a type; None if they stay as they are."""
    described = str(kind)
    if described.startswith("struct<"):
        fields = [(kind.field(at).name, _plain_from(kind.field(at).type) or _itself) for at in range(kind.num_fields)]
        return lambda value: None if value is None else tuple([convert(value[name]) for name, convert in fields])
    if described.startswith("map<"):
        of_item = _plain_from(cast("pa.MapType[Any, Any, Any]", kind).item_type) or _itself
        return lambda value: None if value is None else {key: of_item(item) for key, item in value}
    return None


def _itself(value: Any) -> Any:
    return value
