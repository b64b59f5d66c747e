"""How one version takes another's place: in memory, with deaths between any two steps."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from support.deployed import MemoryMachine, kept_versions

from penstock.ops.deploy.errors import SupervisorUnavailable, UpdateFailed, WorkerFailed
from penstock.ops.deploy.process_supervisor import ProcessState, ProcessStatus
from penstock.ops.deploy.readiness import LocalWorkers
from penstock.ops.deploy.registry import DeploymentFiles, DesiredState, WorkerStart
from penstock.ops.deploy.supervised_rollout import SupervisedRollout


class Killed(BaseException):
    """The command is killed."""


def dying_at(call: int) -> Callable[[], None]:
    """Return what kills the command at its n-th step, and never again."""
    calls = count()

    def step() -> None:
        if next(calls) == call:
            raise Killed

    return step


def deployed(
    folder: Path, *, bad: set[int], workers: int = 3
) -> tuple[DeploymentFiles, MemoryMachine, SupervisedRollout]:
    """Return version 1 with its workers running, and version 2 kept."""
    records = kept_versions(folder, 1, 2)
    machine = MemoryMachine(records, bad)
    rolling = SupervisedRollout(records, machine, machine, 1.0, lambda _: None)
    rolling.begin(records.version(1), workers)
    machine.fewest = workers
    return records, machine, rolling


def test_workers_are_replaced_one_at_a_time(tmp_path: Path) -> None:
    """So all but one are at work at any time."""
    records, machine, rolling = deployed(tmp_path, bad=set())
    rolling.update(records.version(2))

    assert machine.running == {0: 2, 1: 2, 2: 2}
    assert records.standing() == DesiredState(2, (2, 2, 2))
    assert machine.fewest == 2


def test_a_version_that_does_not_come_up_costs_one_worker_and_is_put_back(tmp_path: Path) -> None:
    """The others never leave the old one, and the version is noted as one that failed."""
    records, machine, rolling = deployed(tmp_path, bad={2})
    with pytest.raises(
        UpdateFailed, match=r"totals@2 ended right after[\s\S]*totals@1 was put back and runs as before"
    ):
        rolling.update(records.version(2))

    assert machine.good == {0: 1, 1: 1, 2: 1}
    assert records.standing() == DesiredState(1, (1, 1, 1), failed=(2,))


@pytest.mark.parametrize("bad", [set[int](), {2}], ids=["good", "bad"])
def test_a_command_that_is_killed_anywhere_can_be_repeated(tmp_path: Path, bad: set[int]) -> None:
    """Whatever step it dies at, nobody stops working, and the same command brings it to the same end."""
    for call in count():
        folder = tmp_path / str(call)
        folder.mkdir()
        records, machine, rolling = deployed(folder, bad=bad)
        machine.at_call = dying_at(call)
        try:
            rolling.update(records.version(2))
        except Killed:
            survivors = len(machine.good)
        except UpdateFailed:
            break
        else:
            break
        assert survivors >= 2
        if bad:
            with pytest.raises(UpdateFailed):
                rolling.update(records.version(2))
        else:
            rolling.update(records.version(2))
        wanted = 1 if bad else 2
        assert machine.good == {0: wanted, 1: wanted, 2: wanted}, call

    assert call >= 5


def test_what_a_broken_off_update_left_is_put_back_too(tmp_path: Path) -> None:
    """A third version that does not come up leaves no worker with the second, which never came to count."""
    kept_versions(tmp_path, 3)
    records, machine, rolling = deployed(tmp_path, bad={3})
    machine.at_call = dying_at(4)
    with pytest.raises(Killed):
        rolling.update(records.version(2))
    assert 2 in machine.running.values()
    with pytest.raises(UpdateFailed):
        rolling.update(records.version(3))

    assert machine.running == {0: 1, 1: 1, 2: 1}


def test_a_first_version_that_does_not_come_up_leaves_nothing_behind(tmp_path: Path) -> None:
    """No worker is left that would be started for ever."""
    records = kept_versions(tmp_path, 1)
    machine = MemoryMachine(records, {1})
    with pytest.raises(UpdateFailed, match="taken down again"):
        SupervisedRollout(records, machine, machine, 1.0, lambda _: None).begin(records.version(1), 2)

    assert machine.running == {}
    assert records.deployment() is None


def test_where_nobody_keeps_workers_alive_nothing_is_deployed(tmp_path: Path) -> None:
    """As where systemd does not run: the same command may be given again, with another target."""
    records = kept_versions(tmp_path, 1)
    machine = MemoryMachine(records, set())

    def refuse() -> None:
        raise SupervisorUnavailable("No medium found.")

    machine.at_call = refuse
    with pytest.raises(SupervisorUnavailable):
        SupervisedRollout(records, machine, machine, 1.0, lambda _: None).begin(records.version(1), 2)

    assert records.deployment() is None


def test_versions_of_other_inputs_never_run_beside_one_another(tmp_path: Path) -> None:
    """All workers end before the first of the new version starts; a bad one is put back."""
    records, machine, rolling = deployed(tmp_path, bad=set())
    rolling.replace_all(records.version(2))
    assert machine.running == {0: 2, 1: 2, 2: 2}
    machine._bad.add(1)
    with pytest.raises(UpdateFailed, match="totals@2 was put back"):
        rolling.replace_all(records.version(1))

    assert machine.good == {0: 2, 1: 2, 2: 2}
    assert records.standing() == DesiredState(2, (2, 2, 2), failed=(1,))


def test_the_number_of_workers_changes_without_touching_those_that_stay(tmp_path: Path) -> None:
    """More and fewer; a new one that does not come up is told, and kept."""
    records, machine, rolling = deployed(tmp_path, bad=set())
    rolling.resize(4)
    assert machine.running == {0: 1, 1: 1, 2: 1, 3: 1}
    rolling.resize(1)
    assert machine.running == {0: 1}
    assert records.standing() == DesiredState(1, (1,))
    machine._bad.add(1)

    with pytest.raises(WorkerFailed):
        rolling.resize(2)


class Starting:
    """Keeps a worker whose process has just been started, and has said nothing yet."""

    def keep(self, name: str, workers: int) -> None:
        """Do nothing."""

    def restart(self, name: str, worker: int) -> None:
        """Do nothing."""

    def look(self, name: str, worker: int) -> ProcessStatus:
        """Return the process."""
        return ProcessStatus(ProcessState.RUNNING, pid=2)

    def last_words(self, name: str, worker: int) -> str:
        """Return nothing."""
        return ""


def test_a_worker_that_comes_back_is_not_taken_for_its_former_self(tmp_path: Path) -> None:
    """There was one of its number before, of the same version, whose process has ended: that says nothing of the new one."""
    records = kept_versions(tmp_path, 1)
    records.start(1, WorkerStart(1, pid=1, health=1))

    with pytest.raises(WorkerFailed, match="did not come to read its buckets within"):
        LocalWorkers(records, Starting()).await_up(1, records.version(1), limit_s=0.2)
