"""What another number of buckets promises: each key goes on where it was, with its state, its windows and its timers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.machines import Machine, created, read, write
from support.shop import Baskets, Counted, Hourly, Numbered, Outcome, Paid, Purchase, Tale, Visits, told

import penstock as ps
from penstock.ops.maintenance.environment import Around
from penstock.ops.maintenance.errors import MaintenanceRefused
from penstock.ops.maintenance.reset import perform, plan_reset
from penstock.ops.maintenance.reset_plan import Policy
from penstock.ops.maintenance.reset_target import Edge, parse_offsets
from penstock.ops.maintenance.resize import MisplacedKeys, Resize, ResizeGap, ResizeStep, perform_resize, plan_resize
from penstock.ops.worker.backups import WorkerBackups
from penstock.ops.worker.resume_checks import MoveUnfinished, StateSuperseded
from penstock.processors.declare.partitioner import bucket_of
from penstock.state.files.local_files import LocalFileStore
from penstock.transport.codecs.by_category import Codecs
from penstock.transport.errors import BucketMismatch, GroupInUse
from penstock.transport.memory import MemoryBus
from penstock.transport.messages import Outgoing
from penstock.transport.tables.maintenance_log import newest_maintenance

HOUR_MS = 3_600_000
START_MS = 1_357_000_000_000 // HOUR_MS * HOUR_MS
KEYS = 40
EXACT = ps.Semantics.EXACTLY_ONCE
Undisturbed = Callable[[type[ps.Processor]], list[Any]]


class Reminders(ps.Stateful):
    """Says of each order, an hour later, how many of the customer there are."""

    reads, writes, state = Numbered.reads, told("reminders"), int
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(hours=2))

    def process(self, event: Purchase, state: int | None, context: ps.Context) -> tuple[int, list[Outcome]]:
        """Count, and wait."""
        context.timer(event.at + HOUR_MS, str(event.number))
        return (state or 0) + 1, []

    def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> tuple[int, list[Outcome]]:
        """Tell."""
        return state, [Outcome(context.key, timer.at, timer.tag)]


class Lately(ps.Aggregator):
    """How many orders there were in the three hours up to each."""

    reads, writes, late = Numbered.reads, told("lately"), ps.OnLate.DROP
    monoid, window, emit = ps.monoids.Count(), ps.windows.Sliding(timedelta(hours=3)), ps.AtWatermark()
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(hours=2))

    def result(self, key: str, window: ps.windows.Window, value: int) -> Outcome:
        """Return the count."""
        return Outcome(key, window.end, str(value))


class PaidExactly(Paid):
    """The same join, whose state is kept in a changelog."""

    name, writes, output_semantics = "paid_exactly", told("paid_exactly"), EXACT


class Copies(ps.Stateless):
    """Numbers of orders."""

    reads, writes = Numbered.reads, told("copies")

    def process(self, event: Purchase) -> list[Outcome]:
        """Copy."""
        return [Outcome(event.customer, event.at, str(event.number))]


BY_MULTIPLE = [
    (kind, 6) for kind in (Numbered, Counted, Hourly, Visits, Tale, Baskets, PaidExactly, Reminders, Lately, Copies)
]
KINDS: list[tuple[type[ps.Processor], int]] = [*BY_MULTIPLE, (Hourly, 4), (Reminders, 4), (Tale, 4), (Paid, 4)]


def with_buckets(processor: type[ps.Processor], buckets: int) -> type[ps.Processor]:
    """Return a processor as it is declared with another number of buckets of its inputs."""
    inputs = [replace(category, buckets=buckets) for category in processor.inputs()]
    reads = {"left": inputs[0], "right": inputs[1]} if issubclass(processor, ps.Join) else {"reads": tuple(inputs)}
    return type(processor.__name__, (processor,), {"name": processor.name, **reads})


def made(record: type[Any], begin: int, end: int) -> list[Any]:
    """Return events, each up to an hour and a half late: nothing is too late, wherever it lies."""
    dice = random.Random(7)
    late = [dice.randrange(90) for _ in range(end)]
    return [
        record(f"c{n * 7 % KEYS}", START_MS + n * 10 * 60_000 + (90 - late[n]) * 60_000, n) for n in range(begin, end)
    ]


def ending(record: type[Any]) -> list[Any]:
    """Return an event of each key so late that all before it is complete."""
    return [record(f"c{n}", START_MS + 10_000 * HOUR_MS, 10_000 + n) for n in range(KEYS)]


def send(bus: MemoryBus, processor: type[ps.Processor], events: Callable[[type[Any]], list[Any]]) -> None:
    """Write events to each input."""
    for category in processor.inputs():
        write(bus, category, events(category.record))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine on a bus of its own."""
    return Machine(tmp_path / "one", MemoryBus(), LocalFileStore(tmp_path / "place"))


def around(machine: Machine) -> Around:
    """Return what a resize finds there."""
    return Around(machine.bus, machine.states, machine.place)


def begun(machine: Machine, processor: type[ps.Processor]) -> None:
    """Let a processor read 120 events."""
    created(machine.bus, [processor])
    send(machine.bus, processor, lambda record: made(record, 0, 120))
    machine.run(processor)


def resize(
    machine: Machine,
    processor: type[ps.Processor],
    buckets: int,
    at_gap: Callable[[ResizeGap], None] = lambda _: None,
    **options: bool,
) -> Resize:
    """Plan it and do it."""
    planned = plan_resize([processor], around(machine), "orders", buckets)
    perform_resize(planned, around(machine), at_gap, **options)
    return planned


def ended(machine: Machine, processor: type[ps.Processor]) -> list[Any]:
    """Let a processor read the rest; return what it has written: of updates, the last."""
    send(machine.bus, processor, lambda record: made(record, 120, 240))
    machine.run(processor)
    send(machine.bus, processor, ending)
    machine.run(processor)
    outputs = read(machine.bus, processor.outputs()[0])
    if processor.name == Counted.name:
        outputs = list({(one.customer, one.at): one for one in outputs}.values())
    return sorted((one.customer, one.at, one.said) for one in outputs)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Return what a processor writes whose categories stay as they are."""
    known: dict[str, list[Any]] = {}

    def outputs_of(processor: type[ps.Processor]) -> list[Any]:
        if processor.name not in known:
            folder = tmp_path_factory.mktemp("undisturbed")
            other = Machine(folder / "one", MemoryBus(), LocalFileStore(folder / "place"))
            begun(other, processor)
            known[processor.name] = ended(other, processor)
        return known[processor.name]

    return outputs_of


@pytest.mark.parametrize(("processor", "buckets"), KINDS)
def test_each_key_goes_on_where_it_was(
    machine: Machine, undisturbed: Undisturbed, processor: type[ps.Processor], buckets: int
) -> None:
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
    with pytest.raises(StateSuperseded, match="before the resize to 6 buckets"):
        other.run(resized)
    machine.lose(resized)
    with pytest.raises(StateSuperseded, match="neither on this machine nor in a backup"):
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


def test_a_second_time_it_goes_on_from_the_first(machine: Machine, undisturbed: Undisturbed) -> None:
    """From three to six to twelve."""
    begun(machine, Reminders)
    resize(machine, Reminders, 6)
    resize(machine, with_buckets(Reminders, 6), 12)

    assert ended(machine, with_buckets(Reminders, 12)) == undisturbed(Reminders)


# Not half done.


class Killed(Exception):
    """The process died."""


def dying(gap: ResizeGap) -> Callable[[ResizeGap], None]:
    """Die in a gap."""

    def at_gap(here: ResizeGap) -> None:
        if here == gap:
            raise Killed

    return at_gap


GAPS = [
    ResizeGap(ResizeStep.SPLIT_STATES, "paid_exactly"),
    ResizeGap(ResizeStep.ADD_BUCKETS),
    ResizeGap(ResizeStep.PLACE_STATE, "paid_exactly", 2),
    ResizeGap(ResizeStep.STORE_BACKUP, "paid_exactly", 4),
    ResizeGap(ResizeStep.REWRITE_CHANGELOG, "paid_exactly", 1),
    ResizeGap(ResizeStep.SET_POSITIONS, "paid_exactly"),
    ResizeGap(ResizeStep.NOTE_END, "paid_exactly"),
]


@pytest.mark.parametrize("gap", GAPS, ids=lambda gap: f"{gap.before.name}-{gap.bucket}")
def test_one_that_died_is_given_again(machine: Machine, undisturbed: Undisturbed, gap: ResizeGap) -> None:
    """No worker starts before that, whatever it declares, and then all is as if it had not died."""
    begun(machine, PaidExactly)
    with pytest.raises(Killed):
        resize(machine, PaidExactly, 6, dying(gap))
    resized = with_buckets(PaidExactly, 6)
    for declared in (PaidExactly, resized):
        with pytest.raises((MoveUnfinished, BucketMismatch)):
            machine.run(declared)
    resize(machine, PaidExactly, 6)

    assert ended(machine, resized) == undisturbed(PaidExactly)


def test_before_buckets_are_added_it_may_be_given_up(machine: Machine, undisturbed: Undisturbed) -> None:
    """Where something was written since it died, its readers first read that."""
    begun(machine, Numbered)
    with pytest.raises(Killed):
        resize(machine, Numbered, 6, dying(ResizeGap(ResizeStep.ADD_BUCKETS)))
    send(machine.bus, Numbered, lambda record: made(record, 120, 240))
    with pytest.raises(MaintenanceRefused, match="was written to meanwhile"):
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

    def write_meanwhile(gap: ResizeGap) -> None:
        if gap.before is ResizeStep.ADD_BUCKETS:
            write_by(machine.bus, 3, made(Purchase, 120, 140))

    with pytest.raises(MisplacedKeys, match=r"orders: \d+ events of \d+ keys"):
        resize(machine, Numbered, 6, write_meanwhile)
    with pytest.raises(MoveUnfinished):
        machine.run(with_buckets(Numbered, 6))
    with pytest.raises(MisplacedKeys):
        resize(machine, Numbered, 6)
    resize(machine, Numbered, 6, accept_misplaced=True)
    machine.run(with_buckets(Numbered, 6))

    assert len(read(machine.bus, Numbered.outputs()[0])) == 140


def test_events_that_are_written_by_the_new_number_are_welcome(machine: Machine) -> None:
    """They lie where their states are."""
    begun(machine, Numbered)

    def write_meanwhile(gap: ResizeGap) -> None:
        if gap == ResizeGap(ResizeStep.PLACE_STATE, "numbered", 2):
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
    with pytest.raises(MaintenanceRefused, match="chooses buckets in its own way"):
        resize(machine, Numbered, 6)
    machine.run(Numbered)

    assert machine.bus.describe("orders").spec.buckets == 3
    assert newest_maintenance(machine.bus, "numbered") is None


# Refused.


def test_not_before_all_is_read(machine: Machine) -> None:
    """It says how much is left."""
    begun(machine, Numbered)
    send(machine.bus, Numbered, ending)
    with pytest.raises(MaintenanceRefused, match="has 40 events still to read"):
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
    with pytest.raises(MaintenanceRefused, match="before the number of buckets was changed"):
        plan_reset(resized, around(machine), Edge.EARLIEST, None)
    planned = plan_reset(resized, around(machine), parse_offsets("4=0", ["orders"]), Policy.EMPTY)
    perform(planned, around(machine))
    machine.run(resized)
    said = [one.said for one in read(machine.bus, Numbered.outputs()[0]) if one.at > START_MS + 9_000 * HOUR_MS]

    assert sum(one.endswith("is 1") for one in said) == planned.again
