"""Spark session of a batch run: quiet, on this Python interpreter, and independent of the site's defaults.

If a session runs already, the batch run shares its context and leaves it running.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ..errors import BackfillFailed
from .failures import reason_of
from .prerequisites import expect_java, expect_reachable, is_local

BATCH_EVENTS = 10_000
"""The number of events in a batch between Spark and Python."""
LOOPBACK = "127.0.0.1"
TASKS_END_LIMIT_S = 20.0
"""The limit for tasks to end after their job is cancelled; Spark ends Python workers after two seconds."""

_GATEWAY_MODULES = ("java_gateway", "clientserver")
_GATEWAY_LOGS = (None, *(f"py4j.{module}" for module in _GATEWAY_MODULES))
"""Py4J also writes to the root logger."""

_SQL = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    # Timestamps in Arrow's format, with dates before 1582 in the calendar of Python and Arrow.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_EVENTS),
    # A row of the shuffle may be a block of several MiB.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 * 2**20),
    # Adaptive execution would merge partitions, and the reducers rely on the order within a partition.
    "spark.sql.adaptive.enabled": "false",
    # A day of a bucket is a small file. At the default cost of 4 MiB each, a run would have too many tasks.
    "spark.sql.files.openCostInBytes": str(64 * 1024),
    # Listing a year of days on the driver is faster than in a separate job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
}


@contextmanager
def spark_session(master: str) -> Iterator[SparkSession]:
    """Yield a session for one batch run; a context started for it stops at the end of the block.

    Args:
        master: the Spark master, such as ``local[*]``, ``yarn`` or ``spark://host:port``.

    Raises:
        BackfillRefused: there is no Java, or the master does not accept connections; nothing was started.
        BackfillFailed: Spark does not start.
    """
    running = SparkSession.getActiveSession()
    if running:
        yield _configured(running.newSession(), master)
        return
    with _without_stack_traces():
        session = _start(master)
        try:
            yield _configured(session, master)
        except BaseException:
            with suppress(Py4JError):
                session.sparkContext.cancelAllJobs()
            wait_for_tasks(session)
            raise
        finally:
            with suppress(Py4JError, OSError):  # a dead JVM needs no stop
                session.stop()


def _configured(session: SparkSession, master: str) -> SparkSession:
    for name, value in _SQL.items():
        session.conf.set(name, value)
    if is_local(master):
        session.conf.set("spark.sql.shuffle.partitions", str(2 * session.sparkContext.defaultParallelism))
    return session


@contextmanager
def _without_stack_traces() -> Iterator[None]:
    """Drop the log records of Py4J, which raises the same errors."""

    def of_others(record: logging.LogRecord) -> bool:
        return record.module not in _GATEWAY_MODULES

    for name in _GATEWAY_LOGS:
        logging.getLogger(name).addFilter(of_others)
    try:
        yield
    finally:
        for name in _GATEWAY_LOGS:
            logging.getLogger(name).removeFilter(of_others)


def wait_for_tasks(session: SparkSession) -> None:
    """Wait until all tasks have ended, up to a limit, so that they do not recreate files that are removed next."""
    deadline = time.monotonic() + TASKS_END_LIMIT_S
    with suppress(Py4JError, OSError):  # with a dead JVM, no task runs
        tracker: Any = session.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001 - PySpark's tracker lacks it
        while (
            any(executor.numRunningTasks() for executor in tracker.getExecutorInfos()) and time.monotonic() < deadline
        ):
            time.sleep(0.05)


def _start(master: str) -> SparkSession:
    expect_java()
    expect_reachable(master)
    builder = (
        SparkSession.builder.master(master)
        .appName("penstock backfill")
        .config("spark.ui.showConsoleProgress", "false")
        # Output is written to a temporary folder and published from there: Spark need not move each file again.
        .config("spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version", "2")
        # The site sets spark.driver.extraJavaOptions, which come after these.
        .config(
            "spark.driver.defaultJavaOptions",
            f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
        )
    )
    if is_local(master):
        # Executors run on this machine: they use the same interpreter and listen on the loopback address only.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder = (
            builder.config("spark.driver.bindAddress", LOOPBACK)
            .config("spark.driver.host", LOOPBACK)
            .config("spark.ui.enabled", "false")
        )
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    handler = signal.getsignal(signal.SIGINT)
    try:
        session = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise BackfillFailed(
            f"Spark does not start at {master}: {_start_failure(reason_of(error))} No data was read."
        ) from error
    except KeyboardInterrupt:
        _end_half_started()
        raise
    # PySpark's own handler calls the JVM during another call, which fails with stack traces.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)
    if is_local(master):
        _without_checksum_files(session)
    return session


def _start_failure(reason: str) -> str:
    if "stopped SparkContext" not in reason:
        return f"{reason}."
    # Spark reports nothing else: the reason is in the log of the process that stopped it.
    return (
        "it stopped during its start. Either the process at this address did not answer as a Spark master within a minute, or the master gave up because "
        "executors did not start; see the logs of its workers."
    )


def _end_half_started() -> None:
    """Kill the starting Java process, which would otherwise wait for Python forever."""
    for child in psutil.Process().children():
        if child.name() == "java":
            child.kill()


def _without_checksum_files(session: SparkSession) -> None:
    """Turn off Hadoop's checksum files on local disk, each of which starts a process.

    Parquet pages have checksums of their own.
    """
    context = session.sparkContext
    files = context._jvm.org.apache.hadoop.fs.FileSystem  # type: ignore[union-attr]  # noqa: SLF001 - the only way to Hadoop
    files.getLocal(context._jsc.hadoopConfiguration()).setWriteChecksum(False)  # noqa: SLF001 - as above
