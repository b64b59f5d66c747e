"""The lines of a stack that belong to the user's code."""

from __future__ import annotations

import linecache
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

_PACKAGE = str(Path(__file__).parents[1])
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")})

_AWAITED_LINES: dict[int, Callable[[], str | None]] = {}
"""By thread, a function that returns the line of user code that its event loop awaits."""

_AWAITABLE = {
    "coroutine": "a coroutine that nothing awaited (`await` it in an `async def` method)",
    "async_generator": "an async generator that nothing iterated over (`async for` does so in an `async def` method)",
}
"""Results of calls that user code did not await, by the type that errors of Python name."""


def is_user_file(file: str) -> bool:
    """Return whether a source file belongs to neither Penstock, nor Python, nor an installed package."""
    return not file.startswith(("<", _PACKAGE, *_LIBRARIES))


def user_line(frame: FrameType | None) -> str | None:
    """Return the innermost line of user code on a stack, such as `process (app.py, line 12): total += 1`; None if there is none."""
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            return _line_in_words(frame, frame.f_lineno)
        frame = frame.f_back
    return None


def raising_line(error: BaseException) -> str | None:
    """Return the innermost line of user code through which an error passed, as `user_line` does."""
    # The frames of a traceback have ended, and no longer lead to their callers.
    lines = list(traceback.walk_tb(error.__traceback__))
    found = (_line_in_words(*line) for line in reversed(lines) if is_user_file(line[0].f_code.co_filename))
    return next(found, None)


def _line_in_words(frame: FrameType, line: int) -> str:
    file = frame.f_code.co_filename
    source = linecache.getline(file, line).strip()
    return f"{frame.f_code.co_name} ({Path(file).name}, line {line})" + (f": {source}" if source else "")


@contextmanager
def record_awaited_line(awaited_line: Callable[[], str | None]) -> Iterator[None]:
    """Let `busy_line` call a function while this thread runs an event loop, whose stack contains no suspended call.

    Args:
        awaited_line: returns the line of user code that the loop awaits; called in any thread.
    """
    thread = threading.get_ident()
    _AWAITED_LINES[thread] = awaited_line
    try:
        yield
    finally:
        del _AWAITED_LINES[thread]


def busy_line(thread: int) -> str | None:
    """Return the innermost line of user code that a thread runs or awaits, as `user_line` does."""
    awaited_line = _AWAITED_LINES.get(thread)
    line = None if awaited_line is None else awaited_line()
    return line or user_line(sys._current_frames().get(thread))  # noqa: SLF001 - the documented way to a thread's stack


def is_wrong_result(error: BaseException) -> bool:
    """Return whether the engine raised an error itself, where it takes apart what user code returned: no call failed."""
    trace = error.__traceback__
    return isinstance(error, (TypeError, ValueError)) and trace is not None and trace.tb_next is None


def error_reason(name: str, error: BaseException, result_form: str) -> str:
    """Return the reason of a failed call of user code, for errors.

    Args:
        name: the name of the class or the method.
        error: the error.
        result_form: what the method must return, as code.
    """
    if is_wrong_result(error):
        unawaited = next((kind for kind in _AWAITABLE if kind in str(error)), None)
        returned = f"another value ({error})" if unawaited is None else _AWAITABLE[unawaited]
        return f"{name} must return `{result_form}`, but returned {returned}"
    return f"{name} raised {error_in_words(error)}"


def error_in_words(error: BaseException) -> str:
    """Return the type and the message of an error, without a mark at the end: `ValueError: no such route`, or only `MemoryError`."""
    message = str(error).rstrip(".")
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def user_traceback(error: BaseException) -> str:
    """Return the stack of an error from the first line of user code on, and the error; empty if no line is the user's."""
    trace = error.__traceback__
    while trace is not None and not is_user_file(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    if trace is None:
        return ""
    return "".join([*traceback.format_tb(trace), *traceback.format_exception_only(error)])
