"""Routing of outputs to categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from ..time import FIRST_EVENTS, detect_wrong_unit
from ..wording import with_article
from .aggregator import Aggregator
from .canonical import CanonicalForm
from .categories import AnyCategory
from .codecs import LimitedCodec
from .keys import InvalidKey, KeyCodec
from .metadata import Key, metadata_of
from .mutability import unshared
from .plan import plan_of
from .processor import Destination, Processor, RecordSizes, as_tuple
from .record_check import InvalidRecord, RecordCheck
from .records import Record, replace_fields
from .sinks import Sink
from .tombstones import Tombstone

T = TypeVar("T")

_PARTS_ADVICE = " Return a list of records: a dict, a tuple or a str counts as a list of its parts."
"""The advice for an output that is part of a value which a function returned in place of a list."""


class To(Record, frozen=True):
    """An output for a named category or sink, where its type does not select it.

    Args:
        category: one of the processor's `writes`.
        record: a record of its type, or a `Tombstone`.
        key: the message key, in place of the record's. Only for a category whose key is a field with `metadata.Key`: the key
            of other categories is in the value, and both must be equal.

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
    key: str | None = None

    def __deepcopy__(self, memo: object) -> To:
        """Return an output for the same category, with its own record."""
        return To(self.category, unshared(self.record), self.key)

    def record_for(self, category: Destination) -> Any:
        """Return the record, with `key` in its key field.

        Raises:
            TypeError: the record has another type than the category's, or the key does not fit the category.
        """
        if type(self.record) is Tombstone:
            return self._tombstone_for(category)
        if type(self.record) not in category.record_types:
            raise TypeError(
                f"{category.name} contains only {category.record_name} records, not {type(self.record).__name__}."
            )
        if self.key is None:
            return self.record
        if isinstance(category, Sink):
            raise TypeError(
                f"A record for {category.name} has key={self.key!r}, but a sink has no message keys. Omit `key`."
            )
        return self._with_key(category, self.key)

    def _tombstone_for(self, category: Destination) -> Tombstone:
        if self.key is not None:
            raise TypeError(
                f"A tombstone for {category.name} has two keys, {self.record.key!r} and key={self.key!r}. Give only the first."
            )
        return expect_tombstone(category, self.record)

    def _with_key(self, category: AnyCategory, key: str) -> Any:
        attribute = category.key_attribute
        if attribute is None or metadata_of(category.record_types[0]).get(attribute) is not Key:
            place = f"the field {category.key_name!r}" if attribute else _place_of_key(category)
            raise TypeError(
                f"A record for {category.name} has key={key!r}, but the key of this category is {place}, so readers would find another key "
                f"than the message key. Set the key in the record. Or declare the key as a field with penstock.metadata.Key."
            )
        expect_key(category, key)
        return replace_fields(self.record, {attribute: int(key) if category.key_is_number else key})


def _place_of_key(category: AnyCategory) -> str:
    return f"the fields {category.key_name}" if category.key_parts else "a function of the record"


def expect_tombstone(category: Destination, tombstone: Tombstone) -> Tombstone:
    """Return a tombstone for a category or sink.

    Raises:
        TypeError: its key does not fit.
    """
    if isinstance(category, Sink):
        category.expect_tombstone(tombstone.key)
        return tombstone
    expect_key(category, tombstone.key)
    return tombstone


def expect_key(category: AnyCategory, key: object) -> None:
    """Raise TypeError if a key is no key of a category."""
    if not isinstance(key, str):
        raise TypeError(f"The key {key!r} of an output for {category.name} is not a str. Convert it, as in str(key).")
    try:
        category.encode_keys([key])
    except InvalidKey as error:
        raise TypeError(str(error)) from error
    if category.key_is_number and not _is_canonical_int(key):
        raise TypeError(
            f"The key {key!r} of an output for {category.name} is not an int in decimal digits, but the key field {category.key!r} is an int."
        )


def _is_canonical_int(key: str) -> bool:
    try:
        return str(int(key)) == key
    except ValueError:
        return False


@dataclass(frozen=True)
class Routes:
    """Routes each output to its category or sink: the one that `To` names, or the one of its type.

    Args:
        processor: produces the outputs.
        sizes: the limits of its categories; None if they are unknown.
    """

    processor: type[Processor]
    sizes: RecordSizes | None = None

    def split(self, outputs: Sequence[Any]) -> list[tuple[Destination, Sequence[Any]]]:
        """Group outputs by category or sink, in order for each: records of its type, and tombstones.

        Raises:
            TypeError: the processor writes no such category, or several of an output's type.
        """
        if len(self._destinations) == 1 and set(map(type, outputs)) <= set(self._destinations[0].record_types):
            return [(self._destinations[0], outputs)]
        grouped: dict[str, list[Any]] = {category.name: [] for category in self._destinations}
        for category, record in map(self.route, outputs):
            grouped[category.name].append(record)
        return [(category, grouped[category.name]) for category in self._destinations if grouped[category.name]]

    def split_with(self, outputs: Sequence[Any], beside: Sequence[T]) -> list[tuple[Destination, list[Any], list[T]]]:
        """Group outputs by category as `split` does, each with its value in `beside`.

        Raises:
            TypeError: as in `split`.
        """
        grouped: dict[str, tuple[Destination, list[Any], list[T]]] = {}
        for output, value in zip(outputs, beside, strict=True):
            category, record = self.route(output)
            _, records, values = grouped.setdefault(category.name, (category, [], []))
            records.append(record)
            values.append(value)
        return list(grouped.values())

    def route(self, output: Any) -> tuple[Destination, Any]:
        """Return the category or sink, and the record of an output.

        Raises:
            TypeError: as in `split`.
        """
        if type(output) is To:
            category = self._named(output)
            return category, output.record_for(category)
        if type(output) is Tombstone:
            category = self._only_category()
            return category, expect_tombstone(category, output)
        found = self._by_type.get(type(output), ())
        if len(found) == 1:
            return found[0], output
        if found:
            raise TypeError(
                f"Processor {self.processor.__name__} returned {with_article(type(output).__name__)}, but {', '.join(one.name for one in found)} have this type. "
                "Return penstock.To(category, record)."
            )
        raise self._unknown(_in_words(output), _PARTS_ADVICE if isinstance(output, str | bytes | int | float) else "")

    def _named(self, output: To) -> Destination:
        name = getattr(output.category, "name", output.category)
        found = self._by_name.get(name)
        if found is None or type(output.record) not in (*found.record_types, Tombstone):
            raise self._unknown(f"{_in_words(output.record)} for {name}")
        if type(output.record) is Tombstone:
            self._expect_tombstones()
        return found

    def _only_category(self) -> Destination:
        """Return the category or sink of a tombstone without one."""
        self._expect_tombstones()
        written = as_tuple(self.processor.writes)
        if len(written) == 1:
            return written[0]
        if not written:
            raise self._unknown("a Tombstone")
        raise TypeError(
            f"Processor {self.processor.__name__} returned a Tombstone, but writes {', '.join(one.name for one in written)}. Return "
            "penstock.To(category, penstock.Tombstone(key))."
        )

    def _expect_tombstones(self) -> None:
        if issubclass(self.processor, Aggregator):
            raise TypeError(
                f"Aggregator {self.processor.__name__} returned a Tombstone, but the result of a window is a record, or None for no result. Write "
                "tombstones with a penstock.Stateless or penstock.Stateful."
            )

    def _unknown(self, output: str, advice: str = "") -> TypeError:
        written = ", ".join(f"{each.record_name} to {each.name}" for each in self._destinations)
        declared = f"writes only {written}" if written else "declares no output (`writes`)"
        return TypeError(f"Processor {self.processor.__name__} returned {output}, but {declared}.{advice}")

    @cached_property
    def _destinations(self) -> tuple[Destination, ...]:
        return plan_of(self.processor).destinations

    @cached_property
    def _by_name(self) -> dict[str, Destination]:
        """The categories and sinks by name. The code of a clone names those of the original processor."""
        original = self.processor.cloned_from
        declared = self._destinations if original is None else plan_of(original).destinations
        named = {theirs.name: ours for theirs, ours in zip(declared, self._destinations, strict=True)}
        return named | {category.name: category for category in self._destinations}

    @cached_property
    def _by_type(self) -> dict[type, list[Destination]]:
        found: dict[type, list[Destination]] = {}
        for category in self._destinations:
            for member in category.record_types:
                found.setdefault(member, []).append(category)
        return found

    def expect(self, outputs: Sequence[Any]) -> None:
        """Check the outputs of one event: each can be encoded for its category or sink.

        Raises:
            TypeError: the processor writes no category of an output's type, or a value is invalid.
            ValueError: an output is larger than its category accepts.
            InvalidKey: a key does not fit its category.
        """
        for category, records in self.split(outputs):
            for record in records:
                if type(record) is not Tombstone:
                    self._checks[category.name].expect(record)
                    if self.sizes is not None and not isinstance(category, Sink):
                        self.sizes.expect(category, record)

    @cached_property
    def _checks(self) -> dict[str, _OutputCheck]:
        return {category.name: _OutputCheck(category) for category in self._destinations}


class _OutputCheck:
    """Checks single records for a category or sink, as strictly as its encoder does.

    Args:
        destination: the category or sink.
    """

    def __init__(self, destination: Destination) -> None:
        self._values = RecordCheck(destination.record)
        self._form = CanonicalForm(destination.record)
        self._category = None if isinstance(destination, Sink) else destination
        self._limits = None if self._category is None else _limited_codec(self._category)
        # The check of the record includes a key that is a text field.
        self._has_field_as_key = (
            self._category is not None
            and self._category.key_attribute is not None
            and self._category.key_codec is KeyCodec.TEXT
        )

    def expect(self, record: Any) -> None:
        """Check one record.

        Raises:
            InvalidRecord: a value, or the event time, does not fit.
            InvalidKey: the key does not fit.
        """
        self._form.of_one(record)
        self._values.expect_one(record)
        if self._category is None:
            return
        if self._limits is not None:
            self._limits.expect(record)
        if not self._category.times.always_valid:
            self._category.times.of_one(record)
        if not self._has_field_as_key:
            self._category.encode_keys(self._category.keys_of([record]))


def expect_unit_of_outputs(
    processor: type[Processor], category: AnyCategory, outputs: Sequence[Any], now_ms: int
) -> None:
    """Check the unit of the event times of the first outputs for a category, as readers check it.

    A processor without `max_future` may write every event time.

    Args:
        processor: the processor.
        category: the category.
        outputs: records and tombstones.
        now_ms: the time of day (milliseconds since 1970, UTC).

    Raises:
        InvalidRecord: the event times look like seconds, microseconds or nanoseconds.
    """
    records = [output for output in outputs[:FIRST_EVENTS] if type(output) is not Tombstone]
    if processor.max_future is None or not records:
        return
    unit = detect_wrong_unit(category.event_times_of(records), now_ms)
    if unit is not None:
        raise InvalidRecord(
            f"{processor.__name__} writes to {category.name}, but {unit}. Readers would reject these records. Write milliseconds since 1970 to "
            f"{category.times.name!r}, such as the event time of the input. If the times are correct, declare `max_future = None`."
        )


def _limited_codec(category: AnyCategory) -> LimitedCodec | None:
    if isinstance(category.codec, str):
        return None
    codec = category.codec.open(category.payload)
    return codec if isinstance(codec, LimitedCodec) else None


def _in_words(output: object) -> str:
    """Return what a processor returned as an output, for errors."""
    if output is None or isinstance(output, type):
        return "None" if output is None else f"the class {output.__name__}"
    return with_article(type(output).__name__)
