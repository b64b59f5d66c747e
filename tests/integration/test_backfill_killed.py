"""A backfill whose driver or worker is killed or interrupted publishes nothing, and the next run is unaffected."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path

import msgspec
import psutil
import pyarrow.parquet as pq
import pytest
from support.cli import Cli

import penstock as ps
from penstock.backfill import BackfillFailed
from penstock.backfill.archive import Archiver
from penstock.backfill.run import run_backfill
from penstock.backfill.spark import spark_session
from penstock.backfill.warehouse import open_warehouse
from penstock.processors.apps import AppName
from penstock.transport import Bucket, CategorySpec, Outgoing
from penstock.transport.memory import MemoryBus

DAY = date(1970, 1, 1)
EVENTS = 30
BEGUN = "begun"
RELEASED = "released"
APP = """
import os, time
from pathlib import Path
import penstock as ps

HERE = Path(__file__).parent

class Reading(ps.Record, frozen=True):
    at: ps.EventTime

readings = ps.Category("readings", Reading, key=lambda _: "k", event_time="at", buckets=2)
passed = ps.Category("passed", Reading, key=lambda _: "k", event_time="at", buckets=2)

class Pass(ps.Stateless):
    reads, writes = readings, passed
    def process(self, event):
        aside = HERE / f"{os.getpid()}.aside"
        aside.write_text(str(os.getpid()))
        aside.replace(HERE / "begun")
        while not (HERE / "released").exists():
            time.sleep(0.02)
        yield event
"""


class Reading(ps.Record, frozen=True):
    """The app's input."""

    at: ps.EventTime


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with an app that waits for a signal, and an archive of its input."""
    if not shutil.which("java"):
        pytest.skip("Spark needs Java 17 or later on PATH: nothing of the backfill is tested")
    category = ps.Category("readings", Reading, key=lambda _: "k", event_time="at", buckets=2)
    bus = MemoryBus(lambda: 0)
    bus.create(CategorySpec.of(category))
    for at in range(EVENTS):
        bus.append("readings", Outgoing(b"k", msgspec.json.encode(Reading(at)), at % 2))
    ends = {Bucket("readings", number): end for number, end in bus.ends("readings").items()}
    Archiver(bus, [category], open_warehouse(tmp_path / "warehouse")).run(lambda it: it.has_reached(ends))
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.fixture
def alone(site: Path) -> Iterator[Cli]:
    """The command line, without a broker."""
    cli = Cli("127.0.0.1:1", site)
    yield cli
    (site / RELEASED).touch()
    cli.end_all()


def backfill(site: Path) -> list[int]:
    """Run the app in this process and return its outputs."""
    run_backfill(
        AppName(site / "app.py"),
        open_warehouse(site / "warehouse"),
        first=DAY,
        last=DAY,
        output=open_warehouse(site / "out"),
    )
    return sorted(row["at"] for row in pq.read_table(site / "out" / "category=passed").to_pylist())


def end(process: psutil.Process) -> None:
    """Wait until a process has ended."""
    with suppress(psutil.NoSuchProcess):
        process.wait(240)


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.exhaustive)])
def test_an_interrupted_run_publishes_nothing(
    site: Path, alone: Cli, how: signal.Signals, wait_until: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """A killed run leaves files that the next run removes; Ctrl-C leaves neither files nor processes, and prints one sentence."""
    day = ["--from", str(DAY), "--to", str(DAY)]
    run = alone.start("backfill", "app.py", *day, "--warehouse", "warehouse", "--output", "out", "--master", "local[2]")
    wait_until((site / BEGUN).exists)
    started = psutil.Process(run.pid).children(recursive=True)
    run.send_signal(how)
    _, errors = run.communicate(timeout=240)  # until no process has its output open
    for process in started:
        end(process)
    left = [path.name for path in (site / "out").iterdir()]
    (site / RELEASED).touch()

    assert [name.partition("-")[0] for name in left] == ["_aside"] * (how is signal.SIGKILL)
    assert started
    if how is signal.SIGINT:
        assert run.returncode == 128 + signal.SIGINT, errors
        assert "Interrupted." in errors
        assert "Traceback" not in errors
        assert "Exception" not in errors
    else:
        with spark_session("local[2]"):
            assert backfill(site) == list(range(EVENTS))
        assert f"belonged to a crashed run (process {run.pid})" in caplog.text
        assert [path.name for path in (site / "out").iterdir()] == ["category=passed"]


def test_a_killed_python_worker_fails_only_its_run(site: Path, wait_until: Callable[..., None]) -> None:
    """Spark tries a task once on one machine."""

    def kill() -> None:
        wait_until((site / BEGUN).exists)
        psutil.Process(int((site / BEGUN).read_text())).kill()
        (site / RELEASED).touch()

    with spark_session("local[2]"):
        killing = threading.Thread(target=kill)
        killing.start()
        with pytest.raises(
            BackfillFailed, match=r"Pass failed in Spark: .*Python worker.*None of its output was published"
        ):
            backfill(site)
        killing.join()
        left = list((site / "out").iterdir())
        again = backfill(site)

    assert left == []
    assert again == list(range(EVENTS))
