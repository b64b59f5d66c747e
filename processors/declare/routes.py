"""Routing of outputs to categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from ..wording import with_article
from .aggregator import Aggregator
from .categories import AnyCategory
from .codecs import LimitedCodec
from .keys import InvalidKey
from .metadata import Key, metadata_of
from .processor import Destination, Processor, as_tuple
from .record_check import RecordCheck
from .records import Record, replace_fields
from .sinks import Sink
from .tombstones import Tombstone

T = TypeVar("T")


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
    """Routes each output to its category or sink: the one that `To` names, or the one of its type."""

    processor: type[Processor]

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
                f"Processor {self.processor.__name__} returned a {type(output).__name__}, but {', '.join(one.name for one in found)} have this type. "
                "Return penstock.To(category, record)."
            )
        raise self._unknown(_in_words(output))

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

    def _unknown(self, output: str) -> TypeError:
        written = ", ".join(f"{each.record_name} to {each.name}" for each in self._destinations)
        declared = f"writes only {written}" if written else "declares no output (`writes`)"
        return TypeError(f"Processor {self.processor.__name__} returned {output}, but {declared}.")

    @cached_property
    def _destinations(self) -> tuple[Destination, ...]:
        return self.processor.destinations()

    @cached_property
    def _by_name(self) -> dict[str, Destination]:
        """The categories and sinks by name. The code of a clone names those of the original processor."""
        original = self.processor.cloned_from
        declared = self._destinations if original is None else original.destinations()
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
        """Check the outputs of one event.

        Raises:
            TypeError: the processor writes no category of an output's type, or a value is invalid.
        """
        for category, records in self.split(outputs):
            for record in records:
                if type(record) is not Tombstone:
                    self._checks[category.name].expect_one(record)
                    self._expect_limits(category, record)

    def _expect_limits(self, category: Destination, record: Record) -> None:
        limits = self._limits[category.name]
        if limits is not None:
            limits.expect(record)

    @cached_property
    def _limits(self) -> dict[str, LimitedCodec | None]:
        return {category.name: _limited_codec(category) for category in self._destinations}

    @cached_property
    def _checks(self) -> dict[str, RecordCheck]:
        return {category.name: RecordCheck(category.record) for category in self._destinations}


def _limited_codec(category: Destination) -> LimitedCodec | None:
    if isinstance(category, Sink) or isinstance(category.codec, str):
        return None
    codec = category.codec.open(category.payload)
    return codec if isinstance(codec, LimitedCodec) else None


def _in_words(output: object) -> str:
    """Return what a processor returned as an output, for errors."""
    if output is None or isinstance(output, type):
        return "None" if output is None else f"the class {output.__name__}"
    return with_article(type(output).__name__)
