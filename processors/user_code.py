"""The lines of a stack that belong to the user's code."""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from pathlib import Path
from types import FrameType

_PACKAGE = str(Path(__file__).parents[1])
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_user_file(file: str) -> bool:
    """Return whether a source file belongs to neither Penstock, nor Python, nor an installed package."""
    return not file.startswith(("<", _PACKAGE, *_LIBRARIES))


def user_line(frame: FrameType | None) -> str | None:
    """Return the innermost line of user code on a stack, such as `process (app.py, line 12): total += 1`; None if there is none."""
    while frame is not None:
        file, line = frame.f_code.co_filename, frame.f_lineno
        if is_user_file(file):
            source = linecache.getline(file, line).strip()
            return f"{frame.f_code.co_name} ({Path(file).name}, line {line})" + (f": {source}" if source else "")
        frame = frame.f_back
    return None


def user_traceback(error: BaseException) -> str:
    """Return the stack of an error from the first line of user code on, and the error; empty if no line is the user's."""
    trace = error.__traceback__
    while trace is not None and not is_user_file(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    if trace is None:
        return ""
    return "".join([*traceback.format_tb(trace), *traceback.format_exception_only(error)])
