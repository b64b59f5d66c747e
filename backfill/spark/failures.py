"""How a failure in a Python worker of Spark reaches the person at the terminal: as the paragraph it was, without the JVM.

Spark hands the driver a worker's traceback as text. The worker marks its paragraph in that text; the driver finds it there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from ...processors.errors import PenstockError
from ..errors import BackfillFailed
from ..warehouse.read_errors import deleted_message, unreadable_message
from .executor_errors import missing_requirement

_OF_FILE = re.compile(
    r"\[FAILED_READ_FILE\.(\w+)\] Encountered error while reading file (\S+)\.(?:\s+(.*?))?\s*(?:SQLSTATE|$)",
    re.MULTILINE,
)
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.+)$", re.MULTILINE)
_MARKED = re.compile(r"<<penstock (\".*?\") penstock>>", re.DOTALL)


class FailedInWorker(Exception):
    """Carries a paragraph through Spark."""

    def __init__(self, paragraph: str) -> None:
        super().__init__(f"<<penstock {json.dumps(paragraph)} penstock>>")


@contextmanager
def carried(processor: str) -> Iterator[None]:
    """In a worker: mark what fails within, so that `told` finds it on the driver."""
    try:
        yield
    except PenstockError as error:
        raise FailedInWorker(str(error)) from error
    except Exception as error:
        raise FailedInWorker(
            f"{processor} failed where no single event is to blame: {type(error).__name__}: {error}. Nothing of its output "
            "was published; mend it and run the backfill again."
        ) from error


@contextmanager
def told(what: str) -> Iterator[None]:
    """On the driver: raise what a worker's failure says, or what Spark says in one line.

    Raises:
        BackfillFailed: the run within failed.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        marked = _MARKED.search(str(error))
        if marked:
            raise BackfillFailed(json.loads(marked[1])) from error
        of_file = _of_file(str(error))
        if of_file:
            raise BackfillFailed(f"{what}: {of_file}") from error
        lack = missing_requirement(str(error))
        if lack:
            raise BackfillFailed(f"{what} failed. {lack} Nothing of its output was published.") from error
        raise BackfillFailed(
            f"{what} failed in Spark: {reason_of(error)}. Nothing of its output was published. If the reason does not help, "
            "Spark's own log on the machine where it ran says more."
        ) from error


def _of_file(text: str) -> str | None:
    """Return what is to be said of a file that Spark could not read, if that is what failed."""
    failed = _OF_FILE.search(text)
    if failed is None:
        return None
    kind, file, detail = failed.groups()
    if kind == "FILE_NOT_EXIST":
        return deleted_message(file)
    if kind == "PARQUET_COLUMN_DATA_TYPE_MISMATCH":
        return (
            f"{file}: {detail.rstrip('.')}, which is what the record has there. Nothing of the output was published. Use the record type that the "
            "file was written with, or move the file out of the folder."
        )
    cause = _CAUSE.search(text)
    return unreadable_message(file, cause[1] if cause else kind)


def reason_of(error: Exception) -> str:
    """Return what Spark or its JVM says, in one line."""
    text = str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
    reason = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return reason.strip().rstrip(".")
