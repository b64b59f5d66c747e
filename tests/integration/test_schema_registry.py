"""All formats of a schema registry on Kafka: with passwords, TLS, compatibility checks, and clients in Python and Java."""

from __future__ import annotations

import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from support import plain
from support.cli import Cli

pytest.importorskip("confluent_kafka.schema_registry.protobuf", reason="needs penstock[registry,protobuf]")

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.protos import compiled, generate
from support.registry_server import PASSWORD, USER, RegistryServer, registry_server

from penstock.ops.start.dev_services.jars import cache_folder, pyspark_jars
from penstock.ops.start.dev_services.java import find_java

BUCKETS = 4
EVENTS, USERS = 120, 12
PROTO = """
syntax = "proto3";
package market;
import "google/protobuf/timestamp.proto";
message Order { string id = 1; google.protobuf.Timestamp at = 2; int64 cents = 3; string shop = 4; }
message Total { string id = 1; google.protobuf.Timestamp at = 2; int64 cents = 3; }
message Key { string id = 1; }
"""
APP = """
import os
import penstock as ps
from penstock import codecs
{imports}

registry = codecs.SchemaRegistry(os.environ["REGISTRY"], "ann", os.environ["REGISTRY_PASSWORD"], ca=os.environ.get("REGISTRY_CA"))

class Order(ps.Record, frozen=True):
    id: str
    at: ps.EventTime
    cents: int

class Total(ps.Record, frozen=True):
    id: str
    at: ps.EventTime
    cents: {cents}

orders = ps.Category("{prefix}.orders", Order, key="id", event_time="at", buckets=4, codec={orders}, key_codec={keys})
totals = ps.Category("{prefix}.totals", Total, key="id", event_time="at", buckets=4, codec={totals}, key_codec={keys})

class Totals(ps.Stateful):
    name = "{prefix}.totals"
    reads, writes, state = orders, totals, int
    output_semantics = ps.Semantics.EXACTLY_ONCE
    def process(self, event, state, context):
        cents = (state or 0) + event.cents
        return cents, [Total(event.id, event.at, {type}(cents))]
"""
AVRO_ORDER = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "string"}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "cents", "type": "long"}, {"name": "shop", "type": "string"}]}"""
JSON_ORDER = """{"title": "Order", "type": "object", "properties": {
    "id": {"type": "string"}, "at": {"type": "integer"}, "cents": {"type": "integer"}, "shop": {"type": "string"}}}"""


@dataclass(frozen=True)
class Kind:
    """A format: the codecs in an app, and Confluent's serializers.

    Args:
        codecs: the codecs of orders, totals and keys.
        clients: returns the serializers of orders and keys, and the deserializers of totals and keys.
        changed: what the error contains if the type of `cents` is now text.
    """

    codecs: tuple[str, str, str]
    clients: Callable[[SchemaRegistryClient, Any], tuple[Any, Any, Any, Any]]
    changed: tuple[str, str]


def of_avro(client: SchemaRegistryClient, shop: Any) -> tuple[Any, Any, Any, Any]:
    read = AvroDeserializer(client)
    keys = AvroSerializer(client, '{"type": "string"}')
    return AvroSerializer(client, AVRO_ORDER), keys, read, read


def of_json(client: SchemaRegistryClient, shop: Any) -> tuple[Any, Any, Any, Any]:
    keys = JSONSerializer('{"type": "string"}', client)
    read = JSONDeserializer(None, schema_registry_client=client)
    return JSONSerializer(JSON_ORDER, client), keys, read, read


def of_protobuf(client: SchemaRegistryClient, shop: Any) -> tuple[Any, Any, Any, Any]:
    orders, keys = ProtobufSerializer(shop.Order, client), ProtobufSerializer(shop.Key, client)
    read_totals = ProtobufDeserializer(shop.Total, schema_registry_client=client)
    read_keys = ProtobufDeserializer(shop.Key, schema_registry_client=client)

    def order_of(fields: dict[str, Any]) -> Any:
        message = shop.Order(id=fields["id"], cents=fields["cents"], shop=fields["shop"])
        message.at.FromMilliseconds(fields["at"])
        return message

    return (
        lambda fields, context: orders(order_of(fields), context),
        lambda key, context: keys(shop.Key(id=key), context),
        lambda value, context: {"id": (total := read_totals(value, context)).id, "cents": total.cents},
        lambda key, context: read_keys(key, context).id,
    )


def messages_of(name: str) -> tuple[str, str, str]:
    return tuple(f"codecs.ConfluentProtobuf({name}.{each}, registry)" for each in ("Order", "Total", "Key"))  # type: ignore[return-value]  # three


KINDS = {
    "avro": Kind(
        ("codecs.ConfluentAvro(registry)",) * 3, of_avro, ('-      "type": "long"', '+      "type": "string"')
    ),
    "json": Kind(
        ("codecs.ConfluentJson(registry)",) * 3, of_json, ('-      "type": "integer"', '+      "type": "string"')
    ),
    "protobuf": Kind(messages_of("registry_shop_pb2"), of_protobuf, ("-  int64 cents = 3", "+  string cents = 3")),
}


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The module that protoc generates."""
    return compiled(tmp_path_factory.mktemp("protos"), registry_shop=PROTO)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RegistryServer]:
    """A registry with TLS and a password."""
    with registry_server(tmp_path) as server:
        yield server


@pytest.fixture
def penstock(cli: Cli, registry: RegistryServer) -> Cli:
    """The command line with the registry in its environment, and generated modules in its folder."""
    cli.environment |= {
        "REGISTRY": registry.url,
        "REGISTRY_PASSWORD": PASSWORD,
        "REGISTRY_CA": str(registry.authority),
    }
    changed = PROTO.replace("int64 cents = 3; }", "string cents = 3; }")
    generate(cli.folder, {"registry_shop.proto": PROTO})
    generate(cli.folder, {"changed_shop.proto": changed})
    return cli


def write_app(cli: Cli, prefix: str, codecs: tuple[str, str, str], cents: str = "int") -> None:
    """Write the app."""
    imports = "import changed_shop_pb2" if "changed" in codecs[0] else "import registry_shop_pb2"
    orders, totals, keys = codecs
    parts = {"imports": imports, "prefix": prefix, "orders": orders, "totals": totals, "keys": keys}
    text = APP
    for name, part in {**parts, "cents": cents, "type": cents}.items():
        text = text.replace("{" + name + "}", part)
    (cli.folder / "app.py").write_text(text)


def client_of(registry: RegistryServer) -> SchemaRegistryClient:
    """Return Confluent's client of the registry."""
    settings = {"url": registry.url, "basic.auth.user.info": f"{USER}:{PASSWORD}"}
    return SchemaRegistryClient(
        {**settings, **({"ssl.ca.location": str(registry.authority)} if registry.authority else {})}
    )


def produce(kafka: str, topic: str, serializers: tuple[Any, Any], first: int = 0) -> None:
    """Write orders of users in turn with Confluent's serializers."""
    write_value, write_key = serializers
    producer = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2_random"})
    for number in range(first, first + EVENTS):
        order = {"id": f"u{number % USERS}", "at": 1_700_000_000_000 + number, "cents": number, "shop": "web"}
        value = write_value(order, SerializationContext(topic, MessageField.VALUE))
        producer.produce(topic, value, write_key(order["id"], SerializationContext(topic, MessageField.KEY)))
    assert producer.flush(60) == 0


def truth(events: int) -> dict[str, int]:
    """Return the total of each user."""
    totals = Counter[str]()
    for number in range(events):
        totals[f"u{number % USERS}"] += number
    return dict(totals)


def written_totals(kafka: str, topic: str, deserializers: tuple[Any, Any]) -> dict[str, int]:
    """Return the last total of each user. Every earlier total was written once, under the key of its user."""
    read_value, read_key = deserializers
    found: dict[str, list[int]] = defaultdict(list)
    for _, key, value in plain.messages(kafka, topic):
        total = read_value(value, SerializationContext(topic, MessageField.VALUE))
        assert read_key(key, SerializationContext(topic, MessageField.KEY)) == total["id"]
        found[total["id"]].append(int(total["cents"]))
    assert all(totals == sorted(totals) for totals in found.values())
    return {user: totals[-1] for user, totals in found.items()}


def buckets_of_keys(kafka: str, topic: str) -> dict[bytes | None, int]:
    """Return the bucket of each key, without the schema id."""
    return {key and key[5:]: number for number, key, _ in plain.messages(kafka, topic)}


def words(text: str) -> str:
    """Return a text without line breaks."""
    return " ".join(text.split())


@pytest.mark.parametrize("kind", KINDS)
def test_messages_of_confluents_serializers_are_counted(
    kind: str, penstock: Cli, kafka: str, prefix: str, registry: RegistryServer, shop: Any
) -> None:
    """Values and keys are in the registry's format, over TLS with a password. Each is requested once. Confluent's clients read totals."""
    write_app(penstock, prefix, KINDS[kind].codecs)
    write_value, write_key, read_value, read_key = KINDS[kind].clients(client_of(registry), shop)
    # A reader creates the topics; the keys of both topics have the producer's schema.
    penstock.ok("category", "create", "app.py")
    produce(kafka, f"{prefix}.orders", (write_value, write_key))
    registry.requests.clear()

    penstock.ok("run", "app.py", "--until-end")
    repeated = [request for request, count in Counter(registry.requests).items() if count > 1]

    assert written_totals(kafka, f"{prefix}.totals", (read_value, read_key)) == truth(EVENTS)
    assert registry.requests
    assert repeated == []
    assert {f"{prefix}.totals-key", f"{prefix}.totals-value"} <= set(registry.subjects)
    assert buckets_of_keys(kafka, f"{prefix}.totals").keys() == buckets_of_keys(kafka, f"{prefix}.orders").keys()


@pytest.mark.parametrize("kind", KINDS)
def test_an_incompatible_change_is_refused_before_the_first_event(
    kind: str, penstock: Cli, kafka: str, prefix: str, registry: RegistryServer, shop: Any
) -> None:
    """The error shows the difference to the registered schema. The worker continues where it was, once the change is undone."""
    write_app(penstock, prefix, KINDS[kind].codecs)
    write_value, write_key, read_value, read_key = KINDS[kind].clients(client_of(registry), shop)
    penstock.ok("category", "create", "app.py")
    produce(kafka, f"{prefix}.orders", (write_value, write_key))
    penstock.ok("run", "app.py", "--until-end")
    produce(kafka, f"{prefix}.orders", (write_value, write_key), first=EVENTS)
    before = len(plain.messages(kafka, f"{prefix}.totals"))
    changed = tuple(codec.replace("registry_shop_pb2", "changed_shop_pb2") for codec in KINDS[kind].codecs)

    write_app(penstock, prefix, changed, cents="str")  # type: ignore[arg-type]  # three
    refused = penstock("run", "app.py", "--until-end")

    assert refused.returncode == 1
    assert "does not accept the schema" in words(refused.stderr)
    assert "incompatible with an earlier schema" in words(refused.stderr)
    assert "Traceback" not in refused.stderr
    for line in KINDS[kind].changed:
        assert line in refused.stderr
    assert len(plain.messages(kafka, f"{prefix}.totals")) == before
    write_app(penstock, prefix, KINDS[kind].codecs)
    penstock.ok("run", "app.py", "--until-end")
    assert written_totals(kafka, f"{prefix}.totals", (read_value, read_key)) == truth(2 * EVENTS)


def test_a_wrong_password_and_an_unknown_certificate_are_explained(
    penstock: Cli, prefix: str, registry: RegistryServer
) -> None:
    """The errors name the setting. The password is in no output."""
    write_app(penstock, prefix, KINDS["avro"].codecs)
    penstock.ok("category", "create", "app.py")
    wrong = penstock("run", "app.py", "--until-end", REGISTRY_PASSWORD="wrong-of-the-tests")  # noqa: S106 - wrong on purpose
    del penstock.environment["REGISTRY_CA"]
    distrusted = penstock("run", "app.py", "--until-end")

    assert wrong.returncode == distrusted.returncode == 1
    assert "refuses the password of 'ann'" in words(wrong.stderr)
    assert "Declare `user` and `password` of the SchemaRegistry" in words(wrong.stderr)
    assert "certificate is not trusted" in words(distrusted.stderr)
    assert "as `ca` of the SchemaRegistry" in words(distrusted.stderr)
    for done in (wrong, distrusted):
        assert "Nothing was written" in words(done.stderr)
        assert "Traceback" not in done.stderr
        assert not {"wrong-of-the-tests", PASSWORD} & set(words(done.stderr).replace(":", " ").split())
    assert not registry.subjects


def java(*arguments: str) -> str:
    """Run the producer or the consumer in Java, and return its output."""
    source = Path(__file__).parents[1] / "support" / "java" / "RegistryClients.java"
    spark = pyspark_jars()
    avro = [*spark.glob("avro-1.*.jar")]
    kafka = cache_folder() / "jars" / "kafka-4.3.0"
    classes = ":".join(map(str, [*sorted(kafka.glob("*.jar")), *avro]))
    command = [str(find_java().path), "-cp", classes, str(source), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_java_producer_is_counted_and_a_java_consumer_reads_the_totals(
    cli: Cli, kafka: str, prefix: str, tmp_path: Path
) -> None:
    """It writes Avro keys and Protobuf values, placed by Kafka's Java client, and registers the text of its schemas."""
    with registry_server() as registry:
        cli.environment |= {"REGISTRY": registry.url, "REGISTRY_PASSWORD": PASSWORD}
        generate(cli.folder, {"registry_shop.proto": PROTO})
        orders, totals, _ = KINDS["protobuf"].codecs
        write_app(cli, prefix, (orders, totals, "codecs.ConfluentAvro(registry)"))
        cli.ok("category", "create", "app.py")
        place = (kafka, registry.url, f"{USER}:{PASSWORD}")
        proto = str(cli.folder / "registry_shop.proto")
        java("produce", *place, f"{prefix}.orders", proto, str(EVENTS), str(USERS))
        cli.ok("run", "app.py", "--until-end")
        lines = [line.split("\t") for line in java("consume", *place, f"{prefix}.totals").splitlines()]

    last = {key: int(cents) for key, _, _, cents, _ in sorted(lines, key=lambda line: int(line[3]))}
    assert last == {f"k{user[1:]}": total for user, total in truth(EVENTS).items()}
    assert len(lines) == EVENTS
    assert {(message, key == user) for key, message, user, _, _ in lines} == {("market.Total", True)}
    control = {key: number for key, number in buckets_of_keys(kafka, f"{prefix}.orders").items() if key}
    assert {key[1:].decode() for key in control} == set(last)


COUNTING = """
import penstock as ps
from inferred import *

class Sum(ps.Record, frozen=True):
    id: str
    at: ps.EventTime
    cents: int

class Sums(ps.Stateful[{record}, int, Sum]):
    name = "{prefix}.sums"
    reads = {category}
    writes = ps.Category("{prefix}.sums", Sum, key="id", event_time="at", buckets=4)
    state = int
    def process(self, event, state, context):
        after = (state or 0) + event.cents
        return after, [Sum(event.id, context.event_time, after)]
"""


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_an_inferred_declaration_counts_the_messages_of_a_registry(
    kind: str, penstock: Cli, kafka: str, prefix: str, registry: RegistryServer, shop: Any
) -> None:
    """`category infer` prints a module that a processor imports; it contains no password."""
    write_value, write_key, _, _ = KINDS[kind].clients(client_of(registry), shop)
    penstock.ok("category", "create", f"{prefix}.orders", "--buckets", "4")
    produce(kafka, f"{prefix}.orders", (write_value, write_key))
    server = ("--registry", registry.url, "--registry-user", USER, "--registry-ca", str(registry.authority))
    penstock.environment["PENSTOCK_REGISTRY_PASSWORD"] = PASSWORD

    code = penstock.ok("category", "infer", f"{prefix}.orders", *server)
    (penstock.folder / "inferred.py").write_text(code)
    record, category = code.split("class ")[-1].split("(")[0], code.split(" = ps.Category(")[0].split()[-1]
    app = COUNTING.replace("{record}", record).replace("{category}", category).replace("{prefix}", prefix)
    (penstock.folder / "counting.py").write_text(app)
    penstock.ok("run", "counting.py", "--until-end", "--create")

    assert PASSWORD not in code
    sums = [json.loads(value or b"") for _, _, value in plain.messages(kafka, f"{prefix}.sums")]
    assert {one["id"]: one["cents"] for one in sums} == truth(EVENTS)
