"""Client settings: the user's, and Penstock's for each kind of client."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import SettingsRefused
from ..messages import CERTAINLY_FITS_BYTES, MESSAGE_LIMIT
from .client_log import CLIENT_LOG, outage_reporter

Value = str | int | bool

_CRITICAL, _EVERYTHING = 2, 7

_CONNECTING: dict[str, Value] = {
    # Reconnect within a second of a broker's return; the default waits up to ten.
    "reconnect.backoff.max.ms": 1000,
    # A new client knows one address, then connects to the brokers of the cluster half of this time later; the default is 100 ms.
    "reconnect.backoff.ms": 20,
}

_PROTOCOLS = frozenset({"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"})
"""The prefixes of a broker's address that librdkafka accepts."""

MAX_PORT = 65_535

BOOTSTRAP_BROKER = -1
"""The number of a broker that has answered at a given address, before the client knew its number."""

DEFAULT_SESSION_TIMEOUT_MS = 45_000
"""The default of librdkafka."""

_PEM_FILES = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}

HEARTBEAT_MS = 500
"""The time after which a member learns at the latest that its group rebalances. Moved buckets wait for it; the client's default is 3 s."""

_READING: dict[str, Value] = {
    "enable.auto.commit": False,
    # An expired position is an error that a user must resolve; never skip events.
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    # With the default, a full queue pauses fetching for a second, in which a fast processor runs out of messages.
    "fetch.queue.backoff.ms": 1,
    "queued.min.messages": 500_000,
    "queued.max.messages.kbytes": 4_096,
    "fetch.message.max.bytes": 4 * 2**20,
    # A new bucket waits for the running request, which does not include it; the default allows half a second.
    "fetch.wait.max.ms": 100,
}

_WRITING: dict[str, Value] = {
    "enable.idempotence": True,
    "acks": "all",
    "compression.type": "lz4",
    "linger.ms": 5,
    "batch.size": 256 * 1024,
    "queue.buffering.max.messages": 500_000,
    # The default partitioner of a category. Messages of a category with another partitioner have explicit buckets.
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
}


@dataclass(frozen=True)
class KafkaSettings:
    """The address of a cluster, and further settings of librdkafka (SASL, TLS, timeouts).

    Args:
        bootstrap: ``host:port``, or several with commas between.
        further: settings by librdkafka's names, which override Penstock's. They may contain secrets, so they are never displayed.
    """

    bootstrap: str
    further: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for broker in self.bootstrap.split(","):
            if broker.strip().isdecimal():
                raise SettingsRefused(
                    f"The Kafka address {broker.strip()!r} contains no host. No request was sent. Name HOST:PORT, such as localhost:{broker.strip()}."
                )
            if not broker.strip():
                raise SettingsRefused(
                    f"The Kafka address {self.bootstrap!r} {'is empty' if not self.bootstrap.strip() else 'contains an empty part'}. No request was sent. Name "
                    "HOST:PORT, or several with commas between, such as localhost:9092."
                )
            scheme, separator, rest = broker.strip().rpartition("://")
            if separator and scheme.upper() not in _PROTOCOLS:
                raise SettingsRefused(
                    f"The Kafka address {broker.strip()!r} starts with {scheme}://. No request was sent. Kafka has a protocol of its own: name "
                    f"HOST:PORT, such as {rest.split('/')[0]}."
                )
            port = (
                "" if rest.count(":") > 1 and "]" not in rest else rest[rest.rfind("]") + 1 :].partition(":")[2]
            )  # IPv6 has several colons
            if port and not (port.isdecimal() and 1 <= int(port) <= MAX_PORT):
                raise SettingsRefused(
                    f"The Kafka address {broker.strip()!r} has the port {port!r}, which is no number from 1 to {MAX_PORT}. No request was sent. Name HOST:PORT, "
                    "such as localhost:9092."
                )

    def unknown_hosts(self) -> list[str]:
        """Return the host names of the address that this machine cannot resolve."""
        return [host for host in map(_host, self.bootstrap.split(",")) if not _is_known(host)]

    @property
    def session_timeout_s(self) -> float:
        """The time after which Kafka ends the membership of a vanished reader, in seconds."""
        return int(self.further.get("session.timeout.ms", DEFAULT_SESSION_TIMEOUT_MS)) / 1000

    @property
    def message_limit(self) -> int:
        """The size limit of a message that a client with these settings sends, in bytes."""
        return int(self.further.get("message.max.bytes", MESSAGE_LIMIT))

    @property
    def batch_limit(self) -> int:
        """The size limit of a batch of small messages that a client with these settings sends, in bytes."""
        return max(min(int(self.for_writer()["batch.size"]), self.message_limit), CERTAINLY_FITS_BYTES)

    def self_contained(self) -> KafkaSettings:
        """Return settings for other machines: they contain certificates and keys in PEM instead of file names.

        Raises:
            SettingsRefused: a file cannot be read.
        """
        further = dict(self.further)
        for file in [name for name in further if name in _PEM_FILES]:
            text = _pem_in(file, Path(further[file]))
            if text is not None:
                del further[file]
                further[_PEM_FILES[file]] = text
        return KafkaSettings(self.bootstrap, further)

    def for_admin(self) -> dict[str, Any]:
        """Return an admin client's configuration."""
        return self._with({})

    def for_reader(self, group: str, identity: str | None, *, co_partitioned: bool) -> dict[str, Any]:
        """Return a group member's configuration.

        Args:
            group: the consumer group.
            identity: identifies a returning member; None for a new member each time.
            co_partitioned: whether one member must own bucket n of all categories, which only the range assignor guarantees. With one
                category, cooperative-sticky moves fewer buckets.
        """
        strategy = "range" if co_partitioned else "cooperative-sticky"
        member: dict[str, Value] = {"heartbeat.interval.ms": HEARTBEAT_MS}
        if identity is not None:
            member["group.instance.id"] = identity
        # Paused buckets are fetched again. Co-partitioned inputs wait for each other, so they fetch less ahead.
        ahead: dict[str, Value] = {"queued.min.messages": 20_000} if co_partitioned else {}
        return self._with({**_READING, **ahead, **member, "group.id": group, "partition.assignment.strategy": strategy})

    def for_scanner(self) -> dict[str, Any]:
        """Return the configuration of a reader without a group; librdkafka requires a name anyway."""
        return self._with({**_READING, "group.id": "penstock-scan"})

    def for_peeking(self) -> dict[str, Any]:
        """Return the configuration of a reader that fetches little more than one message of each bucket."""
        minimal: dict[str, Value] = {
            "fetch.message.max.bytes": 1,
            "queued.min.messages": 1,
            "auto.offset.reset": "earliest",
        }
        return self._with({**_READING, **minimal, "group.id": "penstock-peek"})

    def for_positions(self, group: str) -> dict[str, Any]:
        """Return the configuration of a client that reads and sets a group's positions without joining the group."""
        return self._with({"group.id": group, "isolation.level": "read_committed", "enable.auto.commit": False})

    def for_writer(self) -> dict[str, Any]:
        """Return a producer's configuration."""
        return self._with(_WRITING)

    def for_transactional_writer(self, identity: str, timeout_s: float) -> dict[str, Any]:
        """Return a transactional producer's configuration."""
        transactional: dict[str, Value] = {
            "transactional.id": identity,
            "transaction.timeout.ms": int(timeout_s * 1000),
        }
        return self._with({**_WRITING, **transactional})

    def _with(self, ours: Mapping[str, Value]) -> dict[str, Any]:
        reporting = {
            "error_cb": outage_reporter(self.bootstrap),
            "logger": CLIENT_LOG,
            # By syslog's number. At a lower threshold, the client would log each attempt to connect; see `outage_reporter`.
            "log_level": _EVERYTHING if CLIENT_LOG.isEnabledFor(logging.DEBUG) else _CRITICAL,
        }
        return {"bootstrap.servers": self.bootstrap, **reporting, **_CONNECTING, **ours, **self.further}


def _pem_in(setting: str, path: Path) -> str | None:
    """Return the content of a PEM file; None for a folder or a keyword of librdkafka."""
    if not path.is_file():
        return None
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsRefused(
            f"{setting} is {path}, which cannot be read as PEM: {error}. No request was sent. Correct [kafka-settings]."
        ) from error


def _host(broker: str) -> str:
    """Return the host of one broker's address."""
    address = broker.strip().rpartition("://")[2]
    return address.rpartition(":")[0].strip("[]") or address


def _is_known(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True
