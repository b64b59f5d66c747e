"""What Hadoop wants to be told, and what it can be asked: its jars, its configuration files, the NameNode's own view.

PySpark brings the client half of Hadoop; the servers come in one further jar of the same version.
"""

import http.client
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

import msgspec

from .jars import JarSet, Module, Progress, fetch, pyspark_jar
from .java import QUIET_LOGGING, Java
from .ports import LOOPBACK

# What the servers need of what PySpark brings; all of its jars would bring two of many classes.
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
    """What the NameNode says of itself: `safemode` is empty once it takes writes, `live_nodes` is JSON by DataNode."""

    cluster_id: str
    safemode: str
    live_nodes: str


class Beans(msgspec.Struct, frozen=True):
    """An answer to a question for managed beans: none until the NameNode is far enough."""

    beans: list[NameNodeInfo]


_decode = msgspec.json.Decoder(Beans).decode


def classpath_of_servers(java: Java, progress: Progress) -> list[str]:
    """Return the class path of NameNode and DataNode, fetching what PySpark does not bring.

    Raises:
        JarsUnavailableError: something could not be fetched, or PySpark lacks what it should bring.
    """
    client = [pyspark_jar(name) for name in CLIENT_JARS]
    # Halves of two versions fail in ways that explain nothing.
    version = client[0].stem.removeprefix("hadoop-client-api-")
    server = Module("org.apache.hadoop", "hadoop-client-minicluster", version, alone=True)
    folder = fetch(JarSet(f"hdfs-{version}", (server,)), java, progress)
    return [f"{folder}/*", *map(str, client)]


def configure(conf: Path, ports: Mapping[str, int], name_data: Path, data_data: Path) -> tuple[Path, Path]:
    """Write the configuration of both processes into this folder; return it and the logging's file in it.

    Args:
        conf: made if missing.
        ports: by the names of `hdfs.NAME_NODE` and `hdfs.DATA_NODE`.
        name_data: where the NameNode keeps the tree of files.
        data_data: where the DataNode keeps the blocks.
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


def ask_name_node(port: int, limit_s: float) -> NameNodeInfo | None:
    """Return what the NameNode behind this web port says of itself, or None while it says nothing."""
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
        # 127.0.0.1 need not have a name.
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        # Started together: the DataNode asks often, for 20 s, and does not fall asleep for 5 s after 10 refusals.
        "ipc.client.connect.retry.interval": 200,
        "ipc.client.connect.max.retries": 100,
        "dfs.namenode.safemode.extension": 0,
        "dfs.heartbeat.interval": 1,
    }
