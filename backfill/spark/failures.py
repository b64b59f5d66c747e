"""Translation of Spark failures into messages for the user, without JVM stack traces.

Spark gives the driver a worker's traceback as text. The worker marks its message in that text, and the driver extracts it. If the
worker could not start Python at all, the driver recognises Spark's own text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from ...processors import PenstockError, interruption_behind
from ..errors import BackfillFailed
from ..warehouse import deleted_message, unreadable_message

_OF_FILE = re.compile(
    r"\[FAILED_READ_FILE\.(\w+)\] Encountered error while reading file (\S+)\.(?:\s+(.*?))?\s*(?:SQLSTATE|$)",
    re.MULTILINE,
)
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.+)$", re.MULTILINE)
_OTHER_TIMES = re.compile("Expected Spark type timestamp, actual Parquet type INT64")
_REMEDY_OF_TIMES = (
    "Spark reads no times in nanoseconds, which pandas and Arrow write by default: write them in microseconds, in pandas with "
    '`to_parquet(…, coerce_timestamps="us", allow_truncated_timestamps=True)`. If the column contains plain numbers, declare it as `int`.'
)
_REMEDY_OF_TYPES = "Use the record type that the file was written with, or move the file out of the folder."
_MARKED = re.compile(r"<<penstock (\".*?\") penstock>>", re.DOTALL)


class WorkerFailure(Exception):
    """Carries a message from a worker through Spark to the driver."""

    def __init__(self, paragraph: str) -> None:
        super().__init__(f"<<penstock {json.dumps(paragraph)} penstock>>")


@contextmanager
def marked_errors(processor: str) -> Iterator[None]:
    """Mark errors in a worker, so that `translated_errors` finds their message on the driver."""
    try:
        yield
    except PenstockError as error:
        raise WorkerFailure(str(error)) from error
    except Exception as error:
        raise WorkerFailure(
            f"{processor} failed outside the processing of a single event: {type(error).__name__}: {error}. None of its output "
            "was published. Correct the processor and run the backfill again."
        ) from error


@contextmanager
def translated_errors(what: str) -> Iterator[None]:
    """Raise the message of a worker's failure, or Spark's own message in one line. Runs on the driver.

    Raises:
        BackfillFailed: the block failed in Spark.
        KeyboardInterrupt: it was interrupted; PySpark's own cleanup may then fail, and hide that.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        interruption = interruption_behind(error)
        if interruption:
            raise interruption from None
        marked = _MARKED.search(str(error))
        if marked:
            raise BackfillFailed(json.loads(marked[1])) from error
        of_file = _of_file(str(error))
        if of_file:
            raise BackfillFailed(f"{what}: {of_file}") from error
        missing = missing_requirement(str(error))
        if missing:
            raise BackfillFailed(f"{what} failed. {missing} None of its output was published.") from error
        raise BackfillFailed(
            f"{what} failed in Spark: {reason_of(error)}. None of its output was published. For details, see "
            "Spark's log on the machine where it ran."
        ) from error


def _of_file(text: str) -> str | None:
    """Return the message for a file that Spark could not read; None for other failures."""
    failed = _OF_FILE.search(text)
    if failed is None:
        return None
    kind, file, detail = failed.groups()
    if kind == "FILE_NOT_EXIST":
        return deleted_message(file)
    if kind == "PARQUET_COLUMN_DATA_TYPE_MISMATCH":
        remedy = _REMEDY_OF_TIMES if _OTHER_TIMES.search(detail) else _REMEDY_OF_TYPES
        return f"{file}: {detail.rstrip('.')}. The expected type is the record's. None of the output was published. {remedy}"
    cause = _CAUSE.search(text)
    return unreadable_message(file, cause[1] if cause else kind)


def reason_of(error: Exception) -> str:
    """Return the message of Spark or its JVM, in one line."""
    text = str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
    reason = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return reason.strip().rstrip(".")


_MISSING = {
    r"ModuleNotFoundError: No module named '(?P<what>[^']+)'": (
        "An executor's Python lacks the module {what}, which Penstock needs. Penstock itself is sent to executors, but its dependencies "
        "are not. Install the same packages on every machine, or send an environment with them (`spark.archives`, and "
        "PYSPARK_PYTHON for its Python)."
    ),
    r"PYTHON_VERSION_MISMATCH\] (?P<what>Python in worker has different version[^,\n]*)": (
        "{what}. Both need the same minor version. Set PYSPARK_PYTHON to a Python of that version on every machine, or send an "
        "environment (`spark.archives`)."
    ),
    r'Cannot run program "(?P<what>[^"]+)"': (
        "A machine of the cluster has no Python at {what}. Set PYSPARK_PYTHON to its path there; the default is the path of "
        "the Python that runs this command."
    ),
}
"""Message by a pattern in the error text of Spark."""


def missing_requirement(text: str) -> str | None:
    """Return a message about a missing requirement of an executor; None if Spark's text names none."""
    for pattern, message in _MISSING.items():
        found = re.search(pattern, text)
        if found:
            return message.format(what=found["what"])
    return None
