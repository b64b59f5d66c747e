"""Processes of services: identification, start, stop, and errors."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from penstock.ops.start import MARKER, Daemon, ServiceFailedError, ServiceProgram, wait_until
from penstock.ops.start.dev_services.errors import StateUnreadableError
from penstock.ops.start.dev_services.service import ServiceRecord

LIMIT_S = 120.0


def program(python: str = "import time; time.sleep(60)") -> ServiceProgram:
    """Return a program without Java that ends within a minute."""
    return ServiceProgram((sys.executable, "-c", python, MARKER), {"main": 4711})


def record_of(folder: Path) -> ServiceRecord:
    """Return the record on disk."""
    return msgspec.json.decode((folder / "service.json").read_bytes(), type=ServiceRecord)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Return a daemon, and stop its process after the test."""
    daemon = Daemon("water", tmp_path)
    yield daemon
    daemon.stop(limit_s=1)


@pytest.fixture
def other_process() -> Iterator[psutil.Process]:
    """Run a process without a marker."""
    with subprocess.Popen(["sleep", "60"]) as child:
        yield psutil.Process(child.pid)
        child.kill()


def test_a_process_is_identified_right_after_its_start(tmp_path: Path, daemon: Daemon) -> None:
    """While the system loads it, its command line is empty."""
    found = []
    for _ in range(20):
        daemon.launch(program())
        found.append(Daemon("water", tmp_path).process())
        daemon.stop()

    assert None not in found


def test_another_process_can_stop_a_service(tmp_path: Path, daemon: Daemon) -> None:
    """The record on disk identifies it, and contains its ports after the stop."""
    daemon.start(program(), lambda: True)
    other = Daemon("water", tmp_path)
    state_before = other.status({}, lambda: True).state
    other.stop()

    assert state_before == "running"
    assert daemon.process() is None
    assert record_of(tmp_path) == ServiceRecord({"main": 4711})


def test_a_process_of_an_interrupted_start_is_found(tmp_path: Path, daemon: Daemon) -> None:
    """The marker is on disk before the start."""
    daemon.launch(program())
    record = record_of(tmp_path)
    interrupted = ServiceRecord(record.ports, record.marker)
    (tmp_path / "service.json").write_bytes(msgspec.json.encode(interrupted))
    # Right after the start, its command line may be empty.
    assert wait_until(lambda: Daemon("water", tmp_path).process() is not None, LIMIT_S)
    Daemon("water", tmp_path).stop()

    assert daemon.process() is None


def test_another_process_with_the_same_id_is_not_stopped(tmp_path: Path, other_process: psutil.Process) -> None:
    """A process ID and a creation time identify nothing without the marker."""
    false_record = ServiceRecord({"main": 4711}, "0123456789abcdef", other_process.pid, other_process.create_time())
    (tmp_path / "service.json").write_bytes(msgspec.json.encode(false_record))
    daemon = Daemon("water", tmp_path)
    state_before = daemon.status({}, lambda: True).state
    daemon.stop()

    assert state_before == "stale"
    assert other_process.is_running()
    assert daemon.status({}, lambda: True).state == "stopped"


def test_a_process_with_another_creation_time_is_not_the_service(tmp_path: Path, daemon: Daemon) -> None:
    """Marker and process ID alone are not sufficient."""
    daemon.start(program(), lambda: True)
    record = record_of(tmp_path)
    assert record.created_s is not None
    wrong = ServiceRecord(record.ports, record.marker, record.pid, record.created_s + 1000)
    (tmp_path / "service.json").write_bytes(msgspec.json.encode(wrong))

    assert Daemon("water", tmp_path).process() is None


def test_a_killed_process_is_stale(tmp_path: Path, daemon: Daemon) -> None:
    """The status differs from a regular stop."""
    daemon.start(program(), lambda: True)
    process = daemon.process()
    assert process is not None
    process.kill()
    assert wait_until(lambda: daemon.process() is None, LIMIT_S)

    assert daemon.status({}, lambda: True).state == "stale"


def test_a_process_that_does_not_answer_is_starting(daemon: Daemon) -> None:
    """Only an answering process is running."""
    daemon.launch(program())

    assert daemon.status({}, lambda: False).state == "starting"


def test_the_error_of_an_ended_process_quotes_its_log(tmp_path: Path, daemon: Daemon) -> None:
    """The error contains the last lines and the path of the log."""
    with pytest.raises(
        ServiceFailedError, match=r"(?s)water ended before it was ready.*no water in the river"
    ) as raised:
        daemon.start(program("raise SystemExit('no water in the river')"), lambda: False)

    assert str(tmp_path / "log") in str(raised.value)
    assert daemon.status({}, lambda: True).state == "stopped"


def test_a_process_that_never_answers_is_stopped(daemon: Daemon) -> None:
    """The error contains the limit."""
    with pytest.raises(ServiceFailedError, match=r"water does not answer, and has made no progress for 0\.2 s"):
        daemon.start(program(), lambda: False, limit_s=0.2)

    assert daemon.process() is None


def test_a_process_that_makes_progress_may_take_longer(daemon: Daemon) -> None:
    """The start of a service that uses the processor may exceed the limit, as on a busy machine."""
    asked = 0

    def answers_late() -> bool:
        nonlocal asked
        asked += 1
        return asked > 25  # of ten attempts within each limit

    daemon.start(program("while True: pass"), answers_late, limit_s=1.0)

    assert daemon.process() is not None


def test_an_interrupted_start_stops_the_process(daemon: Daemon) -> None:
    """Ctrl-C during the wait ends the process."""
    found: list[psutil.Process | None] = []

    def interrupt() -> bool:
        found.append(daemon.process())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        daemon.start(program(), interrupt)

    assert found[0] is not None
    assert not found[0].is_running()
    assert daemon.status({}, lambda: True).state == "stopped"


def test_a_missing_program_is_an_error(daemon: Daemon) -> None:
    """The error contains the system's reason."""
    with pytest.raises(ServiceFailedError, match=r"water could not be started: .*nowhere"):
        daemon.start(ServiceProgram(("/nowhere/java", MARKER)), lambda: True)

    assert daemon.status({}, lambda: True).state == "stopped"


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path, daemon: Daemon) -> None:
    """Stopping has a limit."""
    ready = tmp_path / "ready"
    python = f"import pathlib, signal, time; signal.signal(15, signal.SIG_IGN); pathlib.Path({str(ready)!r}).touch(); time.sleep(60)"
    daemon.start(program(python), ready.exists)
    daemon.stop(limit_s=0.2)

    assert daemon.process() is None


def test_the_previous_log_is_kept(tmp_path: Path, daemon: Daemon) -> None:
    """It explains the need for a restart."""
    printed = program("import time; print('first run', flush=True); time.sleep(60)")
    daemon.start(printed, lambda: b"first run" in daemon.log.read_bytes())
    daemon.stop()
    daemon.launch(program())

    assert (tmp_path / "log.previous").read_text() == "first run\n"


def test_an_unreadable_record_is_an_error(tmp_path: Path) -> None:
    """No process is guessed."""
    (tmp_path / "service.json").write_text("{")

    with pytest.raises(StateUnreadableError, match=r"Cannot read .*service\.json"):
        Daemon("water", tmp_path).process()


def test_a_program_without_a_marker_is_rejected() -> None:
    """Its process could not be identified."""
    with pytest.raises(ValueError, match="which identifies its process"):
        ServiceProgram(("sleep", "60"))
