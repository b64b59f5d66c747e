"""What alerts have come to, and who asked for silence; kept on the bus, so that whoever watches next goes on.

penstock.alerts, compacted    key  alert/rule/processor    value  an alert as JSON; none when it is over
                              key  silence/id              value  a silence as JSON; none when it is over
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeVar

import msgspec

from ...transport.bus import Bucket, Bus, CategorySpec, Outgoing, Position
from ...transport.errors import BusUnreachable, MissingCategory
from ...transport.internal_topics import ensure

ALERTS = CategorySpec("penstock.alerts", buckets=1, compacted=True)
"""Where they are kept."""
READ_WAIT_S = 1.0
READ_LIMIT_S = 15.0
"""How long the bus may take to give what is kept."""

K = TypeVar("K")
V = TypeVar("V")

Subject = tuple[str, str]
"""A rule and a processor, by name."""


class ActiveAlert(msgspec.Struct, frozen=True):
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


class SilencedAlert(msgspec.Struct, frozen=True):
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


_encode = msgspec.json.Encoder().encode
_decode_raised = msgspec.json.Decoder(ActiveAlert).decode
_decode_silence = msgspec.json.Decoder(SilencedAlert).decode


def raised_message(raised: ActiveAlert) -> Outgoing:
    """Return an alert as it is kept."""
    return Outgoing(_raised_key(raised.subject), _encode(raised))


def over_message(subject: Subject) -> Outgoing:
    """Return what says that an alert is over."""
    return Outgoing(_raised_key(subject), None)


def silence_message(silence: SilencedAlert) -> Outgoing:
    """Return a silence as it is kept."""
    return Outgoing(f"silence/{silence.id}".encode(), _encode(silence))


def unsilence_message(id_: str) -> Outgoing:
    """Return what says that a silence is over."""
    return Outgoing(f"silence/{id_}".encode(), None)


def _raised_key(subject: Subject) -> bytes:
    return f"alert/{subject[0]}/{subject[1]}".encode()


class KeptAlerts:
    """Reads what is kept, as far as it has been read. One thread; close it.

    Args:
        bus: where it is; the category exists.
    """

    def __init__(self, bus: Bus) -> None:
        self._scanner = bus.scanner([Position(Bucket(ALERTS.name, 0), None)])
        self._complete = False
        self.alerts = Alerts()

    def read(self) -> Alerts:
        """Return all that is kept now; waits only the first time.

        Raises:
            BusUnreachable: it does not come.
        """
        deadline_s = time.monotonic() + READ_LIMIT_S
        self._poll(0.0)
        while not self._complete:
            if time.monotonic() > deadline_s:
                raise BusUnreachable(f"The bus did not give {ALERTS.name} within {READ_LIMIT_S:.0f} s.")
            self._poll(READ_WAIT_S)
        return self.alerts

    def _poll(self, timeout_s: float) -> None:
        polled = self._scanner.poll(timeout_s)
        for message in (message for batch in polled.batches for message in batch.messages):
            self._note((message.key() or b"").decode(), message.value())
        self._complete = self._complete or bool(polled.ended)

    def _note(self, key: str, value: bytes | None) -> None:
        kind, _, rest = key.partition("/")
        if kind == "silence":
            _put(self.alerts.silences, rest, None if value is None else _decode_silence(value))
        else:
            rule, _, processor = rest.rpartition("/")
            _put(self.alerts.raised, (rule, processor), None if value is None else _decode_raised(value))

    def close(self) -> None:
        """Read no more."""
        self._scanner.close()


def _put(into: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        into.pop(key, None)
    else:
        into[key] = value


def alerts_on(bus: Bus) -> Alerts:
    """Return what is kept on a bus."""
    try:
        bus.catalog.describe(ALERTS.name)
    except MissingCategory:
        return Alerts()
    with closing(KeptAlerts(bus)) as kept:
        return kept.read()


def keep(bus: Bus, messages: Iterable[Outgoing]) -> None:
    """Change what is kept; durable on return."""
    ensure(bus, ALERTS)
    with closing(bus.writer()) as writer:
        writer.send(ALERTS.name, messages)
        writer.flush()
