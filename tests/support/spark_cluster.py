"""A Spark cluster: a standalone master and two workers on 127.0.0.1, each in its own process, which start executors."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pyspark

from penstock.ops.shell import free_port

from .databases import Server

HOST = "127.0.0.1"
SPARK_HOME = Path(pyspark.__file__).parent
SETTINGS = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.cores.max": "2",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    # As between two machines, a dead executor's disk is lost.
    "spark.shuffle.readHostLocalDisk": "false",
    "spark.ui.enabled": "false",
}
"""The settings of a test's application: an executor with one core on each worker."""

_ENVIRONMENT = {
    "SPARK_HOME": str(SPARK_HOME),
    "SPARK_LOCAL_IP": HOST,
    # A pip installation of Spark needs this setting.
    "SPARK_SCALA_VERSION": "2.13",
}


class SparkCluster:
    """A running cluster.

    Args:
        folder: the folder of its executors' work folders.
        port: the master's port.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.master = f"spark://{HOST}:{port}"
        self.folder = folder


@contextmanager
def running_cluster(folder: Path) -> Iterator[SparkCluster]:
    """Run a cluster of two workers with two cores each in the block, and end it with its executors."""
    cluster = SparkCluster(folder, free_port())
    options = ["-Dspark.master.rest.enabled=false"]
    master = ["master.Master", "--host", HOST, "--port", cluster.master.rpartition(":")[2], "--webui-port", "0"]
    worker = ["worker.Worker", "--host", HOST, "--cores", "2", "--memory", "1200m", "--webui-port", "0"]
    with ExitStack() as running:
        running.enter_context(_daemon(folder / "master", [*options, *_class(master)], "New state: ALIVE"))
        for name in ("worker-1", "worker-2"):
            arguments = [*_class(worker), "--work-dir", str(folder / name / "work"), cluster.master]
            running.enter_context(_daemon(folder / name, arguments, "Successfully registered with master"))
        yield cluster


def _class(command: list[str]) -> list[str]:
    name, *arguments = command
    return ["-cp", f"{SPARK_HOME}/jars/*", f"org.apache.spark.deploy.{name}", *arguments]


@contextmanager
def _daemon(folder: Path, arguments: list[str], ready: str) -> Iterator[None]:
    folder.mkdir(parents=True)
    java = shutil.which("java")
    assert java
    command = [java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *arguments]
    server = Server(command, folder, 0, env={**os.environ, **_ENVIRONMENT})
    server.start(lambda: ready in (folder / "log").read_text())
    try:
        yield
    finally:
        executors = server.children()
        server.stop(signal.SIGTERM)
        _, left = psutil.wait_procs(executors, timeout=10)
        for process in left:
            process.kill()
