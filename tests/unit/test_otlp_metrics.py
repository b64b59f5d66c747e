"""Metrics as a receiver of OTLP over HTTP gets them: the same as Prometheus gets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.statuses import processor_status, shard_status

from penstock.ops.status import ClusterStatus, ProcessorStatus
from penstock.ops.status.prometheus import metric_families
from penstock.transport import BusUnreachable

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs penstock[otel]")

from support.otlp_receiver import OtlpReceiver, Sample, otlp_receiver

from penstock.ops.status.otlp_metrics import MetricsMisconfigured, exported_metrics


def cluster(*processors: ProcessorStatus) -> ClusterStatus:
    """Return the status of processors."""
    return ClusterStatus(1_700_000_000_000, processors, ())


def scraped(status: ClusterStatus) -> dict[Sample, float]:
    """Return what Prometheus gets."""
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in metric_families(status)
        for sample in family.samples
    }


@contextmanager
def exporting(
    observe: Callable[[], ClusterStatus], monkeypatch: pytest.MonkeyPatch, interval_ms: int = 60_000
) -> Iterator[OtlpReceiver]:
    """Export to a receiver within the context."""
    with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", str(interval_ms))
        with exported_metrics(observe) as target:
            assert target.startswith(receiver.endpoint)
            yield receiver


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, for at most two minutes."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_receiver_gets_the_metrics_of_prometheus(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets those of processors, buckets and workers, with the same names, labels and values."""
    status = processor_status(shard_status(), shard_status(1))
    with exporting(lambda: cluster(status), monkeypatch) as receiver:
        wait_until(lambda: receiver.exports > 0)
    expected = scraped(cluster(status))

    assert receiver.gauges == {"penstock": expected}
    assert {len(labels) for _, labels in expected} == {1, 2}
    assert ("penstock_workers", ("scorer",)) in expected


def test_the_service_has_its_configured_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interval is the configured one, too."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "streams")
    with exporting(lambda: cluster(processor_status(shard_status())), monkeypatch, interval_ms=10) as receiver:
        wait_until(lambda: receiver.exports > 2)

    assert set(receiver.gauges) == {"streams"}


def test_failures_are_logged_once_and_end(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Both Kafka and the receiver may fail. The export continues."""
    failing = {"kafka": True}

    def observe() -> ClusterStatus:
        if failing["kafka"]:
            raise BusUnreachable("No Kafka broker answers at kafka:9092.")
        return cluster(processor_status(shard_status()))

    with caplog.at_level(logging.WARNING), exporting(observe, monkeypatch, interval_ms=10) as receiver:
        wait_until(lambda: len(caplog.records) > 0)
        receiver.refuses, failing["kafka"] = True, False
        time.sleep(0.1)
        receiver.refuses = False
        wait_until(lambda: receiver.exports > 0)
        wait_until(lambda: len(caplog.records) > 1)
    first, last = (record.getMessage() for record in caplog.records)

    assert first.startswith("No Kafka broker answers at kafka:9092. The metrics of this interval are missing there.")
    assert last.startswith("Metrics are exported again")


def test_a_receiver_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The line has the reason of the SDK, whose own lines are not logged."""
    with otlp_receiver() as receiver, caplog.at_level(logging.WARNING):
        receiver.refuses = True
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        with exported_metrics(lambda: cluster(processor_status(shard_status()))):
            wait_until(lambda: len(caplog.records) > 0)

    assert [record.name for record in caplog.records] == ["penstock.metrics"]
    assert f"cannot be exported to {receiver.endpoint}" in caplog.text
    assert "404" in caplog.text


@pytest.mark.parametrize("interval", ["soon", "0", "-5"])
def test_an_invalid_interval_is_refused(monkeypatch: pytest.MonkeyPatch, interval: str) -> None:
    """It is refused before anything is exported."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", interval)

    with pytest.raises(MetricsMisconfigured, match="OTEL_METRIC_EXPORT_INTERVAL"), exported_metrics(cluster):
        pass
