"""HDFS on this machine: a NameNode and a DataNode in two processes, on 127.0.0.1 only.

Its folder contains `conf` (for both, written at each start) and a folder for each process, with its `data` and the files
of `service.py`.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ...shell import LOOPBACK, ReportStep, choose_ports, is_listening
from .hadoop import classpath_of_servers, configure, name_node_status
from .java import Java, find_java
from .service import Daemon, ServiceProgram, ServiceStatus, State

NAME = "hdfs"
HEAP_MB = 256
REQUEST_LIMIT_S = 5.0
FORMAT_LIMIT_S = 60.0
PROBE = "/.penstock-probe"
# The start mostly loads classes, which the optimising compiler would only slow down.
QUICK_START = ("-XX:TieredStopAtLevel=1",)


@dataclass(frozen=True, slots=True)
class HdfsRole:
    """One of the two processes: its folder, its Java class, and the names of its ports."""

    folder: str
    main: str
    ports: tuple[str, ...]


NAME_NODE = HdfsRole("namenode", "org.apache.hadoop.hdfs.server.namenode.NameNode", ("rpc", "web"))
DATA_NODE = HdfsRole("datanode", "org.apache.hadoop.hdfs.server.datanode.DataNode", ("transfer", "data_web", "ipc"))


class HdfsService:
    """The HDFS service of a folder. Callers of `up` and `down` hold a lock."""

    name = NAME

    def __init__(self, folder: Path) -> None:
        self._folder = folder / NAME
        self._name_data = self._folder / NAME_NODE.folder / "data"
        self._name_node = Daemon("HDFS NameNode", self._folder / NAME_NODE.folder)
        self._data_node = Daemon("HDFS DataNode", self._folder / DATA_NODE.folder)

    def up(self, progress: ReportStep) -> ServiceStatus:
        """Start HDFS unless it runs, and return when files can be written.

        Raises:
            LocalServiceError: it could not be started; processes that this call started have ended.
        """
        keep_name_node = self._name_node.process() is not None
        if keep_name_node and self._data_node.process() is not None:
            self._data_node.await_ready(self._accepts_writes)
        else:
            self._start(keep_name_node, progress)
        return self.status()

    def status(self) -> ServiceStatus:
        """Return the status of both processes, with the URLs of the endpoints `rpc` and `webhdfs`."""
        ports = self._name_node.record().ports
        endpoints = (
            {"rpc": f"hdfs://{LOOPBACK}:{ports['rpc']}", "webhdfs": f"http://{LOOPBACK}:{ports['web']}"}
            if ports
            else {}
        )
        name_node = self._name_node.status(endpoints, self._answers)
        state = _combined_state(name_node.state, self._data_node.status({}, lambda: True).state)
        return ServiceStatus(NAME, state, name_node.pid, endpoints, name_node.up_s)

    def down(self) -> None:
        """Stop both processes if they run. They keep their data and ports."""
        self._data_node.stop()
        self._name_node.stop()

    def _start(self, keep_name_node: bool, progress: ReportStep) -> None:
        java = find_java()
        classpath = classpath_of_servers(java, progress)
        # A running DataNode would wait for the previous NameNode, perhaps at a port that it no longer uses.
        self._data_node.stop()
        previous = {**self._name_node.record().ports, **self._data_node.record().ports}
        names = DATA_NODE.ports if keep_name_node else (*NAME_NODE.ports, *DATA_NODE.ports)
        ports = {**previous, **choose_ports(names, previous)}
        if not self._name_data.exists():
            progress(f"{NAME}: formatting {self._name_data}")
            self._format(java, classpath, ports)
        progress(f"{NAME}: starting")
        try:
            # Both at once: the DataNode waits for the NameNode, and both take seconds to load.
            if not keep_name_node:
                self._launch(self._name_node, NAME_NODE, java, classpath, ports)
            self._launch(self._data_node, DATA_NODE, java, classpath, ports)
            self._name_node.await_ready(self._listens)
            self._data_node.await_ready(self._accepts_writes)
        except BaseException:
            self._data_node.stop()
            if not keep_name_node:
                self._name_node.stop()
            raise

    def _launch(
        self, daemon: Daemon, role: HdfsRole, java: Java, classpath: list[str], ports: Mapping[str, int]
    ) -> None:
        data_folder = self._folder / DATA_NODE.folder / "data"
        conf, logging = configure(self._folder / "conf", ports, self._name_data, data_folder)
        command = java.service_command(
            role.main,
            [],
            classpath=[str(conf), *classpath],
            logging=logging,
            heap_mb=HEAP_MB,
            options=QUICK_START,
        )
        daemon.launch(ServiceProgram(command, {port: ports[port] for port in role.ports}))

    def _format(self, java: Java, classpath: list[str], ports: Mapping[str, int]) -> None:
        # Formatted under another name and renamed, so that `data` is always completely formatted.
        unfinished = self._name_data.with_suffix(".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        conf, logging = configure(self._folder / "conf.format", ports, unfinished, unfinished)
        java.run(
            NAME_NODE.main,
            ["-format", "-nonInteractive"],
            classpath=[str(conf), *classpath],
            logging=logging,
            limit_s=FORMAT_LIMIT_S,
        )
        unfinished.rename(self._name_data)

    def _listens(self) -> bool:
        return all(is_listening(port) for port in self._name_node.record().ports.values())

    def _answers(self) -> bool:
        """Return whether this NameNode reports a DataNode and is out of safe mode."""
        port = self._name_node.record().ports.get("web")
        status = None if port is None else name_node_status(port, REQUEST_LIMIT_S)
        if status is None:
            return False
        nodes = msgspec.json.decode(status.live_nodes)
        return status.cluster_id == self._cluster_id() and not status.safemode and len(nodes) == 1

    def _accepts_writes(self) -> bool:
        """Return whether a file can be written. The NameNode alone reports a dead DataNode as alive for minutes."""
        if not self._answers():
            return False
        port = self._name_node.record().ports["web"]
        from hdfs import HdfsError, InsecureClient  # noqa: PLC0415 - slow to import and rarely needed

        client = InsecureClient(f"http://{LOOPBACK}:{port}", timeout=REQUEST_LIMIT_S)
        try:
            client.write(PROBE, b"written", overwrite=True)
            client.delete(PROBE)
        except (HdfsError, OSError):
            return False
        return True

    def _cluster_id(self) -> str | None:
        try:
            lines = (self._name_data / "current" / "VERSION").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return None
        return next((line.partition("=")[2] for line in lines if line.startswith("clusterID=")), None)


def _combined_state(name_node: State, data_node: State) -> State:
    states = {name_node, data_node}
    if "stale" in states:
        return "stale"
    if states in ({"stopped"}, {"running"}):
        return name_node
    return "starting"
