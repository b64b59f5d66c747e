"""A trial: a subject with events to work on, and whether what it promised was kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import penstock as ps
from penstock.transport.bus import CategorySpec
from penstock.transport.kafka import KafkaBus

from .subjects import CHAINED, DELAY_MS, HOUR_MS, Event, Subject, inputs_of
from .verdicts import (
    by_hour,
    by_key,
    committed,
    expect_chains,
    expect_complete,
    expect_counts,
    expect_each_event,
    expect_updates,
    newest_beside,
    send,
    state_of,
)
from .victims import Job


def prepared(subject: Subject, events: Sequence[Event], prefix: str, bus: KafkaBus, folder: Path) -> Job:
    """Create a subject's categories with all events in them."""
    made = subject.make(prefix)
    for category in made.inputs() + made.outputs():
        bus.catalog.create(CategorySpec.of(category))
    inputs = inputs_of(subject.kind)
    for number, name in enumerate(inputs):
        send(bus.settings.bootstrap, f"{prefix}.{name}", events[number :: len(inputs)])
    return Job(subject, prefix, bus.settings.bootstrap, folder)


def expect_kept_remotely(job: Job, events: Sequence[Event]) -> None:
    """Hold the outputs and the remote state of an aggregator against its events."""
    subject, made = job.subject, job.subject.make(job.prefix)
    if made.outputs():
        expect_updates(committed(job.kafka, f"{job.prefix}.out"), events, subject.state, subject.output)
    assert issubclass(made, ps.Aggregator)
    with ps.read_results(job.store or "", made) as results:
        found = {(key, window.start): tuple(value) for key, window, value in results.scan(len(events))}
    expect_counts(subject.state, found, by_hour(events))


def expect_kept(job: Job, events: Sequence[Event]) -> None:
    """Hold a subject's outputs and its local state against its events."""
    subject, outputs = job.subject, committed(job.kafka, f"{job.prefix}.out")
    state = state_of(job.folder, f"{job.prefix}.subject")
    if subject.kind == "aggregator":
        expect_updates(outputs, events, subject.state, subject.output)
        found = {(slot[8:].decode(), int.from_bytes(slot[:8], "big") - 2**63): tuple(v) for slot, v in state.items()}
        expect_counts(subject.state, found, by_hour(events))
        return
    if subject.kind == "closing":
        newest = newest_beside(job.kafka, f"{job.prefix}.events")
        complete = {slot: hour for slot, hour in by_hour(events).items() if slot[1] + HOUR_MS <= newest[slot[0]]}
        expect_complete(outputs, complete, subject.state, subject.output)
        return
    answered = _answered(job, events)
    expect_each_event(subject.output, outputs, answered)
    if subject in CHAINED:
        expect_chains(outputs, state)
    elif subject.kind != "stateless":
        found_keys = {key.decode(): (sums["count"], sums["total"]) for key, sums in state.items()}
        expect_counts(subject.state, found_keys, by_key(answered if subject.kind == "ordered" else events))


def _answered(job: Job, events: Sequence[Event]) -> Sequence[Event]:
    """Return the events that the watermark has come to: of those that wait for it."""
    delay_ms = {"timers": DELAY_MS, "ordered": 1}.get(job.subject.kind)
    if delay_ms is None:
        return events
    newest = newest_beside(job.kafka, f"{job.prefix}.events")
    return [event for event in events if event.at + delay_ms <= newest[event.key]]
