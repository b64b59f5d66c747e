"""Setup of logging: all lines, also of libraries, go to standard error in one format."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TextIO

from .lines import JsonLogLines, PrettyLines

_VERBOSE_LIBRARIES = ("py4j", "urllib3", "requests", "hdfs", "asyncio", "matplotlib")
"""Libraries that log each request. Their levels below WARNING are suppressed."""


class LogFormat(Enum):
    """The format of lines."""

    PRETTY = "pretty"
    JSON = "json"


class LogLevel(Enum):
    """The lowest level that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """The level of the logging library."""
        return int(getattr(logging, self.name))


def reopen_standard_streams() -> None:
    """Open standard output and standard error again if user code has closed them. Their file descriptors are still open."""
    if getattr(sys.stdout, "closed", False):
        sys.stdout = _opened(1)
    if getattr(sys.stderr, "closed", False):
        sys.stderr = _opened(2)


def _opened(descriptor: int) -> TextIO:
    # Python does not own the descriptor, as with the stream that was closed.
    return open(descriptor, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)


class _ToStandardError(logging.Handler):
    """Writes to the current standard error, which a progress display may replace."""

    def emit(self, record: logging.LogRecord) -> None:
        reopen_standard_streams()
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 - like the library's own handlers: a failed log line stops no work
            self.handleError(record)


def configure_logging(form: LogFormat, level: LogLevel) -> None:
    """Write lines from a level on in a format; replaces the previous setup."""
    handler = _ToStandardError()
    handler.setFormatter(JsonLogLines() if form is LogFormat.JSON else PrettyLines(colored=sys.stderr.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [other for other in root.handlers if not isinstance(other, _ToStandardError)] + [handler]
    root.setLevel(level.number)
    for library in _VERBOSE_LIBRARIES:
        logging.getLogger(library).setLevel(max(level.number, logging.WARNING))


def logs_json() -> bool:
    """Return whether log lines are JSON."""
    return any(isinstance(handler.formatter, JsonLogLines) for handler in logging.getLogger().handlers)


class _AddFields(logging.Filter):
    """Adds fields to each line."""

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__()
        self._fields = fields

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in self._fields.items():
            record.__dict__.setdefault(name, value)
        return True


@contextmanager
def with_log_fields(**fields: str) -> Iterator[None]:
    """Add fields to each line that this process writes within the context, on all threads."""
    with with_log_filter(_AddFields(fields)):
        yield


@contextmanager
def with_log_filter(added: logging.Filter) -> Iterator[None]:
    """Apply a filter to each line that this process writes within the context, on all threads."""
    handlers = logging.getLogger().handlers[:]
    for handler in handlers:
        handler.addFilter(added)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(added)
