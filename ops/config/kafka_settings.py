"""`[kafka-settings]`: what is passed on to librdkafka, by its names, quoted or not.

security.protocol = "SASL_SSL"    is a table in a table to TOML, and one name to librdkafka
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from ...transport.errors import SettingsRefused
from .errors import ConfigRefused
from .toml_file import TomlFile
from .variables import resolved

TABLE = "kafka-settings"

_OURS = {
    "bootstrap.servers": "it is the setting kafka, at the top of the file",
    "metadata.broker.list": "it is the setting kafka, at the top of the file",
    "group.id": "a processor's group is called as the processor",
    "group.instance.id": "workers have names of their own",
    "transactional.id": "workers have names of their own",
    "enable.auto.commit": "positions are saved with checkpoints, which is what guarantees rest on",
    "enable.auto.offset.store": "positions are saved with checkpoints, which is what guarantees rest on",
    "auto.offset.reset": "nothing is skipped in silence; see --from-earliest",
    "enable.partition.eof": "workers have to be told of the ends of buckets",
    "isolation.level": "what a transaction took back must not be read",
    "enable.idempotence": "outputs would be repeated, or change places",
    "acks": "outputs that a broker has not copied yet would count as written",
    "partitioner": "a key's events have to lie in one bucket, whoever writes them",
    "partition.assignment.strategy": "it follows from how many inputs a processor has",
}
"""What stands in the way of what Penstock promises, and why."""

_NAMES = [
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "sasl.kerberos.service.name",
    "sasl.kerberos.principal",
    "sasl.kerberos.keytab",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.token.endpoint.url",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.ca.certificate.stores",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.crl.location",
    "ssl.cipher.suites",
    "ssl.curves.list",
    "ssl.sigalgs.list",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
    "client.id",
    "client.rack",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "socket.timeout.ms",
    "socket.keepalive.enable",
    "request.timeout.ms",
    "message.timeout.ms",
    "message.max.bytes",
    "fetch.message.max.bytes",
    "fetch.max.bytes",
    "fetch.wait.max.ms",
    "queued.min.messages",
    "queued.max.messages.kbytes",
    "compression.type",
    "compression.level",
    "linger.ms",
    "batch.size",
    "queue.buffering.max.messages",
    "queue.buffering.max.kbytes",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "metadata.max.age.ms",
    "broker.address.family",
    "client.dns.lookup",
    "debug",
    "log_level",
    "statistics.interval.ms",
]
"""The settings of librdkafka that people use, to tell what was meant; it knows more, which are passed on as well."""


def kafka_settings(file: TomlFile) -> dict[str, str]:
    """Return librdkafka's settings as it takes them.

    Raises:
        ConfigRefused: as `checked`, or a variable is not set.
    """
    return {name: in_text(value, place_of(file, name)) for name, value in checked(file).items()}


def in_text(value: Any, place: str) -> str:
    """Return a value as librdkafka takes it."""
    return str(resolved(value, place)) if isinstance(value, str) else str(value).lower()


def checked(file: TomlFile) -> dict[str, Any]:
    """Return librdkafka's settings as the file has them, by their whole names.

    Raises:
        ConfigRefused: a value is no text, number or truth; or a setting would break what Penstock promises.
    """
    settings = written(file)
    for name, value in settings.items():
        if name in _OURS:
            raise ConfigRefused(
                f"{place_of(file, name)}: {name} cannot be set, since {_OURS[name]}. Nothing was done; take it out."
            )
        if not isinstance(value, (str, int, float)):
            raise ConfigRefused(
                f"{place_of(file, name)}: {name} is to be a text, a number, true or false, and is a list or a date. Nothing was done."
            )
    return settings


def written(file: TomlFile) -> dict[str, Any]:
    """Return librdkafka's settings as the file has them, by their whole names.

    Raises:
        ConfigRefused: there is something else of that name.
    """
    table = file.values.get(TABLE, {})
    if not isinstance(table, Mapping):
        raise ConfigRefused(f"{file.place((TABLE,))}: {TABLE} is a table: write [{TABLE}] on a line of its own.")
    return dict(_flat(table))


def place_of(file: TomlFile, name: str) -> str:
    """Return where a setting stands in the file."""
    found = file.place((TABLE, name))
    return found if ", line" in found else file.place((TABLE, *name.split(".")))


def explained(file: TomlFile, refused: SettingsRefused) -> ConfigRefused:
    """Return what librdkafka said of the settings, with where in the file that is, and what was probably meant."""
    name = max((one for one in written(file) if one in str(refused)), key=len, default=None)
    if name is None:
        return ConfigRefused(f"{file.place((TABLE,))}: {refused}")
    close = get_close_matches(name, _NAMES, n=1)
    meant = f" Did you mean {close[0]}?" if close and name not in _NAMES else ""
    return ConfigRefused(f"{place_of(file, name)}: {refused}{meant}")


def _flat(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", one) for inner, one in _flat(value))
        else:
            yield name, value
