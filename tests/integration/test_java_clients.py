"""Kafka's Java clients write what Penstock reads, and read what it writes: keys, buckets, headers, tombstones and transactions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from support.cli import Cli

from penstock.ops.start.dev_services.jars import fetch, pyspark_jar
from penstock.ops.start.dev_services.java import find_java
from penstock.ops.start.dev_services.kafka import JARS

APP = """
import penstock as ps

class Click(ps.Record, frozen=True):
    user: str
    at: ps.EventTime

class Total(Click, frozen=True):
    clicks: int

clicks = ps.Category("{prefix}.clicks", Click, key="user", event_time="at", buckets=8)
totals = ps.Category("{prefix}.totals", Total, key="user", event_time="at", buckets=5)

class Totals(ps.Stateful):
    name = "{prefix}.count"
    reads, writes, state = clicks, totals, int
    output_semantics = ps.Semantics.EXACTLY_ONCE
    trace_context = True

    def process(self, event, state, context):
        count = (state or 0) + 1
        return count, [Total(event.user, event.at, count)]
"""
USERS, CLICKS, BUCKETS_OUT = 100, 300, 5
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
STRINGS = "org.apache.kafka.common.serialization.String"


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """A Java process with Kafka's clients on its classpath."""
    runtime = find_java()
    jars = fetch(JARS, runtime, lambda _: None)
    port, token = launch_gateway(
        jarpath=str(pyspark_jar("py4j")),
        classpath=f"{jars}/*",
        java_path=str(runtime.path),
        die_on_exit=True,
        enable_auth=True,
        return_proc=False,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    yield gateway.jvm
    gateway.shutdown()


def properties(java: Any, **settings: object) -> Any:
    """Return the settings of a client."""
    found = java.java.util.Properties()
    for name, value in settings.items():
        found.setProperty(name.replace("_", "."), str(value))
    return found


def produced(java: Any, kafka: str, topic: str, prefix: str) -> Counter[str]:
    """Write clicks, some of them in a transaction that is aborted; return the committed ones by user."""
    settings = properties(
        java,
        bootstrap_servers=kafka,
        key_serializer=f"{STRINGS}Serializer",
        value_serializer=f"{STRINGS}Serializer",
        transactional_id=f"{prefix}.java",
        compression_type="lz4",
    )
    producer = java.org.apache.kafka.clients.producer.KafkaProducer(settings)
    record_of = java.org.apache.kafka.clients.producer.ProducerRecord
    producer.initTransactions()
    committed = Counter[str]()
    for attempt in range(3):
        producer.beginTransaction()
        for number in range(attempt * CLICKS // 3, (attempt + 1) * CLICKS // 3):
            user = f"üser-{number % USERS}"
            record = record_of(topic, user, f'{{"user":"{user}","at":{1_700_000_000_000 + number}}}')
            record.headers().add("traceparent", TRACE.encode())
            producer.send(record)
            committed[user] += attempt != 1
        producer.abortTransaction() if attempt == 1 else producer.commitTransaction()
    producer.close()
    return +committed


def consumed(java: Any, kafka: str, topic: str, count: int) -> Iterator[Any]:
    """Yield committed records."""
    settings = properties(
        java,
        bootstrap_servers=kafka,
        key_deserializer=f"{STRINGS}Deserializer",
        value_deserializer=f"{STRINGS}Deserializer",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        group_id=f"{topic}.java",
    )
    consumer = java.org.apache.kafka.clients.consumer.KafkaConsumer(settings)
    consumer.subscribe([topic])
    found = 0
    for _ in range(60):
        records = consumer.poll(java.java.time.Duration.ofSeconds(1)).iterator()
        while records.hasNext():
            found += 1
            yield records.next()
        if found >= count:
            break
    consumer.close()


def bucket_of(java: Any, key: str, buckets: int) -> int:
    """Return the partition of a key for Kafka's default partitioner."""
    utils = java.org.apache.kafka.common.utils.Utils
    return int(utils.toPositive(utils.murmur2(key.encode())) % buckets)


def test_java_clients_and_penstock_read_each_other(java: Any, cli: Cli, kafka: str, prefix: str) -> None:
    """Each key is in the bucket where both expect it; what a transaction aborts is invisible; headers pass through."""
    (cli.folder / "app.py").write_text(APP.replace("{prefix}", prefix))
    cli.ok("category", "create", "app.py")
    truth = produced(java, kafka, f"{prefix}.clicks", prefix)
    cli.ok("run", "app.py:Totals", "--until-end")

    counts: defaultdict[str, list[str]] = defaultdict(list)
    for record in consumed(java, kafka, f"{prefix}.totals", sum(truth.values())):
        assert record.partition() == bucket_of(java, record.key(), BUCKETS_OUT)
        assert bytes(record.headers().lastHeader("traceparent").value()).decode() == TRACE
        counts[record.key()].append(record.value())
    assert {user: len(values) for user, values in counts.items()} == dict(truth)
    for user, values in counts.items():
        assert [f'"clicks":{number}' in value for number, value in enumerate(values, 1)] == [True] * truth[user]
