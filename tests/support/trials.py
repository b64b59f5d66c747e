"""Trials on Kafka: a subject with events, and the comparison of its results with its guarantees."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import penstock as ps
from penstock.processors.declare import plan_of
from penstock.transport import CategoryExists, CategorySpec
from penstock.transport.kafka import KafkaBus

from .by_event import BY_EVENT
from .by_time import expect_event_time_guarantees, watermarks
from .kinds import KINDS, Event
from .plain import values
from .subjects import Subject, complete_ms
from .verdicts import (
    by_hour,
    expect_counts,
    expect_updates,
    send,
    state_of,
)
from .victims import Job


class Source:
    """Writes a subject's events to its inputs in turn, and publishes watermarks if the subject uses them.

    Args:
        subject: the subject.
        prefix: the prefix of its existing categories.
        bus: the bus of its categories.
    """

    def __init__(self, subject: Subject, prefix: str, bus: KafkaBus) -> None:
        self.sent: list[Event] = []
        self._kafka = bus.settings.bootstrap
        self._inputs = [f"{prefix}.{name}" for name in KINDS[subject.kind].reads]
        self._injector = ps.watermarks.WatermarkWriter(bus, self._inputs[0]) if subject.kind == "injected" else None

    def send(self, events: Sequence[Event]) -> None:
        """Write further events, and publish their watermark."""
        self.write(events)
        self.advance()

    def write(self, events: Sequence[Event]) -> None:
        """Write further events, the same number to each input."""
        for number, category in enumerate(self._inputs):
            send(self._kafka, category, events[number :: len(self._inputs)])
        self.sent += events

    def advance(self) -> None:
        """Publish the watermark of the events so far."""
        if self._injector is not None:
            self._injector.advance(complete_ms(len(self.sent)))


def create_job(subject: Subject, events: Sequence[Event], prefix: str, bus: KafkaBus, folder: Path) -> Job:
    """Create a subject's categories, and write all events."""
    made = subject.make(prefix)
    for category in plan_of(made).inputs + plan_of(made).outputs:
        with suppress(CategoryExists):  # two subjects can share a category
            bus.catalog.create(CategorySpec.of(category))
    if events:
        source, half = Source(subject, prefix, bus), len(events) // 2
        source.send(events[:half])
        source.send(events[half:])
    return Job(subject, prefix, bus.settings.bootstrap, folder)


def expect_remote_guarantees(job: Job, events: Sequence[Event]) -> None:
    """Compare outputs and remote state of an aggregator with its events."""
    subject, made = job.subject, job.subject.make(job.prefix)
    if plan_of(made).outputs:
        expect_updates(values(job.kafka, f"{job.prefix}.out"), events, subject.state, subject.output)
    assert issubclass(made, ps.Aggregator)
    with ps.read_results(job.store or "", made) as results:
        found = {(key, window.start): tuple(value) for key, window, value in results.scan(len(events))}
    expect_counts(subject.state, found, by_hour(events))


def expect_guarantees(job: Job, events: Sequence[Event]) -> None:
    """Compare a subject's outputs and local state with its events."""
    subject, kind = job.subject, KINDS[job.subject.kind]
    outputs = values(job.kafka, f"{job.prefix}.{kind.writes}")
    state = state_of(job.folder, f"{job.prefix}.{kind.name}")
    if subject.kind in BY_EVENT:
        BY_EVENT[subject.kind](subject, outputs, state, events)
    else:
        expect_event_time_guarantees(subject, events, outputs, state, watermarks(job, events))
