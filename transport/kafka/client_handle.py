"""The handle of a Kafka client, with which functions of librdkafka are called that the client's package does not offer.

configuration that names plugin.so --Consumer, Producer--> librdkafka --a new client--> plugin.c --handle--> ColumnQueue, SendingPause

The package keeps the handle in an object whose layout it may change. Plugins are librdkafka's public way to a new client.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import cimpl, libversion, version

from ...processors import library_obstacle
from ..errors import SettingsRefused
from .error_translation import open_client

_LOG = logging.getLogger("penstock.kafka")

LIBRARY = Path(__file__).with_name("plugin.so")
"""The compiled `plugin.c`; built at the installation if there is a C compiler."""

VARIABLE = "PENSTOCK_KAFKA_NATIVE"
"""The environment variable that turns calls of librdkafka off."""

_PLUGINS = "plugin.library.paths"
_IS_ON = {
    "": True,
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}
_ERROR_BYTES = 512

_Client = TypeVar("_Client")


def open_with_handle(
    kind: Callable[[dict[str, Any]], _Client], configuration: dict[str, Any], request: str
) -> tuple[_Client, int | None]:
    """Return a new client and its rd_kafka_t, which is valid as long as the client; None where it is not available.

    Args:
        kind: the class of the client.
        configuration: its settings.
        request: its purpose, as the start of a sentence.

    Raises:
        SettingsRefused: the client rejects a setting, or the environment variable has no meaning.
    """
    plugin = load_plugin() if is_native(request) else None
    if plugin is None:
        return open_client(kind, configuration, request), None
    plugin.penstock_plugin_take()  # a client that failed to open
    paths = ";".join(filter(None, [configuration.get(_PLUGINS), str(LIBRARY)]))
    client = open_client(kind, {**configuration, _PLUGINS: paths}, request)
    handle: int | None = plugin.penstock_plugin_take()
    return client, handle


def is_native(request: str) -> bool:
    """Return whether functions of librdkafka may be called.

    Raises:
        SettingsRefused: the environment variable has no meaning.
    """
    value = os.environ.get(VARIABLE, "")
    is_on = _IS_ON.get(value.lower())
    if is_on is None:
        raise SettingsRefused(
            f"{request}: the environment variable {VARIABLE} is {value}. No request was sent. Set it to 0, or remove it."
        )
    return is_on


def handle_obstacle() -> str | None:
    """Return why new clients have no handle; None if they have one."""
    value = os.environ.get(VARIABLE, "")
    is_on = _IS_ON.get(value.lower())
    if is_on is None:
        return f"{VARIABLE} is {value}, which has no meaning, and Kafka commands refuse it: set it to 0, or remove it"
    if not is_on:
        return f"turned off by {VARIABLE}={value}"
    obstacle = library_obstacle(LIBRARY)
    refusal = _refusal(_declared_plugin()) if obstacle is None else None
    return obstacle if refusal is None else f"{client_versions()} does not accept plugins ({refusal})"


@cache
def load_plugin() -> ctypes.CDLL | None:
    """Return the compiled `plugin.c`; None where it was not compiled, or the client refuses it, which is logged."""
    if library_obstacle(LIBRARY) is not None:
        return None
    plugin = _declared_plugin()
    refusal = _refusal(plugin)
    if refusal is None:
        return plugin
    _LOG.warning(
        "%s does not accept plugins (%s). Messages are read one by one, which takes more than twice the CPU time; no data is affected. "
        "Install the wheel of confluent-kafka, which contains librdkafka.",
        client_versions(),
        refusal,
    )
    return None


def _declared_plugin() -> ctypes.CDLL:
    plugin = ctypes.CDLL(str(LIBRARY))
    plugin.penstock_plugin_begin.argtypes = [ctypes.c_void_p]
    plugin.penstock_plugin_begin.restype = None
    plugin.penstock_plugin_take.argtypes = []
    plugin.penstock_plugin_take.restype = ctypes.c_void_p
    return plugin


def client_versions() -> str:
    """Return the versions of the client, for messages."""
    return f"confluent-kafka {version()} with librdkafka {libversion()[0]}"


def _refusal(plugin: ctypes.CDLL) -> str | None:
    """Return why no client can load the plugin; None if clients can."""
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    try:
        rdkafka = ctypes.CDLL(cimpl.__file__)
        add_on_new = rdkafka.rd_kafka_conf_interceptor_add_on_new
        new, put, destroy = rdkafka.rd_kafka_conf_new, rdkafka.rd_kafka_conf_set, rdkafka.rd_kafka_conf_destroy
    except (OSError, AttributeError) as error:
        return str(error)
    new.restype, new.argtypes = pointer, []
    put.restype, put.argtypes = ctypes.c_int, [pointer, text, text, text, ctypes.c_size_t]
    destroy.restype, destroy.argtypes = None, [pointer]
    plugin.penstock_plugin_begin(ctypes.cast(add_on_new, pointer))
    configuration, reason = new(), ctypes.create_string_buffer(_ERROR_BYTES)
    is_accepted = put(configuration, _PLUGINS.encode(), os.fsencode(LIBRARY), reason, len(reason)) == 0
    destroy(configuration)
    return None if is_accepted else reason.value.decode(errors="replace")
