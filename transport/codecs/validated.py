"""Codecs of records whose event time or values need more than the validation of their types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...processors.declare import (
    AbsentEventTime,
    AnyCategory,
    CanonicalForm,
    Codec,
    Decoded,
    HeaderCodec,
    InvalidRecord,
    Message,
    MessageHeaders,
    Undecodable,
    prepare,
    split_messages,
)


def validated(codec: Codec, category: AnyCategory) -> Codec:
    """Return a codec that also refuses invalid event times, and converts records to their canonical form.

    Args:
        codec: the codec of the category.
        category: the category.
    """
    form = CanonicalForm(category.record)
    if category.times.always_valid and form.is_identity:
        return codec
    kind = _ValidatedHeaderCodec if isinstance(codec, HeaderCodec) else _ValidatedCodec
    return kind(codec, category, form)


class _ValidatedCodec:
    """Encodes and decodes only records with a valid event time, in their canonical form.

    Args:
        codec: encodes and decodes.
        category: the category.
        form: the canonical form of its records.
    """

    def __init__(self, codec: Codec, category: AnyCategory, form: CanonicalForm) -> None:
        self.codec = codec
        self._times = category.times
        self._form = form

    def encode(self, records: Sequence[Any]) -> list[bytes]:
        """Return the value of a message for each record.

        Raises:
            InvalidRecord: a record has no valid event time or no canonical form, or violates its own type.
        """
        return self.codec.encode(self._valid(records))

    def split(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return messages with at most one record each."""
        return split_messages(self.codec, messages)

    def decode(self, messages: Sequence[Message]) -> Decoded:
        """Decode a batch; messages with an invalid event time are undecodable."""
        decoded = self.codec.decode(messages)
        try:
            return decoded._replace(events=list(self._valid(decoded.events)))
        except InvalidRecord:
            return self._validated_singly(decoded)

    def prepare(self) -> None:
        """Prepare the inner codec for writing."""
        prepare(self.codec)

    def _valid(self, records: Sequence[Any]) -> Sequence[Any]:
        canonical = self._form.of(records)
        if not self._times.always_valid:
            self._times.of(canonical)
        return canonical

    def _validated_singly(self, decoded: Decoded) -> Decoded:
        events: list[Any] = []
        places: list[int] = []
        bad = list(decoded.bad)
        for event, at in zip(decoded.events, decoded.at, strict=True):
            try:
                events += self._valid([event])
                places.append(at)
            except InvalidRecord as error:
                bad.append(Undecodable(at, str(error), untimed=isinstance(error, AbsentEventTime)))
        return Decoded(events, places, bad)


class _ValidatedHeaderCodec(_ValidatedCodec):
    """The same for a codec that also writes headers."""

    codec: HeaderCodec

    def headers(self, records: Sequence[Any]) -> Sequence[MessageHeaders | None]:
        """Return the headers of a message for each record."""
        return self.codec.headers(records)
