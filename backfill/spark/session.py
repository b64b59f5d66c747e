"""The Spark session of a batch run: quiet, on this interpreter, with nothing left to the site's defaults that would show.

Where a session runs already, its context is shared and it is left running.
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
from .java import expect_java
from .masters import expect_answer, is_local

BATCH_EVENTS = 10_000
"""How many events cross between Spark and Python at a time."""
LOOPBACK = "127.0.0.1"
SETTLED_WITHIN_S = 20.0
"""How long tasks may take to end once their job is cancelled; Spark ends Python workers after two seconds."""

_GATEWAY_MODULES = ("java_gateway", "clientserver")
_GATEWAY_LOGS = (None, *(f"py4j.{module}" for module in _GATEWAY_MODULES))
"""Py4J writes to the root of all logs, too."""

_SQL = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_EVENTS),
    # Partitions stay as they were asked for: the order within them is what our reducers stream by.
    "spark.sql.adaptive.enabled": "false",
    # A day of a bucket is a small file: counted as 4 MiB each, they would make many tasks, and each task many files.
    "spark.sql.files.openCostInBytes": str(64 * 1024),
    # Listing a year of days is quicker here than as a job of its own.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
}


@contextmanager
def spark_session(master: str) -> Iterator[SparkSession]:
    """Give a session for one batch run; a context that was started for it ends with the block.

    Args:
        master: where Spark runs, such as ``local[*]``, ``yarn`` or ``spark://host:port``.

    Raises:
        BackfillRefused: there is no Java, or nobody answers there; nothing was started.
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
            settle(session)
            raise
        finally:
            with suppress(Py4JError, OSError):  # a JVM that died needs no end
                session.stop()


def _configured(session: SparkSession, master: str) -> SparkSession:
    for name, value in _SQL.items():
        session.conf.set(name, value)
    if is_local(master):
        session.conf.set("spark.sql.shuffle.partitions", str(2 * session.sparkContext.defaultParallelism))
    return session


@contextmanager
def _without_stack_traces() -> Iterator[None]:
    """Pass over what Py4J logs: it raises it as well."""

    def of_others(record: logging.LogRecord) -> bool:
        return record.module not in _GATEWAY_MODULES

    for name in _GATEWAY_LOGS:
        logging.getLogger(name).addFilter(of_others)
    try:
        yield
    finally:
        for name in _GATEWAY_LOGS:
            logging.getLogger(name).removeFilter(of_others)


def settle(session: SparkSession) -> None:
    """Wait until no task runs any more, for some seconds at most: what is removed after that is not written again."""
    deadline = time.monotonic() + SETTLED_WITHIN_S
    with suppress(Py4JError):  # where the JVM is gone, nothing runs
        tracker: Any = session.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001 - Python's own tracker does not tell
        while any(one.numRunningTasks() for one in tracker.getExecutorInfos()) and time.monotonic() < deadline:
            time.sleep(0.05)


def _start(master: str) -> SparkSession:
    expect_java()
    expect_answer(master)
    builder = (
        SparkSession.builder.master(master)
        .appName("penstock backfill")
        .config("spark.ui.showConsoleProgress", "false")
        # Output is written aside and published by us: Spark need not move each file once more.
        .config("spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version", "2")
        # Before those of the site, which are spark.driver.extraJavaOptions.
        .config(
            "spark.driver.defaultJavaOptions",
            f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
        )
    )
    if is_local(master):
        # Executors are within this process's reach: the same interpreter, and nothing listens beyond this machine.
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
            f"Spark does not start at {master}: {_why_not(reason_of(error))} Nothing was read."
        ) from error
    except KeyboardInterrupt:
        _end_half_started()
        raise
    # PySpark's own handler asks the JVM something in the middle of another question, which fails with stack traces.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)
    if is_local(master):
        _without_checksum_files(session)
    return session


def _why_not(reason: str) -> str:
    if "stopped SparkContext" not in reason:
        return f"{reason}."
    # All that Spark leaves of it: its reason is in the log of whoever stopped it.
    return (
        "it was stopped again while it started. Either what took the connection there did not answer as a Spark master within a minute, or the "
        "master gave the application up since its executors did not start, which the logs of its workers explain."
    )


def _end_half_started() -> None:
    """End the Java process that was being started: it waits for ever where Python stopped listening just then."""
    for child in psutil.Process().children():
        if child.name() == "java":
            child.kill()


def _without_checksum_files(session: SparkSession) -> None:
    """Keep Hadoop from putting a checksum file beside each file on local disk, and starting a process to make it.

    Parquet pages carry checksums of their own.
    """
    context = session.sparkContext
    files = context._jvm.org.apache.hadoop.fs.FileSystem  # type: ignore[union-attr]  # noqa: SLF001 - the only way to Hadoop
    files.getLocal(context._jsc.hadoopConfiguration()).setWriteChecksum(False)  # noqa: SLF001 - as above
