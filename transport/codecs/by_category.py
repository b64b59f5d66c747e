"""The codec of each category."""

from __future__ import annotations

from ...processors.declare.categories import AnyCategory
from ...processors.declare.codecs import Codec
from ...processors.declare.dead_letters import DeadLetter
from ..bus import Bus
from ..tables.schemas import Schemas
from .avro import AvroCodec
from .dead_letters import DeadLetterCodec
from .json_codec import JsonCodec


class Codecs:
    """Codecs by category, which share a cache of the schemas on one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._schemas = Schemas(bus)
        self._codecs: dict[str, Codec] = {}

    def of(self, category: AnyCategory) -> Codec:
        """Return the category's codec."""
        if category.name not in self._codecs:
            self._codecs[category.name] = self._new(category)
        return self._codecs[category.name]

    def _new(self, category: AnyCategory) -> Codec:
        if category.record is DeadLetter:
            return DeadLetterCodec(lambda: self._bus.catalog.message_limit(category.name))
        return JsonCodec(category) if category.codec == "json" else AvroCodec(category, self._schemas)
