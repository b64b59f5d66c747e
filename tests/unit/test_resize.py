"""What another number of buckets promises: each key goes on where it was, with its state, its windows and its timers."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.machines import Machine, created, read
from support.maintenance import Killed, dying, environment
from support.resizes import (
    HOUR_MS,
    KEYS,
    KINDS,
    START_MS,
    Reminders,
    begun,
    ended,
    ending,
    made,
    resize,
    send,
    undisturbed,
    with_buckets,
)
from support.shop import Counted, Hourly, Numbered, Paid, Purchase

import penstock as ps
from penstock.ops.maintenance.reset import perform_reset, plan_reset
from penstock.ops.maintenance.reset_plan import StatePolicy
from penstock.ops.maintenance.reset_target import Edge, parse_offsets
from penstock.ops.maintenance.resize import MisplacedKeys
from penstock.ops.worker.backups import WorkerBackups
from penstock.ops.worker.resume_checks import MaintenanceUnfinished, StateSuperseded
from penstock.processors.declare.partitioner import bucket_of
from penstock.transport.codecs.by_category import Codecs
from penstock.transport.errors import GroupInUse
from penstock.transport.memory import MemoryBus
from penstock.transport.messages import Outgoing
from penstock.transport.tables.maintenance_log import newest_maintenance
from penstock.transport.tables.maintenance_protocol import (
    MaintenanceGap,
    MaintenanceRefused,
    MaintenanceStep,
)


@pytest.mark.parametrize(("processor", "buckets"), KINDS)
def test_each_key_goes_on_where_it_was(machine: Machine, processor: type[ps.Processor], buckets: int) -> None:
    """Whatever is kept of it: outputs are those that there would have been, each once.

    Where the event time of some keys went back, windows are written again that were complete and still take late events.
    """
    begun(machine, processor)
    planned = resize(machine, processor, buckets)
    outputs = ended(machine, with_buckets(processor, buckets))
    if not planned.keeps_time and processor is Hourly:
        outputs = sorted(set(outputs))

    assert planned.keeps_time == (buckets == 6)
    assert outputs == undisturbed(processor)
    assert len(outputs) > KEYS


def test_new_buckets_do_their_share(machine: Machine) -> None:
    """Each state holds the keys of its bucket, and no others."""
    begun(machine, Numbered)
    resize(machine, Numbered, 6)
    for bucket in range(6):
        position = machine.bus.committed("numbered", "orders")[bucket]
        assert position == (machine.bus.ends("orders")[bucket] if bucket < 3 else 0)
    found = machine.state(with_buckets(Numbered, 6))

    assert {int(key[1:]) for key in found} == set(range(KEYS))


def test_another_machine_has_its_states_from_the_backups(machine: Machine, tmp_path: Path) -> None:
    """Also one that still has those of before; without backups it says so."""
    other = Machine(tmp_path / "other", machine.bus, machine.place)
    begun(other, Numbered)
    other.back_up(Numbered)
    resize(machine, Numbered, 6)
    resized = with_buckets(Numbered, 6)
    with pytest.raises(StateSuperseded, match="from before the resize to 6 buckets"):
        other.run(resized)
    machine.lose(resized)
    with pytest.raises(StateSuperseded, match="neither on this machine nor in a recent backup"):
        machine.run(resized)
    machine.lose(resized)
    send(machine.bus, resized, ending)
    machine.run(resized, WorkerBackups(machine.place, machine.states, timedelta(hours=1)))
    said = {one.said for one in read(machine.bus, Numbered.outputs()[0]) if one.at == START_MS + 10_000 * HOUR_MS}

    assert len(said) == KEYS
    assert all(int(one.split()[-1]) > 1 for one in said)


def test_categories_that_are_read_together_stay_alike(machine: Machine) -> None:
    """The other input of a join is resized with it."""
    begun(machine, Paid)
    planned = resize(machine, Paid, 6)

    assert planned.categories == ["orders", "payments"]
    assert machine.bus.describe("payments").spec.buckets == 6


def test_a_second_time_it_goes_on_from_the_first(machine: Machine) -> None:
    """From three to six to twelve."""
    begun(machine, Reminders)
    resize(machine, Reminders, 6)
    resize(machine, with_buckets(Reminders, 6), 12)

    assert ended(machine, with_buckets(Reminders, 12)) == undisturbed(Reminders)


# Not half done.


def test_before_buckets_are_added_it_may_be_given_up(machine: Machine) -> None:
    """Where something was written since it died, its readers first read that."""
    begun(machine, Numbered)
    with pytest.raises(Killed):
        resize(machine, Numbered, 6, dying(MaintenanceStep.CHANGE_TOPICS))
    send(machine.bus, Numbered, lambda record: made(record, 120, 240))
    with pytest.raises(MaintenanceRefused, match="was written to during the resize"):
        resize(machine, Numbered, 6)
    machine.run(Numbered)
    resize(machine, Numbered, 6)
    send(machine.bus, Numbered, ending)
    machine.run(with_buckets(Numbered, 6))
    outputs = sorted((one.customer, one.at, one.said) for one in read(machine.bus, Numbered.outputs()[0]))

    assert outputs == undisturbed(Numbered)


# Who writes by the old number of buckets.


def write_by(bus: MemoryBus, buckets: int, events: list[Any]) -> None:
    """Write as a producer does that knows of so many buckets."""
    [category] = Numbered.inputs()
    values = Codecs(bus).of(category).encode(events)
    keys = [key.encode() for key in category.keys_of(events)]
    bus.writer().send(
        category.name, [Outgoing(key, value, bucket_of(key, buckets)) for key, value in zip(keys, values, strict=True)]
    )


def test_events_in_the_wrong_buckets_are_told(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads them before somebody has decided."""
    monkeypatch.setattr(Numbered, "key_check", False)
    begun(machine, Numbered)

    def write_meanwhile(gap: MaintenanceGap) -> None:
        if gap.before is MaintenanceStep.CHANGE_TOPICS:
            write_by(machine.bus, 3, made(Purchase, 120, 140))

    with pytest.raises(MisplacedKeys, match=r"orders: \d+ events of \d+ keys"):
        resize(machine, Numbered, 6, write_meanwhile)
    with pytest.raises(MaintenanceUnfinished):
        machine.run(with_buckets(Numbered, 6))
    with pytest.raises(MisplacedKeys):
        resize(machine, Numbered, 6)
    resize(machine, Numbered, 6, accept_misplaced=True)
    machine.run(with_buckets(Numbered, 6))

    assert len(read(machine.bus, Numbered.outputs()[0])) == 140


def test_events_that_are_written_by_the_new_number_are_welcome(machine: Machine) -> None:
    """They lie where their states are."""
    begun(machine, Numbered)

    def write_meanwhile(gap: MaintenanceGap) -> None:
        if gap == MaintenanceGap(MaintenanceStep.INSTALL_STATE, "numbered", 2):
            write_by(machine.bus, 6, made(Purchase, 120, 140))

    resize(machine, Numbered, 6, write_meanwhile)
    machine.run(with_buckets(Numbered, 6))
    said = [one.said for one in read(machine.bus, Numbered.outputs()[0])]

    assert len(said) == 140
    assert all(int(one.split()[-1]) > 3 for one in said if int(one.split()[0]) >= 120)


def test_keys_that_another_partitioner_placed_are_not_torn_apart(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they will be is not known."""
    monkeypatch.setattr(Numbered, "key_check", False)
    created(machine.bus, [Numbered])
    write_by(machine.bus, 2, made(Purchase, 0, 50))
    machine.run(Numbered)
    with pytest.raises(MaintenanceRefused, match="uses another partitioner"):
        resize(machine, Numbered, 6)
    machine.run(Numbered)

    assert machine.bus.describe("orders").spec.buckets == 3
    assert newest_maintenance(machine.bus, "numbered") is None


# Refused.


def test_not_before_all_is_read(machine: Machine) -> None:
    """It says how much is left."""
    begun(machine, Numbered)
    send(machine.bus, Numbered, ending)
    with pytest.raises(MaintenanceRefused, match="has 40 unread events"):
        resize(machine, Numbered, 6)
    machine.run(Numbered)
    resize(machine, Numbered, 6)


def test_not_while_a_reader_runs(machine: Machine) -> None:
    """Nothing is changed, and it goes on."""
    begun(machine, Numbered)
    with machine.working(Numbered) as worker:
        worker.run_once()
        with pytest.raises(GroupInUse):
            resize(machine, Numbered, 6)
        worker.run_once()

    assert machine.bus.describe("orders").spec.buckets == 3
    assert newest_maintenance(machine.bus, "numbered") is None


def test_fewer_buckets_are_refused(machine: Machine) -> None:
    """With the way that there is."""
    begun(machine, Numbered)
    for buckets in (2, 3):
        with pytest.raises(MaintenanceRefused, match=r"penstock\.Repartition"):
            resize(machine, Numbered, buckets)


def test_a_state_that_is_missing_is_named(machine: Machine) -> None:
    """Before anything is changed."""
    begun(machine, Numbered)
    machine.lose(Numbered)
    with pytest.raises(MaintenanceRefused, match="bucket 0: its state at orders"):
        resize(machine, Numbered, 6)

    assert machine.bus.describe("orders").spec.buckets == 3
    assert newest_maintenance(machine.bus, "numbered") is None


def test_remote_state_is_not_split(machine: Machine) -> None:
    """It says what to do instead: another category, into whose buckets events come by their keys."""
    remote = type("Remotely", (Counted,), {"name": "remotely", "store": ps.RemoteStore()})
    created(machine.bus, [remote])
    with pytest.raises(MaintenanceRefused, match=r"keeps its state in a remote store.*penstock\.Repartition"):
        resize(machine, remote, 6)


def test_a_reset_does_not_lead_to_where_keys_lay_elsewhere(machine: Machine) -> None:
    """Behind the border it may lead."""
    begun(machine, Numbered)
    resize(machine, Numbered, 6)
    resized = with_buckets(Numbered, 6)
    send(machine.bus, resized, ending)
    machine.run(resized)
    with pytest.raises(MaintenanceRefused, match="before the last change of the number of buckets"):
        plan_reset(resized, environment(machine), Edge.EARLIEST, None)
    planned = plan_reset(resized, environment(machine), parse_offsets("4=0", ["orders"]), StatePolicy.EMPTY)
    perform_reset(planned, environment(machine))
    machine.run(resized)
    said = [one.said for one in read(machine.bus, Numbered.outputs()[0]) if one.at > START_MS + 9_000 * HOUR_MS]

    assert sum(one.endswith("is 1") for one in said) == planned.repeated
