"""HDFS on this machine: a NameNode and a DataNode, two processes, on 127.0.0.1 only.

Its folder holds `conf` (of both, written at each start) and a folder for each of the two, with its `data` (kept) and what
`service.py` keeps.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from .hdfs_parts import ask_name_node, classpath_of_servers, configure
from .jars import Progress
from .java import Java, find_java
from .ports import LOOPBACK, choose_ports, is_listening
from .service import Daemon, Program, ServiceStatus, State

NAME = "hdfs"
HEAP_MB = 256
ANSWER_LIMIT_S = 5.0
FORMAT_LIMIT_S = 60.0
PROBE = "/.penstock-probe"
# Both spend their start on loading classes once: the optimising compiler would only take a core from them.
QUICK_START = ("-XX:TieredStopAtLevel=1",)


@dataclass(frozen=True, slots=True)
class Role:
    """One of the two processes: its Java class, and its ports by names that differ between the two."""

    folder: str
    main: str
    ports: tuple[str, ...]


NAME_NODE = Role("namenode", "org.apache.hadoop.hdfs.server.namenode.NameNode", ("rpc", "web"))
DATA_NODE = Role("datanode", "org.apache.hadoop.hdfs.server.datanode.DataNode", ("transfer", "data_web", "ipc"))


class Hdfs:
    """Owns the HDFS of one folder. Callers hold a lock over `up` and `down`."""

    name = NAME

    def __init__(self, folder: Path) -> None:
        self._folder = folder / NAME
        self._name_data = self._folder / NAME_NODE.folder / "data"
        self._name_node = Daemon("HDFS NameNode", self._folder / NAME_NODE.folder)
        self._data_node = Daemon("HDFS DataNode", self._folder / DATA_NODE.folder)

    def up(self, progress: Progress) -> ServiceStatus:
        """Return when files can be written; what runs already stays.

        Raises:
            LocalServiceError: it could not be had; nothing that this call started is left.
        """
        keep_name_node = self._name_node.process() is not None
        if keep_name_node and self._data_node.process() is not None:
            self._data_node.await_ready(self._takes_writes)
        else:
            self._start(keep_name_node, progress)
        return self.status()

    def status(self) -> ServiceStatus:
        """Return what is known, asking the NameNode itself; its endpoints are `rpc` and `webhdfs`, as URLs."""
        ports = self._name_node.record().ports
        endpoints = (
            {"rpc": f"hdfs://{LOOPBACK}:{ports['rpc']}", "webhdfs": f"http://{LOOPBACK}:{ports['web']}"}
            if ports
            else {}
        )
        name_node = self._name_node.status(endpoints, self._answers)
        state = _joined(name_node.state, self._data_node.status({}, lambda: True).state)
        return ServiceStatus(NAME, state, name_node.pid, endpoints, name_node.up_s)

    def down(self) -> None:
        """Stop both, keeping data and ports; without effect if they do not run."""
        self._data_node.stop()
        self._name_node.stop()

    def _start(self, keep_name_node: bool, progress: Progress) -> None:
        java = find_java()
        classpath = classpath_of_servers(java, progress)
        # A DataNode that lives looks for a NameNode that is gone, perhaps at a port it will not come back to.
        self._data_node.stop()
        known = {**self._name_node.record().ports, **self._data_node.record().ports}
        wanted = DATA_NODE.ports if keep_name_node else (*NAME_NODE.ports, *DATA_NODE.ports)
        ports = {**known, **choose_ports(wanted, known)}
        if not self._name_data.exists():
            progress(f"{NAME}: formatting {self._name_data}")
            self._format(java, classpath, ports)
        progress(f"{NAME}: starting")
        try:
            # Both at once: the DataNode waits for the NameNode by itself, and both take seconds to load.
            if not keep_name_node:
                self._launch(self._name_node, NAME_NODE, java, classpath, ports)
            self._launch(self._data_node, DATA_NODE, java, classpath, ports)
            self._name_node.await_ready(self._listens)
            self._data_node.await_ready(self._takes_writes)
        except BaseException:
            self._data_node.stop()
            if not keep_name_node:
                self._name_node.stop()
            raise

    def _launch(self, daemon: Daemon, role: Role, java: Java, classpath: list[str], ports: Mapping[str, int]) -> None:
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
        daemon.launch(Program(command, {port: ports[port] for port in role.ports}))

    def _format(self, java: Java, classpath: list[str], ports: Mapping[str, int]) -> None:
        # Formatted aside and renamed: a folder called `data` was formatted to the end.
        aside = self._name_data.with_suffix(".new")
        shutil.rmtree(aside, ignore_errors=True)
        conf, logging = configure(self._folder / "conf.format", ports, aside, aside)
        java.run(
            NAME_NODE.main,
            ["-format", "-nonInteractive"],
            classpath=[str(conf), *classpath],
            logging=logging,
            limit_s=FORMAT_LIMIT_S,
        )
        aside.rename(self._name_data)

    def _listens(self) -> bool:
        return all(is_listening(port) for port in self._name_node.record().ports.values())

    def _answers(self) -> bool:
        """Whether our NameNode has a DataNode and takes writes, as far as it knows."""
        port = self._name_node.record().ports.get("web")
        told = None if port is None else ask_name_node(port, ANSWER_LIMIT_S)
        if told is None:
            return False
        nodes = msgspec.json.decode(told.live_nodes)
        return told.cluster_id == self._cluster_id() and not told.safemode and len(nodes) == 1

    def _takes_writes(self) -> bool:
        """Whether a file was just written: for minutes the NameNode counts a DataNode that died as alive."""
        if not self._answers():
            return False
        port = self._name_node.record().ports["web"]
        from hdfs import HdfsError, InsecureClient  # noqa: PLC0415 - slow to import and seldom needed

        client = InsecureClient(f"http://{LOOPBACK}:{port}", timeout=ANSWER_LIMIT_S)
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


def _joined(name_node: State, data_node: State) -> State:
    states = {name_node, data_node}
    if "stale" in states:
        return "stale"
    if states in ({"stopped"}, {"running"}):
        return name_node
    return "starting"
