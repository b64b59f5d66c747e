"""Tracebacks and lines of user code, and results that the engine cannot use."""

from __future__ import annotations

import asyncio
import inspect
import json
import signal
import subprocess
import sys
import sysconfig
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.processors import PenstockError, ProcessorFailed, ending, user_line, user_traceback
from penstock.testing import Driver


def error_of(call: Callable[[], Any]) -> BaseException:
    """Return what a call raises."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - any error
        call()
    return raised.value


def user_function(source: str) -> Callable[..., Any]:
    """Return a function `process` in a file of a user."""
    names: dict[str, Any] = {"json": json}
    exec(compile(source, "/home/ann/app.py", "exec"), names)  # noqa: S102 - a user's file
    return names["process"]  # type: ignore[no-any-return]  # a function


def test_a_traceback_begins_in_the_users_code() -> None:
    """Frames of the library before it are left out; frames of a package that the user calls remain."""
    process = user_function("def process():\n    return json.loads('{')")
    wrapped = msgspec.json.Encoder(enc_hook=lambda _: process())

    shown = user_traceback(error_of(lambda: wrapped.encode(object())))

    first, *_, last = shown.splitlines()
    assert "test_user_code.py" in first  # the hook above is not the library's either
    assert '"/home/ann/app.py", line 2, in process' in shown
    assert "json/decoder.py" in shown
    assert last.startswith("json.decoder.JSONDecodeError: ")


def test_an_error_of_a_library_has_no_users_traceback() -> None:
    """Its frames say nothing to a user."""
    error = error_of(lambda: json.loads("{"))
    assert error.__traceback__ is not None
    library = error.with_traceback(error.__traceback__.tb_next.tb_next)  # type: ignore[union-attr]  # the frames of this file

    assert user_traceback(library) == ""


def test_the_innermost_line_of_user_code_is_named() -> None:
    """A library function that user code calls is not."""
    process = user_function("def process(look):\n    return list(map(look, [1]))")

    [found] = process(lambda _: user_line(sys._getframe(1)))

    assert found == "process (app.py, line 2)"


class Read(ps.Record, frozen=True):
    """An event."""

    page: str
    at: ps.EventTime


reads = ps.Category("reads", Read, key="page", event_time="at")
one_bucket = ps.Category("reads", Read, key="page", event_time="at", buckets=1)


@pytest.mark.parametrize("returned", [1, [Read("/", 1)], (1, Read("/", 1)), (1, [], []), None])
def test_a_stateful_result_of_a_wrong_form_is_explained(returned: object) -> None:
    """The error shows the form that the method must return, instead of the engine's own TypeError."""

    class Count(ps.Stateful):
        state = int

        def process(self, event: Read, state: int | None, context: ps.Context) -> Any:
            return returned

    Count.reads, Count.writes = reads, ps.Category("copies", Read, key="page", event_time="at")
    driver = Driver(Count)
    with pytest.raises(PenstockError, match=r"Count must return `state, \[…\]`, but returned another value \("):
        driver.send(reads, [Read("/", 1)])


def test_a_stateless_result_that_is_no_list_is_explained() -> None:
    """The method returns a single record instead of a list."""

    class Copy(ps.Stateless):
        def process(self, event: Read) -> Any:
            return event

    Copy.reads, Copy.writes = reads, ps.Category("copies", Read, key="page", event_time="at")
    driver = Driver(Copy)
    with pytest.raises(PenstockError, match=r"Copy must return `\[…\]`, but returned another value \('Read' object"):
        driver.send(reads, [Read("/", 1)])


async def copies_of(event: Read) -> list[Read]:
    """Return copies, when awaited."""
    return [event]


async def each_copy(event: Read) -> AsyncIterator[Read]:
    """Yield copies."""
    yield event


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("call", "returned"), [(copies_of, "a coroutine that nothing awaited"), (each_copy, "an async generator that")]
)
def test_a_result_that_nothing_awaited_is_explained(call: Any, returned: str, *, is_async: bool) -> None:
    """Both kinds of methods have the same error."""
    results: list[Any] = []

    class Copy(ps.Stateless):
        def process(self, event: Read) -> Any:
            results.append(call(event))
            return results[-1]

    class CopyLater(ps.Stateless):
        async def process(self, event: Read) -> Any:
            results.append(call(event))
            return results[-1]

    processor = CopyLater if is_async else Copy
    processor.reads, processor.writes = reads, ps.Category("copies", Read, key="page", event_time="at")
    driver = Driver(processor)
    with pytest.raises(PenstockError, match=rf"{processor.__name__} must return `\[…\]`, but returned {returned}"):
        driver.send(reads, [Read("/", 1)])
    for result in filter(inspect.iscoroutine, results):
        result.close()  # otherwise Python warns of it at any later time, in another test


def test_a_type_error_of_the_users_code_stays_one() -> None:
    """The form is wrong only where the engine unpacks the result."""

    class Count(ps.Stateful):
        state = int

        def process(self, event: Read, state: int | None, context: ps.Context) -> Any:
            return state + 1, []  # type: ignore[operator]  # the fault under test

    Count.reads = reads
    driver = Driver(Count)
    with pytest.raises(PenstockError, match="Count raised TypeError: unsupported operand"):
        driver.send(reads, [Read("/", 1)])


def test_an_observation_that_the_monoid_does_not_accept_is_named() -> None:
    """No line of the user's code raised, so the error says which of its values is wrong."""

    class Pages(ps.Aggregator):
        monoid = ps.monoids.Sum()

        def observe(self, event: Read) -> str:
            return event.page

    Pages.reads = reads
    driver = Driver(Pages)
    with pytest.raises(
        PenstockError, match=r"Sum\(\) does not accept what Pages\.observe returned \(TypeError: unsupported operand"
    ):
        driver.send(reads, [Read("/", 1)])


def test_an_error_in_a_result_names_the_window_in_words() -> None:
    """The global window has no bounds that a user knows."""

    class Pages(ps.Aggregator):
        monoid = ps.monoids.Count()

        def result(self, key: str, window: ps.windows.Window, value: int) -> Read:
            raise ValueError("no result.")

    Pages.reads, Pages.writes = reads, ps.Category("pages", Read, key="page", event_time="at")
    driver = Driver(Pages)
    with pytest.raises(
        PenstockError, match=r"Pages\.result raised ValueError: no result, for key '/' in the global window\. Nothing"
    ):
        driver.send(reads, [Read("/", 1)])


def test_an_error_at_the_end_of_a_processor_is_one_of_its_code() -> None:
    """Its work is saved by then; an earlier error stays the first one."""

    class Pages(ps.Stateless):
        def process(self, event: Read) -> list[Read]:
            return [event]

        def close(self) -> None:
            raise MemoryError

    with pytest.raises(ProcessorFailed, match=r"Pages\.close raised MemoryError\. .*saved"), ending(Pages()):
        pass
    with pytest.raises(KeyError, match="first"), ending(Pages()):
        raise KeyError("first")


class Panic(BaseException):
    """What a library in Rust raises."""


def raising(error: BaseException) -> Driver:
    """Return a driver with a processor that raises an error at its second event."""

    def fail() -> None:
        raise error

    class Copy(ps.Stateless):
        def process(self, event: Read) -> list[Read]:
            if event.at == 2:
                fail()
            return [event]

    Copy.reads = one_bucket
    Copy.writes = ps.Category("copies", Read, key="page", event_time="at")
    return Driver(Copy)


@pytest.fixture
def worker_handles_signals() -> Iterator[None]:
    """SIGINT stops the worker in order, as in `penstock run`."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("worker_handles_signals")
@pytest.mark.parametrize("error", [KeyboardInterrupt(), asyncio.CancelledError(), Panic("no memory")])
def test_an_exception_beside_errors_names_its_processor_and_event(error: BaseException) -> None:
    """A function that `process` calls may raise it. A KeyboardInterrupt is reported, unlike Ctrl-C."""
    driver = raising(error)
    with pytest.raises(
        ProcessorFailed, match=rf"^reads/0 at offset 1: Copy raised {type(error).__name__}.* read again"
    ):
        driver.send(one_bucket, [Read("/", 1), Read("/", 2)])


@pytest.mark.usefixtures("worker_handles_signals")
def test_an_exception_beside_errors_outside_of_events_names_its_line() -> None:
    """A result does not belong to an event."""

    class Counts(ps.Aggregator):
        reads, monoid = one_bucket, ps.monoids.Count()
        writes = ps.Category("copies", Read, key="page", event_time="at")

        def result(self, key: str, window: ps.windows.Window, value: int) -> Read:
            raise KeyboardInterrupt

    driver = Driver(Counts)
    with pytest.raises(
        ProcessorFailed,
        match=r"^result \(test_user_code\.py, line \d+\): raise KeyboardInterrupt.*: Counts raised KeyboardInterrupt, which .* read again",
    ):
        driver.send(one_bucket, [Read("/", 1)])


def test_a_generator_exit_is_an_error_like_others() -> None:
    """Earlier events are saved, and the event could go to the dead letters."""
    driver = raising(GeneratorExit())
    with pytest.raises(
        PenstockError, match=r"^reads/0 at offset 1: Copy raised GeneratorExit\. All earlier .*DEAD_LETTER"
    ):
        driver.send(one_bucket, [Read("/", 1), Read("/", 2)])


def test_ctrl_c_interrupts_a_test() -> None:
    """No worker handles the signal there, so the KeyboardInterrupt reaches the user."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            raising(KeyboardInterrupt()).send(one_bucket, [Read("/", 2), Read("/", 2)])
    finally:
        signal.signal(signal.SIGINT, before)


def run_file(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    """Run a file of a user in another process."""
    file = folder / "app.py"
    file.write_text(source)
    return subprocess.run([sys.executable, file], capture_output=True, text=True, check=False, timeout=240)


def test_os_exit_is_reported_with_its_line_and_fails(tmp_path: Path) -> None:
    """A worker would otherwise end with 0, as if it had read its input. A process that user code forks may end in this way."""
    done = run_file(
        tmp_path,
        """import os
from penstock.ops.shell.process.hard_exits import hard_exits_reported
with hard_exits_reported("Copy", "No event is lost."):
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    os._exit(0)
""",
    )

    assert done.returncode == 1
    assert done.stderr.startswith("Error: Copy called `os._exit(0)` in <module> (app.py, line 8): os._exit(0).")
    assert done.stderr.count("No event is lost.") == 1


def test_streams_that_user_code_closes_still_show_results_errors_and_log_lines(tmp_path: Path) -> None:
    """The process ends without a traceback."""
    done = run_file(
        tmp_path,
        """import logging, sys
from penstock.ops.shell.terminal.output import note, print_json
from penstock.ops.shell.logs.setup import LogFormat, LogLevel, configure_logging
configure_logging(LogFormat.PRETTY, LogLevel.WARNING)
for show in (lambda: note("A note."), lambda: print_json(1), lambda: logging.warning("A line.")):
    sys.stdout.close()
    sys.stderr.close()
    show()
""",
    )

    assert (done.returncode, done.stdout) == (0, "1\n")
    note, line = done.stderr.splitlines()
    assert (note, line.endswith("WARNING A line.")) == ("A note.", True)


@pytest.mark.parametrize("at", ["soon", timedelta(seconds=5), 1.5, None])
def test_a_timer_at_no_int_is_explained(at: Any) -> None:
    """The error contains the unit."""
    with pytest.raises(TypeError, match=r"which is no int\. Give milliseconds since 1970, UTC"):
        ps.Context("key", 1, 1, []).timer(at)


def test_the_script_of_a_command_is_not_user_code() -> None:
    """A worker that waits for a store is not "still in" the line with which pip's script begins."""
    script = Path(sysconfig.get_path("scripts")) / "penstock"
    names: dict[str, Any] = {"user_line": user_line, "sys": sys}
    exec(compile("line = user_line(sys._getframe())", str(script), "exec"), names)  # noqa: S102 - as Python runs it

    assert "penstock" not in str(names["line"])
