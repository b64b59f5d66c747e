"""Formats of log lines: JSON for programs, text for people."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import msgspec

_STANDARD = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
_COLORS = {"WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}
IDENTITY = ("processor", "worker")
"""The fields that identify the process."""


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of a line beside its message: `extra`, and the class of a logged error."""
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD and name not in IDENTITY}
    arguments = record.args if isinstance(record.args, tuple) else ()
    errors = [type(argument).__name__ for argument in arguments if isinstance(argument, BaseException)]
    return {**extra, "error": errors[0]} if errors else extra


class JsonLogLines(logging.Formatter):
    """A JSON object for each line: time (UTC), level, logger, processor, worker, message, and fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a line."""
        when = datetime.fromtimestamp(record.created, tz=UTC)
        line: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **{name: getattr(record, name) for name in IDENTITY if hasattr(record, name)},
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class PrettyLines(logging.Formatter):
    """Text for people: time of day, level, processor, message, and fields.

    Args:
        colored: whether to use terminal colours.
    """

    def __init__(self, *, colored: bool) -> None:
        super().__init__()
        self._colored = colored

    def format(self, record: logging.LogRecord) -> str:
        """Return a line, or several with a stack trace."""
        when = self.formatTime(record, "%Y-%m-%d %H:%M:%S")
        processor = getattr(record, "processor", None)
        prefix = f" {processor}:" if processor else ""
        fields = "".join(f" {name}={value}" for name, value in fields_of(record).items() if name != "error")
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{when} {self._colored_level(record.levelname)}{prefix} {record.getMessage()}{fields}{trace}"

    def _colored_level(self, level: str) -> str:
        color = _COLORS.get(level) if self._colored else None
        return f"\x1b[{color}m{level}\x1b[0m" if color else level
