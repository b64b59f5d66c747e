"""Brokers that are not a fresh Apache Kafka: the real broker's answers to the admin client, changed as other services answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigEntry, NewTopic

REDPANDA = frozenset(
    [
        "cleanup.policy",
        "compression.type",
        "max.message.bytes",
        "message.timestamp.type",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.ms",
    ]
)
"""The settings of topics that Redpanda 23.1 reports."""
_ANSWER_LIMIT_S = 30.0
Reported = dict[str, ConfigEntry]


def report(monkeypatch: pytest.MonkeyPatch, change: Callable[[Reported], Reported]) -> None:
    """Change the settings that brokers report."""
    describe_configs = AdminClient.describe_configs

    def changed(admin: AdminClient, *args: Any, **options: Any) -> dict[Any, Future[Reported]]:
        answers: dict[Any, Future[Reported]] = {}
        for resource, answer in describe_configs(admin, *args, **options).items():
            answers[resource] = Future()
            try:
                answers[resource].set_result(change(answer.result(timeout=_ANSWER_LIMIT_S)))
            except KafkaException as error:
                answers[resource].set_exception(error)
        return answers

    monkeypatch.setattr(AdminClient, "describe_configs", changed)


def report_only(monkeypatch: pytest.MonkeyPatch, names: frozenset[str]) -> None:
    """Leave out all settings but these from what brokers report."""
    report(monkeypatch, lambda found: {name: entry for name, entry in found.items() if name in names})


def report_without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Leave out settings from what brokers report."""
    report(monkeypatch, lambda found: {name: entry for name, entry in found.items() if name not in names})


def refuse_descriptions(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Refuse to report any setting."""

    def refused(_: Reported) -> Reported:
        raise KafkaException(KafkaError(code, "refused by the test"))

    report(monkeypatch, refused)


def create_by_policy(
    monkeypatch: pytest.MonkeyPatch, refusal: Callable[[dict[str, str]], str], code: int = KafkaError.POLICY_VIOLATION
) -> list[NewTopic]:
    """Refuse new topics by their settings; return a list of all requests.

    Args:
        monkeypatch: pytest's.
        refusal: returns the broker's words for these settings of a topic; empty to accept it.
        code: the error.
    """
    create_topics, asked = AdminClient.create_topics, list[NewTopic]()

    def by_policy(admin: AdminClient, topics: Sequence[NewTopic], **options: Any) -> dict[str, Future[None]]:
        [topic] = topics
        asked.append(topic)
        words = refusal(dict(topic.config or {}))
        if not words:
            return create_topics(admin, [topic], **options)
        refused = Future[None]()
        refused.set_exception(KafkaException(KafkaError(code, words)))
        return {topic.topic: refused}

    monkeypatch.setattr(AdminClient, "create_topics", by_policy)
    return asked


def permitting(*names: str) -> Callable[[dict[str, str]], str]:
    """Return a policy that permits these settings alone, and names one that it refuses."""

    def refusal(settings: dict[str, str]) -> str:
        refused = sorted(settings.keys() - set(names))
        return f"Configuration '{refused[0]}' can't be set on this cluster" if refused else ""

    return refusal


def create_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail at each request to create a topic."""

    def refused(*_: Any, **__: Any) -> dict[str, Future[None]]:
        raise AssertionError("a command that only reads has created a topic")

    monkeypatch.setattr(AdminClient, "create_topics", refused)
