"""Client settings: the user's, and Penstock's for each kind of client."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import SettingsRefused
from ..messages import CERTAINLY_FITS_BYTES, MESSAGE_LIMIT
from ..named_files import problem_of
from .client_log import CLIENT_LOG, outage_reporter
from .token_function import SETTING, token_function

Value = str | int | bool

_CRITICAL, _EVERYTHING = 2, 7

_CONNECTING: dict[str, Value] = {
    # Many clients that try each second take from a machine what its broker needs to start.
    "reconnect.backoff.max.ms": 10_000,
    # With sparse connections (the default), each waiting call tries to connect without a pause: in an outage, hundreds of times a second.
    # And a new client connects to the brokers of its cluster only after a pause.
    "enable.sparse.connections": False,
    # A client that starts again from its first addresses (the default) does so without a pause, each time with a new thread.
    # `KeptClient` replaces a client whose brokers have all moved.
    "metadata.recovery.strategy": "none",
    # A broker that ends a quiet connection looks like an outage. Kafka does so after 10 minutes, a service of Azure after 4, a load balancer often
    # after 5; the client's own end is silent.
    "connections.max.idle.ms": 180_000,
}

_PROTOCOLS = frozenset({"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"})
"""The prefixes of a broker's address that librdkafka accepts."""

MAX_PORT = 65_535

BOOTSTRAP_BROKER = -1
"""The number of a broker that has answered at a given address, before the client knew its number."""

DEFAULT_SESSION_TIMEOUT_MS = 45_000
"""The default of librdkafka."""
DEFAULT_POLL_INTERVAL_MS = 300_000
"""The default of librdkafka."""
DEFAULT_DELIVERY_LIMIT_MS = 300_000
"""The default of librdkafka for `message.timeout.ms`."""

_PEM_FILES = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}

_TLS_FILES = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.keystore.location",
    "ssl.crl.location",
)
_LIBRARIES = ("plugin.library.paths", "ssl.engine.location")
"""Settings with libraries: files, or names that the system looks up."""
_LIBRARY_ENDINGS = ("", ".so", ".dylib", ".dll")
"""The client adds the ending of the system if a library is named without one."""

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
            if broker.count("[") != broker.count("]"):
                raise SettingsRefused(
                    f"The Kafka address {broker.strip()!r} has an open bracket. No request was sent. Write an IPv6 address in brackets, such as [::1]:9092."
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

    def _number(self, name: str, default: float) -> float:
        """Return a setting that is a number; the default in place of another text, which the client refuses by its name when it is opened."""
        try:
            return float(self.further.get(name, default))
        except ValueError:
            return default

    @property
    def session_timeout_s(self) -> float:
        """The time after which Kafka ends the membership of a vanished reader, in seconds."""
        return self._number("session.timeout.ms", DEFAULT_SESSION_TIMEOUT_MS) / 1000

    @property
    def poll_interval_s(self) -> float:
        """The time after which a reader that does not poll leaves its group, in seconds."""
        return self._number("max.poll.interval.ms", DEFAULT_POLL_INTERVAL_MS) / 1000

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
            # The first message of an open transaction waits, too.
            "isolation.level": "read_uncommitted",
        }
        return self._with({**_READING, **minimal, "group.id": "penstock-peek"})

    def for_positions(self, group: str) -> dict[str, Any]:
        """Return the configuration of a client that reads and sets a group's positions without joining the group.

        It soon asks again for positions whose transaction has just ended: the client's default is 100 ms, which every commit would wait for.
        """
        undecided: dict[str, Value] = {"retry.backoff.ms": 5}
        return self._with(
            {**undecided, "group.id": group, "isolation.level": "read_committed", "enable.auto.commit": False}
        )

    def for_writer(self, limit_s: float | None = None) -> dict[str, Any]:
        """Return a producer's configuration.

        Args:
            limit_s: the longest time for the delivery of a message, whatever the user's settings say; None for theirs.
        """
        configuration = self._with(_WRITING)
        if limit_s is None:
            return configuration
        limit_ms = int(limit_s * 1000)
        text = str(configuration.get("message.timeout.ms", limit_ms))
        if not text.isdecimal():
            return configuration  # the client refuses it by its name
        own_ms = int(text) or limit_ms  # 0 is no limit
        return configuration | {"message.timeout.ms": min(own_ms, limit_ms)}

    def for_transactional_writer(self, identity: str, timeout_s: float) -> dict[str, Any]:
        """Return a transactional producer's configuration."""
        limit_ms = int(self._number("transaction.timeout.ms", timeout_s * 1000))
        transactional: dict[str, Value] = {
            "transactional.id": identity,
            "transaction.timeout.ms": limit_ms,
            "message.timeout.ms": limit_ms,  # the client's default is shorter than a long transaction
        }
        return self._with({**_WRITING, **transactional})

    def _with(self, ours: Mapping[str, Value]) -> dict[str, Any]:
        self._expect_tokens()
        self._expect_files()
        reporting = {
            "error_cb": outage_reporter(self.bootstrap),
            "logger": CLIENT_LOG,
            # By syslog's number. At a lower threshold, the client would log each attempt to connect; see `outage_reporter`.
            "log_level": _EVERYTHING if CLIENT_LOG.isEnabledFor(logging.DEBUG) else _CRITICAL,
        }
        further: dict[str, Any] = dict(self.further)
        if SETTING in further:
            further[SETTING] = token_function(further[SETTING])
        return {"bootstrap.servers": self.bootstrap, **reporting, **_CONNECTING, **ours, **further}

    def _expect_tokens(self) -> None:
        """Raise SettingsRefused for tokens without a source: the client would wait for one for ever, as if no broker answered."""
        name, mechanism = self._mechanism
        has_source = (
            self.further.get("sasl.oauthbearer.method", "").lower() == "oidc"
            or self.further.get("enable.sasl.oauthbearer.unsecure.jwt") == "true"
            or SETTING in self.further
        )
        if mechanism == "OAUTHBEARER" and not has_source:
            raise SettingsRefused(
                f"{name} is OAUTHBEARER, but nothing says where tokens come from. No request was sent. Add to [kafka-settings]: "
                'sasl.oauthbearer.method = "oidc", sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret; '
                'or oauth_cb = "module:function", which returns tokens.'
            )

    def _expect_files(self) -> None:
        """Raise SettingsRefused for a setting that names a file which this process cannot read."""
        for setting, name in self._named_files():
            # "probe" makes the client look for the system's certificates.
            problem = problem_of(name, or_folder=setting == "ssl.ca.location") if name != "probe" else ""
            if problem:
                raise SettingsRefused(
                    f"{setting} {problem}. No request was sent. Correct [kafka-settings], or make the file readable for this process."
                )

    def _named_files(self) -> Iterator[tuple[str, str]]:
        """Yield the settings that name files which the client will read, with the names of these files."""
        protocol = self.further.get("security.protocol", "").upper()
        used = [
            *(_TLS_FILES if protocol.endswith("SSL") else ()),
            *(("sasl.kerberos.keytab",) if protocol.startswith("SASL") and self._mechanism[1] == "GSSAPI" else ()),
        ]
        yield from ((setting, self.further[setting]) for setting in used if self.further.get(setting))
        for setting in _LIBRARIES:
            for name in self.further.get(setting, "").split(";"):
                if "/" in name and not any(Path(name + ending).is_file() for ending in _LIBRARY_ENDINGS):
                    yield setting, name

    @property
    def _mechanism(self) -> tuple[str, str]:
        """The setting with the SASL mechanism, and the mechanism."""
        name = "sasl.mechanism" if "sasl.mechanism" in self.further else "sasl.mechanisms"
        return name, self.further.get(name, "GSSAPI").upper()


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
