"""Comparison of a replay with the live processor, another file, or another commit."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest
from support.replays import Replayed as Ran
from support.replays import ReplayRequest, at

import penstock as ps
from penstock.backfill.compare import Comparison
from penstock.backfill.compare.comparer import Kind
from penstock.ops.kernel import Driver
from penstock.ops.look_back import OutputRecord, PastRange, compare
from penstock.ops.look_back.replay.errors import ReplayRefused
from penstock.ops.look_back.replay.initial_state import AtStart
from penstock.ops.look_back.replay.live_outputs import Replayed, compare_with_live
from penstock.ops.look_back.replay.other_version import version
from penstock.processors.apps import AppName
from penstock.processors.shard import IdleInputs

START_MS = 4_102_444_800_000


class Reading(ps.Record, frozen=True):
    """A meter's reading."""

    meter: str
    at: ps.EventTime
    litres: int


class Scored(Reading, frozen=True):
    """A reading with its difference from the previous reading."""

    score: float


class Hourly(ps.Record, frozen=True):
    """A meter's minute."""

    meter: str
    minute: ps.EventTime
    litres: int


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=2)
scored = ps.Category("scored", Scored, key="meter", event_time="at", buckets=2)
hours = ps.Category("hours", Hourly, key="meter", event_time="minute", buckets=2)


class Scorer(ps.Stateful):
    """Scores readings."""

    name = "scorer"
    reads, writes, state = readings, scored, int

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Scored]]:
        return event.litres, [Scored(event.meter, event.at, event.litres, event.litres - (state or 0))]


class Changed(Scorer):
    """Scores meter b in another way, and omits meter c."""

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Scored]]:
        state, [one] = super().process(event, state, context)
        if event.meter == "c":
            return state, []
        return state, [Scored(one.meter, one.at, one.litres, one.score + 0.5 * (one.meter == "b"))]


class Filter(ps.Stateless):
    """Keeps readings of some litres."""

    name = "filter"
    least = 0
    reads, writes = readings, scored

    def process(self, event: Reading) -> Iterable[Scored]:
        if event.litres >= self.least:
            yield Scored(event.meter, event.at, event.litres, 0.0)


class Stricter(Filter):
    """Keeps fewer readings."""

    least = 3


class Hours(ps.Aggregator):
    """Adds up minutes."""

    name = "hours"
    reads, writes = readings, hours
    monoid, window = ps.monoids.Sum(), ps.windows.Tumbling(timedelta(minutes=1))

    def observe(self, event: Reading) -> int:
        return event.litres

    def result(self, key: str, window: ps.windows.Window, value: int) -> Hourly:
        return Hourly(key, window.start, value)


class Doubling(Hours):
    """Adds each reading twice."""

    def observe(self, event: Reading) -> int:
        return 2 * event.litres


def live_driver(processor: type[ps.Processor], seconds: int = 6) -> Driver:
    """Run a processor on a reading per second of each of three meters; outputs arrive a second later."""
    driver = Driver(processor, start_ms=START_MS)
    for n in range(seconds):
        driver.send(readings, [Reading(meter, n * 10_000, n + 1) for meter in "abc"])
        driver.advance(1.0)
    return driver


def against_live(changed: type[ps.Processor], driver: Driver, span: PastRange, **wishes: object) -> list[Comparison]:
    """Replay a changed processor, and compare its outputs with the live processor's."""
    ran: Ran = ReplayRequest(changed, driver.bus, span, AtStart(None), **wishes).run()  # type: ignore[arg-type]  # as given
    taking = ran.taking
    is_part = bool(wishes)
    replayed = Replayed(changed, taking.ours, taking.warming, taking.inputs, is_part, span.until_ms)
    return list(compare_with_live(replayed, driver.bus).comparisons)


def counts(found: list[Comparison]) -> tuple[int, int, int, int]:
    """Return the numbers of records that are equal, only in the live outputs, only in the replay, and different."""
    [one] = found
    return one.equal, one.only_left, one.only_right, one.different


MIDDLE = PastRange(at(START_MS + 2000), at(START_MS + 5000))


def test_unchanged_code_agrees_with_the_live_processor() -> None:
    """The comparison covers a part of its past, although its categories contain earlier and later outputs."""
    for processor in (Scorer, Filter, Hours):
        [found] = against_live(processor, live_driver(processor), MIDDLE)
        assert found.agrees, processor
        assert found.equal, processor


def test_changed_code_differs_by_key_and_field() -> None:
    """Omitted outputs are on the live side only."""
    [found] = against_live(Changed, live_driver(Scorer), MIDDLE)

    assert counts([found]) == (3, 3, 0, 3)
    assert found.examples_by_key() == {"b": 3, "c": 3}
    assert [(field.field, field.differing) for field in found.fields] == [("score", 3)]
    assert [(pair.key, pair.left["score"], pair.right["score"]) for pair in found.examples if pair.right] == [
        ("b", 1.0, 1.5)
    ] * 3


def test_outputs_of_a_live_processor_that_was_behind_are_compared() -> None:
    """It wrote them long after the range; their events place them in it."""
    driver = Driver(Filter, start_ms=START_MS)
    driver._write(readings, [Reading("a", n, n) for n in range(4)])
    driver.clock.advance(60.0)
    driver.run()

    assert counts(against_live(Stricter, driver, PastRange(at(START_MS), at(START_MS + 1000)))) == (1, 3, 0, 0)


def test_a_key_or_a_bucket_is_compared_alone() -> None:
    """Records of other keys and buckets do not count as missing."""
    driver = live_driver(Scorer)

    assert counts(against_live(Changed, driver, MIDDLE, key="b")) == (0, 0, 0, 3)
    assert counts(against_live(Changed, driver, MIDDLE, key="c")) == (0, 3, 0, 0)
    assert [counts(against_live(Scorer, driver, MIDDLE, numbers=[n])) for n in (0, 1)] == [(9, 0, 0, 0), (0, 0, 0, 0)]


def test_windows_that_continued_after_the_range_are_excluded() -> None:
    """They count if one of their updates is equal."""
    driver = live_driver(Hours, 9)

    [same] = against_live(Hours, driver, MIDDLE)
    [changed] = against_live(Doubling, driver, PastRange(at(START_MS + 2000)))

    assert (same.equal, same.differing) == (3, 0)
    assert {pair.kind for pair in changed.examples} == {Kind.DIFFERENT}
    assert (changed.equal, changed.differing) == (0, 6)


def test_equal_records_of_one_slot_are_paired_first() -> None:
    """The surplus is on one side only."""

    def outputs(*scores: float) -> list[OutputRecord]:
        return [OutputRecord("scored", 0, "a", 1, {"score": score}) for score in scores]

    [found] = compare(Scorer, outputs(1.0, 2.0, 2.0), outputs(2.0, 3.0))
    assert (found.equal, [(pair.kind, pair.left, pair.right) for pair in found.examples]) == (
        1,
        [(Kind.ONLY_LEFT, {"score": 2.0}, None), (Kind.DIFFERENT, {"score": 1.0}, {"score": 3.0})],
    )


def test_a_window_that_changed_only_before_the_range_is_excluded() -> None:
    """No checkpoint was due in between."""
    driver = Driver(Hours, start_ms=START_MS)
    for n in range(2):
        driver.send(readings, [Reading("a", n * 60_000, 1)])
        driver.advance(0.3)
    ran = ReplayRequest(Hours, driver.bus, PastRange(at(START_MS + 300)), AtStart(None)).run()

    assert [row.minute for row in ran.records] == [60_000]


def test_an_input_is_idle_after_its_limit() -> None:
    """Arrival times decide. A single input is never idle."""

    class Two(Filter):
        """Reads two inputs."""

        reads = (readings, scored)  # type: ignore[assignment]  # one or several

    silence = IdleInputs(Two())
    assert silence.idle(1_000) == frozenset()
    silence.heard("scored", 30_000)

    assert silence.idle(60_999) == frozenset()
    assert silence.idle(61_000) == {"readings"}
    assert IdleInputs(Filter()).idle(10**9) == frozenset()


def git(folder: Path, *arguments: str) -> None:
    """Run git."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_version_is_a_file_or_a_commit(tmp_path: Path) -> None:
    """A commit includes the files beside it. The working tree stays unchanged."""
    folder = tmp_path / "repository" / "apps"
    folder.mkdir(parents=True)
    git(folder.parent, "init", "-q")
    for content in ("1", "2"):
        (folder / "app.py").write_text("from beside import it\n")
        (folder / "beside.py").write_text(f"it = {content}\n")
        git(folder.parent, "add", ".")
        git(folder.parent, "commit", "-q", "-m", content)
    app = AppName(folder / "app.py", "Scorer")

    with version(app, "HEAD~1") as old:
        assert old.processor == "Scorer"
        assert old.path.with_name("beside.py").read_text() == "it = 1\n"
    assert not old.path.exists()
    with version(app, str(folder / "beside.py")) as file:
        assert file == AppName(folder / "beside.py", "Scorer")
    assert (folder / "beside.py").read_text() == "it = 2\n"
    for unknown in ("HEAD~2", "nothing.py"):
        with (
            pytest.raises(ReplayRefused, match="neither `live`, nor an existing app file, nor a ref"),
            version(app, unknown),
        ):
            pass
    with (
        pytest.raises(ReplayRefused, match="a git repository, since the app is not in one"),
        version(AppName(tmp_path / "app.py", "Scorer"), "HEAD"),
    ):
        pass
