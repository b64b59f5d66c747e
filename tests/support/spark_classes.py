"""A class data archive of Spark (https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html): sessions that use it need half of the processor time to start.

    python -m support.spark_classes FILE

Java uses an archive only with the JVM and the class path that it was made with, and otherwise ignores it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

CLASSES = Path(sys.prefix) / "spark.jsa"
"""The location of the archive for the tests."""
OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable with options for the JVM of a session, and for no other JVM."""
QUICK_JAVA = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}


def with_classes(file: Path) -> dict[str, str]:
    """Return the variable with which sessions use an archive; empty without one."""
    return {OPTIONS: f"-XX:SharedArchiveFile={file}"} if file.exists() else {}


def _copied(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def make(file: Path) -> None:
    """Make an archive of the classes that a session with typical jobs loads."""
    from pyspark import SparkContext  # slow to import, and all tests import this module

    from penstock.backfill.spark import spark_session

    aside = file.with_suffix(".aside")
    os.environ.update({**QUICK_JAVA, OPTIONS: f"-XX:ArchiveClassesAtExit={aside} -Xlog:disable -Xlog:all=off"})
    with TemporaryDirectory() as folder, spark_session("local[2]") as spark:
        spark.range(100).selectExpr("id % 7 AS key", "id").write.partitionBy("key").parquet(f"{folder}/events")
        events = spark.read.parquet(f"{folder}/events")
        sums = events.groupBy("key").sum("id").withColumnRenamed("sum(id)", "id")
        events.join(sums, "key").repartition(2, "key").sortWithinPartitions("key").select("key").mapInArrow(
            _copied, "key int"
        ).collect()
    gateway = SparkContext._gateway  # the JVM writes the archive when it ends
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(300)
    aside.replace(file)


if __name__ == "__main__" and shutil.which("java"):
    make(Path(sys.argv[1]))
