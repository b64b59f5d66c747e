"""Python code that declares a topic: its records and its category.

sample --format--> contents --shapes--> record classes
                            --times---> event time
                            --keys----> key, key codec, partitioner
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ....processors import counted
from .avro_shape import RECURSIVE
from .event_time_choice import DEPTH, TimeCandidate, time_candidates
from .formats import RecognisedTopic, quoted, recognise
from .key_choice import KeyChoice, choose_key
from .record_types import RecordTypes, find_record_types
from .registries import NamedRegistry
from .shape import Shape, merged
from .topic_sample import TopicSample
from .trial import outcome_of

_SCALARS = {
    frozenset({"bool"}): "bool",
    frozenset({"int"}): "int",
    frozenset({"float"}): "float",
    frozenset({"int", "float"}): "float",
    frozenset({"datetime"}): "datetime",
    frozenset({"uuid"}): "UUID",
    frozenset({"date"}): "date",
    frozenset({"decimal"}): "Decimal",
    frozenset({"bytes"}): "bytes",
}
_TEXTS = {"str", "datetime", "naive", "uuid"}
_IMPORTS = {
    "datetime": "from datetime import datetime",
    "date": "from datetime import date",
    "Decimal": "from decimal import Decimal",
    "UUID": "from uuid import UUID",
    "Annotated": "from typing import Annotated",
    "Any": "from typing import Any",
}
_OF_UNIONS = {"", "ps.codecs.MessagePack()"}
"""The codecs, as code, of categories that may have several record types."""
_ID = re.compile(r"(^|[_.-])(id|ID|Id|key|uuid|guid)$|[a-z](Id|ID|Key|Uuid|UUID)$")
"""The ends of the names of fields that identify something."""
_NAMELESS = re.compile(r'["\\\x00-\x1f]')
"""What the name of a field of a record cannot contain."""
_CHECK = "Check types, key and event time."
_KEY_FIELD, _TIME_FIELD = "message_key", "message_time"
_MIXED = {"list": "its lists are empty, or of mixed types", "map": "its maps have values of mixed types"}
_RESERVED = {*_SCALARS.values(), *_IMPORTS, "list", "dict", "str", "ps", "msgspec"}
"""Names that the other lines of a class need: a field of this name would hide them."""


def declaration_of(sample: TopicSample, registry: NamedRegistry | None = None) -> str:
    """Return a Python module that declares the topic.

    Args:
        sample: its messages.
        registry: the schema registry of the topic, if there is one.

    Raises:
        TopicNotInferable: the topic is empty, or its messages have a format that cannot be recognised.
        RegistryUnreachable: the registry does not answer.
    """
    found = recognise(sample, registry)
    key = choose_key(found, sample.spec.buckets)
    times = time_candidates(found.contents, [message.timestamp()[1] for message in found.messages])
    times = [candidate for candidate in times if not any(map(_NAMELESS.search, candidate.path))]
    times.sort(key=lambda candidate: candidate.path != found.time_path)
    is_unused = registry is not None and found.registry is None
    code = _Module(sample, found, key, times, has_unused_registry=is_unused).code()
    if found.registry is not None:
        return code  # its codec would ask the registry again
    return code.replace(f" {_CHECK}", f"{outcome_of(code, sample.messages)} {_CHECK}", 1)


@dataclass(frozen=True)
class _Argument:
    """An argument of the category, on a line of its own, with a comment."""

    code: str
    comment: str = ""

    def __str__(self) -> str:
        return f"    {self.code}," + (f"  # {_as_comment(self.comment)}" if self.comment else "")


@dataclass
class _Module:
    """Builds the module.

    Args:
        sample: the sample.
        topic: the format and the content of its messages.
        key: their key.
        times: their possible event times.
        has_unused_registry: whether the user names a registry, and no message has a schema id.
    """

    sample: TopicSample
    topic: RecognisedTopic
    key: KeyChoice
    times: Sequence[TimeCandidate]
    has_unused_registry: bool = False
    classes: dict[str, list[str]] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)

    def code(self) -> str:
        """Return the code."""
        topic = self.sample.spec.name
        types = self._record_types()
        own_fields = list(self._message_fields())
        record = self._union(types) if types else self._class(_class_name(topic), self.topic.shape, own_fields)
        arguments = [_Argument(f'"{topic}"'), _Argument(record), *self._arguments(types)]
        category = "\n".join(map(str, arguments))
        classes = "\n\n\n".join("\n".join(lines) for lines in self.classes.values())
        rest = self._undecodable()
        if self.topic.other_types:
            rest = f" Messages of other types are skipped: {', '.join(self.topic.other_types)}. For these, declare other categories in an app of their own."
        rest += " No message has a schema id, so the registry was not asked." if self.has_unused_registry else ""
        head = f'"""The topic {topic}, inferred from {counted(len(self.sample.messages), "message")}.{rest} {_CHECK}"""'
        self.imports.update(self.topic.format.imports)
        standard = "\n".join(_import_lines(self.imports - {"import msgspec"}))
        third = "\n".join([*sorted(self.imports & {"import msgspec"}), "import penstock as ps"])
        imports = f"{standard}\n\n{third}" if standard else third
        setup = f"{self.topic.format.setup}\n\n\n" if self.topic.format.setup else ""
        annotation = f": ps.Category[{record}]" if types else ""
        return f"{head}\n\n{imports}\n\n\n{setup}{classes}\n\n\n{_variable(topic)}{annotation} = ps.Category(\n{category}\n)\n"

    def _undecodable(self) -> str:
        """Return how many messages will not decode, and why, as sentences; empty without one."""
        others, halves = self.topic.others, self.topic.halves
        lines = (
            f" {others:,} of them {'has' if others == 1 else 'have'} another format and will not decode (`on_undecodable`)."
            if others
            else "",
            f" {halves:,} of them {'contains' if halves == 1 else 'contain'} half a character (a lone surrogate, as of a truncated emoji) and will not "
            "decode (`on_undecodable`): let the producer write whole characters."
            if halves
            else "",
        )
        return "".join(lines)

    def _record_types(self) -> RecordTypes | None:
        """Return the record types of the topic, if it has several and a category can have them."""
        is_supported = (
            self.topic.format.codec in _OF_UNIONS
            and self.times
            and self.times[0].count == len(self.topic.contents)
            and self.key.fields
            and not self.key.own
        )
        types = find_record_types(self.topic.contents) if is_supported else None
        return None if types is None or types.field in {*self.key.fields, self.times[0].path[0]} else types

    def _union(self, types: RecordTypes) -> str:
        """Add a class for each type, after the classes of their fields; return the union. Equal fields have one type in all of them."""
        prefix, merged_shape = _class_name(self.sample.spec.name), self.topic.shape
        kinds = {
            name: self._field_type(prefix, name, inner, is_top=True)
            for name, inner in merged_shape.fields.items()
            if name != types.field
        }
        members = [self._member(types.field, tag, shape, kinds) for tag, shape in types.shapes.items()]
        return " | ".join(members)

    def _member(self, tag_field: str, tag: str, shape: Shape, kinds: Mapping[str, str | None]) -> str:
        name = _class_name(tag)
        while name in self.classes or keyword.iskeyword(name) or name in _RESERVED:
            name += "_"
        options = [f"tag={quoted(tag)}", *([] if tag_field == "type" else [f"tag_field={quoted(tag_field)}"])]
        self.classes[name] = [
            f"class {name}(ps.Record, frozen=True, {', '.join(options)}):",
            *self._lines(shape, kinds, is_top=True),
        ]
        return name

    def _message_fields(self) -> Iterator[str]:
        """Yield the fields that messages contain outside of their values."""
        for name, kind in self.key.own.items():
            self.imports.add(_IMPORTS["Annotated"])
            yield f"    {name}: Annotated[{kind}, ps.metadata.Key]"
        if not self.key.fields and self.key.keyed:
            self.imports.add(_IMPORTS["Annotated"])
            yield f"    {self._own_name(_KEY_FIELD)}: Annotated[str, ps.metadata.Key]"
        if not self.times:
            self.imports.add(_IMPORTS["Annotated"])
            yield f"    {self._own_name(_TIME_FIELD)}: Annotated[int, ps.metadata.Timestamp]"
        yield from self._header_fields()

    def _header_fields(self) -> Iterator[str]:
        """Yield the fields of headers: those with a default last."""
        names = _identifiers([_KEY_FIELD, _TIME_FIELD, *self.topic.headers])
        for name, shape in sorted(self.topic.headers.items(), key=lambda each: self._is_optional(each[1])):
            self.imports.add(_IMPORTS["Annotated"])
            kind = "str" if all(map(_is_text, shape.examples)) else "bytes"
            source = f"ps.metadata.Header({quoted(name)})"
            is_optional = self._is_optional(shape)
            yield f"    {names[name]}: Annotated[{kind}{' | None' if is_optional else ''}, {source}]{' = None' if is_optional else ''}"

    def _is_optional(self, header: Shape) -> bool:
        return header.count < len(self.topic.messages) or "null" in header.kinds

    def _own_name(self, name: str) -> str:
        """Return the name of a field for another part of the message; no field of its value has the name."""
        return name if name not in self.topic.shape.fields else self._own_name(f"{name}_")

    def _arguments(self, types: RecordTypes | None) -> Iterator[_Argument]:
        yield self._key_argument()
        yield self._time_argument()
        yield _Argument(f"buckets={self.sample.spec.buckets}")
        yield from self._codec_argument(types)
        yield from self._placement()
        yield self._retention_argument()

    def _key_argument(self) -> _Argument:
        names = {name: name for name in self.key.own} | _identifiers(self.topic.shape.fields)
        found = f"the message key of {self.key.keyed:,} of {counted(self.key.messages, self.topic.noun)}"
        if self.key.fields:
            fields = ", ".join(f'"{names[name]}"' for name in self.key.fields)
            return _Argument(f"key={fields}" if len(self.key.fields) == 1 else f"key=({fields})", found)
        if self.key.keyed:
            return _Argument(f'key="{self._own_name(_KEY_FIELD)}"', f"no field equals {found}")
        path = self._guessed_path
        if len(path) == 1:
            return _Argument(f'key="{names[path[0]]}"', "a guess: no message has a key")
        if path:
            attributes = ".".join(self._attributes(path))
            return _Argument(f"key=lambda record: str(record.{attributes})", "a guess: no message has a key")
        return _Argument(
            'key=lambda record: ""',
            "no message has a key, and no field of the values is a text or an int in all of them",
        )

    @property
    def _guessed_path(self) -> Sequence[str]:
        """The place to declare as the key of messages without keys: the first that looks like an id, or the first field; empty if there is none."""
        if self.key.keyed:
            return ()
        paths = list(_key_paths(self.topic.shape, ()))
        ids = [path for path in paths if _ID.search(path[-1])]
        return next(iter([*ids, *(path for path in paths if len(path) == 1)]), ())

    @property
    def _guessed_key(self) -> Sequence[str]:
        """The field of a guessed key; empty without one."""
        return self._guessed_path if len(self._guessed_path) == 1 else ()

    def _time_argument(self) -> _Argument:
        if not self.times:
            return _Argument(
                f'event_time="{self._own_name(_TIME_FIELD)}"', "no field contains a time in almost every message"
            )
        best, *others = self.times
        path = ".".join(self._attributes(best.path))
        notes = [f"also possible: {', '.join('.'.join(one.path) for one in others[:3])}"] if others else []
        if best.count < len(self.topic.messages):
            notes.append(
                f"in {best.count:,} of {counted(len(self.topic.messages), self.topic.noun)}; `on_missing_event_time` is about the others"
            )
        if best.is_text and best.unit is None:
            self.imports.update(("from datetime import datetime", "from datetime import timezone"))
            notes.append("its times have no offset: UTC is a guess")
        comment = "; ".join(notes)
        if best.is_text:
            return _Argument(f"event_time=lambda record: {_conversion(f'record.{path}', best.unit)}", comment)
        if best.unit in {None, "MILLISECONDS"}:
            return _Argument(f'event_time="{path}"', comment)
        return _Argument(f'event_time=ps.TimeField("{path}", unit=ps.TimeUnit.{best.unit})', comment)

    def _attributes(self, path: Sequence[str]) -> Iterator[str]:
        """Yield the Python names of a path."""
        shape = self.topic.shape
        for name in path:
            yield _identifiers(shape.fields)[name]
            shape = shape.fields[name]

    def _codec_argument(self, types: RecordTypes | None) -> Iterator[_Argument]:
        if self.topic.format.codec:
            yield _Argument(f"codec={self.topic.format.codec}", self.topic.format.comment)
        elif types is not None:
            comment = f"other values of {types.field!r} are skipped; without this line, they do not decode"
            yield _Argument('codec=ps.codecs.Json(other_types="skip")', comment)

    def _placement(self) -> Iterator[_Argument]:
        if self.key.codec:
            yield _Argument(f"key_codec={self.key.codec}")
        spread = self.key.messages - self.key.keyed
        if self.key.partitioner is None or spread:
            reason = (
                f"{counted(spread, self.topic.noun)} without a key {'is' if spread == 1 else 'are'} in any bucket"
                if spread
                else "no known partitioner explains the placement"
            )
            yield _Argument("partitioner=None", f"{reason}; stateful processors need a ps.Repartition")
        elif self.key.partitioner:
            yield _Argument(f"partitioner={self.key.partitioner}")

    def _retention_argument(self) -> _Argument:
        retention = self.sample.spec.retention
        if self.sample.spec.compacted:
            return _Argument(
                "compacted=True", "a ps.TableJoin deletes the rows of null values; others declare `tombstones`"
            )
        if retention is None:
            return _Argument("retention=None", "; ".join(f"{name}: {why}" for name, why in self.sample.unknown.items()))
        self.imports.add("from datetime import timedelta")
        days, rest = divmod(retention.total_seconds(), 86_400)
        length = f"seconds={retention.total_seconds():g}" if rest else f"days={days:g}"
        return _Argument(f"retention=timedelta({length})")

    def _class(self, name: str, shape: Shape, own_fields: Sequence[str] = ()) -> str:
        """Add the class of an object's shape, after the classes of its fields; return its name."""
        while name in self.classes or keyword.iskeyword(name) or name in _RESERVED:
            name += "_"
        is_top = shape is self.topic.shape
        kinds = {each: self._field_type(name, each, inner, is_top=is_top) for each, inner in shape.fields.items()}
        self.classes[name] = [
            f"class {name}(ps.Record, frozen=True):",
            *self._lines(shape, kinds, own_fields, is_top=is_top),
        ]
        return name

    def _field_type(self, prefix: str, name: str, shape: Shape, *, is_top: bool) -> str | None:
        """Return the type of a field of an object; None if a record cannot have it. A key of UUIDs is a text."""
        is_key = is_top and name in {*self.key.fields, *self._guessed_key}
        if is_key and shape.not_null == {"uuid"}:
            return "str"
        found = self._type(f"{prefix}{_class_name(name)}", shape)
        # A column without values has a place in messages, too.
        return "str" if found is None and self.topic.format.is_positional else found

    def _lines(
        self, shape: Shape, kinds: Mapping[str, str | None], own_fields: Sequence[str] = (), *, is_top: bool
    ) -> list[str]:
        """Return the fields of an object's shape as lines of its class.

        Args:
            shape: the shape.
            kinds: the type of each field; None for a field that a record cannot have.
            own_fields: further lines.
            is_top: whether these are the fields of messages, one of which is the key.
        """
        required, optional, left_out = list(own_fields), list[str](), list[str]()
        names = _identifiers(kinds)
        for field_name, inner in shape.fields.items():
            kind = kinds[field_name]
            if kind is None or _NAMELESS.search(field_name):
                why = _mixture(inner) if kind is None else "its name has quotes, backslashes or control characters"
                left_out.append(_as_comment(f"    # {field_name} is left out: {why}"))
                continue
            is_key = is_top and field_name in self.key.fields
            is_time = is_top and self.times and self.times[0].path == (field_name,)
            is_optional = not is_key and not is_time and (inner.count < shape.kinds["object"] or "null" in inner.kinds)
            python_name = names[field_name]
            self.imports.update([] if python_name == field_name else ["import msgspec"])
            has_default = is_optional and not self.topic.format.is_positional
            line = _field_line(field_name, python_name, kind, is_optional=is_optional, has_default=has_default)
            note = f"  # {_as_comment(inner.note)}" if inner.note else ""
            (optional if has_default else required).append(f"{line}{note}")
        fields = [*required, *optional] or ["    pass"]
        return [*fields, *left_out]

    def _type(self, name: str, shape: Shape) -> str | None:
        """Return the type of a field; None if a record cannot have it."""
        kinds = shape.not_null
        if kinds in _SCALARS:
            found = _SCALARS[kinds]
            self.imports.update([_IMPORTS[found]] if found in _IMPORTS else [])
            return found
        if kinds and kinds <= _TEXTS:
            return "str"
        if kinds in ({"list"}, {"map"}) and shape.items is not None:
            item = self._optional(self._type(name, shape.items), shape.items)
            return item and (f"list[{item}]" if kinds == {"list"} else f"dict[str, {item}]")
        if kinds == {"object"}:
            return self._map(name, shape) if shape.is_map else self._class(name, shape)
        if len(kinds) > 1 and _fits_any(shape) and self.topic.format.codec in _OF_UNIONS:
            self.imports.add(_IMPORTS["Any"])
            return "Any"
        return None

    def _map(self, name: str, shape: Shape) -> str | None:
        values = Shape()
        for inner in shape.fields.values():
            values = merged(values, inner)
        item = self._optional(self._type(name, values), values)
        return item and f"dict[str, {item}]"

    @staticmethod
    def _optional(kind: str | None, shape: Shape) -> str | None:
        return f"{kind} | None" if kind and kind != "Any" and "null" in shape.kinds else kind


def _key_paths(shape: Shape, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the places that contain a text or an int in all messages, the outer ones first."""
    always = [
        (name, inner)
        for name, inner in shape.fields.items()
        if inner.count == shape.kinds.get("object") and "null" not in inner.kinds
    ]
    yield from ((*path, name) for name, inner in always if inner.not_null and inner.not_null <= {"str", "int", "uuid"})
    for name, inner in always:
        if inner.not_null == {"object"} and not inner.is_map and len(path) < DEPTH - 1:
            yield from _key_paths(inner, (*path, name))


def _import_lines(imports: Collection[str]) -> list[str]:
    """Return sorted lines of imports, one for each module."""
    names: dict[str, list[str]] = {}
    for line in sorted(imports):
        module, _, name = line.partition(" import ")
        names.setdefault(module, []).extend([name] if name else [])
    return [f"{module} import {', '.join(found)}" if found else module for module, found in names.items()]


def _field_line(name: str, python_name: str, kind: str, *, is_optional: bool, has_default: bool) -> str:
    annotation = f"{kind} | None" if is_optional and kind != "Any" else kind
    if python_name != name:
        default = "default=None, " if has_default else ""
        return f"    {python_name}: {annotation} = msgspec.field({default}name={quoted(name)})"
    return f"    {python_name}: {annotation}{' = None' if has_default else ''}"


def _fits_any(shape: Shape) -> bool:
    """Return whether a field of any type can have all values of a shape: without integers beyond 64 bits at any depth."""
    parts = [*shape.fields.values(), *([shape.items] if shape.items else [])]
    return not shape.kinds.keys() & {"big", RECURSIVE} and all(map(_fits_any, parts))


def _mixture(shape: Shape) -> str:
    """Return why a place has no type."""
    if not shape.not_null:
        return "it is always null"
    if RECURSIVE in shape.kinds:
        return "it contains itself"
    if "big" in shape.not_null:
        return "a record has no type for integers beyond 64 bits"
    if len(shape.not_null) == 1:
        [kind] = shape.not_null
        return _MIXED.get(kind, f"a record has no type for {kind}")
    shares = ", ".join(f"{kind} in {number:,}" for kind, number in sorted(shape.kinds.items(), key=lambda one: -one[1]))
    return f"its values have several types ({shares})"


def _is_text(content: bytes | None) -> bool:
    try:
        return content is None or content.decode().isprintable()
    except UnicodeDecodeError:
        return False


def _conversion(text: str, unit: str | None) -> str:
    """Return the code of the event time of a text.

    Args:
        text: the code of the text.
        unit: the unit of the number in it; None for a date and a time in UTC.
    """
    if unit is None:
        return f"datetime.fromisoformat({text}).replace(tzinfo=timezone.utc)"
    factors = {"SECONDS": f"round(float({text}) * 1_000)", "MILLISECONDS": f"round(float({text}))"}
    return factors.get(unit, f"int({text}) // {'1_000' if unit == 'MICROSECONDS' else '1_000_000'}")


def _identifiers(names: Collection[str]) -> dict[str, str]:
    """Return a different Python name for each field of an object, which is no other field's name on the bus."""
    found: dict[str, str] = {}
    for name in names:
        python_name = _identifier(name)
        while python_name != name and (python_name in names or python_name in found.values()):
            python_name += "_"
        found[name] = python_name
    return found


def _identifier(name: str) -> str:
    """Return a Python name for a field."""
    found = re.sub(r"\W", "_", name).lstrip("_")
    if not found or found[0].isdigit():
        found = f"f_{found}"
    return f"{found}_" if keyword.iskeyword(found) or found in _RESERVED else found


def _class_name(name: str) -> str:
    """Return a name in camel case: `user-events` becomes `UserEvents`."""
    words = re.split(r"[\W_]+", name)
    found = "".join(word[:1].upper() + word[1:] for word in words if word)
    return found if found[:1].isalpha() else f"R{found}"


def _as_comment(text: str) -> str:
    """Return a comment in one line: names of fields come from messages, so they can contain anything."""
    return "".join(character if character.isprintable() else " " for character in text)


def _variable(topic: str) -> str:
    return _identifier(topic.replace(".", "_").replace("-", "_"))
