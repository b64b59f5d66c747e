"""The limit of open files: raised, reported before it is reached, and named by the errors at the limit."""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.ops.shell import OpenFiles
from penstock.ops.shell.process.open_files import raise_limit
from penstock.state.local import DatabaseMemory, RocksStateFolder, open_database
from penstock.state.local.rocksdb import MIN_FILES, files_for

Limit = Callable[[int], None]


@pytest.fixture
def limit_to() -> Iterator[Limit]:
    """Lower the soft limit of this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield lambda files: resource.setrlimit(resource.RLIMIT_NOFILE, (files, before[1]))
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_process_raises_its_limit(limit_to: Limit) -> None:
    """The soft limit becomes the hard one."""
    limit_to(1_000)
    raise_limit()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    assert soft == hard


@pytest.mark.parametrize("spare", [20, -1], ids=["before the limit", "at the limit"])
def test_a_process_warns_once(spare: int, limit_to: Limit, caplog: pytest.LogCaptureFixture) -> None:
    """The line has the number of files, the limit and the command to raise it. Counting them needs one more, which may be missing."""
    caplog.set_level(logging.WARNING)
    now_s, used = [0.0], psutil.Process().num_fds()
    files = OpenFiles(lambda: now_s[0])
    limit_to(10 * used + 1_000)
    files.warn_if_short()
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(100)]
    limit = used + 100 + spare
    limit_to(limit)
    for _ in range(3):
        now_s[0] += 60
        files.warn_if_short()
    for number in opened:
        os.close(number)

    [line] = [record.getMessage() for record in caplog.records]
    assert f"its limit is {limit:,}" in line
    assert "ulimit -n" in line


SHORT = """
import os, resource, sys
from pathlib import Path
from penstock.state import StateUnwritable
from penstock.state.local import DatabaseMemory, open_database

open_database(Path(sys.argv[1], "first"), DatabaseMemory(2**20)).close()
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    for number in held[-5:]:
        os.close(number)
try:
    open_database(Path(sys.argv[1], "second"), DatabaseMemory(2**20))
except StateUnwritable as error:
    print(error)
"""
"""Opens a database in a process that may open five more files."""


def test_a_state_that_needs_more_files_names_the_limit(tmp_path: Path) -> None:
    """It does not blame the space or the permissions of the disk. The test runs in a process in which nothing else closes files."""
    done = subprocess.run(
        [sys.executable, "-c", SHORT, str(tmp_path)], capture_output=True, text=True, check=True, timeout=240
    )

    assert "ulimit -n" in done.stdout


@given(limit=st.integers(100, 10**6), databases=st.integers(1, 2_000))
def test_databases_stay_below_the_limit_if_it_is_high_enough(limit: int, databases: int) -> None:
    """They leave a fifth of it for everything else."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, before[1]), before[1]))
    try:
        each = files_for(databases)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    assert each >= MIN_FILES
    assert each == MIN_FILES or each * databases <= 0.8 * limit


@pytest.mark.parametrize(("files", "tables"), [(MIN_FILES, 30), (40, 30)])
def test_a_database_keeps_no_more_files_open_than_it_may(
    files: int, tables: int, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    """A state with more tables is still read completely. A compaction opens further files while it runs."""
    database = open_database(tmp_path / "state", DatabaseMemory(2**20), files)
    for number in range(tables):
        for family in (database, database.get_column_family("position")):
            family[b"%03d" % number] = b"value"
            family.flush()
    read = [database[b"%03d" % number] for number in range(tables)]
    wait_until(lambda: len([file for file in open_files() if str(tmp_path) in file]) <= files)
    database.close()

    assert len(read) == tables


def open_files() -> list[str]:
    """Return the paths of this process's open files."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the folder of the links itself
            found.append(str(link.readlink()))
    return found


def test_a_worker_warns_at_its_start_that_it_may_open_too_few_files(
    limit_to: Limit, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning comes before the buckets. With enough files, no warning appears."""
    limit_to(1_000)
    RocksStateFolder(tmp_path, shards=40)
    assert not caplog.records
    RocksStateFolder(tmp_path, shards=96)

    assert "96 states in" in caplog.text
    assert "need 20 open files each, and this process may open 1,000" in caplog.text
