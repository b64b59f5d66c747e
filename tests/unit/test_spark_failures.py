"""Failures of Spark as messages: missing requirements of executors, and interruptions."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PythonException

from penstock.backfill import BackfillFailed
from penstock.backfill.spark import translated_errors

MISSING = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "serializers.py", line 472, in loads
    return cloudpickle.loads(obj, encoding=encoding)
ModuleNotFoundError: No module named 'msgspec'
"""
OTHER_PYTHON = """
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in \
driver: 3.11, PySpark cannot run with different minor versions.
"""
NO_PYTHON = 'java.io.IOException: Cannot run program "/srv/venv/bin/python": error=2, No such file or directory'


@pytest.mark.parametrize(
    ("spark", "ours"),
    [
        (MISSING, r"lacks the module msgspec, .*spark\.archives.*None of its output was published"),
        (OTHER_PYTHON, r"different version: 3\.10 than that in driver: 3\.11\. Both need the same minor version"),
        (NO_PYTHON, r"A machine of the cluster has no Python at /srv/venv/bin/python\. Set PYSPARK_PYTHON"),
    ],
)
def test_missing_requirements_of_an_executor_are_named(spark: str, ours: str) -> None:
    """The error contains a remedy."""
    with pytest.raises(BackfillFailed, match=f"^Totals failed.*{ours}"), translated_errors("Totals"):
        raise PythonException(message=spark)


@pytest.mark.parametrize(("actual", "is_named"), [("INT64", True), ("BINARY", False)])
def test_a_file_with_times_in_nanoseconds_is_named_with_the_remedy(actual: str, is_named: bool) -> None:
    """Pandas writes such files. A text in the column is another mistake."""
    spark = (
        "[FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered error while reading file file:///in/ds=2024-02-29/a.parquet. Data type "
        f"mismatches when reading Parquet column [at]. Expected Spark type timestamp, actual Parquet type {actual}. SQLSTATE: KD001"
    )
    with (
        pytest.raises(
            BackfillFailed, match=r"a\.parquet: .*column \[at\]\..*The expected type is the record's\."
        ) as failed,
        translated_errors("Totals"),
    ):
        raise PythonException(message=spark)

    assert ('coerce_timestamps="us"' in str(failed.value)) is is_named


def test_an_interruption_is_no_failure_of_spark() -> None:
    """PySpark's cleanup after Ctrl-C calls Java over the interrupted connection, and fails."""

    def interrupted() -> None:
        try:
            raise KeyboardInterrupt("Ctrl-C")
        finally:
            raise Py4JNetworkError("Answer from Java side is empty")

    with pytest.raises(KeyboardInterrupt, match="Ctrl-C"), translated_errors("Totals"):
        interrupted()
