"""What executors lack is told in our words, whatever Spark's own are around it."""

from __future__ import annotations

import pytest
from pyspark.errors import PythonException

from penstock.backfill.errors import BackfillFailed
from penstock.backfill.spark.failures import told

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
        (MISSING, r"does not have the module msgspec, .*spark\.archives.*Nothing of its output was published"),
        (OTHER_PYTHON, r"different version: 3\.10 than that in driver: 3\.11\. Both have to be of one minor version"),
        (NO_PYTHON, r"no Python at /srv/venv/bin/python on a machine of the cluster\. Set PYSPARK_PYTHON"),
    ],
)
def test_what_an_executor_lacks_is_named(spark: str, ours: str) -> None:
    """With what to do about it."""
    with pytest.raises(BackfillFailed, match=f"^Totals failed.*{ours}"), told("Totals"):
        raise PythonException(message=spark)
