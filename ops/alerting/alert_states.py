"""What alerts have come to, and who asked for silence; kept on the bus, so that whoever watches next goes on.

penstock.alerts, compacted    key  alert/rule/processor    value  an alert as JSON; none when it is over
                              key  silence/id              value  a silence as JSON; none when it is over
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import msgspec

from ...transport.bus import Bus
from ...transport.category_spec import CategorySpec
from ...transport.messages import Outgoing
from ...transport.tables.bus_table import BusTable, KeyFormat

ALERTS = CategorySpec("penstock.alerts", buckets=1, compacted=True)
"""Where they are kept."""
SILENCE_LIMIT_S = 15.0
"""How long the first read waits for the bus."""

Subject = tuple[str, str]
"""A rule and a processor, by name."""


class ActiveAlert(msgspec.Struct, frozen=True, tag_field="kind", tag="alert"):
    """A figure that is, or was just now, beyond its limit.

    Args:
        rule: the rule's name.
        processor: the processor's.
        measure: the figure's.
        limit: the limit in words.
        figure: the figure as it is; the last that was known.
        since_ms: since when it has been beyond the limit (milliseconds since 1970, UTC).
        firing: whether that has lasted long enough to tell somebody.
        fine_since_ms: since when it is within the limit again; None while it is not.
        told: whether somebody was told.
        says: what is wrong, in words.
    """

    rule: str
    processor: str
    measure: str
    limit: str
    figure: float
    since_ms: int
    firing: bool = False
    fine_since_ms: int | None = None
    told: bool = False
    says: str = ""

    @property
    def subject(self) -> Subject:
        """The rule and the processor."""
        return self.rule, self.processor


class SilencedAlert(msgspec.Struct, frozen=True, tag_field="kind", tag="silence"):
    """Somebody knows, and wants to hear no more for a while.

    Args:
        id: by which it is ended.
        rule: the rules' names; "*" stands for anything.
        processor: the processors', likewise.
        until_ms: when it ends by itself (milliseconds since 1970, UTC).
        why: for others.
    """

    id: str
    rule: str
    processor: str
    until_ms: int
    why: str = ""

    def covers(self, raised: ActiveAlert, now_ms: int) -> bool:
        """Tell whether nobody is to be told of an alert."""
        return (
            now_ms < self.until_ms
            and fnmatchcase(raised.rule, self.rule)
            and fnmatchcase(raised.processor, self.processor)
        )


@dataclass
class Alerts:
    """All that is raised, and all that is silenced.

    Args:
        raised: by rule and processor.
        silences: by id.
    """

    raised: dict[Subject, ActiveAlert] = field(default_factory=dict)
    silences: dict[str, SilencedAlert] = field(default_factory=dict)

    def silenced(self, raised: ActiveAlert, now_ms: int) -> bool:
        """Tell whether nobody is to be told of an alert."""
        return any(silence.covers(raised, now_ms) for silence in self.silences.values())


def _decode_key(key: bytes) -> Subject | str:
    kind, _, rest = key.decode().partition("/")
    if kind == "silence":
        return rest
    rule, _, processor = rest.rpartition("/")
    return rule, processor


def _encode_key(key: Subject | str) -> bytes:
    return (f"silence/{key}" if isinstance(key, str) else f"alert/{key[0]}/{key[1]}").encode()


_TABLE: BusTable[Subject | str, ActiveAlert | SilencedAlert] = BusTable(
    ALERTS, KeyFormat(_encode_key, _decode_key), msgspec.json.Decoder(ActiveAlert | SilencedAlert).decode
)


def raised_message(raised: ActiveAlert) -> Outgoing:
    """Return the message that stores an alert."""
    return _TABLE.put(raised.subject, raised)


def over_message(subject: Subject) -> Outgoing:
    """Return the message that deletes an alert."""
    return _TABLE.delete(subject)


def silence_message(silence: SilencedAlert) -> Outgoing:
    """Return the message that stores a silence."""
    return _TABLE.put(silence.id, silence)


def unsilence_message(id_: str) -> Outgoing:
    """Return the message that deletes a silence."""
    return _TABLE.delete(id_)


class KeptAlerts:
    """Follows the alerts and silences on a bus. One thread; close it.

    Args:
        bus: where the category is, which exists.
    """

    def __init__(self, bus: Bus) -> None:
        self._reader = _TABLE.follow(bus)
        self.alerts = Alerts()

    def read(self) -> Alerts:
        """Return the present alerts and silences; waits only the first time.

        Raises:
            BusUnreachable: the bus sent nothing for `SILENCE_LIMIT_S`.
        """
        for key, value, _ in self._reader.read_to_end(SILENCE_LIMIT_S):
            if isinstance(value, ActiveAlert):
                self.alerts.raised[value.subject] = value
            elif isinstance(value, SilencedAlert):
                self.alerts.silences[value.id] = value
            elif isinstance(key, str):
                self.alerts.silences.pop(key, None)
            else:
                self.alerts.raised.pop(key, None)
        return self.alerts

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()


def alerts_on(bus: Bus) -> Alerts:
    """Return the alerts and silences on a bus."""
    if not bus.catalog.topics([ALERTS.name]):
        return Alerts()
    with closing(KeptAlerts(bus)) as kept:
        return kept.read()


def keep(bus: Bus, messages: Iterable[Outgoing]) -> None:
    """Store or delete alerts and silences; durable on return."""
    _TABLE.write(bus, messages)
