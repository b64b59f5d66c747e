"""Errors of local services. Each message is a paragraph for the terminal."""

import os
from pathlib import Path

from ....processors import PenstockError

LAST_LINES = 15


class LocalServiceError(PenstockError):
    """A local service is not available. The message states the reason and the action."""


class JavaMissingError(LocalServiceError):
    """Java is not installed: install it."""


class JavaTooOldError(LocalServiceError):
    """Every installed Java is too old for the services: install a newer one."""


class JarsUnavailableError(LocalServiceError):
    """The jars of a service cannot be downloaded. No partial download remains: try again."""


class ServiceFailedError(LocalServiceError):
    """A service could not be prepared, ended, or did not answer in time: read its log."""


class StateUnreadableError(LocalServiceError):
    """The file with the state of a service is unreadable: check and remove it."""


class UnknownServiceError(LocalServiceError):
    """No service has this name: choose a listed one."""


def last_lines_of(log: Path, since: int = 0) -> str:
    """Return the end of a log, quoted for an error message, and its path.

    Args:
        log: the log, which may be missing. Only its last 64 KiB are read.
        since: the size of the log at the beginning of the run to quote. A smaller log was rotated since then.
    """
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(since if since <= size else 0, size - 65536))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    # The frames of a Java stack trace would displace its first line, which states the reason.
    lines = [line for line in lines if not line.startswith("\tat ")]
    quoted = "".join(f"\n  {line}" for line in lines[-LAST_LINES:])
    return f"Its log is {log}" + (f" and ends with:{quoted}" if quoted else ", to which it wrote nothing.")
