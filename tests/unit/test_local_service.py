"""A process is recognised as ours, or left alone, whatever happened to it or to us."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from penstock.ops.dev_services import ServiceFailedError, StateUnreadableError
from penstock.ops.dev_services.service import MARKER, Daemon, Program, Record, wait_until

LIMIT_S = 20.0


def program(python: str = "import time; time.sleep(60)") -> Program:
    """Return a process that lives for at most a minute, without a Java to load."""
    return Program((sys.executable, "-c", python, MARKER), {"main": 4711})


def record_of(folder: Path) -> Record:
    """Return what is on disk."""
    return msgspec.json.decode((folder / "service.json").read_bytes(), type=Record)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Own a daemon whose process does not outlive the test."""
    owned = Daemon("water", tmp_path)
    yield owned
    owned.stop(limit_s=1)


@pytest.fixture
def stranger() -> Iterator[psutil.Process]:
    """Run a process that is none of ours."""
    with subprocess.Popen(["sleep", "60"]) as child:
        yield psutil.Process(child.pid)
        child.kill()


def test_a_process_is_recognised_by_others_as_soon_as_it_is_started(tmp_path: Path, daemon: Daemon) -> None:
    """Also while the system still loads it, when its command line reads as empty."""
    seen = []
    for _ in range(20):
        daemon.launch(program())
        seen.append(Daemon("water", tmp_path).process())
        daemon.stop()

    assert None not in seen


def test_a_process_outlives_who_started_it_and_can_be_stopped_by_another(tmp_path: Path, daemon: Daemon) -> None:
    """What is on disk is enough to find and stop it; its ports stay remembered."""
    daemon.start(program(), lambda: True)
    other = Daemon("water", tmp_path)
    state_before = other.status({}, lambda: True).state
    other.stop()

    assert state_before == "running"
    assert daemon.process() is None
    assert record_of(tmp_path) == Record({"main": 4711})


def test_a_start_interrupted_before_the_pid_was_known_can_be_found(tmp_path: Path, daemon: Daemon) -> None:
    """The marker, which is on disk before the start, leads to the process."""
    daemon.launch(program())
    remembered = record_of(tmp_path)
    interrupted = Record(remembered.ports, remembered.marker)
    (tmp_path / "service.json").write_bytes(msgspec.json.encode(interrupted))
    # Its own line of command may still be empty: this way of finding it is for after a kill, not for a race.
    assert wait_until(lambda: Daemon("water", tmp_path).process() is not None, LIMIT_S)
    Daemon("water", tmp_path).stop()

    assert daemon.process() is None


def test_a_stranger_with_the_remembered_pid_is_left_alone(tmp_path: Path, stranger: psutil.Process) -> None:
    """A pid, even with its time of creation, proves nothing without the marker."""
    claimed = Record({"main": 4711}, "0123456789abcdef", stranger.pid, stranger.create_time())
    (tmp_path / "service.json").write_bytes(msgspec.json.encode(claimed))
    daemon = Daemon("water", tmp_path)
    state_before = daemon.status({}, lambda: True).state
    daemon.stop()

    assert state_before == "stale"
    assert stranger.is_running()
    assert daemon.status({}, lambda: True).state == "stopped"


def test_a_process_older_than_remembered_is_not_ours(tmp_path: Path, daemon: Daemon) -> None:
    """The time of creation has to agree, too."""
    daemon.start(program(), lambda: True)
    remembered = record_of(tmp_path)
    assert remembered.created_s is not None
    wrong = Record(remembered.ports, remembered.marker, remembered.pid, remembered.created_s + 1000)
    (tmp_path / "service.json").write_bytes(msgspec.json.encode(wrong))

    assert Daemon("water", tmp_path).process() is None


def test_a_process_that_was_killed_is_stale_not_stopped(tmp_path: Path, daemon: Daemon) -> None:
    """That nobody stopped it is worth telling."""
    daemon.start(program(), lambda: True)
    process = daemon.process()
    assert process is not None
    process.kill()
    assert wait_until(lambda: daemon.process() is None, LIMIT_S)

    assert daemon.status({}, lambda: True).state == "stale"


def test_a_living_process_that_does_not_answer_is_starting(daemon: Daemon) -> None:
    """Only what answers is called running."""
    daemon.launch(program())

    assert daemon.status({}, lambda: False).state == "starting"


def test_a_process_that_ends_before_it_is_ready_is_explained_by_its_log(tmp_path: Path, daemon: Daemon) -> None:
    """The error quotes the last lines and says where the rest is."""
    with pytest.raises(
        ServiceFailedError, match=r"(?s)water ended before it was ready.*no water in the river"
    ) as raised:
        daemon.start(program("raise SystemExit('no water in the river')"), lambda: False)

    assert str(tmp_path / "log") in str(raised.value)
    assert daemon.status({}, lambda: True).state == "stopped"


def test_a_process_that_never_answers_is_not_left_behind(daemon: Daemon) -> None:
    """After the limit it is ended, and the error says so."""
    with pytest.raises(ServiceFailedError, match=r"water did not answer within 0\.2 s"):
        daemon.start(program(), lambda: False, limit_s=0.2)

    assert daemon.process() is None


def test_an_interrupted_start_leaves_nothing(daemon: Daemon) -> None:
    """Ctrl-C while waiting ends what was started."""
    seen: list[psutil.Process | None] = []

    def interrupt() -> bool:
        seen.append(daemon.process())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        daemon.start(program(), interrupt)

    assert seen[0] is not None
    assert not seen[0].is_running()
    assert daemon.status({}, lambda: True).state == "stopped"


def test_a_program_that_does_not_exist_is_told(daemon: Daemon) -> None:
    """The system's reason is passed on."""
    with pytest.raises(ServiceFailedError, match=r"water could not be started: .*nowhere"):
        daemon.start(Program(("/nowhere/java", MARKER)), lambda: True)

    assert daemon.status({}, lambda: True).state == "stopped"


def test_a_process_deaf_to_the_signal_is_ended_with_force(tmp_path: Path, daemon: Daemon) -> None:
    """Stopping has a limit."""
    deaf = tmp_path / "deaf"
    python = f"import pathlib, signal, time; signal.signal(15, signal.SIG_IGN); pathlib.Path({str(deaf)!r}).touch(); time.sleep(60)"
    daemon.start(program(python), deaf.exists)
    daemon.stop(limit_s=0.2)

    assert daemon.process() is None


def test_the_log_of_the_last_run_is_kept(tmp_path: Path, daemon: Daemon) -> None:
    """A restart does not destroy what explains why it was needed."""
    printed = program("import time; print('first run', flush=True); time.sleep(60)")
    daemon.start(printed, lambda: b"first run" in daemon.log.read_bytes())
    daemon.stop()
    daemon.launch(program())

    assert (tmp_path / "log.previous").read_text() == "first run\n"


def test_a_record_nobody_can_read_is_for_a_person_to_judge(tmp_path: Path) -> None:
    """Nothing is guessed from it."""
    (tmp_path / "service.json").write_text("{")

    with pytest.raises(StateUnreadableError, match=r"service\.json.* cannot be read"):
        Daemon("water", tmp_path).process()


def test_a_program_without_marker_is_refused() -> None:
    """A process that could not be recognised is never started."""
    with pytest.raises(ValueError, match="could not be recognised"):
        Program(("sleep", "60"))
