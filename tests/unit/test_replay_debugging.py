"""The debugger of a replay, driven by commands; and tests that replays write. This file is the app."""

from __future__ import annotations

import io
import runpy
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.replays import ALL, EMPTY, Replayed, ReplayRequest

import penstock as ps
from penstock.ops.kernel import Driver
from penstock.ops.look_back import PastRange, ReplayCallbacks
from penstock.ops.look_back.replay.debugger import Debugger, DebuggerLeft
from penstock.ops.look_back.replay.errors import ReplayRefused, ReplayStopped
from penstock.ops.look_back.replay.initial_state import AtStart
from penstock.ops.look_back.replay.saved_test import EVENTS, Gathered, write_test

START_MS = 4_102_444_800_000


class Reading(ps.Record, frozen=True):
    """A meter's reading."""

    meter: str
    at: ps.EventTime
    litres: int


class Total(Reading, frozen=True):
    """A meter's total."""


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=2)
totals = ps.Category("totals", Total, key="meter", event_time="at", buckets=2)


class Totals(ps.Stateful):
    """Sums readings, and writes the total after a pause."""

    reads, writes, state = readings, totals, int
    watermark = ps.watermarks.BoundedOutOfOrderness()

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
        if event.litres < 0:
            raise ValueError(f"{event.litres} litres")
        context.timer(event.at + 90_000, "said")
        total = (state or 0) + event.litres
        return total, []

    def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> tuple[int, list[Total]]:
        return state, [Total(context.key, timer.at, state)]


class Large(ps.Stateless):
    """Writes a total for each reading; a reading of zero raises an exception."""

    reads, writes = readings, totals

    def process(self, event: Reading) -> Iterable[Total]:
        kept = event.litres // event.litres
        yield Total(event.meter, event.at, kept)


def sent(processor: type[ps.Processor], *events: tuple[str, int]) -> Driver:
    """Write readings, one per minute of event time; no processor reads them."""
    driver = Driver(processor, start_ms=START_MS)
    driver._write(readings, [Reading(meter, n * 60_000, litres) for n, (meter, litres) in enumerate(events)])
    return driver


def debugged(
    processor: type[ps.Processor], driver: Driver, keys: list[str], commands: str, span: PastRange = ALL
) -> tuple[Replayed, str]:
    """Replay with a debugger that reads these commands; return the replay and the debugger's output."""
    shown = io.StringIO()
    debuggers: list[Debugger] = []

    def prepare(running: ps.Processor) -> None:
        debuggers.append(Debugger(running, keys, read=io.StringIO(commands), write=shown))

    def follow(playing: Any) -> None:
        debuggers[0].playing = playing

    try:
        wish = ReplayRequest(
            processor, driver.bus, span, AtStart(None), prepare=prepare, company=ReplayCallbacks(playing=follow)
        )
        return wish.run(), shown.getvalue()
    except ReplayStopped as error:
        error.args = (f"{error}\n{shown.getvalue()}",)
        raise


def test_the_debugger_shows_event_state_and_timers_at_a_keys_events() -> None:
    """It stops in the processor's code once per event, and the outputs equal those of a replay without it."""
    driver = sent(Totals, ("a", 1), ("a", 3), ("b", 20), ("b", 20), ("a", 5))
    commands = "p 'first', event.litres, state\nc\n" + "p 'second', event.litres, state\nc\n" + "c\n" * 9

    replayed, shown = debugged(Totals, driver, ["a"], commands)

    assert "process for key a" in shown
    assert "state = None" in shown
    assert "('first', 1, None)" in shown
    assert "('second', 3, 1)" in shown
    assert "timer 'said' by event time at 90000" in shown
    assert "on_timer for key a" in shown
    assert "key b" not in shown
    assert replayed.lines == ReplayRequest(Totals, driver.bus).run().lines


def test_the_debugger_does_not_stop_before_the_range() -> None:
    """Events that only warm the state up are skipped."""
    driver = sent(Totals, ("a", 1), ("a", 3))
    _, shown = debugged(Totals, driver, ["a"], "p 'in', event.litres, state\nc\n", PastRange(1))

    assert "('in', 3, 1)" in shown
    assert shown.count("process for key a") == 1


def test_the_debugger_stops_in_a_generator() -> None:
    """The generator's code runs while the debugger steps, and yields its outputs once."""
    driver = sent(Large, ("a", 5))
    replayed, shown = debugged(Large, driver, ["a"], "n\nn\np 'kept', kept\nc\n")

    assert "('kept', 1)" in shown
    assert len(replayed.outputs) == 1


def test_the_debugger_stops_at_an_exception() -> None:
    """It shows the local variables; then the replay ends with the exception."""
    driver = sent(Totals, ("a", 1), ("a", -3))

    with pytest.raises(ReplayStopped, match=r"(?s)raised ValueError: -3 litres.*\('here', -3, 1\)"):
        debugged(Totals, driver, [], "p 'here', event.litres, state\nc\n")


def test_quitting_the_debugger_ends_the_replay() -> None:
    """The replay does not report it as an exception of the processor."""
    with pytest.raises(DebuggerLeft):
        debugged(Totals, sent(Totals, ("a", 1)), ["a"], "q\n")


def written_test(
    tmp_path: Path, processor: type[ps.Processor], key: str | None, *events: tuple[str, int]
) -> dict[str, Any]:
    """Replay, write a test, and return the test's module."""
    driver = sent(processor, *events)
    gathered = Gathered(key)
    with suppress(ReplayStopped):
        ReplayRequest(processor, driver.bus, ALL, EMPTY, key, company=ReplayCallbacks(watch=gathered.note)).run()
    (tmp_path / "tests").mkdir()
    path = tmp_path / "tests" / "test_it.py"
    write_test(path, Path(__file__), processor, gathered, "then")
    return runpy.run_path(str(path))


@pytest.mark.parametrize("processor", [Totals, Large])
def test_a_replay_writes_a_test_that_passes(tmp_path: Path, processor: type[ps.Processor]) -> None:
    """The test fails for other outputs."""
    written = written_test(tmp_path, processor, None, ("a", 1), ("b", 20), ("a", 3), ("b", 4))
    [test] = [value for name, value in written.items() if name.startswith("test_")]

    test()
    [lines] = [lines for lines in written["OUTPUTS"].values() if lines]
    lines[0] = lines[0].replace("1", "2")
    with pytest.raises(AssertionError):
        test()


def test_a_written_test_of_a_key_contains_only_its_events(tmp_path: Path) -> None:
    """The test stays readable."""
    written = written_test(tmp_path, Totals, "a", ("a", 1), ("b", 20), ("a", 3))

    assert [len(lines) for _, lines in written["EVENTS"]] == [2]


def test_a_written_test_expects_the_exception_of_its_last_event(tmp_path: Path) -> None:
    """It ends with the event that raises an exception, and passes while that event does so."""
    written = written_test(tmp_path, Totals, None, ("a", 1), ("a", -3), ("a", 4))

    written["test_totals_repeats_its_outputs"]()
    assert sum(len(lines) for _, lines in written["EVENTS"]) == 2
    assert "pytest.raises(PenstockError, match=" in (tmp_path / "tests" / "test_it.py").read_text()


def test_a_test_with_too_many_events_is_not_written(tmp_path: Path) -> None:
    """A test without events is not written either."""
    driver = sent(Large, *([("a", 1)] * (EVENTS + 1)))
    gathered = Gathered(None)

    with pytest.raises(ReplayRefused, match="more than 1,000 events"):
        ReplayRequest(Large, driver.bus, company=ReplayCallbacks(watch=gathered.note)).run()
    with pytest.raises(ReplayRefused, match="no events for a test"):
        write_test(tmp_path / "test_it.py", Path(__file__), Large, Gathered(None), "then")
