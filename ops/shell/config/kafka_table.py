"""`[kafka-settings]`: settings of librdkafka, by their own names, with or without quotes.

security.protocol = "SASL_SSL"    a nested table in TOML, a single name in librdkafka
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ....processors import did_you_mean
from ....transport import SettingsRefused
from .errors import ConfigRefused
from .toml_file import Keys, TomlFile
from .variables import resolve

TABLE = "kafka-settings"
MAIN: Keys = (TABLE,)
"""The keys of the table of the main cluster."""

_RESERVED = {
    "bootstrap.servers": "the setting kafka {place} replaces it",
    "metadata.broker.list": "the setting kafka {place} replaces it",
    "group.id": "a processor's group has the processor's name",
    "group.instance.id": "workers set their own names",
    "transactional.id": "workers set their own names",
    "enable.auto.commit": "checkpoints commit positions, and the guarantees depend on that",
    "enable.auto.offset.store": "checkpoints commit positions, and the guarantees depend on that",
    "auto.offset.reset": "workers never skip events silently; use --from-earliest",
    "enable.partition.eof": "workers need to detect the ends of buckets",
    "isolation.level": "aborted transactions must not be read",
    "enable.idempotence": "outputs would be duplicated or reordered",
    "acks": "outputs without replicas would count as written",
    "partitioner": "all writers must put a key into the same bucket; declare `partitioner` on the category instead",
    "group.protocol": "workers need the classic protocol, in which they keep their buckets over a restart and the inputs of a join move together",
    "group.remote.assignor": "workers need the classic protocol, in which they keep their buckets over a restart and the inputs of a join move together",
    **dict.fromkeys(
        ("error_cb", "stats_cb", "throttle_cb", "log_cb", "on_delivery", "logger"),
        "its value is a Python function, which a file cannot contain",
    ),
    "partition.assignment.strategy": "it depends on the processor's number of inputs",
}
"""Settings that would break guarantees, with the reason."""

_COMMON = [
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
    "oauth_cb",
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
"""Common settings of librdkafka, for suggestions; others are passed on, too."""


def kafka_settings(file: TomlFile, table: Keys = MAIN) -> dict[str, str]:
    """Return librdkafka's settings as text.

    Args:
        file: the configuration.
        table: the keys of the table with the settings.

    Raises:
        ConfigRefused: as in `checked_settings`, or a variable is not set.
    """
    return {
        name: str(resolve(value, file, (*table, name))) if isinstance(value, str) else str(value).lower()
        for name, value in checked_settings(file, table).items()
    }


def checked_settings(file: TomlFile, table: Keys = MAIN) -> dict[str, Any]:
    """Return librdkafka's settings in a table of the file, by full name.

    Raises:
        ConfigRefused: a value is a list or a date; or a setting would break a guarantee.
    """
    settings = settings_in_file(file, table)
    for name, value in settings.items():
        if name in _RESERVED:
            address = "at the top of the file" if table == MAIN else f"in [{'.'.join(table[:-1])}]"
            raise ConfigRefused(
                f"{file.place((*table, name))}: {name} cannot be set: {_RESERVED[name].format(place=address)}. Nothing was done. Remove it."
            )
        if not isinstance(value, (str, int, float)):
            raise ConfigRefused(
                f"{file.place((*table, name))}: {name} must be a string, a number, true or false. Nothing was done. Correct the file."
            )
    return settings


def settings_in_file(file: TomlFile, table: Keys = MAIN) -> dict[str, Any]:
    """Return librdkafka's settings in a table of the file, by full name.

    Raises:
        ConfigRefused: the key of that name is not a table.
    """
    content: Any = file.values
    for key in table:
        content = content.get(key, {})
    if not isinstance(content, Mapping):
        name = ".".join(table)
        raise ConfigRefused(
            f"{file.place(table)}: {name} must be a table. Nothing was done. Write [{name}] on a line of its own."
        )
    return dict(_flattened(content))


def with_place(file: TomlFile, refused: SettingsRefused, table: Keys = MAIN) -> ConfigRefused:
    """Return librdkafka's error about a setting, with its place in the file and a suggestion."""
    settings = settings_in_file(file, table)
    name = max((setting for setting in settings if setting in str(refused)), key=len, default=None)
    if name is None:
        return ConfigRefused(f"{file.place(table)}: {refused}")
    suggestion = "" if name in _COMMON else did_you_mean(name, _COMMON)
    return ConfigRefused(f"{file.place((*table, name))}: {refused}{suggestion}")


def _flattened(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", inner_value) for inner, inner_value in _flattened(value))
        else:
            yield name, value
