"""Settings of Kafka clients, and reports of outages and refused connections."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import KafkaError, Producer

from penstock.processors.declare import DeadLetter
from penstock.transport import CategorySpec, SettingsRefused
from penstock.transport.bus import OwnershipListener
from penstock.transport.codecs import decode_dead_letter
from penstock.transport.codecs.dead_letters import DeadLetterCodec
from penstock.transport.kafka import KafkaBus, KafkaSettings
from penstock.transport.kafka.client_log import outage_reporter
from penstock.transport.kafka.new_topics import named_in, topic_of
from penstock.transport.kafka.reported_settings import BrokerSettings, TopicSettings

UNKNOWN = BrokerSettings({})


def test_self_contained_settings_embed_the_files_that_they_name(tmp_path: Path) -> None:
    """Certificates and keys in PEM files become values; a value that names no file stays unchanged."""
    for name in ("ca", "mine", "key"):
        (tmp_path / name).write_text(f"-----BEGIN {name}-----")
    given = {
        "ssl.ca.location": str(tmp_path / "ca"),
        "ssl.certificate.location": str(tmp_path / "mine"),
        "ssl.key.location": str(tmp_path / "key"),
        "ssl.key.password": "hunter2",
    }
    settings = KafkaSettings("broker:1", given).self_contained()

    assert settings.further == {
        "ssl.ca.pem": "-----BEGIN ca-----",
        "ssl.certificate.pem": "-----BEGIN mine-----",
        "ssl.key.pem": "-----BEGIN key-----",
        "ssl.key.password": "hunter2",
    }
    assert "hunter2" not in repr(settings)
    for known in ("probe", str(tmp_path)):
        assert KafkaSettings("broker:1", {"ssl.ca.location": known}).self_contained().further == {
            "ssl.ca.location": known
        }


def test_a_certificate_that_is_not_pem_is_refused(tmp_path: Path) -> None:
    """The error names the setting."""
    (tmp_path / "ca").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsRefused, match=r"ssl\.ca\.location"):
        KafkaSettings("broker:1", {"ssl.ca.location": str(tmp_path / "ca")}).self_contained()


FILES = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.keystore.location",
    "ssl.crl.location",
    "sasl.kerberos.keytab",
    "plugin.library.paths",
    "ssl.engine.location",
)


@pytest.mark.parametrize("setting", FILES)
def test_a_file_that_is_missing_is_named_with_its_setting(setting: str, tmp_path: Path) -> None:
    """Before a client is opened: its error has the words of OpenSSL, or comes later."""
    missing = tmp_path / "missing"
    bus = KafkaBus(KafkaSettings("127.0.0.1:1", {"security.protocol": "SASL_SSL", setting: str(missing)}))
    with pytest.raises(SettingsRefused, match=re.escape(f"{setting} names the file {missing}, which does not exist.")):
        bus.catalog  # noqa: B018 - opens the client


def test_a_folder_is_no_certificate(tmp_path: Path) -> None:
    """Only authorities may be a folder."""
    for_folder = {"security.protocol": "ssl", "ssl.key.location": str(tmp_path)}
    with pytest.raises(SettingsRefused, match=r"ssl\.key\.location names .*, which is a folder"):
        KafkaSettings("127.0.0.1:1", for_folder).for_admin()

    assert KafkaSettings("127.0.0.1:1", {"security.protocol": "ssl", "ssl.ca.location": str(tmp_path)}).for_admin()


@pytest.mark.parametrize(
    "further",
    [
        {"ssl.ca.location": "/missing"},
        {"security.protocol": "ssl", "ssl.ca.location": "probe", "ssl.crl.location": ""},
        {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.kerberos.keytab": "/missing"},
        {"plugin.library.paths": "monitoring-interceptor"},
    ],
)
def test_a_file_that_the_client_will_not_read_may_be_missing(further: dict[str, str]) -> None:
    """Of another protocol or mechanism, and names that the system looks up."""
    assert KafkaSettings("127.0.0.1:1", further).for_admin()


def test_a_plugin_may_be_named_without_its_ending(tmp_path: Path) -> None:
    """The client adds it."""
    (tmp_path / "plugin.so").touch()

    assert KafkaSettings("127.0.0.1:1", {"plugin.library.paths": str(tmp_path / "plugin")}).for_admin()


def test_an_outage_and_a_refusal_are_each_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Further attempts of the client add no lines."""
    caplog.set_level(logging.WARNING, "penstock.kafka")
    report = outage_reporter("broker:1")
    for _ in range(3):
        report(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
        report(KafkaError(KafkaError._AUTHENTICATION, "sasl_ssl://broker:1/bootstrap: SASL authentication error: no"))
    outage, refusal = [record.getMessage() for record in caplog.records]

    assert outage.startswith("Kafka at broker:1: 1/1 brokers are down. The client reconnects")
    assert refusal.startswith("Kafka at broker:1 refuses this client: SASL authentication error: no. Check")


def test_the_dead_letter_of_a_large_message_fits_the_clients_limit() -> None:
    """An error that does not concern the address or the protocol does not blame them."""
    settings = KafkaSettings("127.0.0.1:1")
    letters = DeadLetterCodec(lambda: settings.message_limit - 100)
    producer = Producer(settings.for_writer())
    kept = []
    for size in (750_000, 999_900):
        garbage = b"\xff" * size
        producer.produce("garbage", garbage, b"k")
        [letter] = letters.encode([DeadLetter("garbage", 0, 1, "does not decode", b"k", garbage, 0)])
        producer.produce("letters", letter, b"garbage/0")
        kept.append(size - decode_dead_letter(letter).truncated_bytes)
    producer.purge()

    assert kept[0] == 750_000
    assert 990_000 < kept[1] < 999_900


def test_the_batch_limit_follows_the_clients_settings() -> None:
    """A larger `batch.size` or a smaller `message.max.bytes` lowers it, down to a minimum."""

    def batch(**further: str) -> int:
        named = {name.replace("_", "."): value for name, value in further.items()}
        return KafkaSettings("127.0.0.1:1", named).batch_limit

    assert batch() == 262_144
    assert batch(message_max_bytes="100000") == 100_000
    assert batch(batch_size="30000") == 30_000
    assert batch(batch_size="1") == 16_384


def test_a_topic_has_three_replicas_if_the_cluster_has_three_brokers() -> None:
    """The loss of one of three brokers loses no event; with fewer brokers, the cluster's default replication applies."""
    spec = CategorySpec("events", 4)
    safe, plain = topic_of(spec, 3, UNKNOWN), topic_of(spec, 2, UNKNOWN)
    of_safe, of_plain = dict(safe.config or {}), dict(plain.config or {})

    assert (safe.replication_factor, plain.replication_factor) == (3, -1)
    assert of_safe["min.insync.replicas"] == "2"
    assert of_safe["unclean.leader.election.enable"] == "false"
    assert "min.insync.replicas" not in of_plain
    assert {of_safe["message.timestamp.type"], of_plain["message.timestamp.type"]} == {"LogAppendTime"}


def test_only_settings_that_differ_from_the_clusters_are_sent() -> None:
    """Managed clusters refuse some. What the category needs, and what was declared, is always sent."""
    reported = {
        "log.message.timestamp.type": "LogAppendTime",
        "log.segment.bytes": "1073741824",
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "false",
        "log.cleanup.policy": "compact",
        "compression.type": "zstd",
    }
    spec = CategorySpec("table", 1, compacted=True, settings={"compression.type": "zstd"})
    sent = dict(topic_of(spec, 3, BrokerSettings(reported)).config or {})

    assert sent == {
        "retention.ms": "-1",
        "cleanup.policy": "compact",
        "segment.bytes": "16777216",
        "min.cleanable.dirty.ratio": "0.2",
        "compression.type": "zstd",
    }


@pytest.mark.parametrize(
    ("kept_ms", "policy", "retention"),
    [
        ("86400000", "delete", timedelta(days=1)),
        ("86400000", "compact,delete", timedelta(days=1)),
        ("86400000", "compact", None),
        ("-1", "delete", None),
        (str(2**63 - 1), "delete", None),
        ("unset", "delete", None),
    ],
)
def test_the_retention_of_a_topic_is_read(kept_ms: str, policy: str, retention: timedelta | None) -> None:
    """It is unlimited if the topic is only compacted, and for times that are longer than any date."""
    settings = TopicSettings({"retention.ms": kept_ms, "cleanup.policy": policy, "delete.retention.ms": str(2**63 - 1)})

    assert settings.retention == retention
    assert settings.delete_retention is not None
    assert ("retention.ms" in settings.unknown(["retention.ms"])) == (kept_ms == "unset")


def test_a_setting_in_the_words_of_a_refusal_is_no_part_of_another_ones_name() -> None:
    """Names of settings contain each other."""
    error = KafkaError(KafkaError.POLICY_VIOLATION, "'delete.retention.ms' of segment.bytes.")

    assert named_in(error, ["retention.ms", "delete.retention.ms", "segment.bytes"]) == {
        "delete.retention.ms",
        "segment.bytes",
    }


def test_declared_replicas_and_settings_take_precedence() -> None:
    """Three declared replicas are as safe as three by default."""
    spec = CategorySpec("events", 4, replicas=3, settings={"compression.type": "zstd", "min.insync.replicas": "1"})
    topic = topic_of(spec, 2, UNKNOWN)
    single = topic_of(CategorySpec("events", 4, compacted=True, replicas=1), 5, UNKNOWN)
    declared, compacted = dict(topic.config or {}), dict(single.config or {})

    assert (topic.replication_factor, single.replication_factor) == (3, 1)
    assert (declared["compression.type"], declared["min.insync.replicas"]) == ("zstd", "1")
    assert declared["unclean.leader.election.enable"] == "false"
    assert compacted["cleanup.policy"] == "compact"
    assert "min.insync.replicas" not in compacted


def test_an_address_of_another_protocol_is_refused() -> None:
    """The error names HOST:PORT; librdkafka's own prefixes are accepted."""
    with pytest.raises(SettingsRefused, match=r"starts with http://.*such as localhost:9092"):
        KafkaSettings("broker:1,http://localhost:9092/topics")
    assert KafkaSettings("SASL_SSL://broker:1,b:2").bootstrap == "SASL_SSL://broker:1,b:2"


def test_hosts_that_cannot_be_resolved_are_listed() -> None:
    """Addresses and known names are not."""
    settings = KafkaSettings("nosuchhost.invalid:9092,127.0.0.1:1,PLAINTEXT://localhost:2,[::1]:3")

    assert settings.unknown_hosts() == ["nosuchhost.invalid"]


def test_members_learn_of_a_rebalance_within_half_a_second() -> None:
    """Buckets that move wait for the heartbeat of every member. A user's own interval overrides it."""
    key = "heartbeat.interval.ms"
    own = KafkaSettings("broker:1", {key: "2000"})

    assert int(KafkaSettings("broker:1").for_reader("g", "one", co_partitioned=False)[key]) <= 500
    assert own.for_reader("g", None, co_partitioned=True)[key] == "2000"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("", "is empty"),
        (" ", "is empty"),
        ("a:9092,,b:9092", "contains an empty part"),
        ("localhost:kafka", "has the port 'kafka'"),
        ("localhost:99999", "has the port '99999'"),
        ("a:9092, [::1]:0", "has the port '0'"),
    ],
)
def test_an_address_that_no_broker_can_have_is_refused(address: str, words: str) -> None:
    """It is refused before the first request, instead of after ten seconds without an answer."""
    with pytest.raises(SettingsRefused, match=rf"{words}.*No request was sent"):
        KafkaSettings(address)


@pytest.mark.parametrize(
    "address", ["localhost", "localhost:9092", "a:1, b:65535", "[::1]:9092", "::1", "SASL_SSL://a:9093"]
)
def test_other_addresses_are_accepted(address: str) -> None:
    """An address may lack a port, be an IPv6 address, or have the protocol as a prefix."""
    assert KafkaSettings(address).bootstrap == address


@pytest.mark.parametrize(
    ("further", "reason"),
    [
        ({"group.protocol": "consumer"}, "group.protocol"),
        ({"oauth_cb": "my_module:token"}, "oauth_cb"),
        ({"no.such.setting": "1"}, "no.such.setting"),
        ({"session.timeout.ms": "soon"}, "session.timeout.ms"),
    ],
)
def test_each_client_refuses_a_setting_with_its_name(further: dict[str, str], reason: str) -> None:
    """Whatever type of error the library raises, the user gets the setting to correct, from the first client that uses it."""
    settings = KafkaSettings("127.0.0.1:1", further)

    with pytest.raises(SettingsRefused, match=re.escape(reason)):
        KafkaBus(settings).reader("totals", ["readings"], cast("OwnershipListener", None))


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_tokens_need_a_source(name: str) -> None:
    """Without one, the client would wait for a token, and the error would blame the brokers."""
    mechanism = {"security.protocol": "SASL_SSL", name: "OAUTHBEARER"}

    with pytest.raises(SettingsRefused, match=r"OAUTHBEARER.*No request was sent.*sasl\.oauthbearer\.method = .oidc."):
        KafkaSettings("127.0.0.1:1", mechanism).for_admin()
    assert KafkaSettings("127.0.0.1:1", mechanism | {"sasl.oauthbearer.method": "oidc"}).for_admin()


def test_clients_end_quiet_connections_before_brokers_do() -> None:
    """A connection that a broker or a load balancer ends looks like an outage; the shortest usual limit is four minutes."""
    settings = KafkaSettings("127.0.0.1:1")
    configurations = (settings.for_admin(), settings.for_writer(), settings.for_positions("group"))

    assert [configuration["connections.max.idle.ms"] < 240_000 for configuration in configurations] == [True] * 3
