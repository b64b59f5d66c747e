"""Names and order of the local services, without starting any."""

import multiprocessing
from pathlib import Path

import pytest

from penstock.ops.shell import exclusive
from penstock.ops.start.dev_services.errors import UnknownServiceError
from penstock.ops.start.dev_services.services import SERVICES, LocalServices


def test_an_unknown_service_is_rejected_before_any_start(tmp_path: Path) -> None:
    """The error lists the services."""
    with pytest.raises(UnknownServiceError, match=r"Unknown local service: kafak\..* Choose from kafka, hdfs"):
        LocalServices(tmp_path).up(["kafka", "kafak"], lambda _: None)

    assert list(tmp_path.iterdir()) == []


def test_in_a_new_folder_all_services_are_stopped(tmp_path: Path) -> None:
    """Reading the status writes nothing."""
    states = {status.name: status.state for status in LocalServices(tmp_path / "none").status()}

    assert states == dict.fromkeys(SERVICES, "stopped")
    assert not (tmp_path / "none").exists()


def test_stopping_a_stopped_service_is_no_error(tmp_path: Path) -> None:
    LocalServices(tmp_path).down(list(SERVICES), lambda _: None)

    assert {status.state for status in LocalServices(tmp_path).status()} == {"stopped"}


def hold(path: Path, note: Path) -> None:
    """Wait for the lock in another process, and write a note about the wait."""
    with exclusive(path, lambda: note.write_text("waited")), note.open("a") as file:
        file.write(", then locked")


def test_only_one_process_holds_a_lock(tmp_path: Path) -> None:
    """The second process reports that it waits, and continues after the first."""
    note = tmp_path / "note"
    other = multiprocessing.get_context("spawn").Process(target=hold, args=(tmp_path / "lock", note))
    with exclusive(tmp_path / "lock", lambda: None):
        other.start()
        # It cannot end before this process releases the lock.
        while not note.exists():
            other.join(timeout=0.05)
            assert other.is_alive()
    other.join(timeout=120)

    assert note.read_text() == "waited, then locked"
