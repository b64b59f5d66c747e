"""Hadoop's class path and configuration files, and the status of its NameNode.

PySpark contains the client jars of Hadoop. The servers are in one additional jar of the same version.
"""

import http.client
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

import msgspec

from ...shell import LOOPBACK, ReportStep
from .jars import JarSet, Module, fetch, pyspark_jar
from .java import QUIET_LOGGING, Java

# The jars of PySpark that the servers need. All of its jars would contain many classes twice.
CLIENT_JARS = (
    "hadoop-client-api",
    "hadoop-client-runtime",
    "slf4j-api",
    "jcl-over-slf4j",
    "log4j-api",
    "log4j-core",
    "log4j-1.2-api",
    "log4j-slf4j2-impl",
    "jsr305",
    "snappy-java",
)


class NameNodeInfo(msgspec.Struct, frozen=True, rename="pascal"):
    """The status of the NameNode: `safemode` is empty when it accepts writes, `live_nodes` is a JSON object by DataNode."""

    cluster_id: str
    safemode: str
    live_nodes: str


class Beans(msgspec.Struct, frozen=True):
    """A response with managed beans; empty while the NameNode starts."""

    beans: list[NameNodeInfo]


_decode = msgspec.json.Decoder(Beans).decode


def classpath_of_servers(java: Java, progress: ReportStep) -> list[str]:
    """Return the class path of NameNode and DataNode, and download jars that PySpark does not contain.

    Raises:
        JarsUnavailableError: a jar could not be downloaded, or is missing in PySpark.
    """
    client = [pyspark_jar(name) for name in CLIENT_JARS]
    # Client and server jars of different versions fail with misleading errors.
    version = client[0].stem.removeprefix("hadoop-client-api-")
    server = Module("org.apache.hadoop", "hadoop-client-minicluster", version, alone=True)
    folder = fetch(JarSet(f"hdfs-{version}", (server,)), java, progress)
    return [f"{folder}/*", *map(str, client)]


def configure(conf: Path, ports: Mapping[str, int], name_data: Path, data_data: Path) -> tuple[Path, Path]:
    """Write the configuration of both processes, and return its folder and the logging configuration.

    Args:
        conf: the folder, created if missing.
        ports: the ports, by the names in `hdfs.NAME_NODE` and `hdfs.DATA_NODE`.
        name_data: the folder of the NameNode's metadata.
        data_data: the folder of the DataNode's blocks.
    """
    conf.mkdir(parents=True, exist_ok=True)
    logging = conf / "log4j2.properties"
    logging.write_text(QUIET_LOGGING, encoding="utf-8")
    settings = _settings(conf, ports, name_data, data_data)
    properties = "".join(
        f"<property><name>{key}</name><value>{escape(str(value))}</value></property>\n"
        for key, value in settings.items()
    )
    for file in ("core-site.xml", "hdfs-site.xml"):
        (conf / file).write_text(f"<configuration>\n{properties}</configuration>\n", encoding="utf-8")
    return conf, logging


def name_node_status(port: int, limit_s: float) -> NameNodeInfo | None:
    """Return the status of the NameNode at a web port; None while it does not answer."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=limit_s)
    try:
        connection.request("GET", "/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo")
        beans = _decode(connection.getresponse().read()).beans
    except (OSError, http.client.HTTPException, msgspec.MsgspecError):
        return None
    finally:
        connection.close()
    return beans[0] if beans else None


def _settings(conf: Path, ports: Mapping[str, int], name_data: Path, data_data: Path) -> dict[str, object]:
    return {
        "fs.defaultFS": f"hdfs://{LOOPBACK}:{ports['rpc']}",
        "hadoop.tmp.dir": conf.parent / "tmp",
        "dfs.namenode.rpc-address": f"{LOOPBACK}:{ports['rpc']}",
        "dfs.namenode.http-address": f"{LOOPBACK}:{ports['web']}",
        "dfs.namenode.name.dir": name_data.as_uri(),
        "dfs.datanode.hostname": LOOPBACK,
        "dfs.datanode.address": f"{LOOPBACK}:{ports['transfer']}",
        "dfs.datanode.http.address": f"{LOOPBACK}:{ports['data_web']}",
        "dfs.datanode.ipc.address": f"{LOOPBACK}:{ports['ipc']}",
        "dfs.datanode.data.dir": data_data.as_uri(),
        "dfs.replication": 1,
        "dfs.permissions.enabled": "false",
        # 127.0.0.1 may have no host name.
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        # Both start together: the DataNode retries every 200 ms for 20 s, instead of pausing for 5 s after 10 failures.
        "ipc.client.connect.retry.interval": 200,
        "ipc.client.connect.max.retries": 100,
        "dfs.namenode.safemode.extension": 0,
        "dfs.heartbeat.interval": 1,
    }
