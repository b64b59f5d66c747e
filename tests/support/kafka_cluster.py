"""Three Kafka brokers on this machine, each with a controller, which tests kill and restart one at a time.

The folder contains a folder for each broker: `data` (formatted once), the configuration, and the files of `service.py`. By default a
category has the least safe settings, so a category has three replicas only if its settings ask for them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from penstock.ops.shell import LOOPBACK, choose_ports, is_listening
from penstock.ops.start import Daemon, ServiceProgram, wait_until
from penstock.ops.start.dev_services import kafka as local_kafka
from penstock.ops.start.dev_services.jars import fetch
from penstock.ops.start.dev_services.java import QUIET_LOGGING, find_java

NODES = (1, 2, 3)
HEAP_MB = 256
ANSWER_LIMIT_S = 20.0
LIMIT_S = 240.0
_INTERNAL: dict[str, object] = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    # One partition each: its leader is the coordinator of every group or transaction.
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    # The partitions of a killed broker get new leaders after its session, and the broker restarts only then.
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 3000,
}


@dataclass(frozen=True)
class Partition:
    """The leader and the replicas of a partition, by node id."""

    leader: int
    in_sync: frozenset[int]
    replicas: frozenset[int]


class KafkaCluster:
    """The three brokers of one folder; none runs until `start`.

    Args:
        folder: the folder of their data.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._java = find_java()
        self._jars = fetch(local_kafka.JARS, self._java, lambda _: None)
        names = [f"{role}-{node}" for node in NODES for role in ("broker", "controller")]
        self._ports = choose_ports(names, {})
        self._daemons = {node: Daemon(f"kafka-{node}", folder / str(node)) for node in NODES}
        self.bootstrap = ",".join(self.address_of(node) for node in NODES)

    def address_of(self, node: int) -> str:
        """Return the address of a broker."""
        return f"{LOOPBACK}:{self._ports[f'broker-{node}']}"

    def start(self) -> None:
        """Format the data folders, start the brokers, and wait until all three form a cluster."""
        cluster_id = "p" + secrets.token_urlsafe(16)[1:]
        with ThreadPoolExecutor(len(NODES)) as pool:
            list(pool.map(lambda node: self._format(node, cluster_id), NODES))
        for node in NODES:
            self.launch(node)
        self.await_brokers(NODES)

    def launch(self, node: int) -> None:
        """Start a broker on its data, and return at once."""
        command = self._java.service_command(
            "kafka.Kafka",
            [str(self._folder / str(node) / "server.properties")],
            classpath=[f"{self._jars}/*"],
            logging=self._folder / str(node) / "log4j2.properties",
            heap_mb=HEAP_MB,
        )
        self._daemons[node].launch(ServiceProgram(command, self._ports_of(node)))

    def kill(self, node: int) -> None:
        """End a broker by SIGKILL."""
        process = self._daemons[node].process()
        assert process is not None, f"broker {node} does not run"
        process.kill()
        process.wait(LIMIT_S)

    def stop(self) -> None:
        """Kill all running brokers; no data needs a clean stop."""
        for node, daemon in self._daemons.items():
            if daemon.process() is not None:
                self.kill(node)

    def await_brokers(self, nodes: tuple[int, ...]) -> None:
        """Wait until exactly these brokers form the cluster, and all replicas of each partition are in sync."""
        assert wait_until(lambda: self._work_together(nodes), LIMIT_S), f"brokers {nodes} did not form a cluster"

    def await_leaders(self, dead: int) -> None:
        """Wait until a killed broker leads no partition."""
        assert wait_until(lambda: self._is_replaced(dead), LIMIT_S), f"broker {dead} still leads partitions"

    def _is_replaced(self, dead: int) -> bool:
        try:
            return all(partition.leader not in {dead, -1} for partition in self.partitions().values())
        except KafkaException:
            return False  # the client may ask the dead broker first, and others answer slowly meanwhile

    def partitions(self) -> Mapping[tuple[str, int], Partition]:
        """Return every partition, as the brokers describe it.

        Raises:
            KafkaException: no broker answers in time.
        """
        topics = self._admin().list_topics(timeout=ANSWER_LIMIT_S).topics
        return {
            (name, number): Partition(found.leader, frozenset(found.isrs), frozenset(found.replicas))
            for name, topic in topics.items()
            for number, found in topic.partitions.items()
        }

    def settings_of(self, category: str) -> dict[str, str]:
        """Return the settings of a category without defaults."""
        resource = ConfigResource(ResourceType.TOPIC, category)
        admin = self._admin()
        found = admin.describe_configs([resource], request_timeout=ANSWER_LIMIT_S)[resource].result()
        return {name: str(entry.value) for name, entry in found.items() if not entry.is_default}

    def _admin(self) -> AdminClient:
        # A new client each time has no outdated metadata.
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def _ports_of(self, node: int) -> dict[str, int]:
        return {role: self._ports[f"{role}-{node}"] for role in ("broker", "controller")}

    def _work_together(self, nodes: tuple[int, ...]) -> bool:
        if not all(is_listening(self._ports[f"broker-{node}"]) for node in nodes):
            return False
        try:
            found = set(self._admin().list_topics(timeout=ANSWER_LIMIT_S).brokers)
            return found == set(nodes) and all(
                partition.in_sync == partition.replicas for partition in self.partitions().values()
            )
        except KafkaException:
            return False

    def _format(self, node: int, cluster_id: str) -> None:
        folder = self._folder / str(node)
        folder.mkdir(parents=True)
        logging, configuration = folder / "log4j2.properties", folder / "server.properties"
        logging.write_text(QUIET_LOGGING, encoding="utf-8")
        controllers = (f"{other}@{LOOPBACK}:{self._ports[f'controller-{other}']}" for other in NODES)
        further = {**_INTERNAL, "node.id": node, "controller.quorum.voters": ",".join(controllers)}
        listener = local_kafka.Listener(broker=further)
        settings = local_kafka._settings(self._ports_of(node), folder / "data", listener)
        configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        self._java.run(
            "kafka.tools.StorageTool",
            ["format", "-t", cluster_id, "-c", str(configuration)],
            classpath=[f"{self._jars}/*"],
            logging=logging,
            limit_s=local_kafka.FORMAT_LIMIT_S,
        )


@contextmanager
def running_cluster(folder: Path) -> Iterator[KafkaCluster]:
    """Run three brokers in the block."""
    cluster = KafkaCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
