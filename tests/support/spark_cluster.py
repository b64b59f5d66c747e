"""A real Spark cluster: a standalone master and two workers on 127.0.0.1, each a process of its own, which start executors."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pyspark

from .databases import Server, free_port

HOST = "127.0.0.1"
SPARK_HOME = Path(pyspark.__file__).parent
SETTINGS = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.cores.max": "2",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    # As between two machines: what a dead executor had on its disk is gone.
    "spark.shuffle.readHostLocalDisk": "false",
    "spark.ui.enabled": "false",
}
"""What an application of the tests asks of it: an executor on each worker, with one core."""

_ENVIRONMENT = {
    "SPARK_HOME": str(SPARK_HOME),
    "SPARK_LOCAL_IP": HOST,
    # Asked for where Spark was installed with pip.
    "SPARK_SCALA_VERSION": "2.13",
}


class SparkCluster:
    """Where a running cluster is.

    Args:
        folder: what its executors work in lies there.
        port: the master's.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.master = f"spark://{HOST}:{port}"
        self.folder = folder


@contextmanager
def running_cluster(folder: Path) -> Iterator[SparkCluster]:
    """Give a cluster of two workers with two cores each; it ends with the block, executors included."""
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
