"""The handle of a Kafka client: which client it belongs to, and what happens without it."""

from __future__ import annotations

import ctypes
import logging
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, cimpl

from penstock.transport import SettingsRefused
from penstock.transport.kafka import client_handle, column_queue
from penstock.transport.kafka.client_handle import VARIABLE, load_plugin, open_with_handle
from penstock.transport.kafka.column_queue import load_library, open_column_queue

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}


def name_of(handle: int | None) -> str:
    """Return the name that librdkafka gave a client."""
    name = ctypes.CDLL(cimpl.__file__).rd_kafka_name
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    found: bytes = name(handle)
    return found.decode().partition("#")[0]


def opened(kind: Any = Consumer, **configuration: Any) -> tuple[Any, int | None]:
    return open_with_handle(kind, NOWHERE | configuration, "The test")


@pytest.fixture(autouse=True)
def _loaded_again() -> Iterator[None]:
    """Load the libraries for each test as in a new process."""
    for loaded in (load_plugin, load_library):
        loaded.cache_clear()
    yield
    for loaded in (load_plugin, load_library):
        loaded.cache_clear()


@pytest.mark.parametrize("kind", [Consumer, Producer])
def test_each_client_has_its_own_handle(kind: Any) -> None:
    """Clients that several threads open have their own handles, too."""
    found: dict[str, tuple[Any, int | None]] = {}

    def open_one(name: str) -> None:
        found[name] = opened(kind, **{"client.id": name})

    threads = [threading.Thread(target=open_one, args=(f"client-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [name_of(handle) for _, handle in found.values()] == list(found)
    assert len(found) == len(threads)


def test_a_client_that_failed_to_open_leaves_no_handle() -> None:
    """A client without the plugin does not get the handle of an earlier client."""
    with pytest.raises(SettingsRefused):
        opened(**{"client.id": "failed", "security.protocol": "ssl", "ssl.ca.location": "/missing"})
    _, handle = opened(**{"client.id": "next"})

    assert name_of(handle) == "next"


def test_plugins_of_the_configuration_are_kept(tmp_path: Path) -> None:
    """Both are loaded; the client would fail to open otherwise."""
    with pytest.raises(SettingsRefused, match="missing"):
        opened(**{"plugin.library.paths": str(tmp_path / "missing")})
    other = str(shutil.copy(client_handle.LIBRARY, tmp_path / "other.so"))
    ctypes.CDLL(other).penstock_plugin_begin(
        ctypes.cast(ctypes.CDLL(cimpl.__file__).rd_kafka_conf_interceptor_add_on_new, ctypes.c_void_p)
    )
    _, handle = opened(**{"plugin.library.paths": other, "client.id": "both"})

    assert name_of(handle) == "both"


@pytest.mark.parametrize("value", ["0", "false", "OFF"])
def test_the_variable_turns_calls_of_the_library_off(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """The client is opened as it is, and has no column queue."""
    monkeypatch.setenv(VARIABLE, value)
    consumer, handle = opened()

    assert handle is None
    assert open_column_queue(consumer, handle, 10) is None


def test_a_value_without_a_meaning_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be taken for the opposite value."""
    monkeypatch.setenv(VARIABLE, "never")
    with pytest.raises(SettingsRefused, match=f"{VARIABLE} is never"):
        opened()


def test_a_client_that_accepts_no_plugin_is_opened_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so once, with the consequence. A path with a semicolon stands for two plugins."""
    folder = tmp_path / "a;b"
    folder.mkdir()
    monkeypatch.setattr(client_handle, "LIBRARY", Path(shutil.copy(client_handle.LIBRARY, folder / "plugin.so")))
    handles = [handle for _, handle in (opened(), opened())]

    assert handles == [None, None]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert client_handle.client_versions() in record.message
    assert "one by one" in record.message


def test_a_version_that_was_not_tested_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once, with its cost: bytes around values are not read."""
    caplog.set_level(logging.INFO, "penstock.kafka")
    tested = load_library()
    load_library.cache_clear()
    monkeypatch.setattr(column_queue, "VALUES_IN_RECORDS", frozenset({"0.0.1"}))
    untested = [load_library(), load_library()][0]

    assert tested is not None
    assert untested is not None
    assert (tested.client.are_values_in_records, untested.client.are_values_in_records) == (1, 0)
    (record,) = caplog.records
    assert client_handle.client_versions() in record.message
    assert "50 ns" in record.message
