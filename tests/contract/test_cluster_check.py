"""What `penstock doctor` asks a cluster, on a real broker whose answers are changed as other services answer."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from support.foreign_brokers import (
    create_by_policy,
    create_nothing,
    permitting,
    refuse_descriptions,
    report_without,
)

from penstock.transport import BusUnreachable
from penstock.transport.kafka import Check, Feature, KafkaBus, KafkaSettings, Verdict, checks_of


def checked(bus: KafkaBus) -> dict[Feature, Check]:
    """Return the checks of a cluster by feature."""
    return {check.feature: check for check in checks_of(bus)}


def test_a_cluster_of_one_offers_all_but_safety_and_is_not_changed(kafka_bus: KafkaBus) -> None:
    """Requests for categories are only checked."""
    before = kafka_bus.catalog.names()
    found = checked(kafka_bus)

    assert list(found) == list(Feature)
    assert found[Feature.BROKERS].verdict is Verdict.LIMITED
    assert "Run three brokers" in found[Feature.BROKERS].follows
    assert {check.verdict for feature, check in found.items() if feature is not Feature.BROKERS} == {Verdict.OK}
    assert kafka_bus.catalog.names() == before


def test_a_cluster_that_permits_few_settings_is_limited(kafka_bus: KafkaBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refused settings, the cluster's words and the consequence are named."""
    create_by_policy(monkeypatch, permitting("cleanup.policy", "retention.ms"))
    compaction = checked(kafka_bus)[Feature.COMPACTION]

    assert compaction.verdict is Verdict.LIMITED
    assert "permitted without" in compaction.found
    assert "segment.bytes" in compaction.found
    assert "can't be set on this cluster" in compaction.found
    assert "reading it from its start takes longer" in compaction.follows


def test_a_cluster_without_compaction_lacks_it(kafka_bus: KafkaBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other categories are permitted, and the remedy names the setting."""
    words = "log compaction is not offered"
    create_by_policy(monkeypatch, lambda settings: words if settings["cleanup.policy"] == "compact" else "")
    found = checked(kafka_bus)

    assert found[Feature.CATEGORIES].verdict is Verdict.OK
    assert found[Feature.COMPACTION].verdict is Verdict.MISSING
    assert words in found[Feature.COMPACTION].found
    assert "permit cleanup.policy=compact" in found[Feature.COMPACTION].follows


def test_settings_that_are_not_reported_are_unknown(kafka_bus: KafkaBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing fails, and the reason is given."""
    with monkeypatch.context() as brokers:
        report_without(brokers, "message.max.bytes", "offset.metadata.max.bytes")
        partly = checked(kafka_bus)
    with monkeypatch.context() as brokers:
        refuse_descriptions(brokers, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
        refused = checked(kafka_bus)

    assert partly[Feature.MESSAGES] == Check(
        Feature.MESSAGES,
        Verdict.UNKNOWN,
        "the brokers do not report it",
        "A message that the cluster refuses stops the worker, which names it.",
    )
    assert partly[Feature.POSITIONS].verdict is Verdict.UNKNOWN
    assert {refused[each].verdict for each in (Feature.MESSAGES, Feature.POSITIONS)} == {Verdict.UNKNOWN}
    assert refused[Feature.CATEGORIES].verdict is Verdict.OK


def test_an_address_without_a_broker_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """No table says anything about a cluster that does not answer."""
    create_nothing(monkeypatch)
    with pytest.raises(BusUnreachable):
        list(checks_of(KafkaBus(KafkaSettings("127.0.0.1:1"))))
