"""Local Kafka and HDFS start, keep their data, and restart."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from hdfs import InsecureClient

from penstock.ops.shell import LOOPBACK
from penstock.ops.start import Daemon, ServiceFailedError
from penstock.ops.start.dev_services.errors import JarsUnavailableError, JavaMissingError, JavaTooOldError
from penstock.ops.start.dev_services.service import ServiceStatus
from penstock.ops.start.dev_services.services import LocalServices, kafka_address, running_hdfs, running_kafka

LIMIT_S = 90.0


def say(line: str) -> None:
    """Include the progress in pytest's report of a failure."""
    print(line)  # noqa: T201 - pytest shows it when the test fails


def up(services: LocalServices, name: str) -> ServiceStatus:
    """Start a service; skip the test without Java or a download."""
    try:
        return services.up([name], say)[name]
    except (JavaMissingError, JavaTooOldError, JarsUnavailableError) as error:
        pytest.skip(str(error))


def status_of(services: LocalServices, name: str) -> ServiceStatus:
    """Return the status of one service."""
    return next(status for status in services.status() if status.name == name)


def kill(pid: int | None) -> None:
    """Kill one process, like a power failure."""
    process = psutil.Process(pid)
    process.kill()
    process.wait(LIMIT_S)


def write_event(bootstrap: str, value: bytes) -> None:
    """Write an event to bucket 0 of `water`, and create the category if it is missing."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if "water" not in admin.list_topics(timeout=LIMIT_S).topics:
        admin.create_topics([NewTopic("water", num_partitions=1)])["water"].result(LIMIT_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("water", value, partition=0)
    assert producer.flush(LIMIT_S) == 0


def read_event(bootstrap: str) -> bytes | None:
    """Read the first event of bucket 0 of `water`."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition("water", 0, 0)])
        message = consumer.poll(LIMIT_S)
        return None if message is None else message.value()
    finally:
        consumer.close()


@pytest.fixture
def services(tmp_path: Path) -> Iterator[LocalServices]:
    """A folder of services that stop at the end of the test."""
    owned = LocalServices(tmp_path)
    yield owned
    owned.down(["kafka", "hdfs"], say)


def test_kafka_keeps_events_and_address_across_a_restart(services: LocalServices) -> None:
    """Events written before `down` are read after `up`, with the same configuration."""
    first = up(services, "kafka")
    write_event(first.endpoints["bootstrap"], b"drop")
    services.down(["kafka"], say)
    stopped = status_of(services, "kafka")
    second = up(services, "kafka")

    assert (stopped.state, stopped.pid, stopped.endpoints) == ("stopped", None, first.endpoints)
    assert second.endpoints == first.endpoints
    assert read_event(second.endpoints["bootstrap"]) == b"drop"


def test_up_leaves_a_running_kafka_alone(services: LocalServices) -> None:
    """A second `up` changes nothing."""
    first = up(services, "kafka")
    again = up(services, "kafka")

    assert (again.pid, again.state) == (first.pid, "running")


def test_kafka_moves_with_its_events_when_its_port_is_taken(services: LocalServices) -> None:
    """A different port serves the same data."""
    first = up(services, "kafka").endpoints["bootstrap"]
    write_event(first, b"drop")
    services.down(["kafka"], say)
    with socket.create_server((LOOPBACK, int(first.rpartition(":")[2]))):
        second = up(services, "kafka").endpoints["bootstrap"]

        assert second != first
        assert read_event(second) == b"drop"


def test_a_killed_kafka_is_stale_and_restarts(services: LocalServices) -> None:
    """`status` reports the loss, and `up` restarts it with the same data at the same address."""
    first = up(services, "kafka")
    write_event(first.endpoints["bootstrap"], b"drop")
    kill(first.pid)
    lost = status_of(services, "kafka")
    second = up(services, "kafka")

    assert lost.state == "stale"
    assert second.endpoints == first.endpoints
    assert read_event(second.endpoints["bootstrap"]) == b"drop"


def test_commands_find_a_kafka_that_hangs(services: LocalServices, tmp_path: Path) -> None:
    """They report that it does not answer. After its death, they report that none runs."""
    started = up(services, "kafka")
    process = psutil.Process(started.pid)
    process.suspend()
    hanging = kafka_address(tmp_path)
    kill(started.pid)

    assert hanging == started.endpoints["bootstrap"]
    assert kafka_address(tmp_path) is None


def test_a_failed_start_of_kafka_is_explained(services: LocalServices, tmp_path: Path) -> None:
    """The error quotes Kafka's own reason and names its log; no process remains."""
    up(services, "kafka")
    services.down(["kafka"], say)
    (tmp_path / "kafka" / "data" / "meta.properties").write_text("version=1\ncluster.id=none\nnode.id=7\n")

    with pytest.raises(ServiceFailedError, match=r"(?s)kafka ended before it was ready.*Stored node id 7") as raised:
        services.up(["kafka"], say)
    assert str(tmp_path / "kafka" / "log") in str(raised.value)
    assert status_of(services, "kafka").state == "stopped"


def test_the_context_manager_runs_kafka_for_a_block(tmp_path: Path) -> None:
    """Its address answers within the block and not after it."""
    up(LocalServices(tmp_path), "kafka")
    with running_kafka(tmp_path) as bootstrap:
        write_event(bootstrap, b"drop")
        event = read_event(bootstrap)

    assert event == b"drop"
    assert status_of(LocalServices(tmp_path), "kafka").state == "stopped"


def test_concurrent_starts_of_kafka_share_one_process(services: LocalServices, tmp_path: Path) -> None:
    """The second start waits for the first and finds its Kafka."""
    found: list[ServiceStatus] = []
    other = threading.Thread(target=lambda: found.append(up(LocalServices(tmp_path), "kafka")))
    other.start()
    mine = up(services, "kafka")
    other.join(LIMIT_S * 3)

    assert [status.pid for status in found] == [mine.pid]


def test_hdfs_keeps_files_and_addresses_across_a_restart(services: LocalServices) -> None:
    """Files written before `down` are read after `up`, with the same configuration."""
    first = up(services, "hdfs")
    InsecureClient(first.endpoints["webhdfs"]).write("/river/water", b"drop")
    services.down(["hdfs"], say)
    stopped = status_of(services, "hdfs")
    second = up(services, "hdfs")
    with InsecureClient(second.endpoints["webhdfs"]).read("/river/water") as reader:
        content = reader.read()

    assert (stopped.state, stopped.pid) == ("stopped", None)
    assert first.endpoints["rpc"].startswith("hdfs://127.0.0.1:")
    assert second.endpoints == first.endpoints
    assert content == b"drop"


@pytest.mark.exhaustive
def test_up_restarts_only_the_lost_data_node(services: LocalServices, tmp_path: Path) -> None:
    """The NameNode stays, and writes succeed as soon as `up` returns."""
    first = up(services, "hdfs")
    kill(Daemon("HDFS DataNode", tmp_path / "hdfs" / "datanode").record().pid)
    lost = status_of(services, "hdfs")
    second = up(services, "hdfs")
    InsecureClient(second.endpoints["webhdfs"]).write("/water", b"drop")

    assert lost.state == "stale"
    assert (second.state, second.pid) == ("running", first.pid)


@pytest.mark.exhaustive
def test_the_context_manager_runs_hdfs_for_a_block(tmp_path: Path) -> None:
    """Its addresses answer within the block and not after it."""
    up(LocalServices(tmp_path), "hdfs")
    with running_hdfs(tmp_path) as endpoints:
        InsecureClient(endpoints["webhdfs"]).write("/water", b"drop")

    assert status_of(LocalServices(tmp_path), "hdfs").state == "stopped"
