"""Active alerts and silences. They are stored in Kafka, so another alert process can take over.

penstock.alerts, compacted    key  alert/rule/processor    value  an alert as JSON; none after it has resolved
                              key  silence/id              value  a silence as JSON; none after it has ended
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import msgspec

from ....processors.declare import AlertSeverity
from ....transport import Bus, CategorySpec, Outgoing
from ....transport.tables import BusTable, TableKeys, TableReader

ALERTS = CategorySpec("penstock.alerts", buckets=1, compacted=True)
"""The category of alerts and silences."""
FIRST_READ_LIMIT_S = 15.0
"""How long the first read waits for the next message from Kafka."""

AlertKey = tuple[str, str]
"""The names of a rule and a processor."""


class ActiveAlert(msgspec.Struct, frozen=True, tag_field="kind", tag="alert"):
    """A metric that violates its limit, or has violated it recently.

    Args:
        rule: the name of the rule.
        processor: the name of the processor.
        metric: the name of the metric.
        limit: the limit in words.
        value: the latest known value of the metric.
        since_ms: the start of the violation (milliseconds since 1970, UTC).
        firing: whether the violation has lasted for the rule's duration.
        recovering_since_ms: the time since which the metric respects the limit again; None during a violation.
        notified: whether all recipients have the notification that it fires.
        message: the problem in words.
        severity: its severity, as its rule declares it.
    """

    rule: str
    processor: str
    metric: str
    limit: str
    value: float
    since_ms: int
    firing: bool = False
    recovering_since_ms: int | None = None
    notified: bool = False
    message: str = ""
    severity: AlertSeverity = "warning"

    @property
    def key(self) -> AlertKey:
        """The names of the rule and the processor."""
        return self.rule, self.processor


class Silence(msgspec.Struct, frozen=True, tag_field="kind", tag="silence"):
    """A time without notifications of some alerts.

    Args:
        id: the ID that ends it.
        rule: the names of the rules; "*" matches any text.
        processor: the names of the processors; "*" matches any text.
        until_ms: its end (milliseconds since 1970, UTC).
        reason: the reason, for other users.
    """

    id: str
    rule: str
    processor: str
    until_ms: int
    reason: str = ""

    def covers(self, alert: ActiveAlert, now_ms: int) -> bool:
        """Return whether it silences an alert now."""
        return (
            now_ms < self.until_ms
            and fnmatchcase(alert.rule, self.rule)
            and fnmatchcase(alert.processor, self.processor)
        )


@dataclass
class Alerts:
    """All active alerts and silences.

    Args:
        active: the alerts, by rule and processor.
        silences: the silences, by ID.
    """

    active: dict[AlertKey, ActiveAlert] = field(default_factory=dict)
    silences: dict[str, Silence] = field(default_factory=dict)

    def is_silenced(self, alert: ActiveAlert, now_ms: int) -> bool:
        """Return whether a silence covers an alert now."""
        return any(silence.covers(alert, now_ms) for silence in self.silences.values())


def _decode_key(key: bytes) -> AlertKey | str:
    kind, _, rest = key.decode().partition("/")
    if kind == "silence":
        return rest
    rule, _, processor = rest.rpartition("/")
    return rule, processor


def _encode_key(key: AlertKey | str) -> bytes:
    return (f"silence/{key}" if isinstance(key, str) else f"alert/{key[0]}/{key[1]}").encode()


_TABLE: BusTable[AlertKey | str, ActiveAlert | Silence] = BusTable(
    ALERTS, TableKeys(_encode_key, _decode_key), msgspec.json.Decoder(ActiveAlert | Silence).decode
)


def alert_message(alert: ActiveAlert) -> Outgoing:
    """Return the message that stores an alert."""
    return _TABLE.put(alert.key, alert)


def resolved_message(key: AlertKey) -> Outgoing:
    """Return the message that deletes an alert."""
    return _TABLE.delete(key)


def silence_message(silence: Silence) -> Outgoing:
    """Return the message that stores a silence."""
    return _TABLE.put(silence.id, silence)


def unsilence_message(id_: str) -> Outgoing:
    """Return the message that deletes a silence."""
    return _TABLE.delete(id_)


class AlertReader:
    """Reads the alerts and silences in Kafka, and their changes. One thread; close it.

    Args:
        reader: reads the category of alerts.
    """

    def __init__(self, reader: TableReader[AlertKey | str, ActiveAlert | Silence]) -> None:
        self._reader = reader
        self.alerts = Alerts()
        """The alerts and silences of the last read."""

    @classmethod
    def open(cls, bus: Bus) -> AlertReader:
        """Return a reader of all alerts and silences; there are none before the category exists."""
        return cls(_TABLE.follow(bus, may_be_missing=True))

    def read(self) -> Alerts:
        """Return the current alerts and silences. The first call waits for all of them.

        Raises:
            BusUnreachable: Kafka sent nothing for `FIRST_READ_LIMIT_S`.
        """
        for key, value, *_ in self._reader.read_to_end(FIRST_READ_LIMIT_S):
            if isinstance(value, ActiveAlert):
                self.alerts.active[value.key] = value
            elif isinstance(value, Silence):
                self.alerts.silences[value.id] = value
            elif isinstance(key, str):
                self.alerts.silences.pop(key, None)
            else:
                self.alerts.active.pop(key, None)
        return self.alerts

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()


def read_alerts(bus: Bus) -> Alerts:
    """Return the current alerts and silences; none if the category is missing."""
    with closing(AlertReader.open(bus)) as reader:
        return reader.read()


def write_alerts(bus: Bus, messages: Iterable[Outgoing]) -> None:
    """Store or delete alerts and silences; durable on return."""
    _TABLE.write(bus, messages)
