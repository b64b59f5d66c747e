"""New topics: which settings they are created with, and which of them a cluster may refuse.

A request has only settings whose values differ from the cluster's defaults, or that the category needs. If the cluster refuses some, the
preferred ones are left out; a setting on which a promise depends never is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import timedelta

from confluent_kafka import KafkaError
from confluent_kafka.admin import NewTopic

from ..category_spec import CategorySpec
from ..errors import BusError
from .reported_settings import (
    CLEANUP,
    DELETE_RETENTION,
    MESSAGE_BYTES,
    MIN_IN_SYNC,
    RETENTION,
    TIMESTAMPS,
    UNCLEAN,
    BrokerSettings,
)

SAFE_REPLICAS = 3
_CLUSTER_DEFAULT = -1
_SAFE = {MIN_IN_SYNC: "2", UNCLEAN: "false"}

# Readers start with the whole topic, and Kafka compacts only closed segments: keep segments small.
_COMPACTED = {CLEANUP: "compact", "segment.bytes": str(16 * 2**20), "min.cleanable.dirty.ratio": "0.2"}

_COMPACTED_LATE = "it is compacted later, so reading it from its start takes longer"
_LOSABLE = "the failure of a broker may lose acknowledged messages"
_WITHOUT = {
    TIMESTAMPS: "its arrival times may come from its producers' clocks",
    "segment.bytes": _COMPACTED_LATE,
    "min.cleanable.dirty.ratio": _COMPACTED_LATE,
    MIN_IN_SYNC: _LOSABLE,
    UNCLEAN: _LOSABLE,
    DELETE_RETENTION: "a state that is older than half of the cluster's value is rebuilt from all changes",
    MESSAGE_BYTES: "it may accept only smaller messages than its inputs",
}
"""What follows if a preferred setting is left out. Workers and `penstock category show` report it, or act on the cluster's value."""
_REFUSALS = frozenset({KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG})


def topic_of(spec: CategorySpec, brokers: int, defaults: BrokerSettings) -> NewTopic:
    """Return the request to create a category.

    Args:
        spec: the category.
        brokers: the number of brokers of the cluster.
        defaults: the settings of its brokers; all are sent that they do not report.
    """
    retention_ms = -1 if spec.retention is None else spec.retention // timedelta(milliseconds=1)
    needed = {RETENTION: str(retention_ms), CLEANUP: "delete"}
    # The broker's time of arrival: the clock of a writer may be wrong.
    preferred = {TIMESTAMPS: "LogAppendTime", **(_COMPACTED if spec.compacted else {})}
    if spec.delete_retention is not None:
        preferred[DELETE_RETENTION] = str(spec.delete_retention // timedelta(milliseconds=1))
    replicas = spec.replicas or (SAFE_REPLICAS if brokers >= SAFE_REPLICAS else _CLUSTER_DEFAULT)
    if replicas >= SAFE_REPLICAS:
        preferred |= _SAFE
    differing = {
        name: value for name, value in preferred.items() if name == CLEANUP or not defaults.is_default(name, value)
    }
    return NewTopic(spec.name, spec.buckets, replicas, config={**needed, **differing, **spec.settings})


def without_refused(topic: NewTopic, spec: CategorySpec, error: KafkaError) -> NewTopic | None:
    """Return a request without preferred settings that the cluster refuses: the ones that its error names, otherwise all.

    None if no preferred setting is left.
    """
    wanted = dict(topic.config or {})
    preferred = _preferred(spec) & wanted.keys()
    left_out = named_in(error, preferred) or preferred
    if not left_out:
        return None
    permitted = {name: value for name, value in wanted.items() if name not in left_out}
    return NewTopic(topic.topic, topic.num_partitions, topic.replication_factor, config=permitted)


def _preferred(spec: CategorySpec) -> AbstractSet[str]:
    """Return the settings without which a category is slower to read or less safe, but not wrong."""
    ignored = {RETENTION} if spec.compacted and spec.retention is None else set()
    return (_WITHOUT.keys() | ignored) - (spec.settings.keys() - spec.preferred)


def named_in(error: KafkaError, names: Collection[str]) -> set[str]:
    """Return which of these settings the words of an error name."""
    return {name for name in names if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w-]|\.\w)", error.str())}


@dataclass(frozen=True)
class LeftOut:
    """The settings with which a topic was not created.

    Args:
        category: its name.
        names: the settings.
        words: the cluster's reasons.
    """

    category: str
    names: Collection[str]
    words: Collection[str]

    @property
    def consequence(self) -> str:
        """What follows, as a sentence."""
        follows = dict.fromkeys(_WITHOUT[name] for name in sorted(self.names) if name in _WITHOUT)
        return _sentence(follows) if follows else "Nothing follows from that."

    def __str__(self) -> str:
        return (
            f"Category {self.category} was created with the cluster's {', '.join(sorted(self.names))}, because the cluster refuses Penstock's: "
            f"{'; '.join(dict.fromkeys(self.words))}. {self.consequence}"
        )


def _sentence(parts: Collection[str]) -> str:
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def is_refusal(error: KafkaError) -> bool:
    """Return whether a cluster refuses the settings of a new topic."""
    return error.code() in _REFUSALS


def refusal(spec: CategorySpec, wanted: Mapping[str, str], error: KafkaError) -> BusError:
    """Return the error of a topic that a cluster refuses because of settings that the category needs."""
    named = sorted(named_in(error, wanted.keys()))
    what = ", ".join(f"{name}={wanted[name]}" for name in named) or "the topic"
    words = error.str().strip().rstrip(".")
    return BusError(
        f"Category {spec.name} was not created: the cluster refuses {what}: {words}. Nothing was created. {_remedy(spec, named)} `penstock doctor` shows "
        "what else the cluster refuses."
    )


def _remedy(spec: CategorySpec, named: Collection[str]) -> str:
    if spec.settings.keys() & named:
        return "Correct the `settings` of the category."
    if spec.compacted and CLEANUP in named:
        return (
            "Penstock needs the newest message of each of its keys, which only a compacted topic keeps. Let the administrators of the cluster permit "
            "that setting, or create the topic."
        )
    if RETENTION in named:
        return "Declare a `retention` that the cluster permits, or let its administrators create the topic."
    return "Declare `settings` and `replicas` that the cluster permits, or let its administrators create the topic."
