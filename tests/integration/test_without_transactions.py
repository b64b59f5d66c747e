"""A cluster that cannot coordinate transactions."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.ops.start.dev_services.kafka import KafkaService, Listener
from penstock.transport import BusUnreachable
from penstock.transport.kafka import KafkaBus, KafkaSettings, transactions
from penstock.transport.kafka import bus as kafka_bus


def test_a_cluster_without_transactions_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error blames neither the address nor the protocol of a broker that answers."""
    monkeypatch.setattr(transactions, "STEP_LIMIT_S", 3.0)
    monkeypatch.setattr(transactions, "ASK_LIMIT_S", 60.0)  # a broker that has just started may answer late
    monkeypatch.setattr(kafka_bus, "OPENING_LIMIT_S", 0.0)
    kafka = KafkaService(tmp_path, Listener(broker={"transaction.state.log.replication.factor": 3}))
    address = kafka.up(lambda _: None).endpoints["bootstrap"]
    try:
        with pytest.raises(BusUnreachable, match=r"none of them coordinates transactions.*AT_LEAST_ONCE"):
            KafkaBus(KafkaSettings(address)).transactional_writer("totals.one", None, 11.0, ["out"])
    finally:
        kafka.down()
