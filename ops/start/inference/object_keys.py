"""Message keys that are objects, compared with the fields of the values: under equal names, other names, or in the message key only.

message keys --decoded--> fields --equal values in all messages--> fields of the record
                                 --no equal field-----------------> metadata fields
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ....processors import DeclarationError
from ....processors.declare import CompositeJsonKeys, KeyPart, joined
from ....transport.codecs import MALFORMED, ConnectKeys
from .formats import Content

JSON_KEYS = "ps.KeyCodec.JSON"


@dataclass(frozen=True)
class ObjectKeys:
    """Message keys that are objects with the same fields.

    Args:
        parts: the fields.
        values: the values of the fields in each message key.
        named: whether the key codec names the fields, whatever the names in the record.
        codec: the code of the key codec for fields with the names in the record.
        renamed: returns the code of the key codec for fields with these other names in message keys, as code.
    """

    parts: tuple[KeyPart, ...]
    values: Sequence[Sequence[Any]]
    codec: str
    renamed: Callable[[str], str]
    named: bool = False


@dataclass(frozen=True)
class MatchedFields:
    """The fields of a key.

    Args:
        fields: their names in the record.
        own: the fields that only message keys contain, and their types, as code.
        codec: the code of the key codec.
    """

    fields: tuple[str, ...]
    own: Mapping[str, str]
    codec: str


def connect_keys(keys: Sequence[bytes]) -> ObjectKeys | None:
    """Return keys that contain one schema, as Kafka Connect writes them; None for others, also where the schema or its bytes differ."""
    try:
        decoded = [msgspec.json.decode(key, type=dict[str, msgspec.Raw]) for key in keys]
        [schema] = {bytes(content["schema"]).decode() for content in decoded if content.keys() == {"schema", "payload"}}
        spec = ConnectKeys(schema)
        is_struct = all(part.name for part in spec.parts)
        payloads = [msgspec.json.decode(content["payload"]) for content in decoded]
        values = [[payload[name] for name in spec.names] if is_struct else [payload] for payload in payloads]
        converter = spec.open_composite_keys("", spec.parts) if is_struct else None
        if converter is not None and any(
            converter.encode(joined(row)) != key for row, key in zip(values, keys, strict=True)
        ):
            return None
    except (*MALFORMED, DeclarationError, KeyError, TypeError, ValueError):
        return None
    code = f"ps.codecs.ConnectKeys({schema!r})"
    return ObjectKeys(spec.parts, values, code, lambda _: code, named=True)


def json_keys(keys: Sequence[bytes]) -> ObjectKeys | None:
    """Return keys that are JSON objects, all with the same fields in the same order, and all with or without spaces; None for others."""
    found: set[tuple[KeyPart, ...]] = set()
    with_spaces, values = keys[0].startswith(b'{"') and b'": ' in keys[0], []
    for key in keys:
        try:
            content = msgspec.json.decode(key, type=dict[str, str | int])
        except MALFORMED:
            return None
        parts = tuple(KeyPart(name, isinstance(value, int)) for name, value in content.items())
        row = list(content.values())
        if not parts or CompositeJsonKeys(parts, with_spaces).encode(joined(row)) != key:
            return None
        found.add(parts)
        values.append(row)
    if len(found) != 1:
        return None
    [parts] = found
    if with_spaces:
        names = ", ".join(_quoted(part.name) for part in parts)
        code = f"ps.codecs.KeyFields(({names}{',' if len(parts) == 1 else ''}), spaces=True)"
        return ObjectKeys(parts, values, code, lambda _: code, named=True)
    return ObjectKeys(parts, values, JSON_KEYS, lambda names: f"ps.codecs.KeyFields({names})")


def matched(objects: ObjectKeys, contents: Sequence[Content]) -> MatchedFields:
    """Return the fields of the record that contain the fields of the keys."""
    fields, own = list[str](), dict[str, str]()
    for at, part in enumerate(objects.parts):
        values = [row[at] for row in objects.values]
        field = _field_with(part.name, values, contents, fields)
        if field is None:
            field = _own_name(part.name, contents, fields)
            own[field] = "int" if part.is_number else "str"
        fields.append(field)
    has_equal_names = objects.named or (len(fields) > 1 and fields == [part.name for part in objects.parts])
    names = ", ".join(_quoted(part.name) for part in objects.parts)
    codec = objects.codec if has_equal_names else objects.renamed(f"({names}{',' if len(fields) == 1 else ''})")
    return MatchedFields(tuple(fields), own, codec)


def _field_with(name: str, values: Sequence[Any], contents: Sequence[Content], taken: Sequence[str]) -> str | None:
    """Return the field that has these values in all messages, preferably the one of this name."""
    candidates = [name, *(each for each in contents[0] if each != name)]
    return next(
        (
            each
            for each in candidates
            if each not in taken
            and all(
                type(content.get(each)) is type(value) and content.get(each) == value
                for content, value in zip(contents, values, strict=True)
            )
        ),
        None,
    )


def _own_name(name: str, contents: Sequence[Content], taken: Sequence[str]) -> str:
    """Return the name of a field that no value has."""
    found = re.sub(r"\W", "_", name).lstrip("_") or "message_key"
    while (
        any(found in content for content in contents)
        or found in taken
        or keyword.iskeyword(found)
        or not found.isidentifier()
    ):
        found = f"key_{found}"
    return found


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
