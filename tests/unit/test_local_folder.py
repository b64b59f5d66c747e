"""Names and order of the local services, without starting any."""

import multiprocessing
from pathlib import Path

import pytest

from penstock.ops.dev_services import SERVICES, LocalServices, UnknownServiceError
from penstock.ops.dev_services.lock import exclusive


def test_an_unknown_service_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    """The error lists what there is."""
    with pytest.raises(UnknownServiceError, match=r"called kafak\. Choose among: kafka, hdfs"):
        LocalServices(tmp_path).up(["kafka", "kafak"], lambda _: None)

    assert list(tmp_path.iterdir()) == []


def test_a_folder_never_used_has_all_services_stopped(tmp_path: Path) -> None:
    """Asking writes nothing."""
    states = {status.name: status.state for status in LocalServices(tmp_path / "none").status()}

    assert states == dict.fromkeys(SERVICES, "stopped")
    assert not (tmp_path / "none").exists()


def test_stopping_what_does_not_run_is_no_error(tmp_path: Path) -> None:
    """`down` may be repeated."""
    LocalServices(tmp_path).down(list(SERVICES), lambda _: None)

    assert {status.state for status in LocalServices(tmp_path).status()} == {"stopped"}


def hold(path: Path, note: Path) -> None:
    """Wait for the lock in another process, and write there that it had to wait."""
    with exclusive(path, lambda: note.write_text("waited")), note.open("a") as file:
        file.write(", then held")


def test_only_one_process_holds_a_lock(tmp_path: Path) -> None:
    """The second one says that it waits, and goes on when the first is done."""
    note = tmp_path / "note"
    other = multiprocessing.get_context("spawn").Process(target=hold, args=(tmp_path / "lock", note))
    with exclusive(tmp_path / "lock", lambda: None):
        other.start()
        # It cannot end before we let go; whether it says so is what is tested.
        while not note.exists():
            other.join(timeout=0.05)
            assert other.is_alive()
    other.join(timeout=20)

    assert note.read_text() == "waited, then held"
