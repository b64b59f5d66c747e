"""Output of a batch run: complete categories after a crash of the writer, and recovery by the next run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path

import msgspec
import psutil
import pytest
from support.warehouses import Killed

from penstock.backfill import BackfillRefused
from penstock.backfill.outputs import OutputFolder
from penstock.backfill.outputs.output_folder import RunOwner
from penstock.backfill.spark import Folders
from penstock.state.files import LocalFileStore

NAMES = ("hours", "totals")


class LocalFolders(Folders):
    """Folders on this machine, without Spark. They can simulate a kill before the n-th change."""

    def __init__(self, root: Path, changes: int = 1_000) -> None:
        self.root = str(root)
        self._left = changes

    def has(self, category: str) -> bool:
        """Tell whether a category exists."""
        return Path(self.of(category)).exists()

    def within(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        return sorted(path.name for path in Path(folder).iterdir()) if Path(folder).exists() else []

    def content(self, file: str) -> bytes | None:
        """Return the content of a file."""
        return Path(file).read_bytes() if Path(file).exists() else None

    def write(self, file: str, content: bytes) -> None:
        """Store a file."""
        self._change()
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_bytes(content)

    def move(self, source: str, target: str) -> None:
        """Rename a folder."""
        self._change()
        Path(source).rename(target)

    def remove(self, folder: str) -> None:
        """Delete a folder."""
        self._change()
        shutil.rmtree(folder, ignore_errors=True)

    def _change(self) -> None:
        self._left -= 1
        if self._left <= 0:
            raise Killed


@pytest.fixture(scope="module")
def dead() -> RunOwner:
    """A process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    begun = psutil.Process(process.pid).create_time()
    process.communicate(b"\n")
    return msgspec.structs.replace(RunOwner.this(), pid=process.pid, begun=begun)


def publish(folders: Folders, content: str, writer: RunOwner) -> None:
    """Write both categories and publish them, as a run does."""
    folder = OutputFolder(folders, LocalFileStore(Path(folders.root)), overwrite=True, writer=writer)
    folder.begin(NAMES)
    for name in NAMES:
        folders.write(f"{folder.aside(name)}/ds=1970-01-01/part-0.parquet", content.encode())
    for name in NAMES:
        folder.publish(name)
    folder.discard()


def published(root: Path) -> dict[str, str]:
    """Return the published content of each category."""
    return {path.parts[-3].removeprefix("category="): path.read_text() for path in root.glob("category=*/*/*.parquet")}


def test_a_crash_leaves_complete_categories_and_the_next_run_recovers(
    tmp_path: Path, dead: RunOwner, caplog: pytest.LogCaptureFixture
) -> None:
    """The next run restores a category whose replacement was interrupted."""
    for changes in count(1):
        root = tmp_path / str(changes)
        publish(LocalFolders(root), "before", RunOwner.this())
        try:
            publish(LocalFolders(root, changes), "after", dead)
        except Killed:
            assert set(published(root).values()) <= {"before", "after"}
            begun = OutputFolder(LocalFolders(root), LocalFileStore(root), overwrite=True)
            begun.begin(NAMES)
            assert published(root).keys() == set(NAMES)
            begun.discard()
            publish(LocalFolders(root), "again", RunOwner.this())
            assert published(root) == dict.fromkeys(NAMES, "again")
            assert sorted(path.name for path in root.iterdir()) == [f"category={name}" for name in NAMES]
            continue
        break

    assert changes > 7
    assert f"belonged to a crashed run (process {dead.pid}) and was removed" in caplog.text
    assert "hours was restored" in caplog.text


def test_folders_of_running_writers_are_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Folders of this process and of other machines are kept; those of other machines are logged."""
    writers = [RunOwner.this(), RunOwner("elsewhere", 1, 0.0)]
    for writer in writers:
        OutputFolder(LocalFolders(tmp_path), LocalFileStore(tmp_path), overwrite=False, writer=writer).begin(NAMES)
    (tmp_path / "_aside-0").mkdir()
    OutputFolder(LocalFolders(tmp_path), LocalFileStore(tmp_path), overwrite=False).begin(NAMES)

    assert len(list(tmp_path.glob("_aside-*/_writer.json"))) == 3
    assert "is the temporary folder of a run on elsewhere (process 1)" in caplog.text
    assert "_aside-0 is the temporary folder of an unknown run" in caplog.text


def test_a_reused_process_id_is_another_process(tmp_path: Path) -> None:
    """The start time distinguishes them."""
    other = msgspec.structs.replace(RunOwner.this(), begun=1.0)

    assert RunOwner.this().lives
    assert not other.lives


def test_existing_categories_are_overwritten_only_on_request(tmp_path: Path) -> None:
    """A refused run leaves no files."""
    publish(LocalFolders(tmp_path), "before", RunOwner.this())
    with pytest.raises(BackfillRefused, match="already has hours, totals"):
        OutputFolder(LocalFolders(tmp_path), LocalFileStore(tmp_path), overwrite=False).begin(NAMES)

    assert published(tmp_path) == dict.fromkeys(NAMES, "before")
    assert list(tmp_path.glob("_aside-*")) == []
