"""Settings of topics and brokers, as brokers report them.

Kafka-compatible services report fewer settings than Apache Kafka, and a user may lack the right to read them: an unknown setting is None.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from confluent_kafka import KafkaError
from confluent_kafka.admin import ConfigEntry

CLEANUP = "cleanup.policy"
DELETE_RETENTION = "delete.retention.ms"
BROKER_MESSAGE_BYTES = "message.max.bytes"
MESSAGE_BYTES = "max.message.bytes"
MIN_IN_SYNC = "min.insync.replicas"
POSITION_BYTES = "offset.metadata.max.bytes"
RETENTION = "retention.ms"
TIMESTAMPS = "message.timestamp.type"
UNCLEAN = "unclean.leader.election.enable"

_LONGEST_MS = timedelta.max // timedelta(milliseconds=1)
"""Kafka accepts longer times, which mean for ever."""
_NOT_REPORTED = "the brokers do not report it"
_DEFAULTS = {
    DELETE_RETENTION: "log.cleaner.delete.retention.ms",
    MESSAGE_BYTES: BROKER_MESSAGE_BYTES,
    TIMESTAMPS: "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "segment.bytes": "log.segment.bytes",
}
"""The settings of brokers that are the defaults of topics, where their names differ."""

_REFUSALS: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "this Kafka user may not read the settings (DescribeConfigs)",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "this Kafka user may not read the settings (DescribeConfigs)",
    KafkaError.UNSUPPORTED_VERSION: "the brokers do not report settings",
    KafkaError._UNSUPPORTED_FEATURE: "the brokers do not report settings",
    KafkaError.INVALID_REQUEST: "the brokers do not report settings",
}


def refusal_of_settings(error: KafkaError) -> str | None:
    """Return why settings are unknown after an error of a request for them; None if the request may succeed later."""
    return _REFUSALS.get(error.code())


@dataclass(frozen=True)
class _Reported:
    """Settings as text.

    Args:
        reported: the known settings.
        reason: why the others are unknown.
    """

    reported: Mapping[str, str]
    reason: str = _NOT_REPORTED

    def text(self, name: str) -> str | None:
        """Return the text of a setting."""
        return self.reported.get(name)

    def number(self, name: str) -> int | None:
        """Return the number of a setting."""
        try:
            return int(self.reported[name])
        except (KeyError, ValueError):
            return None

    def why_unknown(self, name: str) -> str:
        """Return why a setting is unknown."""
        return f"the brokers report {self.reported[name]!r}" if name in self.reported else self.reason


@dataclass(frozen=True)
class TopicSettings(_Reported):
    """The settings of a topic."""

    @property
    def is_compacted(self) -> bool | None:
        """Whether the brokers keep the last message of each key."""
        policy = self.text(CLEANUP)
        return None if policy is None else "compact" in policy

    @property
    def retention(self) -> timedelta | None:
        """How long messages are kept; None for ever, or if it is unknown. A topic that is only compacted has no limit in time."""
        kept_ms = self.number(RETENTION)
        if kept_ms is None or not 0 <= kept_ms <= _LONGEST_MS or self.text(CLEANUP) == "compact":
            return None
        return timedelta(milliseconds=kept_ms)

    @property
    def delete_retention(self) -> timedelta | None:
        """How long deletions in a compacted topic are kept at least."""
        kept_ms = self.number(DELETE_RETENTION)
        return None if kept_ms is None else timedelta(milliseconds=min(kept_ms, _LONGEST_MS))

    @property
    def min_in_sync(self) -> int | None:
        """The number of replicas that confirm a message."""
        return self.number(MIN_IN_SYNC)

    @property
    def unclean_election(self) -> bool | None:
        """Whether a replica that lacks messages may become the leader."""
        return None if (value := self.text(UNCLEAN)) is None else value == "true"

    @property
    def uses_arrival_time(self) -> bool | None:
        """Whether timestamps are the brokers' instead of the producers'."""
        return None if (value := self.text(TIMESTAMPS)) is None else value == "LogAppendTime"

    @property
    def message_bytes(self) -> int | None:
        """The size limit of a batch."""
        return self.number(MESSAGE_BYTES)

    def unknown(self, names: Collection[str]) -> dict[str, str]:
        """Return which of these settings are unknown, each with the reason."""
        numbers = {DELETE_RETENTION, MESSAGE_BYTES, MIN_IN_SYNC, RETENTION}
        is_known = {name: (self.number(name) if name in numbers else self.text(name)) is not None for name in names}
        return {name: self.why_unknown(name) for name in names if not is_known[name]}


@dataclass(frozen=True)
class BrokerSettings(_Reported):
    """The settings of a broker, which every broker of a cluster should have."""

    def is_default(self, name: str, value: str) -> bool:
        """Return whether a new topic has this value of a setting by default, as far as the broker reports it."""
        return self.text(_DEFAULTS.get(name, name)) == value


def texts(reported: dict[str, ConfigEntry]) -> dict[str, str]:
    """Return the values of an answer."""
    return {name: entry.value for name, entry in reported.items() if entry.value is not None}
