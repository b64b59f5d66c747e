"""Addresses with an open bracket or an impossible port are refused where a user names them, with what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.errors import PenstockError
from penstock.ops.serve import QueryClient
from penstock.ops.status.alerts.heartbeat import Heartbeat
from penstock.ops.status.alerts.notifications import Webhook
from penstock.state import is_http_address, split_address
from penstock.state.files import open_file_store
from penstock.state.files.s3_files import S3Files
from penstock.state.http_exchange import refusal_of
from penstock.state.remote.addresses import address_of
from penstock.transport.codecs import AVRO, RegistryClient, SchemaRegistry
from penstock.transport.kafka import KafkaSettings


class Row(ps.Record, frozen=True):
    """A row."""

    user: str


OPENED: dict[str, Callable[[str], Any]] = {
    "backups": lambda host: open_file_store(f"hdfs://{host}/backups"),
    "WebHDFS": lambda host: open_file_store("hdfs://name-node/backups", f"http://{host}"),
    "warehouse on S3": lambda host: S3Files(f"s3://{host}/warehouse"),
    "HTTP sink": lambda host: ps.sinks.HttpSink(f"http://{host}/rows", Row).open(),
    "heartbeat": lambda host: Heartbeat(f"https://{host}", lambda: 0.0),
    "webhook": lambda host: Webhook(f"https://{host}"),
    "query server": lambda host: QueryClient(f"http://{host}"),
    "schema registry": lambda host: RegistryClient(SchemaRegistry(f"http://{host}"), AVRO),
    "remote store": lambda host: address_of(f"redis://{host}/0"),
    "Kafka": KafkaSettings,
}


@pytest.mark.parametrize("place", OPENED)
def test_an_open_bracket_is_refused(place: str) -> None:
    """An IPv6 address has one whose end was cut off. The parser of the standard library raises an error without the place."""
    with pytest.raises(PenstockError, match=r"valid|incomplete|bracket|no address|not the address"):
        OPENED[place]("[::1")


@pytest.mark.parametrize("place", ["backups", "WebHDFS", "HTTP sink", "heartbeat", "webhook", "query server", "Kafka"])
def test_an_impossible_port_is_refused(place: str) -> None:
    """Before a request, which would be repeated as in an outage."""
    with pytest.raises(PenstockError, match=r"valid|port|no address"):
        OPENED[place]("host:99999")


def test_a_sink_at_no_address_has_a_name() -> None:
    """Messages contain it, and the address may be a secret."""
    assert ps.sinks.HttpSink("http://[secret", Row).name == "HTTP endpoint with an invalid address"


def test_an_address_of_ipv6_is_whole() -> None:
    """The default of WebHDFS keeps the brackets."""
    parts = split_address("hdfs://[::1]:8020/backups")

    assert parts is not None
    assert (parts.hostname, parts.port) == ("::1", 8020)
    assert is_http_address("http://[::1]:9870")
    assert "http://[::1]:9870" in repr(vars(open_file_store("hdfs://[::1]:8020/backups")))


def test_a_redirect_to_no_address_is_described() -> None:
    """A server wrote it, so no error of the parser may leave the exchange."""
    assert refusal_of(302, "Found", "http://host/", "http://[::1") == (
        "status 302, a redirect to no address, which is not followed"
    )
