"""Where lines of the log go, and which: all of them, those of libraries as well, to standard error in one form."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from .lines import JsonLines, PrettyLines

_TALKATIVE = ("py4j", "urllib3", "requests", "hdfs", "asyncio", "matplotlib")
"""Libraries that tell of each request: nobody who asks for our own details wants those."""


class LogFormat(Enum):
    """In which form lines are written."""

    PRETTY = "pretty"
    JSON = "json"


class LogLevel(Enum):
    """Which lines are written: those of this weight, and above."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """The level as the library has it."""
        return int(getattr(logging, self.name))


class _ToStandardError(logging.Handler):
    """Writes to what is standard error at that moment: a progress display puts itself in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 - as the library's own handlers: what cannot be told stops no work
            self.handleError(record)


def set_up(form: LogFormat, level: LogLevel) -> None:
    """Write lines of this weight in this form, from now on; those that were set up before are no more."""
    handler = _ToStandardError()
    handler.setFormatter(JsonLines() if form is LogFormat.JSON else PrettyLines(colored=sys.stderr.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [other for other in root.handlers if not isinstance(other, _ToStandardError)] + [handler]
    root.setLevel(level.number)
    for library in _TALKATIVE:
        logging.getLogger(library).setLevel(max(level.number, logging.WARNING))


def in_json() -> bool:
    """Tell whether standard error is for programs."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)


class _Bearing(logging.Filter):
    """Puts some fields on each line."""

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__()
        self._fields = fields

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in self._fields.items():
            record.__dict__.setdefault(name, value)
        return True


@contextmanager
def on_each_line(**fields: str) -> Iterator[None]:
    """Put some fields on each line that this process writes meanwhile, on all of its threads."""
    bearing, handlers = _Bearing(fields), logging.getLogger().handlers[:]
    for handler in handlers:
        handler.addFilter(bearing)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(bearing)
