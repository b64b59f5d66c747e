"""Tracebacks and lines of user code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from penstock.processors.user_code import user_line, user_traceback


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
