"""What can go wrong with local services, each as a paragraph for the person at the terminal."""

from pathlib import Path

from ...processors.errors import PenstockError

LAST_LINES = 15


class LocalServiceError(PenstockError):
    """A local service could not be had: `str()` is a finished paragraph that says what to do."""


class JavaMissingError(LocalServiceError):
    """No Java was found: install one."""


class JavaTooOldError(LocalServiceError):
    """Only Javas older than what the services need were found: install a newer one."""


class JarsUnavailableError(LocalServiceError):
    """Jars could not be fetched: nothing was kept half fetched, so it may be tried again."""


class ServiceFailedError(LocalServiceError):
    """A service could not be prepared, died, or did not answer in time: read its log."""


class StateUnreadableError(LocalServiceError):
    """A file that remembers a service cannot be understood: a person has to look."""


class UnknownServiceError(LocalServiceError):
    """There is no service of this name: choose one of those listed."""


def last_lines_of(log: Path) -> str:
    """Return the end of a log, quoted for an error, and where the rest is.

    Args:
        log: need not exist; only its last 64 KiB are read.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 65536))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    # The calls of a Java trace would push out the reason it gives above them.
    told = [line for line in lines if not line.startswith("\tat ")]
    quoted = "".join(f"\n  {line}" for line in told[-LAST_LINES:])
    return f"Its log is {log}" + (f" and ends with:{quoted}" if quoted else ", which is empty.")
