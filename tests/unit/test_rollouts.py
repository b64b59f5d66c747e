"""Rollouts in memory: updates, failures, and interruptions between any two steps."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count, repeat
from pathlib import Path
from socketserver import UnixStreamServer
from threading import Thread
from typing import Any
from xmlrpc.client import Fault
from xmlrpc.server import SimpleXMLRPCDispatcher, SimpleXMLRPCRequestHandler

import msgspec
import pytest
from msgspec.structs import replace
from support.deployed import MemorySupervisor, stored_versions, version_of

from penstock.ops.deploy import DeploymentFiles, SupervisorUnavailable, WorkerFailed, observed_deployments
from penstock.ops.deploy.errors import UpdateFailed
from penstock.ops.deploy.process_supervisor import ProcessState, ProcessStatus
from penstock.ops.deploy.readiness import LocalWorkers
from penstock.ops.deploy.registry import DesiredState, WorkerStart
from penstock.ops.deploy.targets.supervised_rollout import SupervisedRollout
from penstock.ops.deploy.targets.supervisord import SOCKET, Supervisord, worker_config
from penstock.ops.deploy.worker_logs import log_of
from penstock.ops.kernel.process.identity import RestartCount
from penstock.processors.apps import Contents


class Killed(BaseException):
    """The command is killed."""


def killed_at(call: int) -> Callable[[], None]:
    """Return a function that raises Killed at its n-th call."""
    calls = count()

    def step() -> None:
        if next(calls) == call:
            raise Killed

    return step


def deployed(
    folder: Path, *, bad: set[int], workers: int = 3
) -> tuple[DeploymentFiles, MemorySupervisor, SupervisedRollout]:
    """Return a deployment of version 1 with running workers, and a stored version 2."""
    files = stored_versions(folder, 1, 2)
    supervisor = MemorySupervisor(files, bad)
    rollout = SupervisedRollout(files, supervisor, supervisor, 1.0, lambda _: None)
    rollout.start(files.version(1), workers)
    supervisor.min_ready = workers
    return files, supervisor, rollout


def test_workers_are_replaced_one_at_a_time(tmp_path: Path) -> None:
    """All workers but one are ready at any time."""
    files, supervisor, rollout = deployed(tmp_path, bad=set())
    rollout.update(files.version(2))

    assert supervisor.running == {0: 2, 1: 2, 2: 2}
    assert files.desired_state() == DesiredState(2, (2, 2, 2))
    assert supervisor.min_ready == 2


def test_a_failed_version_stops_one_worker_and_is_rolled_back(tmp_path: Path) -> None:
    """The other workers keep the old version, and the new version is recorded as failed."""
    files, supervisor, rollout = deployed(tmp_path, bad={2})
    with pytest.raises(UpdateFailed, match=r"totals@2 ended right after[\s\S]*totals@1 was restored and runs"):
        rollout.update(files.version(2))

    assert supervisor.ready == {0: 1, 1: 1, 2: 1}
    assert files.desired_state() == DesiredState(1, (1, 1, 1), failed=(2,))


@pytest.mark.parametrize("bad", [set[int](), {2}], ids=["good", "bad"])
def test_a_killed_command_can_be_repeated(tmp_path: Path, bad: set[int]) -> None:
    """After a kill at any step, the workers continue, and repeating the command reaches the same state."""
    for call in count():
        folder = tmp_path / str(call)
        folder.mkdir()
        files, supervisor, rollout = deployed(folder, bad=bad)
        supervisor.at_call = killed_at(call)
        try:
            rollout.update(files.version(2))
        except Killed:
            survivors = len(supervisor.ready)
        except UpdateFailed:
            break
        else:
            break
        assert survivors >= 2
        if bad:
            with pytest.raises(UpdateFailed):
                rollout.update(files.version(2))
        else:
            rollout.update(files.version(2))
        expected = 1 if bad else 2
        assert supervisor.ready == {0: expected, 1: expected, 2: expected}, call

    assert call >= 5


def test_a_rollback_includes_workers_of_an_interrupted_update(tmp_path: Path) -> None:
    """After a failed third version, no worker runs the second version, which never became the current one."""
    stored_versions(tmp_path, 3)
    files, supervisor, rollout = deployed(tmp_path, bad={3})
    supervisor.at_call = killed_at(4)
    with pytest.raises(Killed):
        rollout.update(files.version(2))
    assert 2 in supervisor.running.values()
    with pytest.raises(UpdateFailed):
        rollout.update(files.version(3))

    assert supervisor.running == {0: 1, 1: 1, 2: 1}


def test_a_failed_first_version_leaves_no_worker(tmp_path: Path) -> None:
    """No worker remains that the supervisor would restart forever."""
    files = stored_versions(tmp_path, 1)
    supervisor = MemorySupervisor(files, {1})
    with pytest.raises(UpdateFailed, match="were stopped, so nothing is deployed"):
        SupervisedRollout(files, supervisor, supervisor, 1.0, lambda _: None).start(files.version(1), 2)

    assert supervisor.running == {}
    assert files.deployment() is None


def test_without_a_supervisor_nothing_is_deployed(tmp_path: Path) -> None:
    """The command can be repeated, also with another target."""
    files = stored_versions(tmp_path, 1)
    supervisor = MemorySupervisor(files, set())

    def refuse() -> None:
        raise SupervisorUnavailable("No medium found.")

    supervisor.at_call = refuse
    with pytest.raises(SupervisorUnavailable):
        SupervisedRollout(files, supervisor, supervisor, 1.0, lambda _: None).start(files.version(1), 2)

    assert files.deployment() is None


def test_versions_with_different_inputs_never_run_at_the_same_time(tmp_path: Path) -> None:
    """All workers end before the first worker of the new version starts; a failed version is rolled back."""
    files, supervisor, rollout = deployed(tmp_path, bad=set())
    rollout.replace_all(files.version(2))
    assert supervisor.running == {0: 2, 1: 2, 2: 2}
    supervisor._bad.add(1)
    with pytest.raises(UpdateFailed, match="totals@2 was restored"):
        rollout.replace_all(files.version(1))

    assert supervisor.ready == {0: 2, 1: 2, 2: 2}
    assert files.desired_state() == DesiredState(2, (2, 2, 2), failed=(1,))


def test_scaling_does_not_restart_remaining_workers(tmp_path: Path) -> None:
    """Workers are added or removed. A new worker that does not become ready raises an error and keeps restarting."""
    files, supervisor, rollout = deployed(tmp_path, bad=set())
    rollout.scale(4)
    assert supervisor.running == {0: 1, 1: 1, 2: 1, 3: 1}
    rollout.scale(1)
    assert supervisor.running == {0: 1}
    assert files.desired_state() == DesiredState(1, (1,))
    supervisor._bad.add(1)

    with pytest.raises(WorkerFailed):
        rollout.scale(2)


def test_the_same_version_again_waits_for_its_workers(tmp_path: Path) -> None:
    """They are started again if the machine has stopped them, and one that does not become ready is an error."""
    bad: set[int] = set()
    _, supervisor, rollout = deployed(tmp_path, bad=bad)
    supervisor.running.clear()
    rollout.reapply()
    assert supervisor.running == {0: 1, 1: 1, 2: 1}
    bad.add(1)

    with pytest.raises(WorkerFailed, match="Worker 0 of totals@1 ended"):
        rollout.reapply()


def test_a_stopped_deployment_remembers_its_workers(tmp_path: Path) -> None:
    """The next deployment starts as many, unless it names a number. A failed start does not change that."""
    files, supervisor, rollout = deployed(tmp_path, bad=set())
    rollout.stop()
    assert supervisor.running == {}
    assert files.deployment() is None
    assert files.expect_desired_state().last_count == 3
    supervisor._bad.add(2)
    with pytest.raises(UpdateFailed):
        rollout.start(files.version(2), 3)
    assert files.expect_desired_state().last_count == 3
    rollout.start(files.version(1), 2)

    assert files.expect_desired_state().last_count == 2


def test_a_rollback_never_chooses_a_version_that_crashed(tmp_path: Path) -> None:
    """The version may have become ready before it crashed and was replaced. A version that works again may be chosen."""
    files, supervisor, rollout = deployed(tmp_path, bad=set())
    rollout.update(files.version(2))
    supervisor._bad.add(2)
    files.add_version(version_of(tmp_path, 3), Contents({}))
    rollout.update(files.version(3))
    assert files.expect_desired_state().earlier_version([1, 2, 3]) == 1
    supervisor._bad.clear()
    rollout.update(files.version(2))
    rollout.update(files.version(3))

    assert files.expect_desired_state().earlier_version([1, 2, 3]) == 2


def test_a_version_has_crashed_if_its_worker_restarted_again_and_again(tmp_path: Path) -> None:
    """Restarts of earlier versions do not count."""
    files = stored_versions(tmp_path, 1)
    starts = tmp_path / "state" / "totals" / "workers" / "numbered-1.starts"
    starts.parent.mkdir(parents=True)
    now_ms = time.time_ns() // 1_000_000
    files.save_start(1, WorkerStart(1, pid=2, health=1))
    new = replace(files.version(1), time_ms=now_ms - 2_500)

    def has_crashed(*ago_ms: int) -> bool:
        starts.write_bytes(msgspec.json.encode(RestartCount(True, tuple(now_ms - ago for ago in ago_ms))))
        return LocalWorkers(files, Starting()).has_crashed(1, new)

    assert has_crashed(2_000, 1_500, 1_000)
    assert not has_crashed(4_000, 3_000, 1_000)
    assert not has_crashed()


def test_an_observer_sees_the_restarts_that_a_worker_could_not_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restarts are those of each worker of the present version. Restarts of an earlier version do not count."""
    files = stored_versions(tmp_path, 1)
    files.save_desired_state(DesiredState(1, (1, 1)))
    monkeypatch.setattr(observed_deployments, "local_workers", lambda files, _: LocalWorkers(files, Starting()))
    version = files.version(1)
    now_ms = time.time_ns() // 1_000_000
    starts = Path(version.settings.folder, "state", files.name, "workers", "numbered-1.starts")
    starts.parent.mkdir(parents=True)
    starts.write_bytes(msgspec.json.encode(RestartCount(True, (version.time_ms - 1, now_ms, now_ms + 1))))

    found = observed_deployments.observed_deployment(tmp_path, files.name)

    assert found is not None
    assert found.restarts_ms == ((), (now_ms, now_ms + 1))


class Starting:
    """A supervisor whose worker has just started, without an answer."""

    def set_worker_count(self, name: str, workers: int) -> None:
        """Do nothing."""

    def restart(self, name: str, worker: int) -> None:
        """Do nothing."""

    def status(self, name: str, worker: int) -> ProcessStatus:
        """Return the process."""
        return ProcessStatus(ProcessState.RUNNING, pid=2)

    def log_tail(self, name: str, worker: int, start: WorkerStart | None) -> str:
        """Return nothing."""
        return ""


def test_a_started_worker_is_not_mistaken_for_its_ended_process(tmp_path: Path) -> None:
    """The last start of the same number and version belongs to a process that has ended."""
    files = stored_versions(tmp_path, 1)
    files.save_start(1, WorkerStart(1, pid=1, health=1))

    with pytest.raises(WorkerFailed, match="was not ready within"):
        LocalWorkers(files, Starting()).await_ready(1, files.version(1), limit_s=0.2)


class Crashing(Supervisord):
    """A supervisord whose worker starts once, logs an error, and ends."""

    def __init__(self, files: DeploymentFiles, folder: Path) -> None:
        super().__init__(folder)
        self._files, self._log = files, log_of(folder, files.name, 0, 0)
        self._steps: Iterator[Callable[[], ProcessStatus] | None] = chain([None, self._start], repeat(None))

    def status(self, name: str, worker: int) -> ProcessStatus:
        """Return the next status of the process."""
        step = next(self._steps)
        return ProcessStatus(ProcessState.WAITING) if step is None else step()

    def _start(self) -> ProcessStatus:
        self._files.save_start(0, WorkerStart(1, pid=2, health=1, log_bytes=self._log.stat().st_size))
        with self._log.open("a") as log:
            log.write("the new error\n")
        return ProcessStatus(ProcessState.RUNNING, pid=2)


@pytest.mark.parametrize("is_rotated", [False, True])
def test_a_failed_worker_is_reported_with_the_lines_of_its_run(tmp_path: Path, is_rotated: bool) -> None:
    """The log also has those of earlier runs."""
    files, log = stored_versions(tmp_path, 1), log_of(tmp_path, "totals", 0, 0)
    files.save_start(0, WorkerStart(1, pid=1, health=1))
    log.parent.mkdir(parents=True)
    log.write_text("an old error\n")
    supervisor = Crashing(files, tmp_path)

    with pytest.raises(WorkerFailed) as failed:
        LocalWorkers(files, supervisor).await_ready(0, files.version(1), limit_s=60.0)
    assert str(failed.value).endswith("0-0.log and ends with:\n  the new error")

    if is_rotated:
        log.write_text("on\n")
        assert supervisor.log_tail("totals", 0, files.last_start(0)).endswith("\n  on")
    assert supervisor.log_tail("totals", 0, WorkerStart(1, 3, 1, log.stat().st_size)).endswith("it wrote nothing.")


def test_a_successor_is_reported_without_the_lines_of_the_worker_that_still_runs(tmp_path: Path) -> None:
    """Both log at the same time during an update, each to its own log."""
    files, supervisor = stored_versions(tmp_path, 1), Supervisord(tmp_path)
    logs = [log_of(tmp_path, "totals", 0, slot) for slot in (0, 1)]
    logs[0].parent.mkdir(parents=True)
    files.save_slot(0, 1)
    files.save_start(0, WorkerStart(1, pid=2, health=1, slot=1))
    for log, line in zip(logs, ("an error of the worker", "an error of its successor"), strict=True):
        log.write_text(f"{line}\n")

    assert supervisor.log_tail("totals", 0, files.last_start(0)).endswith("ends with:\n  an error of its successor")
    assert supervisor.log_tail("totals", 0, None).endswith("an error of its successor")
    assert "%(process_num)d.log" in worker_config(tmp_path, "totals", 0)


def test_a_started_worker_is_reported_without_the_lines_before_its_start(tmp_path: Path) -> None:
    """The program that the supervisor starts notes where its log begins."""
    files, log = stored_versions(tmp_path, 1), log_of(tmp_path, "totals", 0, 0)
    files.save_desired_state(DesiredState(1, (1,)))
    log.parent.mkdir(parents=True)
    log.write_text("an old error\n")
    with log.open("ab") as output:
        command = [sys.executable, "-m", "penstock.ops.deploy.launch", str(tmp_path), "totals", "0", "0"]
        subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=240, check=False)
    tail = Supervisord(tmp_path).log_tail("totals", 0, files.last_start(0))

    assert "an old error" not in tail
    assert "declares no processor" in tail


class RefusingSupervisor(UnixStreamServer, SimpleXMLRPCDispatcher):
    """Answers each request as supervisord does if it may not run the program."""

    class _Handler(SimpleXMLRPCRequestHandler):
        disable_nagle_algorithm = False

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Log nothing: a client of this socket has no address."""

    def __init__(self, path: Path) -> None:
        SimpleXMLRPCDispatcher.__init__(self, allow_none=True)
        UnixStreamServer.__init__(self, str(path), self._Handler)

    def _dispatch(self, method: str, params: Iterable[Any]) -> Any:
        raise Fault(21, "NOT_EXECUTABLE: no permission to run command '/opt/app/bin/python'")


def test_a_request_that_supervisord_refuses_is_an_error_with_its_reason() -> None:
    """The error replaces a traceback of the protocol. The folder's path is short, as sockets require."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        files = stored_versions(Path(folder), 1)
        (Path(folder) / "supervisor").mkdir()
        with RefusingSupervisor(Path(folder) / "supervisor" / SOCKET) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            with pytest.raises(
                SupervisorUnavailable, match=r"NOT_EXECUTABLE: no permission to run command .* Other workers continue"
            ):
                Supervisord(Path(folder)).restart(files.name, 0)
            server.shutdown()
