"""The key of a topic's messages: which field it is, how its bytes represent it, and which partitioner placed the messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...processors.declare.codecs import Message
from ...processors.declare.keys import InvalidKey, KeyCodec, MessageKeys
from ...processors.declare.partitioner import Partitioner, buckets_of

CODECS = (KeyCodec.TEXT, KeyCodec.INT64, KeyCodec.INT32, KeyCodec.JSON)


@dataclass(frozen=True)
class KeyChoice:
    """The key of the messages.

    Args:
        field: the field that is the key; None if no field is.
        codec: how the bytes of message keys represent it.
        partitioner: the partitioner that explains the bucket of every message; None if none does.
        keyed: the number of messages with a key.
        messages: the number of messages.
    """

    field: str | None
    codec: KeyCodec
    partitioner: Partitioner | None
    keyed: int
    messages: int


def choose_key(messages: Sequence[Message], contents: Sequence[Mapping[str, Any]], buckets: int) -> KeyChoice:
    """Return the key that all messages with a key agree on.

    Args:
        messages: the messages.
        contents: the decoded value of each.
        buckets: the number of buckets of the topic.
    """
    keyed = [
        (message, content) for message, content in zip(messages, contents, strict=True) if message.key() is not None
    ]
    keys = [message.key() or b"" for message, _ in keyed]
    partitioner = _partitioner(keys, [message.partition() for message, _ in keyed], buckets)
    for codec in CODECS:
        for name in keyed[0][1] if keyed else ():
            if all(_is_key(content.get(name), key, codec) for key, (_, content) in zip(keys, keyed, strict=True)):
                return KeyChoice(name, codec, partitioner, len(keyed), len(messages))
    return KeyChoice(None, _codec_of(keys), partitioner, len(keyed), len(messages))


def _partitioner(keys: Sequence[bytes], buckets_found: Sequence[int], buckets: int) -> Partitioner | None:
    if not keys or buckets == 1:
        return Partitioner.MURMUR2 if keys else None
    explaining = (one for one in Partitioner if buckets_of(keys, buckets, one) == list(buckets_found))
    return next(explaining, None)


def _is_key(value: Any, key: bytes, codec: KeyCodec) -> bool:
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        return False
    is_number = isinstance(value, int)
    if not is_number and codec in {KeyCodec.INT32, KeyCodec.INT64}:
        return False
    try:
        return MessageKeys("", codec, is_number).encode([str(value)]) == [key]
    except InvalidKey:
        return False


def _codec_of(keys: Sequence[bytes]) -> KeyCodec:
    try:
        for key in keys:
            key.decode()
    except UnicodeDecodeError:
        return KeyCodec.BYTES
    return KeyCodec.TEXT
