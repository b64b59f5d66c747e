"""The explanation of a misplaced event: which key and which partitioner its producer uses.

One message in a wrong bucket may have any cause. So all messages of the batch are compared with the known partitioners.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from ..declare import (
    COMPOSITE_CODECS,
    AnyCategory,
    AnyKeyCodec,
    CompositeJsonKeys,
    InvalidKey,
    KeyCodec,
    KeyPart,
    MessageKeys,
    Partitioner,
    Processor,
    buckets_of,
    fields_of,
)
from .batches import RejectedEvent
from .key_check import MisplacedKey

_PRODUCERS = {
    Partitioner.MURMUR2: "Kafka's Java clients do (murmur2)",
    Partitioner.CONSISTENT: "librdkafka's default partitioner (consistent) does",
    Partitioner.FNV1A: "Sarama's default partitioner (fnv1a) does",
}
_REGISTRY_MAGIC = b"\0"
"""The first byte of message keys in the format of a schema registry."""
_CERTAIN = 100
"""The least odds against an explanation by chance with which it is stated as certain."""


@dataclass(frozen=True)
class MisplacedEvent:
    """A misplaced event, with the messages around it.

    Args:
        found: where it is, and where it should be.
        event: the record.
        at: its index in the batch.
        message_keys: the message key of each message of the batch.
        category: its category.
    """

    found: MisplacedKey
    event: Any
    at: int
    message_keys: Sequence[bytes | None]
    category: AnyCategory

    def rejection(self, processor: type[Processor]) -> RejectedEvent:
        """Return the rejection of the event by a processor."""
        return RejectedEvent(self.at, self._reason(), "", stops=True, remedy=self._remedy(processor))

    @property
    def _message_key(self) -> bytes | None:
        return self.message_keys[self.at]

    def _reason(self) -> str:
        written = "without a key" if self._message_key is None else f"with the key {self._message_key!r}"
        fields = self.category.key_fields
        declared = f"its {', '.join(map(repr, fields))}" if fields else "the declared key"
        if isinstance(self.found.expected, InvalidKey):
            place = f"which has no bucket, and the message was written {written} to bucket {self.found.bucket}. {self.found.expected}"
            return f"{declared} is {self.found.key!r}, {place}".removesuffix(".")
        return (
            f"{declared} is {self.found.key!r}, which belongs in bucket {self.found.expected} of {self.category.buckets}, but the message was "
            f"written {written} to bucket {self.found.bucket}; the state of one key would be split between buckets, and each part would be wrong"
        )

    def _remedy(self, processor: type[Processor]) -> str:
        finding, declarations = self._finding()
        advice = (
            f": declare `{', '.join(declarations)}` on {self.category.name}. Otherwise, correct"
            if declarations
            else ". Correct"
        )
        return (
            f"{finding}{advice} the producer; or declare `partitioner=None` on {self.category.name} and copy its events to another category with a "
            "penstock.Repartition; or, if each bucket should have a separate state, declare `key_check = False` on "
            f"{processor.__name__}."
        )

    def _finding(self) -> tuple[str, list[str]]:
        """Return the cause, and the declarations that match the messages."""
        if not self._message_key:
            empty = "" if self._message_key is None else " or with an empty key"
            return f"Kafka's clients spread messages without a key{empty} over all buckets", []
        key, declared_key = self._key_finding()
        place, declared_partitioner = self._place_finding()
        finding = ", and ".join(filter(None, (key, place)))
        return finding[0].upper() + finding[1:], declared_key + declared_partitioner

    def _key_finding(self) -> tuple[str, list[str]]:
        is_number, parts = self.category.key_is_number, self.category.key_parts
        if self._message_key == self._encoded(
            self.category.key_codec, self.found.key, is_number=is_number, parts=parts
        ):
            return "", []
        if self._has_declared_key():
            return self._other_form(), self._spaces_to_declare()
        codec = self._codec_of(self.found.key, is_number=is_number, parts=parts)
        if codec is not None:
            return "the message key is the declared key in another encoding", self._key_codec_to_declare(codec)
        for name, field in fields_of(self.category.record).items():
            value = getattr(self.event, field.name, None)
            is_number = type(value) is int
            codec = self._codec_of(str(value), is_number=is_number) if is_number or isinstance(value, str) else None
            if codec is not None:
                return f"the message key is the field `{name}`", [f"key={name!r}", *self._key_codec_to_declare(codec)]
        return self._format_finding()

    def _format_finding(self) -> tuple[str, list[str]]:
        """Return the format of a message key that is neither the declared key nor a field."""
        if (self._message_key or b"")[:1] == _REGISTRY_MAGIC and isinstance(self.category.key_codec, KeyCodec):
            return "the message key may be in the format of a schema registry", ["key_codec=codecs.ConfluentAvro(…)"]
        if self._is_object():
            command = f"penstock category infer {self.category.name}"
            return f"the message key is a JSON object: `{command}` prints the `key` and `key_codec` to declare", []
        return "the message key is not the declared key", []

    def _is_object(self) -> bool:
        """Return whether the message key is a JSON object, with a schema or without."""
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            return isinstance(msgspec.json.decode(self._message_key or b""), dict)
        return False

    def _has_declared_key(self) -> bool:
        """Return whether the message key contains the declared key, in other bytes."""
        with suppress(InvalidKey):
            return self.category.decode_key(self._message_key or b"") == self.found.key
        return False

    def _other_form(self) -> str:
        """Return how a message key with the declared key differs from the one that Penstock writes."""
        if not isinstance(self.category.key_codec, KeyCodec):
            return "the message key is the declared key under another schema of the registry, or with its fields in another order"
        return "the message key is the declared key in another form of JSON, such as with spaces or with its fields in another order"

    def _spaces_to_declare(self) -> list[str]:
        """Return the key codec of keys that Python's `json.dumps` writes."""
        parts = self.category.key_parts
        if not parts or CompositeJsonKeys(parts, spaces=True).encode(self.found.key) != self._message_key:
            return []
        names = ", ".join(f'"{part.name}"' for part in parts)
        return [f"key_codec=codecs.KeyFields(({names}), spaces=True)"]

    def _codec_of(self, key: str, *, is_number: bool, parts: tuple[KeyPart, ...] = ()) -> AnyKeyCodec | None:
        """Return the codec that encodes a key to the message key; the declared one if it does."""
        codecs: list[AnyKeyCodec] = [self.category.key_codec, *(COMPOSITE_CODECS if parts else KeyCodec)]
        for codec in codecs:
            if self._encoded(codec, key, is_number=is_number, parts=parts) == self._message_key:
                return codec
        return None

    def _encoded(self, codec: AnyKeyCodec, key: str, *, is_number: bool, parts: tuple[KeyPart, ...]) -> bytes | None:
        try:
            return MessageKeys(self.category.name, codec, is_number, parts).encode([key])[0]
        except InvalidKey:
            return None

    def _key_codec_to_declare(self, codec: AnyKeyCodec) -> list[str]:
        return [f"key_codec=ps.{codec}"] if isinstance(codec, KeyCodec) and codec is not self.category.key_codec else []

    def _place_finding(self) -> tuple[str, list[str]]:
        found = self._partitioner()
        if found is None:
            return (
                "no partitioner that Penstock knows explains the buckets of all messages of this batch, so its producers may use several",
                [],
            )
        if found is self.category.partitioner:
            return "", []
        # With few keys, a partitioner may explain their bucket by chance.
        certain = self.category.buckets ** min(len(self._placed_keys), 10) >= _CERTAIN
        return f"the messages {'are' if certain else 'may be'} placed as {_PRODUCERS[found]}", [
            f"partitioner=ps.Partitioner.{found.name}"
        ]

    @property
    def _placed_keys(self) -> list[bytes]:
        """The different message keys of the batch, except the empty one: by default, librdkafka spreads messages with it."""
        return list({key for key in self.message_keys if key})

    def _partitioner(self) -> Partitioner | None:
        """Return the partitioner that explains the buckets of all messages with a key; the declared one if it does."""
        for partitioner in sorted(Partitioner, key=lambda each: each is not self.category.partitioner):
            buckets = buckets_of(self._placed_keys, self.category.buckets, partitioner)
            if all(bucket == self.found.bucket for bucket in buckets):
                return partitioner
        return None
