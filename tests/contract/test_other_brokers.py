"""Contract of the catalog on brokers that report fewer settings than Apache Kafka, or permit fewer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import ConfigEntry
from support.foreign_brokers import (
    REDPANDA,
    create_by_policy,
    permitting,
    refuse_descriptions,
    report,
    report_only,
    report_without,
)

import penstock as ps
from penstock.ops.kernel.shards.preflight import _expect_rebuildable, warn_about_durability
from penstock.processors.declare import SIZE_SETTING
from penstock.transport import BusError, CategorySpec, Durability, SettingNotReported
from penstock.transport.kafka import KafkaBus
from penstock.transport.memory import MemoryBus


class Row(ps.Record, frozen=True):
    """A row of a table."""

    name: str
    at: ps.EventTime


def reading(category: str) -> type[ps.Stateless]:
    """Return a processor that reads a category."""
    members = {"reads": ps.Category(category, Row, key="name", event_time="at"), "process": lambda *_: []}
    return type("Reading", (ps.Stateless,), members)


def summing(category: str) -> type[ps.Stateful]:
    """Return a processor with a state that is rebuilt from a category."""
    members = {
        "reads": ps.Category(category, Row, key="name", event_time="at"),
        "state": int,
        "process": lambda *_: (1, []),
    }
    return type("Summing", (ps.Stateful,), members)


@pytest.mark.parametrize("lacking", ["min.insync.replicas", "message.timestamp.type", "unclean.leader.election.enable"])
def test_a_setting_that_brokers_do_not_report_is_unknown(
    kafka_bus: KafkaBus, unique: str, lacking: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A check that only warns is skipped, and the log says which."""
    kafka_bus.catalog.create(CategorySpec(unique, 1))
    report_without(monkeypatch, lacking)
    durability = kafka_bus.catalog.durability(unique)
    with caplog.at_level(logging.INFO):
        warn_about_durability(reading(unique), kafka_bus)

    assert durability.unknown == {lacking: "the brokers do not report it"}
    assert (durability.min_in_sync is None) == (lacking == "min.insync.replicas")
    assert (durability.uses_arrival_time is None) == (lacking == "message.timestamp.type")
    if lacking == "message.timestamp.type":
        assert f"It was not checked whether arrival times of {unique} come from its producers" in caplog.text


@pytest.mark.parametrize("replicas", [1, 3])
def test_unchecked_durability_is_logged_unless_known_settings_are_unsafe(
    replicas: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One replica is unsafe with any settings; of three, it depends on the unknown ones."""
    bus, unknown = MemoryBus(), {"min.insync.replicas": "the brokers do not report it"}
    bus.catalog.create(CategorySpec("rows", 1))
    found = Durability(replicas, None, unclean_election=False, uses_arrival_time=True, unknown=unknown)
    monkeypatch.setattr(type(bus), "durability", lambda *_: found)
    with caplog.at_level(logging.INFO):
        warn_about_durability(reading("rows"), bus)

    unsafe = "The failure of a broker can lose events of rows (at least 1 replicas, of which an unknown number must"
    unchecked = "not checked whether the failure of a broker can lose events of rows: unknown are min.insync.replicas"
    assert found.is_safe is (None if replicas == 3 else False)
    assert (unsafe in caplog.text, unchecked in caplog.text) == (replicas == 1, replicas == 3)


def test_redpandas_settings_are_enough(kafka_bus: KafkaBus, unique: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compacted category is one, and has its size limit; a missing retention of deletions counts as Kafka's default."""
    kafka_bus.catalog.create(CategorySpec(unique, 1, compacted=True))
    before = kafka_bus.catalog.message_limit(unique)
    report_only(monkeypatch, REDPANDA)
    state = kafka_bus.catalog.describe(unique)
    kept = state.least_delete_retention

    assert state.spec.compacted
    assert kept is not None
    assert kept.days == 1
    assert kafka_bus.catalog.message_limit(unique) == before


def test_a_setting_that_is_no_number_is_unknown(
    kafka_bus: KafkaBus, unique: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason names the value; the limit is the client's, and one line says that it was not checked."""
    kafka_bus.catalog.create(CategorySpec(unique, 1))
    before = kafka_bus.catalog.message_limit(unique)
    odd = {name: ConfigEntry(name, "unset") for name in ("min.insync.replicas", "retention.ms", "max.message.bytes")}
    report(monkeypatch, lambda found: {**found, **odd})
    with caplog.at_level(logging.INFO):
        limits = {kafka_bus.catalog.message_limit(unique) for _ in range(3)}

    assert limits == {before}
    assert caplog.text.count("max.message.bytes is unknown, because the brokers report 'unset'") == 1
    assert kafka_bus.catalog.durability(unique).unknown == {"min.insync.replicas": "the brokers report 'unset'"}
    assert kafka_bus.catalog.describe(unique).retention_is_unknown


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, r"this Kafka user may not read the settings \(DescribeConfigs\)"),
        (KafkaError._UNSUPPORTED_FEATURE, "the brokers do not report settings"),
    ],
)
def test_refused_settings_are_unknown(
    kafka_bus: KafkaBus, unique: str, code: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a check whose promise depends on a setting is an error, which names the reason and the remedy."""
    kafka_bus.catalog.create(CategorySpec(unique, 3))
    refuse_descriptions(monkeypatch, code)
    warn_about_durability(reading(unique), kafka_bus)
    state = kafka_bus.catalog.describe(unique)

    assert (state.spec.buckets, state.retention_is_unknown, state.may_be_compacted) == (3, True, True)
    assert state.least_delete_retention == timedelta(days=1)
    with pytest.raises(
        SettingNotReported, match=f"whether category {unique} is compacted .*{reason}.*Nothing was star"
    ):
        _expect_rebuildable(summing(unique), kafka_bus)
    _expect_rebuildable(type("Safe", (summing(unique),), {"compaction_safe": True}), kafka_bus)


SERVERLESS = permitting("cleanup.policy", "retention.ms", "max.message.bytes")
INTERNAL = CategorySpec("", 1, compacted=True, delete_retention=timedelta(days=30))


def at_least_50_mib(settings: dict[str, str]) -> str:
    """Refuse small segments, as Confluent Cloud does."""
    size = settings.get("segment.bytes", "1073741824")
    small = f"Config property 'segment.bytes' with value '{size}' is lower than the minimum value '52428800'"
    return small if int(size) < 52_428_800 else ""


def without_words(settings: dict[str, str]) -> str:
    """Refuse a setting without its name."""
    return "Request parameters do not satisfy the configured policy." if "message.timestamp.type" in settings else ""


@pytest.mark.parametrize("code", [KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG])
@pytest.mark.parametrize(
    ("policy", "kept"),
    [(at_least_50_mib, {"message.timestamp.type"}), (SERVERLESS, set[str]()), (without_words, set[str]())],
)
def test_a_cluster_that_permits_few_settings_has_internal_categories(
    kafka_bus: KafkaBus,
    unique: str,
    policy: Callable[[dict[str, str]], str],
    kept: set[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They are compacted, and have the cluster's values of refused settings; one warning names these and what follows."""
    asked = create_by_policy(monkeypatch, policy, code)
    kafka_bus.catalog.create(replace(INTERNAL, name=unique))
    state = kafka_bus.catalog.describe(unique)
    [warned] = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    left_out = dict(asked[0].config or {}).keys() - dict(asked[-1].config or {}).keys()

    assert (state.spec.compacted, state.spec.retention) == (True, None)
    assert dict(asked[-1].config or {})["cleanup.policy"] == "compact"
    assert kafka_bus.catalog.durability(unique).uses_arrival_time is bool(kept)
    assert f"Category {unique} was created with the cluster's {', '.join(sorted(left_out))}, because" in warned
    assert "compacted later, so reading it from its start takes longer" in warned
    assert ("arrival times may come from its producers' clocks" in warned) is not bool(kept)


def test_a_refused_size_of_an_internal_category_is_left_out(
    kafka_bus: KafkaBus, unique: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A declared one is the user's, and its refusal an error."""
    create_by_policy(monkeypatch, permitting("cleanup.policy", "retention.ms", "message.timestamp.type"))
    larger = {SIZE_SETTING: "20000000"}
    kafka_bus.catalog.create(CategorySpec(unique, 1, settings=larger, preferred=frozenset({SIZE_SETTING})))
    declared = CategorySpec(f"{unique}_declared", 1, settings=larger)

    assert kafka_bus.catalog.message_limit(unique) < 20_000_000
    assert "It may accept only smaller messages than its inputs." in caplog.text
    with pytest.raises(
        BusError, match=rf"refuses {SIZE_SETTING}=20000000: .*Nothing was created\. Correct the `settings`"
    ):
        kafka_bus.catalog.create(declared)
    assert declared.name not in kafka_bus.catalog.names()


def test_a_setting_that_a_promise_depends_on_is_never_left_out(
    kafka_bus: KafkaBus, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changelog on a cluster without compaction is an error, with the cluster's words and the remedy."""
    words = "cleanup.policy compact is not supported here"
    create_by_policy(monkeypatch, lambda settings: words if settings["cleanup.policy"] == "compact" else "")
    expected = (
        rf"refuses cleanup.policy=compact: {words}\. Nothing was created\. .*newest message of each of its keys.*permit"
    )
    with pytest.raises(BusError, match=expected):
        kafka_bus.catalog.create(replace(INTERNAL, name=unique))

    assert unique not in kafka_bus.catalog.names()
    kafka_bus.catalog.create(CategorySpec(unique, 1))


def test_settings_that_the_cluster_has_by_default_are_not_sent(
    kafka_bus: KafkaBus, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is asked for its defaults; without an answer, they are sent."""
    asked = create_by_policy(monkeypatch, lambda _: "")
    arrival = {"log.message.timestamp.type": ConfigEntry("log.message.timestamp.type", "LogAppendTime")}
    with monkeypatch.context() as brokers:
        report(brokers, lambda found: {**found, **arrival})
        kafka_bus.catalog.create(CategorySpec(unique, 1, replicas=1))
    with monkeypatch.context() as brokers:
        refuse_descriptions(brokers, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
        kafka_bus.catalog.create(CategorySpec(f"{unique}.2", 1, replicas=1))

    assert [sorted(dict(topic.config or {})) for topic in asked] == [
        ["cleanup.policy", "retention.ms"],
        ["cleanup.policy", "message.timestamp.type", "retention.ms"],
    ]
