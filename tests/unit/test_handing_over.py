"""States that were built in batch are those that workers go on with, wherever they run and whatever they have on their disks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ClassVar

import pytest
from support.machines import Machine, created, read, write

import penstock as ps
from penstock.backfill.errors import BackfillRefused
from penstock.backfill.run.bootstrap_handoff import BootstrapHandoff, HandoffGap, HandoffStep, plan_handoff
from penstock.ops.maintenance.environment import Around
from penstock.ops.maintenance.processor_positions import LocalStates
from penstock.ops.maintenance.reset import ResetGap, ResetStep, perform, plan_reset
from penstock.ops.maintenance.reset_plan import Policy
from penstock.ops.maintenance.reset_target import Edge
from penstock.ops.worker.backups import WorkerBackups
from penstock.ops.worker.resume_checks import MoveUnfinished, StateSuperseded
from penstock.processors.shard.position import StatePosition
from penstock.state.backups.errors import BackupFenced
from penstock.state.backups.manifest import Manifest
from penstock.state.backups.shard import ShardBackups
from penstock.state.backups.shard_backup import snapshot_folder
from penstock.state.backups.writer import claim
from penstock.state.files.local_files import LocalFileStore
from penstock.state.local.folder import RocksStateFolder
from penstock.transport.errors import GroupInUse
from penstock.transport.memory import MemoryBus
from penstock.transport.tables.maintenance_log import MaintenanceOperation, newest_maintenance
from penstock.transport.tables.upstream_watermarks import watermarks_on

EXACT = ps.Semantics.EXACTLY_ONCE


class Reading(ps.Record, frozen=True):
    """What a meter shows."""

    meter: str
    at: ps.EventTime
    litres: int


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=2)
refunds = ps.Category("refunds", Reading, key="meter", event_time="at", buckets=2)
totals = ps.Category("totals", Reading, key="meter", event_time="at", buckets=2)


class Totals(ps.Stateful):
    """Adds up."""

    reads: ClassVar[Any] = readings
    writes, state = totals, int

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Reading]]:
        """Add."""
        total = (state or 0) + event.litres
        return total, [Reading(event.meter, event.at, total)]


class Balances(Totals):
    """The same, of two inputs, whose state is kept in a changelog."""

    name, reads, output_semantics = "balances", (readings, refunds), EXACT


KINDS = (Totals, Balances)


def made(begin: int, end: int, litres: int = 1) -> list[Reading]:
    """Return readings of five meters; from the fiftieth on the last one is silent."""
    return [Reading(f"m{n % (5 if n < 50 else 4)}", 1_000 * n, litres) for n in range(begin, end)]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine on a bus of its own."""
    return Machine(tmp_path / "one", MemoryBus(), LocalFileStore(tmp_path / "place"))


def beside(machine: Machine, name: str) -> Machine:
    """Return another machine on the same bus."""
    return Machine(machine.folder.with_name(name), machine.bus, machine.place)


def backups(machine: Machine) -> WorkerBackups:
    """Return what a worker restores from."""
    return WorkerBackups(machine.place, machine.states, timedelta(hours=1))


def around(machine: Machine) -> Around:
    """Return what a reset finds."""
    return Around(machine.bus, machine.states, machine.place)


def begun(machine: Machine, processor: type[ps.Processor]) -> None:
    """Let a processor read 100 events."""
    created(machine.bus, [processor])
    write(machine.bus, readings, made(0, 100))
    machine.run(processor)


def built(machine: Machine, handing_over: BootstrapHandoff) -> dict[int, Manifest]:
    """Store the states that batch makes of the first 50 events: there each is of ten litres, so that one knows whose state it is."""
    processor, batch = handing_over.processor, Machine(_new_folder(machine), MemoryBus(), machine.place)
    created(batch.bus, [processor])
    write(batch.bus, readings, made(0, 50, litres=10))
    batch.run(processor)
    local, manifests = LocalStates(processor, batch.states, None), dict[int, Manifest]()
    for bucket, offset in batch.bus.committed(processor.name, "readings").items():
        identity = local.identity(bucket)
        scratch = RocksStateFolder(batch.folder.with_name("scratch"))
        with (
            closing(RocksStateFolder(batch.states).open(identity)) as made_there,
            closing(scratch.open(identity)) as state,
        ):
            position = StatePosition({"readings": offset}, maintenance_number=handing_over.number)
            state.save_together(dict(made_there.items()), position)
            with snapshot_folder(state.folder) as snapshot:
                state.snapshot(snapshot)
                owner = claim(ShardBackups(machine.place, processor.name, bucket), identity)
                manifests[bucket] = owner.store(snapshot, position)
    return manifests


def _new_folder(machine: Machine) -> Path:
    return Path(mkdtemp(prefix="batch", dir=machine.folder.parent))


def bootstrap(
    machine: Machine, processor: type[ps.Processor], at_gap: Callable[[HandoffGap], None] = lambda _: None
) -> None:
    """Build states, and hand them over."""
    handing_over = plan_handoff(processor, machine.bus, machine.place)
    handing_over.perform(built(machine, handing_over), at_gap)


def written(machine: Machine) -> list[tuple[str, int, int]]:
    """Return all outputs, in an order that does not depend on buckets."""
    return sorted((one.meter, one.at, one.litres) for one in read(machine.bus, totals))


def summed(begin: int, end: int, each: int = 0) -> list[tuple[str, int, int]]:
    """Return what readings give that are added to what each meter had."""
    sums, found = {f"m{n}": each for n in range(5)}, []
    for one in made(begin, end):
        sums[one.meter] += one.litres
        found.append((one.meter, one.at, sums[one.meter]))
    return found


STREAMED = summed(0, 100)
"""What the stream gives of the 100 events."""
WENT_ON = summed(50, 100, each=100)
"""What the last 50 give where what was built of the others is gone on with."""
IN_THE_END = {meter.encode(): bytes([total]) for meter, _, total in [("m4", 0, 100), *WENT_ON]}
"""What is then in the state."""


@pytest.mark.parametrize("processor", KINDS)
def test_every_machine_goes_on_from_what_was_built(machine: Machine, processor: type[ps.Processor]) -> None:
    """One whose own state had come further, one whose state was behind, and one that has none."""
    behind, new = beside(machine, "behind"), beside(machine, "new")
    created(machine.bus, [processor])
    write(machine.bus, readings, made(0, 20))
    behind.run(processor)
    write(machine.bus, readings, made(20, 100))
    machine.run(processor)
    bootstrap(machine, processor)
    for one in (machine, behind, new):
        one.run(processor, backups(one))

    assert written(machine) == sorted(STREAMED + WENT_ON)
    assert [one.state(processor) for one in (machine, behind, new)] == [IN_THE_END] * 3


@pytest.mark.parametrize("has_backups", [False, True])
def test_the_changelog_gives_what_was_built(machine: Machine, has_backups: bool) -> None:
    """Where reading again would not: whoever loses the state has it from there, also without the backup, and nothing of before."""
    begun(machine, Balances)
    bootstrap(machine, Balances)
    machine.run(Balances, backups(machine))
    write(machine.bus, readings, made(100, 105))
    other = beside(machine, "other")
    other.run(Balances, backups(other) if has_backups else None)

    assert written(machine) == sorted(STREAMED + summed(50, 105, each=100))
    assert other.state(Balances)[b"m4"] == b"\x64"


@pytest.mark.parametrize("processor", KINDS)
def test_what_a_reset_has_moved_is_built_anew(machine: Machine, processor: type[ps.Processor]) -> None:
    """The state bears a later number than the reset's, which workers would not go on without."""
    begun(machine, processor)
    perform(plan_reset(processor, around(machine), Edge.LATEST, Policy.EMPTY), around(machine))
    bootstrap(machine, processor)
    machine.run(processor, backups(machine))
    move = newest_maintenance(machine.bus, processor.name)

    assert machine.state(processor) == IN_THE_END
    assert move is not None
    assert (move.done, move.numbers) == (True, {0: 2, 1: 2})


def test_a_worker_without_backups_does_not_go_on_from_before(machine: Machine) -> None:
    """It is told what to do."""
    begun(machine, Totals)
    bootstrap(machine, Totals)
    with pytest.raises(StateSuperseded, match="of before the bootstrap"):
        machine.run(Totals)


def test_what_is_written_again_is_not_promised_as_complete(machine: Machine) -> None:
    """Consumers that go by promises wait until it is."""
    begun(machine, Totals)
    before = {bucket for name, bucket in watermarks_on(machine.bus) if name == "totals"}
    bootstrap(machine, Totals)

    assert before == {0, 1}
    assert {bucket for name, bucket in watermarks_on(machine.bus) if name == "totals"} == set()


# Not half done.


class Killed(Exception):
    """The process died."""


def dying(gap: HandoffGap) -> Callable[[HandoffGap], None]:
    """Die in a gap."""

    def at_gap(here: HandoffGap) -> None:
        if here == gap:
            raise Killed

    return at_gap


def test_what_was_built_does_not_count_before_it_is_handed_over(machine: Machine) -> None:
    """Whoever dies until then leaves all as it was, also for a worker that looks for a backup."""
    begun(machine, Totals)
    with pytest.raises(Killed):
        bootstrap(machine, Totals, dying(HandoffGap(HandoffStep.NOTE_BEGIN)))
    machine.lose(Totals)
    machine.run(Totals, backups(machine))

    assert written(machine) == sorted(STREAMED)
    assert machine.state(Totals) == {meter.encode(): bytes([total]) for meter, _, total in STREAMED}


GAPS = [
    (Totals, HandoffGap(HandoffStep.PUBLISH, 1)),
    (Balances, HandoffGap(HandoffStep.REWRITE_CHANGELOG, 1)),
    (Balances, HandoffGap(HandoffStep.SET_POSITIONS)),
    (Balances, HandoffGap(HandoffStep.NOTE_END)),
]


@pytest.mark.parametrize(("processor", "gap"), GAPS)
def test_one_that_died_is_given_again(machine: Machine, processor: type[ps.Processor], gap: HandoffGap) -> None:
    """No worker starts before that, and then all is as if it had not died."""
    begun(machine, processor)
    with pytest.raises(Killed):
        bootstrap(machine, processor, dying(gap))
    with pytest.raises(MoveUnfinished, match="a bootstrap was begun"):
        machine.run(processor, backups(machine))
    bootstrap(machine, processor)
    machine.run(processor, backups(machine))

    assert written(machine) == sorted(STREAMED + WENT_ON)
    assert machine.state(processor) == IN_THE_END


def test_a_part_of_one_that_died_is_not_left_behind(machine: Machine) -> None:
    """Another try that builds fewer buckets is refused."""
    begun(machine, Totals)
    with pytest.raises(Killed):
        bootstrap(machine, Totals, dying(HandoffGap(HandoffStep.PUBLISH, 1)))
    again = plan_handoff(Totals, machine.bus, machine.place)
    manifests = built(machine, again)
    with pytest.raises(BackfillRefused, match="nothing for bucket 1"):
        again.perform({0: manifests[0]})


def test_a_reset_that_is_half_done_comes_first(machine: Machine) -> None:
    """Nothing is built meanwhile."""
    begun(machine, Totals)
    gap = ResetGap(ResetStep.SET_POSITIONS)

    def die(here: ResetGap) -> None:
        if here == gap:
            raise Killed

    with pytest.raises(Killed):
        perform(plan_reset(Totals, around(machine), Edge.EARLIEST, None), around(machine), die)
    with pytest.raises(BackfillRefused, match="a reset to earliest is half done"):
        plan_handoff(Totals, machine.bus, machine.place)


# Not beside a worker.


def test_not_while_it_runs(machine: Machine) -> None:
    """Neither from the beginning nor when a worker is started meanwhile, which goes on."""
    begun(machine, Totals)
    handing_over = plan_handoff(Totals, machine.bus, machine.place)
    manifests = built(machine, handing_over)
    with machine.working(Totals) as worker:
        worker.run_once()
        with pytest.raises(GroupInUse):
            plan_handoff(Totals, machine.bus, machine.place)
        with pytest.raises(GroupInUse):
            handing_over.perform(manifests)

    assert newest_maintenance(machine.bus, "totals") is None


def has_run(machine: Machine) -> None:
    """Let it read on, and stop."""
    write(machine.bus, readings, made(100, 110))
    machine.run(Totals)


def has_backed_up(machine: Machine) -> None:
    """Let it make backups, which may remove what nobody has made one of."""
    machine.back_up(Totals)


def was_reset(machine: Machine) -> None:
    """Move it."""
    perform(plan_reset(Totals, around(machine), Edge.EARLIEST, None), around(machine))


@pytest.mark.parametrize(
    ("meanwhile", "refused"),
    [(has_run, BackfillRefused), (has_backed_up, BackupFenced), (was_reset, BackfillRefused)],
)
def test_not_over_what_has_happened_meanwhile(
    machine: Machine, meanwhile: Callable[[Machine], None], refused: type[Exception]
) -> None:
    """It stands as that has left it, and its workers start."""
    begun(machine, Totals)
    handing_over = plan_handoff(Totals, machine.bus, machine.place)
    manifests = built(machine, handing_over)
    meanwhile(machine)
    before = newest_maintenance(machine.bus, "totals"), machine.bus.committed("totals", "readings")
    with pytest.raises(refused):
        handing_over.perform(manifests)

    assert (newest_maintenance(machine.bus, "totals"), machine.bus.committed("totals", "readings")) == before
    machine.run(Totals, backups(machine))


def test_state_is_not_built_of_events_from_before_a_change_of_buckets(machine: Machine) -> None:
    """When keys lay in other buckets; of those behind it, it is."""
    borders: dict[str, dict[int, int]] = {"readings": {0: 30}}
    move = MaintenanceOperation(
        "totals", "resize to 2 buckets", 0, done=True, numbers={0: 1, 1: 1}, borders=borders, buckets=2
    )
    handing_over = BootstrapHandoff(Totals, machine.bus, machine.place, move, committed={})
    behind: dict[int, Any] = {0: {"readings": 30}, 1: {"readings": 0}}
    handing_over.expect_keyed_alike(behind)
    with pytest.raises(BackfillRefused, match="when keys lay in other buckets"):
        handing_over.expect_keyed_alike({**behind, 0: {"readings": 29}})
