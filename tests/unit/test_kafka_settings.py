"""How a Kafka cluster is reached, and what is told of one that does not let us in."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from penstock.transport.errors import SettingsRefused
from penstock.transport.kafka import KafkaSettings
from penstock.transport.kafka.reporting import outage_reporter


def test_settings_for_other_machines_name_no_file_of_this_one(tmp_path: Path) -> None:
    """What certificates and keys in PEM say goes along; what is no file stays as it is."""
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


def test_a_certificate_that_is_not_in_pem_is_told(tmp_path: Path) -> None:
    """Before anything is sent to anybody."""
    (tmp_path / "ca").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsRefused, match=r"ssl\.ca\.location"):
        KafkaSettings("broker:1", {"ssl.ca.location": str(tmp_path / "ca")}).self_contained()


def test_a_refusal_and_an_outage_are_each_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """However often the client tries again."""
    caplog.set_level(logging.WARNING, "penstock.kafka")
    report = outage_reporter("broker:1")
    for _ in range(3):
        report(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
        report(KafkaError(KafkaError._AUTHENTICATION, "sasl_ssl://broker:1/bootstrap: SASL authentication error: no"))
    outage, refusal = [record.getMessage() for record in caplog.records]

    assert outage.startswith("Kafka at broker:1: 1/1 brokers are down. Waiting for it")
    assert refusal.startswith("Kafka at broker:1 does not let this client in: SASL authentication error: no. Look at")
