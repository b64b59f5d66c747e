"""`[clusters.NAME]`: further Kafka clusters, with the same two settings as the main one.

[clusters.orders]
kafka = "broker-3:9093"

[clusters.orders.kafka-settings]
security.protocol = "SASL_SSL"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....processors import did_you_mean
from . import kafka_table
from .errors import ConfigRefused
from .toml_file import Keys, TomlFile
from .variables import resolve

TABLE = "clusters"
ADDRESS = "kafka"
_KNOWN = (ADDRESS, kafka_table.TABLE)


def checked_clusters(file: TomlFile) -> Mapping[str, str]:
    """Return the addresses of the clusters in the file, as written, by name.

    Raises:
        ConfigRefused: a key is unknown, a value has the wrong type, an address is missing, or a setting of librdkafka is refused.
    """
    clusters = file.values.get(TABLE, {})
    for name, cluster in clusters.items():
        _check(file, name, cluster)
    return {name: cluster[ADDRESS] for name, cluster in clusters.items()}


def settings_keys(name: str) -> Keys:
    """Return the keys of the table with a cluster's settings of librdkafka."""
    return (TABLE, name, kafka_table.TABLE)


def _check(file: TomlFile, name: str, cluster: Any) -> None:
    from ....processors.declare import LEGAL_CLUSTER  # noqa: PLC0415 - imports all declarations

    place, table = file.place((TABLE, name)), f"[{TABLE}.{name}]"
    if not LEGAL_CLUSTER.fullmatch(name):
        raise ConfigRefused(
            f"{place}: the name of cluster {name!r} is invalid. Nothing was done. Use letters, digits, '_' and '-'."
        )
    if not isinstance(cluster, Mapping):
        raise ConfigRefused(
            f"{place}: {name} in [{TABLE}] must be a table, not a value. Nothing was done. Write {table} on a line of its own."
        )
    for key in cluster:
        if key not in _KNOWN:
            known = did_you_mean(key, _KNOWN) or f" Known names: {', '.join(_KNOWN)}."
            raise ConfigRefused(
                f"{file.place((TABLE, name, key))}: unknown setting {key} in {table}.{known} Nothing was done."
            )
    if not isinstance(cluster.get(ADDRESS), str):
        raise ConfigRefused(
            f'{place}: {table} needs the address of the cluster. Nothing was done. Write {ADDRESS} = "HOST:PORT".'
        )
    kafka_table.checked_settings(file, settings_keys(name))


def address_of(file: TomlFile, name: str, user: str) -> str:
    """Return the address of a cluster.

    Args:
        file: the configuration.
        name: the name of the cluster.
        user: who names it, as the start of a sentence.

    Raises:
        ConfigRefused: the configuration has no such cluster, or a variable is not set.
    """
    known = checked_clusters(file)
    if name not in known:
        source = "no configuration was found" if file.path is None else f"{file.path} has no table [{TABLE}.{name}]"
        raise ConfigRefused(
            f"{user} cluster {name}, and {source}.{did_you_mean(name, known)} Nothing was done. Add [{TABLE}.{name}] with "
            f'{ADDRESS} = "HOST:PORT" to penstock.toml, or name the file with --config.'
        )
    address: str = resolve(known[name], file, (TABLE, name, ADDRESS))
    return address
