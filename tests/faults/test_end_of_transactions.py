"""A broker that commits, but whose answer is wrong or missing: each event counts once."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from support.kafka_proxy import CUT, KafkaProxy
from support.subjects import EXACT, Subject, events
from support.trials import create_job, expect_guarantees

from penstock.transport.kafka import KafkaBus, KafkaSettings

EVENTS = events(200)
ANSWERS = {
    "coordinator_moved": KafkaError.NOT_COORDINATOR,
    "coordinator_loading": KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    "still_deciding": KafkaError.CONCURRENT_TRANSACTIONS,
    "fenced": KafkaError.INVALID_PRODUCER_EPOCH,
    "not_in_a_transaction": KafkaError.INVALID_TXN_STATE,
    "lost": CUT,
}


@pytest.mark.parametrize("kind", [pytest.param("stateless", marks=pytest.mark.exhaustive), "stateful"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_wrong_answer_to_a_commit_changes_nothing(
    kind: str, answer: str, through_proxy: tuple[str, KafkaProxy], tmp_path: Path, prefix: str
) -> None:
    """The second commit succeeds, but its answer is wrong; the worker determines the outcome and continues."""
    kafka, proxy = through_proxy
    job = create_job(Subject(kind, EXACT, EXACT), EVENTS, prefix, KafkaBus(KafkaSettings(kafka)), tmp_path)
    second = proxy.answers + 1
    proxy.falsify = lambda seen: ANSWERS[answer] if seen == second else None

    assert job.run() == 0
    assert proxy.answers > second
    expect_guarantees(job, EVENTS)
