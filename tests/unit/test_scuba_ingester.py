"""Scuba's tables: which events are in them, once each, and for how long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from support.scuba_site import KEEP, START_MS, Hit, hits, new_bus, random_hits, scuba_on, send
from typer.testing import CliRunner

import penstock as ps
from penstock.ops.serve.rows.errors import ScubaRefused
from penstock.ops.serve.rows.flat_columns import FlatColumns
from penstock.ops.serve.rows.sampling import SampleRate, sampled
from penstock.ops.shell import SteeredClock
from penstock.ops.shell.command_line.main import app as command
from penstock.transport import Bucket, CategorySpec, Outgoing


@pytest.fixture
def clock() -> SteeredClock:
    """The time of the bus and of Scuba."""
    return SteeredClock(START_MS)


def test_each_event_is_one_row_with_its_fields(clock: SteeredClock) -> None:
    """Nested fields are columns of their own; lists and dicts are JSON; missing values are NULL."""
    bus = new_bus(clock)
    records = random_hits(500, seed=1)
    send(bus, records)
    with scuba_on(bus, clock) as scuba:
        scuba.read()
        with scuba.store.cursor() as cursor:
            found = cursor.execute(
                'SELECT page, "at", ms, g0, "device.os", "device.memory", tags, labels, _event_time, _arrived, _rate FROM "shop.hits" '
                "ORDER BY _offset * 3 + _bucket"
            ).fetchall()

        assert scuba.positions() == [(bucket, n) for bucket in range(3) for n in range((502 - bucket) // 3)]
        assert scuba.explorer.tables().tables[0].rows == 500
        assert scuba.explorer.tables().tables[0].lag_events == 0

    assert found == [
        (
            each.page,
            each.at,
            each.ms,
            each.g0,
            each.device and each.device.os,
            each.device and each.device.memory,
            msgspec.json.encode(each.tags).decode(),
            msgspec.json.encode(each.labels).decode(),
            each.at,
            START_MS,
            1.0,
        )
        for each in records
    ]


def test_events_that_do_not_decode_are_counted_and_deletions_are_not(clock: SteeredClock) -> None:
    """The status names the position and the reason; all other events are rows."""
    bus = new_bus(clock)
    good = random_hits(9, seed=2)
    wide = msgspec.json.encode(good[0]).replace(b'"g0":', b'"g0":99999999999999999999')
    send(bus, [*good, b"no JSON", None, wide])
    with scuba_on(bus, clock) as scuba:
        scuba.read()
        [info] = scuba.explorer.tables().tables

        assert (info.rows, info.rejected, info.lag_events) == (9, 2, 0)
        assert [each.partition(":")[0] for each in info.rejections] == ["bucket 0, offset 3", "bucket 2, offset 3"]


def test_a_failing_function_of_a_category_costs_its_own_event_only(clock: SteeredClock) -> None:
    """The events around it are rows."""

    def time_of(hit: Hit) -> int:
        return hit.at // (hit.g0 - 3)

    category = ps.Category(hits.name, Hit, key="page", event_time=time_of, buckets=3)
    bus = new_bus(clock)
    records = random_hits(100, seed=3)
    send(bus, records)
    with scuba_on(bus, clock, categories=[category]) as scuba:
        scuba.read()
        [info] = scuba.explorer.tables().tables

        assert info.rejected == sum(hit.g0 == 3 for hit in records) > 0
        assert info.rows == len(records) - info.rejected
        assert "ZeroDivisionError" in info.rejections[0] or "time" in info.rejections[0]


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
def test_the_sample_is_the_same_each_time_and_has_its_rate(rate: float) -> None:
    """It follows from the position alone, and contains every sample with a smaller rate."""
    offsets = np.arange(1 << 40, (1 << 40) + 200_000, dtype=np.int64)
    kept = sampled(5, offsets, SampleRate(rate))

    assert (sampled(5, offsets[1000:2000], SampleRate(rate)) == kept[1000:2000]).all()
    assert not (sampled(5, offsets, SampleRate(rate / 2)) & ~kept).any()
    assert (sampled(6, offsets, SampleRate(rate)) != kept).any()
    # Five standard deviations of a binomial distribution.
    assert abs(kept.sum() - rate * len(offsets)) < 5 * (len(offsets) * rate * (1 - rate)) ** 0.5


def test_only_sampled_events_are_decoded_and_each_row_has_its_rate(clock: SteeredClock) -> None:
    """An undecodable event that is not in the sample is not counted."""
    bus = new_bus(clock)
    send(bus, [*random_hits(300, seed=4), *[b"no JSON"] * 300])
    numbers = np.arange(200, dtype=np.int64)
    kept = {bucket: sampled(bucket, numbers, SampleRate(0.3)) for bucket in range(3)}
    with scuba_on(bus, clock, rate=0.3) as scuba:
        scuba.read()
        [info] = scuba.explorer.tables().tables

        assert scuba.positions() == [(b, n) for b in range(3) for n in range(100) if kept[b][n]]
        assert {row[-1] for row in scuba.rows()} == {0.3}
        assert info.rejected == sum(int(kept[b][100:].sum()) for b in range(3))


def test_a_table_in_memory_begins_with_the_oldest_event_that_is_kept(clock: SteeredClock) -> None:
    """A restart reads them again, too."""
    bus = new_bus(clock)
    send(bus, random_hits(30, seed=5))
    clock.advance(KEEP.total_seconds())
    send(bus, random_hits(30, seed=6))
    clock.advance(60)
    for _ in range(2):
        with scuba_on(bus, clock) as scuba:
            scuba.read()

            assert scuba.positions() == [(bucket, n) for bucket in range(3) for n in range(10, 20)]


def test_a_file_continues_after_its_last_event(clock: SteeredClock, tmp_path: Path) -> None:
    """The sampling rate may change, and rows of each rate remain. An event that was read but not stored is read again."""
    bus, file = new_bus(clock), tmp_path / "folder" / "hits.duckdb"
    send(bus, random_hits(30, seed=7))
    with scuba_on(bus, clock, file=file) as scuba:
        scuba.read()
        send(bus, random_hits(30, seed=8))
        scuba.ingester.run_once()  # they are pending when the process ends
    with scuba_on(bus, clock, file=file, rate=0.5) as scuba:
        scuba.read()
        later = [(b, n) for b, n in scuba.positions() if n >= 10]

        assert [place for place in scuba.positions() if place[1] < 10] == [(b, n) for b in range(3) for n in range(10)]
        assert later == [
            (b, n) for b in range(3) for n in range(10, 20) if sampled(b, np.array([n]), SampleRate(0.5))[0]
        ]
        assert {row[-1] for row in scuba.rows()} == {1.0, 0.5}


def test_a_topic_that_is_created_again_is_read_from_its_start(clock: SteeredClock, tmp_path: Path) -> None:
    """Scuba may be running or not. Offsets begin again, and the events are different."""
    bus, file = new_bus(clock), tmp_path / "hits.duckdb"
    send(bus, random_hits(30, seed=9))
    with scuba_on(bus, clock, file=file) as scuba:
        scuba.read()
        bus.catalog.delete(hits.name)
        bus.catalog.create(CategorySpec.of(hits))
        send(bus, random_hits(6, seed=10))
        scuba.read()
        scuba.read()

        assert len(scuba.positions()) == 36
    bus.catalog.delete(hits.name)
    bus.catalog.create(CategorySpec.of(hits))
    send(bus, random_hits(3, seed=11))
    with scuba_on(bus, clock, file=file) as scuba:
        scuba.read()

        assert len(scuba.positions()) == 39


def test_new_buckets_are_read(clock: SteeredClock) -> None:
    """No event of the others is read again."""
    bus = new_bus(clock)
    send(bus, random_hits(30, seed=12))
    with scuba_on(bus, clock) as scuba:
        scuba.read()
        bus.catalog.resize(hits.name, 4)
        for number in range(4):
            bus.append(hits.name, Outgoing(b"k", msgspec.json.encode(random_hits(1, seed=number)[0]), number))
        scuba.read()
        scuba.read()

        assert scuba.positions() == sorted(
            [*((b, n) for b in range(3) for n in range(10)), (0, 10), (1, 10), (2, 10), (3, 0)]
        )


def test_events_that_expire_unread_are_counted(clock: SteeredClock) -> None:
    """Reading continues at the first event that the bus still has."""
    bus = new_bus(clock)
    with scuba_on(bus, clock) as scuba:
        scuba.read()
        send(bus, random_hits(30, seed=13))
        for number in range(3):
            bus.trim(Bucket(hits.name, number), 4)
        scuba.read()
        scuba.read()
        [info] = scuba.explorer.tables().tables

        assert scuba.positions() == [(b, n) for b in range(3) for n in range(4, 10)]
        assert info.expired == 12


def test_old_rows_are_dropped_by_age(clock: SteeredClock) -> None:
    """Segments end after a tenth of the time, so that rows are kept for at most a tenth longer."""
    bus = new_bus(clock)
    step_s = KEEP.total_seconds() / 20
    with scuba_on(bus, clock) as scuba:
        for number in range(45):
            send(bus, random_hits(3, seed=number))
            scuba.read()
            oldest_ms = min(row[-2] for row in scuba.rows())
            clock.advance(step_s)

            assert clock.now_ms() - oldest_ms <= (KEEP.total_seconds() * 1.1 + 3 * step_s) * 1000
        assert len(scuba.rows()) >= 3 * 19
        assert len(scuba.store.segments()) <= 15


def test_old_rows_are_dropped_by_size(clock: SteeredClock, tmp_path: Path) -> None:
    """The newest rows remain, and the file no longer contains the others."""
    bus, file = new_bus(clock), tmp_path / "hits.duckdb"
    limit = 40_000
    with scuba_on(bus, clock, file=file, max_bytes=limit) as scuba:
        for number in range(15):
            send(bus, random_hits(60, seed=number))
            scuba.read()
            scuba.store.end_segments()
            [info] = scuba.explorer.tables().tables

            assert info.size_bytes <= limit
        newest = scuba.positions()

        assert max(n for _, n in newest) == 299
        assert 0 < len(newest) < 900
    with scuba_on(bus, clock, file=file, max_bytes=limit) as scuba:
        assert scuba.positions() == newest


def test_a_file_with_other_columns_is_refused_and_unchanged(clock: SteeredClock, tmp_path: Path) -> None:
    """A new column does not count: earlier rows have NULL there."""

    class Wider(ps.Record, frozen=True):
        page: str
        at: ps.EventTime
        ms: str
        size: int = 0

    class Larger(Hit, frozen=True):
        size: int = 7

    bus, file = new_bus(clock), tmp_path / "hits.duckdb"
    send(bus, random_hits(3, seed=1))
    with scuba_on(bus, clock, file=file) as scuba:
        scuba.read()
    other = ps.Category(hits.name, Wider, key="page", event_time="at", buckets=3)
    with (
        pytest.raises(ScubaRefused, match=r"'ms' .* DOUBLE, and now VARCHAR"),
        scuba_on(bus, clock, file=file, categories=[other]),
    ):
        pass
    larger = ps.Category(hits.name, Larger, key="page", event_time="at", buckets=3)
    send(bus, random_hits(3, seed=2))
    with scuba_on(bus, clock, file=file, categories=[larger]) as scuba:
        scuba.read()
        with scuba.store.cursor() as cursor:
            sizes = cursor.execute('SELECT size, count(*) FROM "shop.hits" GROUP BY size ORDER BY size').fetchall()

    assert sizes == [(7, 3), (None, 3)]


def test_columns_that_differ_in_case_are_refused() -> None:
    """DuckDB could not tell them apart."""

    class Two(ps.Record, frozen=True):
        page: str
        at: ps.EventTime
        Page: str

    with pytest.raises(ScubaRefused, match="'page' and 'Page'"):
        FlatColumns(ps.Category("two", Two, key="page", event_time="at"))


KILLED = """
import sys
from pathlib import Path
from support.scuba_site import START_MS, new_bus, random_hits, scuba_on, send
from penstock.ops.shell.process.clock import SteeredClock

clock = SteeredClock(START_MS)
bus = new_bus(clock)
with scuba_on(bus, clock, file=Path(sys.argv[1])) as scuba:
    print("open", flush=True)
    records = random_hits(3_000, seed=1)
    for begin in range(0, 3_000, 30):
        send(bus, records[begin : begin + 30])
        scuba.read()
"""


def test_a_kill_duplicates_no_row(clock: SteeredClock, tmp_path: Path) -> None:
    """A file may be killed at any moment: it contains each event at most once, and its position follows them."""
    file = tmp_path / "hits.duckdb"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    counts = []
    for delay_s in (0.01, 0.15, 0.3, 0.5):
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(file)], env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            time.sleep(delay_s)  # any moment will do
            process.send_signal(signal.SIGKILL)
        with scuba_on(new_bus(clock), clock, file=file) as scuba:
            found, saved = scuba.positions(), scuba.store.saved_positions(hits.name)
        counts.append(len(found))

        assert found == [(b, n) for b in range(3) for n in range(saved.offsets[b] if saved else 0)]
    assert counts == sorted(counts)
    assert counts[-1] > 0


def test_a_file_of_something_else_is_refused_and_unchanged(clock: SteeredClock, tmp_path: Path) -> None:
    """A file that another process uses is refused, too."""
    file = tmp_path / "notes.txt"
    file.write_text("no database")
    with pytest.raises(ScubaRefused, match="cannot be opened"), scuba_on(new_bus(clock), clock, file=file):
        pass

    assert file.read_text() == "no database"


APP = """
import penstock as ps

class View(ps.Record, frozen=True):
    page: str
    at: ps.EventTime

class Copy(ps.Stateless):
    reads = ps.Category("views", View, key="page", event_time="at", buckets=2)
    def process(self, event):
        return ()
"""


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--host", "0.0.0.0"], "PENSTOCK_SCUBA_TOKEN"),  # noqa: S104 - must be refused
        (["--token-file", __file__], "does not fit into a header"),
        (["other"], "declares no category 'other'"),
        (["--max-size", "3"], "not a size"),
        (["--max-size", "4GB"], "larger than --memory"),
        (["--keep", "long"], "not a duration"),
        (["--keep", "0s"], "must be greater than zero"),
        (["--tls-cert", "x.pem"], "need each other"),
    ],
)
def test_impossible_options_are_refused(tmp_path: Path, options: list[str], reason: str) -> None:
    """They are refused before anything starts, with what to do."""
    app = tmp_path / "views.py"
    app.write_text(APP)
    done = CliRunner().invoke(command, ["serve", "scuba", "--app", str(app), *options], env={"COLUMNS": "300"})

    assert done.exit_code != 0
    assert reason in (done.output if isinstance(done.exception, SystemExit) else str(done.exception))
