"""Bisections: the event after which a condition holds, in and between snapshots, and when nothing was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.machines import Machine, create_categories, write
from support.maintenance import worker_backups
from support.resets import EXACT, Reading
from support.snapshots import Totals, checked, stopped_snapshot

from penstock.ops.change.clones.bisecting import Cause, KeyNotRead, Search, find_cause
from penstock.ops.change.snapshots.snapshot import Snapshot, SnapshotError
from penstock.transport import Bucket


class Sums(Totals):
    """Sums the readings of each meter, exactly once."""

    state_semantics = EXACT


class Capped(Sums):
    """A later version, which counts nothing."""

    def process(self, event: Reading, state: int | None, context: Any) -> Any:
        """Add a reading."""
        return super().process(Reading(event.meter, event.at, min(event.litres, 0)), state, context)


LITRES = (1, 1, 90, -90, 1, 1)
"""The sum is above 50 after the third reading only."""


@pytest.fixture
def snapshots(machine: Machine) -> list[Snapshot]:
    """A snapshot after each two readings."""
    create_categories(machine.bus, [Sums])
    taken = []
    for at in range(0, len(LITRES), 2):
        write(machine.bus, checked, [Reading("kitchen", at + step, LITRES[at + step]) for step in range(2)])
        machine.run(Sums, worker_backups(machine))
        taken.append(stopped_snapshot(machine, [Sums]))
    return taken


def search(
    machine: Machine, snapshots: Sequence[Snapshot], holds: Callable[[int], bool], kind: type[Totals] = Sums
) -> tuple[Cause | None, str]:
    """Search the states of the kitchen; return the cause and the report."""
    report: list[str] = []
    cause = find_cause(Search(kind, "kitchen", holds, machine.bus, machine.place, report.append), snapshots)
    return cause, " ".join(report)


def test_a_condition_that_held_between_two_snapshots_is_found(machine: Machine, snapshots: list[Snapshot]) -> None:
    """The condition holds in no snapshot."""
    cause, report = search(machine, snapshots, lambda state: state > 50)

    assert cause is not None
    assert (cause.offset, cause.before, cause.after) == (2, 2, 92)
    assert "It may have held between two of them." in report


def test_only_the_events_before_the_first_snapshot_in_which_it_holds_are_replayed(
    machine: Machine, snapshots: list[Snapshot]
) -> None:
    """The replay begins at the snapshot before that one."""
    cause, _ = search(machine, snapshots, lambda state: state > 3)

    assert cause is not None
    assert (cause.offset, cause.replayed) == (5, 2)


@pytest.mark.parametrize(("start", "found"), [(1, 2), (3, None), (6, None)])
def test_the_search_names_its_start_when_events_have_expired(
    machine: Machine, snapshots: list[Snapshot], start: int, found: int | None
) -> None:
    """It names the first snapshot after which all events are retained."""
    machine.bus.trim(Bucket(checked.name, checked.bucket_of("kitchen")), start)
    cause, report = search(machine, snapshots, lambda state: state > 50)

    assert (None if cause is None else cause.offset) == found
    assert f"is retained only from offset {start}: the search starts at snapshot " in report


def test_a_condition_that_never_holds_is_searched_everywhere(machine: Machine, snapshots: list[Snapshot]) -> None:
    """It is searched in the snapshots, after them, and between them."""
    cause, report = search(machine, snapshots, lambda state: state > 1000)

    assert cause is None
    assert "from offset 6 (snapshot" in report
    assert "from offset 0 (the first event) to 6 (snapshot" in report


def test_other_code_does_not_explain_the_state_of_a_snapshot(machine: Machine, snapshots: list[Snapshot]) -> None:
    """After a correction, the event that broke the state no longer does so."""
    with pytest.raises(SnapshotError, match=r"holds in snapshot .* Sums processes them differently now\."):
        search(machine, snapshots[:1], lambda state: state == 2, type("Sums", (Capped,), {}))


def test_a_misspelled_key_is_named_with_snapshots_too(machine: Machine, snapshots: list[Snapshot]) -> None:
    """No snapshot contains the key."""
    with pytest.raises(KeyNotRead, match="No event of key kitchn was read"):
        find_cause(Search(Sums, "kitchn", bool, machine.bus, machine.place), snapshots)
