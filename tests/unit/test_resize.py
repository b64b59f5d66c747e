"""Resizes: each key keeps its state, windows and timers when a category gets another number of buckets."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.machines import Machine, create_categories, read
from support.maintenance import Killed, environment, kill_before
from support.resizes import (
    HOUR_MS,
    KEYS,
    KINDS,
    START_MS,
    Reminders,
    final_events,
    finish,
    generate_events,
    outputs_without_resize,
    read_part,
    resize,
    send,
    with_buckets,
)
from support.shop import Counted, Hourly, Numbered, Paid, Purchase

import penstock as ps
from penstock.ops.change.maintenance.reset import perform_reset, plan_reset
from penstock.ops.change.maintenance.reset_plan import StatePolicy
from penstock.ops.change.maintenance.reset_target import Edge, parse_offsets
from penstock.ops.change.maintenance.resize import MisplacedKeys
from penstock.ops.kernel.shards.backups import WorkerBackups
from penstock.ops.kernel.shards.resume_checks import MaintenanceUnfinished, StateSuperseded
from penstock.processors.declare import bucket_of, plan_of
from penstock.transport import GroupInUse, Outgoing
from penstock.transport.codecs import Codecs
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import MaintenanceRefused, MaintenanceStep, newest_maintenance
from penstock.transport.tables.maintenance_protocol import MaintenanceGap


@pytest.mark.parametrize(("processor", "buckets"), KINDS)
def test_a_resize_preserves_the_state_of_every_key(
    machine: Machine, processor: type[ps.Processor], buckets: int
) -> None:
    """Outputs equal those of a run without a resize, each once.

    If the event time of some keys went back, complete windows that still accept late events are written again.
    """
    read_part(machine, processor)
    planned = resize(machine, processor, buckets)
    outputs = finish(machine, with_buckets(processor, buckets))
    if not planned.keeps_time and processor is Hourly:
        outputs = sorted(set(outputs))

    assert planned.keeps_time == (buckets == 6)
    assert outputs == outputs_without_resize(processor)
    assert len(outputs) > KEYS


def test_new_buckets_contain_the_states_of_their_keys(machine: Machine) -> None:
    """No state is lost or left in another bucket."""
    read_part(machine, Numbered)
    resize(machine, Numbered, 6)
    for bucket in range(6):
        position = machine.bus.committed("numbered", "orders")[bucket]
        assert position == (machine.bus.ends("orders")[bucket] if bucket < 3 else 0)
    found = machine.state(with_buckets(Numbered, 6))

    assert {int(key[1:]) for key in found} == set(range(KEYS))


def test_another_machine_restores_the_resized_states_from_backups(machine: Machine, tmp_path: Path) -> None:
    """Without backups, an error reports the missing or older states."""
    other = Machine(tmp_path / "other", machine.bus, machine.place)
    read_part(other, Numbered)
    other.back_up(Numbered)
    resize(machine, Numbered, 6)
    resized = with_buckets(Numbered, 6)
    with pytest.raises(StateSuperseded, match="from before the resize to 6 buckets"):
        other.run(resized)
    machine.lose(resized)
    with pytest.raises(StateSuperseded, match="neither on this machine nor in a recent backup"):
        machine.run(resized)
    machine.lose(resized)
    send(machine.bus, resized, final_events)
    machine.run(resized, WorkerBackups(machine.place, machine.states, timedelta(hours=1)))
    texts = {
        one.said for one in read(machine.bus, plan_of(Numbered).outputs[0]) if one.at == START_MS + 10_000 * HOUR_MS
    }

    assert len(texts) == KEYS
    assert all(int(one.split()[-1]) > 1 for one in texts)


def test_joined_categories_are_resized_together(machine: Machine) -> None:
    """The other input of a join gets the same number of buckets."""
    read_part(machine, Paid)
    planned = resize(machine, Paid, 6)

    assert planned.categories == ["orders", "payments"]
    assert machine.bus.describe("payments").spec.buckets == 6


def test_a_category_can_be_resized_twice(machine: Machine) -> None:
    """The buckets grow from three to six to twelve."""
    read_part(machine, Reminders)
    resize(machine, Reminders, 6)
    resize(machine, with_buckets(Reminders, 6), 12)

    assert finish(machine, with_buckets(Reminders, 12)) == outputs_without_resize(Reminders)


# Interrupted resizes.


def test_a_resize_can_be_abandoned_before_buckets_are_added(machine: Machine) -> None:
    """If events have arrived since, their readers process them first."""
    read_part(machine, Numbered)
    with pytest.raises(Killed):
        resize(machine, Numbered, 6, kill_before(MaintenanceStep.CHANGE_TOPICS))
    send(machine.bus, Numbered, lambda record: generate_events(record, 120, 240))
    with pytest.raises(MaintenanceRefused, match="was written to during the resize"):
        resize(machine, Numbered, 6)
    machine.run(Numbered)
    resize(machine, Numbered, 6)
    send(machine.bus, Numbered, final_events)
    machine.run(with_buckets(Numbered, 6))
    outputs = sorted((one.customer, one.at, one.said) for one in read(machine.bus, plan_of(Numbered).outputs[0]))

    assert outputs == outputs_without_resize(Numbered)


# Producers that use another number of buckets.


def write_by(bus: MemoryBus, buckets: int, events: list[Any]) -> None:
    """Write like a producer that uses this number of buckets."""
    [category] = plan_of(Numbered).inputs
    values = Codecs(bus).of(category).encode(events)
    keys = [key.encode() for key in category.keys_of(events)]
    bus.writer().send(
        category.name, [Outgoing(key, value, bucket_of(key, buckets)) for key, value in zip(keys, values, strict=True)]
    )


def test_misplaced_events_are_reported(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker reads them until the user accepts them."""
    monkeypatch.setattr(Numbered, "key_check", False)
    read_part(machine, Numbered)

    def write_meanwhile(gap: MaintenanceGap) -> None:
        if gap.before is MaintenanceStep.CHANGE_TOPICS:
            write_by(machine.bus, 3, generate_events(Purchase, 120, 140))

    with pytest.raises(MisplacedKeys, match=r"orders: a writer placed \d+ events of \d+ keys"):
        resize(machine, Numbered, 6, write_meanwhile)
    with pytest.raises(MaintenanceUnfinished):
        machine.run(with_buckets(Numbered, 6))
    with pytest.raises(MisplacedKeys):
        resize(machine, Numbered, 6)
    resize(machine, Numbered, 6, accept_misplaced=True)
    machine.run(with_buckets(Numbered, 6))

    assert len(read(machine.bus, plan_of(Numbered).outputs[0])) == 140


def test_events_written_with_the_new_number_of_buckets_are_processed(machine: Machine) -> None:
    """They are in the same buckets as their states."""
    read_part(machine, Numbered)

    def write_meanwhile(gap: MaintenanceGap) -> None:
        if gap == MaintenanceGap(MaintenanceStep.INSTALL_STATE, "numbered", 2):
            write_by(machine.bus, 6, generate_events(Purchase, 120, 140))

    resize(machine, Numbered, 6, write_meanwhile)
    machine.run(with_buckets(Numbered, 6))
    texts = [one.said for one in read(machine.bus, plan_of(Numbered).outputs[0])]

    assert len(texts) == 140
    assert all(int(one.split()[-1]) > 3 for one in texts if int(one.split()[0]) >= 120)


def test_a_category_with_another_partitioner_is_not_resized(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Penstock cannot predict the new buckets of its keys."""
    monkeypatch.setattr(Numbered, "key_check", False)
    create_categories(machine.bus, [Numbered])
    write_by(machine.bus, 2, generate_events(Purchase, 0, 50))
    machine.run(Numbered)
    with pytest.raises(MaintenanceRefused, match="uses another partitioner"):
        resize(machine, Numbered, 6)
    machine.run(Numbered)

    assert machine.bus.describe("orders").spec.buckets == 3
    assert newest_maintenance(machine.bus, "numbered") is None


def with_keys(processor: type[ps.Processor], **options: Any) -> type[ps.Processor]:
    """Return a processor whose input has another partitioner or key codec."""
    [category] = plan_of(processor).inputs
    return type(processor.__name__, (processor,), {"name": processor.name, "reads": replace(category, **options)})


def backwards(key: bytes, buckets: int) -> int:
    """A partitioner of a user."""
    return sum(key) % buckets


@pytest.mark.parametrize("partitioner", [ps.Partitioner.CONSISTENT, ps.Partitioner.FNV1A, backwards])
@pytest.mark.parametrize("processor", [Numbered, Hourly])
def test_states_are_split_by_the_declared_partitioner(
    machine: Machine, processor: type[ps.Processor], partitioner: Any
) -> None:
    """Outputs equal those of a run without a resize, with message keys in JSON, too."""
    subject = with_keys(processor, partitioner=partitioner, key_codec=ps.KeyCodec.JSON)
    read_part(machine, subject)
    resize(machine, subject, 6)

    assert finish(machine, with_buckets(subject, 6)) == outputs_without_resize(processor)


def test_events_of_another_partitioner_are_reported(machine: Machine) -> None:
    """The check after the resize uses the declared partitioner."""
    subject = with_keys(Numbered, partitioner=ps.Partitioner.CONSISTENT)
    read_part(machine, subject)

    def write_meanwhile(gap: MaintenanceGap) -> None:
        if gap.before is MaintenanceStep.CHANGE_TOPICS:
            write_by(machine.bus, 3, generate_events(Purchase, 120, 140))

    with pytest.raises(MisplacedKeys, match=r"orders: a writer placed \d+ events of \d+ keys"):
        resize(machine, subject, 6, write_meanwhile)


def test_a_category_with_an_unknown_partitioner_is_not_resized(machine: Machine) -> None:
    """The new buckets of the keys in a state are unknown."""
    subject = with_keys(Numbered, partitioner=None)
    subject.key_check = False
    read_part(machine, subject)

    with pytest.raises(MaintenanceRefused, match=r"The partitioner of orders is unknown .*state of Numbered"):
        resize(machine, subject, 6)


# Refused resizes.


def test_a_resize_with_unread_events_is_refused(machine: Machine) -> None:
    """The error reports their number."""
    read_part(machine, Numbered)
    send(machine.bus, Numbered, final_events)
    with pytest.raises(MaintenanceRefused, match="has 40 unread events"):
        resize(machine, Numbered, 6)
    machine.run(Numbered)
    resize(machine, Numbered, 6)


def test_a_resize_with_a_running_reader_is_refused(machine: Machine) -> None:
    """Nothing changes, and the worker continues."""
    read_part(machine, Numbered)
    with machine.working(Numbered) as worker:
        worker.run_once()
        with pytest.raises(GroupInUse):
            resize(machine, Numbered, 6)
        worker.run_once()

    assert machine.bus.describe("orders").spec.buckets == 3
    assert newest_maintenance(machine.bus, "numbered") is None


def test_fewer_buckets_are_refused(machine: Machine) -> None:
    """The error suggests a Repartition."""
    read_part(machine, Numbered)
    for buckets in (2, 3):
        with pytest.raises(MaintenanceRefused, match=r"penstock\.Repartition"):
            resize(machine, Numbered, buckets)


def test_a_resize_with_a_missing_state_is_refused(machine: Machine) -> None:
    """The error names the bucket, and nothing changes."""
    read_part(machine, Numbered)
    machine.lose(Numbered)
    with pytest.raises(MaintenanceRefused, match="bucket 0: its state at orders"):
        resize(machine, Numbered, 6)

    assert machine.bus.describe("orders").spec.buckets == 3
    assert newest_maintenance(machine.bus, "numbered") is None


def test_remote_state_is_not_split(machine: Machine) -> None:
    """The error suggests a Repartition into another category."""
    remote = type("Remotely", (Counted,), {"name": "remotely", "store": ps.RemoteStore()})
    create_categories(machine.bus, [remote])
    with pytest.raises(MaintenanceRefused, match=r"keeps its state in a remote store.*penstock\.Repartition"):
        resize(machine, remote, 6)


def test_a_reset_to_before_a_resize_is_refused(machine: Machine) -> None:
    """A reset to a later position is possible."""
    read_part(machine, Numbered)
    resize(machine, Numbered, 6)
    resized = with_buckets(Numbered, 6)
    send(machine.bus, resized, final_events)
    machine.run(resized)
    with pytest.raises(MaintenanceRefused, match="before the last change of the number of buckets"):
        plan_reset(resized, environment(machine), Edge.EARLIEST, None)
    planned = plan_reset(resized, environment(machine), parse_offsets("4=0", ["orders"]), StatePolicy.EMPTY)
    perform_reset(planned, environment(machine))
    machine.run(resized)
    texts = [one.said for one in read(machine.bus, plan_of(Numbered).outputs[0]) if one.at > START_MS + 9_000 * HOUR_MS]

    assert sum(one.endswith("is 1") for one in texts) == planned.repeated
