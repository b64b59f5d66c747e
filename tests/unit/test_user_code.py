"""Tracebacks and lines of user code, and results that the engine cannot use."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.processors.errors import PenstockError
from penstock.processors.user_code import user_line, user_traceback
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


@pytest.mark.parametrize("returned", [1, [Read("/", 1)], (1, Read("/", 1)), (1, [], []), None])
def test_a_stateful_result_of_a_wrong_form_is_explained(returned: object) -> None:
    """With the form that the method must return, instead of the engine's own TypeError."""

    class Count(ps.Stateful):
        state = int

        def process(self, event: Read, state: int | None, context: ps.Context) -> Any:
            return returned

    Count.reads, Count.writes = reads, ps.Category("copies", Read, key="page", event_time="at")
    driver = Driver(Count)
    with pytest.raises(PenstockError, match=r"Count must return `state, \[…\]`, but returned another value \("):
        driver.send(reads, [Read("/", 1)])


def test_a_stateless_result_that_is_no_list_is_explained() -> None:
    """A single record, where a list is expected."""

    class Copy(ps.Stateless):
        def process(self, event: Read) -> Any:
            return event

    Copy.reads, Copy.writes = reads, ps.Category("copies", Read, key="page", event_time="at")
    driver = Driver(Copy)
    with pytest.raises(PenstockError, match=r"Copy must return `\[…\]`, but returned another value \('Read' object"):
        driver.send(reads, [Read("/", 1)])


def test_a_type_error_of_the_users_code_stays_one() -> None:
    """Only where the engine takes the result apart, the form is wrong."""

    class Count(ps.Stateful):
        state = int

        def process(self, event: Read, state: int | None, context: ps.Context) -> Any:
            return state + 1, []  # type: ignore[operator]  # the fault under test

    Count.reads = reads
    driver = Driver(Count)
    with pytest.raises(PenstockError, match="Count raised TypeError: unsupported operand"):
        driver.send(reads, [Read("/", 1)])


@pytest.mark.parametrize("at", ["soon", timedelta(seconds=5), 1.5, None])
def test_a_timer_at_no_int_is_explained(at: Any) -> None:
    """With its unit."""
    with pytest.raises(TypeError, match=r"which is no int\. Give milliseconds since 1970, UTC"):
        ps.Context("key", 1, 1, []).timer(at)
