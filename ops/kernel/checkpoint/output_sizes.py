"""The sizes of outputs, checked against the limits of their categories before they are sent.

record --estimated--> surely small, or encoded --size, limit of its category--> sent, or refused by name
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ....processors.declare import AnyCategory
from ....processors.models import encode_model
from ....transport import CERTAINLY_FITS_BYTES, Bus, MessageRefused, Outgoing, cluster_of, settings_table, size_of
from ....transport.codecs import Codecs, encoded_messages

SMALL_BYTES = CERTAINLY_FITS_BYTES // 8
"""A record of this size as MessagePack fits into every category in every codec: JSON needs six bytes for a control character, and field names."""

_estimate = msgspec.msgpack.Encoder(enc_hook=encode_model).encode


class OutputTooLarge(MessageRefused):
    """An output is larger than its category accepts: make it smaller, or raise the limit.

    Args:
        reason: the category, the key, the size and the limit.
        category: the name of the category.
        at: the index of the output among those of its category, or of its processor.
    """

    def __init__(self, reason: str, category: str, at: int) -> None:
        super().__init__(reason)
        self.category = category
        self.at = at


class OutputSizes:
    """The size limits of the categories that a worker writes. One thread.

    Args:
        bus: contains the categories; it is asked only about categories with large messages.
        codecs: encode records.
    """

    def __init__(self, bus: Bus, codecs: Codecs) -> None:
        self._bus = bus
        self._codecs = codecs
        self._limits: dict[str, int] = {}

    def exceeded(self, category: str, size: int) -> int | None:
        """Return the limit of a category if a message of `size` bytes is larger; else None."""
        if size <= CERTAINLY_FITS_BYTES or size <= self._limits.get(category, 0):
            return None
        self._limits[category] = self._bus.catalog.message_limit(category)  # it may have been raised
        return self._limits[category] if size > self._limits[category] else None

    def expect(self, category: AnyCategory, record: Any) -> None:
        """Check one record of a category.

        Raises:
            ValueError: it is too large.
        """
        if len(_estimate(record)) <= SMALL_BYTES:
            return
        [message] = encoded_messages(category, self._codecs.of(category), [record])
        limit = self.exceeded(category.name, size_of(message))
        if limit is not None:
            raise ValueError(self._too_large(category.name, message, limit))

    def expect_messages(self, category: str, messages: Iterable[Outgoing]) -> Iterator[Outgoing]:
        """Yield outputs of a category unchanged.

        Raises:
            OutputTooLarge: one of them is too large.
        """
        for at, message in enumerate(messages):
            limit = self.exceeded(category, size_of(message))
            if limit is not None:
                raise OutputTooLarge(self._too_large(category, message, limit), category, at)
            yield message

    def fitting(self, category: str, messages: Iterable[Outgoing]) -> Iterator[Outgoing]:
        """Yield messages of a checkpoint unchanged.

        Raises:
            MessageRefused: a message is larger than its category accepts.
        """
        try:
            yield from self.expect_messages(category, messages)
        except OutputTooLarge as error:
            raise MessageRefused(
                f"{error} Its checkpoint was not saved. After that, start the worker again."
            ) from error

    def _too_large(self, category: str, message: Outgoing, limit: int) -> str:
        key = "" if message.key is None else f" with key {message.key[:100].decode(errors='backslashreplace')!r}"
        return (
            f"A message for {category}{key} has {size_of(message):,} bytes, and that category accepts {limit:,}. Make the record or the state "
            f"smaller, or raise max.message.bytes of {category} (`kafka-configs.sh --alter --topic {category} --add-config max.message.bytes=N`) "
            f"and message.max.bytes in {settings_table(cluster_of(self._bus, category))}."
        )
