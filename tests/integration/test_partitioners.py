"""Topics of real producers on Kafka: a count per key is right or refused under every partitioner."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support import plain
from support.cli import Cli

from penstock.transport.kafka import KafkaBus

USERS = 60
EVENTS = 600
BUCKETS = 6
PARTITIONERS = {"MURMUR2": "murmur2_random", "CONSISTENT": "consistent_random", "FNV1A": "fnv1a_random"}

APP = """
import penstock as ps

class Ride(ps.Record, frozen=True):
    user: int
    at: ps.EventTime

class Total(Ride, frozen=True):
    rides: int

rides = ps.Category("{prefix}.rides", Ride, key="user", event_time="at", buckets={buckets}, partitioner={partitioner}, key_codec={codec})
again = ps.Category("{prefix}.again", Ride, key="user", event_time="at", buckets={buckets} - 1)
totals = ps.Category("{prefix}.{name}", Total, key="user", event_time="at", buckets={buckets}, partitioner={partitioner}, key_codec={codec})

class Counting(ps.Stateful):
    name = "{prefix}.{name}"
    reads, writes, state = {reads}, totals, int
    output_semantics = ps.Semantics.EXACTLY_ONCE
    def process(self, event, state, context):
        return (state or 0) + 1, [Total(event.user, event.at, (state or 0) + 1)]

class Copy(ps.Repartition):
    name = "{prefix}.copy"
    reads, writes = rides, again
"""


def write_app(
    cli: Cli,
    prefix: str,
    partitioner: str,
    *,
    codec: str = "ps.KeyCodec.TEXT",
    buckets: int = BUCKETS,
    name: str = "totals",
    reads: str = "rides",
) -> Path:
    """Write the app, and create its missing categories."""
    path = cli.folder / "app.py"
    values = {
        "prefix": prefix,
        "name": name,
        "partitioner": partitioner,
        "codec": codec,
        "buckets": str(buckets),
        "reads": reads,
    }
    text = APP
    for field, value in values.items():
        text = text.replace("{" + field + "}", value)
    path.write_text(text)
    cli.ok("category", "create", "app.py")
    return path


def produce(kafka: str, topic: str, partitioner: str, messages: Iterable[tuple[bytes | None, bytes]]) -> None:
    """Write messages with a plain client."""
    producer = Producer({"bootstrap.servers": kafka, "partitioner": partitioner})
    for key, value in messages:
        producer.produce(topic, value, key)
    assert producer.flush(60) == 0


def rides(number: int = EVENTS) -> list[bytes]:
    """Return rides of users in turn, as JSON."""
    return [json.dumps({"user": n % USERS, "at": 1_700_000_000_000 + n}).encode() for n in range(number)]


def text_key(number: int) -> bytes:
    """Return a message key as text."""
    return str(number % USERS).encode()


def long_key(number: int) -> bytes:
    """Return a message key as Kafka's LongSerializer encodes it."""
    return struct.pack(">q", number % USERS)


def counts(kafka: str, topic: str) -> dict[int, int]:
    """Return the last count of each user. Every earlier count was written once."""
    found = [json.loads(value or b"") for _, _, value in plain.messages(kafka, topic)]
    result = Counter(total["user"] for total in found)
    assert len({(total["user"], total["rides"]) for total in found}) == len(found)
    assert all(max(t["rides"] for t in found if t["user"] == user) == count for user, count in result.items())
    return dict(result)


@pytest.mark.parametrize("written", PARTITIONERS)
def test_a_count_per_key_is_right_or_refused(written: str, cli: Cli, kafka: str, prefix: str) -> None:
    """It is right with the producer's partitioner, and refused with any other; outputs are where that producer would write them."""
    for declared in sorted(PARTITIONERS, key=lambda each: each != written):
        write_app(cli, prefix, f"ps.Partitioner.{declared}", name=declared.lower())
        if declared == written:
            events = rides()
            produce(kafka, f"{prefix}.rides", PARTITIONERS[written], [(text_key(n), events[n]) for n in range(EVENTS)])
            cli.ok("run", "app.py:Counting", "--until-end")
        else:
            done = cli("run", "app.py:Counting", "--until-end")
            assert done.returncode == 1
            assert f"declare `partitioner=ps.Partitioner.{written}` on {prefix}.rides" in " ".join(done.stderr.split())
    totals = plain.messages(kafka, f"{prefix}.{written.lower()}")
    control = {key: number for number, key, _ in plain.messages(kafka, f"{prefix}.rides")}

    assert counts(kafka, f"{prefix}.{written.lower()}") == dict.fromkeys(range(USERS), EVENTS // USERS)
    assert {key: number for number, key, _ in totals} == control
    assert len(set(control.values())) == BUCKETS


def test_integer_keys_of_a_default_client_are_counted(cli: Cli, kafka: str, prefix: str) -> None:
    """They have eight big-endian bytes, placed by librdkafka's default. If text keys are declared, the error names both declarations."""
    codec, partitioner = "ps.KeyCodec.INT64", "ps.Partitioner.CONSISTENT"
    write_app(cli, prefix, "ps.Partitioner.MURMUR2")
    events = rides()
    produce(kafka, f"{prefix}.rides", "consistent_random", [(long_key(n), events[n]) for n in range(EVENTS)])
    refused = cli("run", "app.py:Counting", "--until-end")
    write_app(cli, prefix, partitioner, codec=codec, name="right")
    cli.ok("run", "app.py:Counting", "--until-end")

    assert refused.returncode == 1
    assert f"declare `key_codec={codec}, partitioner={partitioner}`" in " ".join(refused.stderr.split())
    assert counts(kafka, f"{prefix}.right") == dict.fromkeys(range(USERS), EVENTS // USERS)
    control = {key: number for number, key, _ in plain.messages(kafka, f"{prefix}.rides")}
    assert {key: number for number, key, _ in plain.messages(kafka, f"{prefix}.right")} == control


def test_messages_without_keys_are_counted_after_a_repartition(cli: Cli, kafka: str, prefix: str) -> None:
    """A processor with state refuses them; a Repartition from an unknown partitioner gives them keys and buckets."""
    write_app(cli, prefix, "ps.Partitioner.CONSISTENT")
    produce(kafka, f"{prefix}.rides", "consistent_random", [(None, event) for event in rides()])
    refused = cli("run", "app.py:Counting", "--until-end")
    write_app(cli, prefix, "None", name="right", reads="again")
    cli.ok("run", "app.py", "--until-end")

    assert refused.returncode == 1
    assert "without a key" in " ".join(refused.stderr.split())
    assert counts(kafka, f"{prefix}.right") == dict.fromkeys(range(USERS), EVENTS // USERS)


@pytest.mark.parametrize("partitioner", [pytest.param("CONSISTENT", marks=pytest.mark.exhaustive), "FNV1A"])
def test_a_resized_category_keeps_the_counts_of_a_default_client(
    partitioner: str, cli: Cli, kafka: str, kafka_bus: KafkaBus, prefix: str
) -> None:
    """States move to the buckets where the plain client, and `category send`, write the later events."""
    events, name = rides(), f"{prefix}.rides"
    write_app(cli, prefix, f"ps.Partitioner.{partitioner}")
    produce(kafka, name, PARTITIONERS[partitioner], [(text_key(n), events[n]) for n in range(EVENTS)])
    cli.ok("run", "app.py", "--until-end")
    cli.ok("category", "resize", name, str(2 * BUCKETS), "--app", "app.py")
    kafka_bus.catalog.resize(f"{prefix}.totals", 2 * BUCKETS)
    kafka_bus.catalog.resize(f"{prefix}.again", 2 * BUCKETS - 1)
    produce(kafka, name, PARTITIONERS[partitioner], [(text_key(n), events[n]) for n in range(EVENTS)])
    write_app(cli, prefix, f"ps.Partitioner.{partitioner}", buckets=2 * BUCKETS)
    cli.ok("category", "send", name, "--app", "app.py", stdin=b"\n".join(events).decode())
    cli.ok("run", "app.py", "--until-end")

    assert counts(kafka, f"{prefix}.totals") == dict.fromkeys(range(USERS), 3 * EVENTS // USERS)
