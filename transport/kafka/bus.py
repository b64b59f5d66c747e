"""Kafka as the bus."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ..bus import Ownership, Position
from .catalog import KafkaCatalog
from .reader import GroupReader, KafkaReader, open_scanner
from .settings import KafkaSettings
from .writer import KafkaWriter


class KafkaBus:
    """A Kafka cluster."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings

    @cached_property
    def catalog(self) -> KafkaCatalog:
        """The topics."""
        return KafkaCatalog(self.settings)

    def reader(self, group: str, categories: Sequence[str], ownership: Ownership) -> GroupReader:
        """Join a consumer group."""
        return GroupReader(self.catalog, self.settings, group, categories, ownership)

    def scanner(self, positions: Sequence[Position]) -> KafkaReader:
        """Read given buckets from given offsets, in no group."""
        return open_scanner(self.settings, positions)

    def writer(self) -> KafkaWriter:
        """Return a producer."""
        return KafkaWriter(self.settings)
