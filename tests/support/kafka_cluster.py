"""Three Kafka brokers on this machine, each of them a controller too, that are killed and started again one at a time.

Their folder holds a folder for each: `data` (formatted once), the configuration, and what `service.py` keeps. The default of a category is the
least safe one, so that three replicas are found only where somebody asked for them.
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

from penstock.ops.dev_services import kafka as local_kafka
from penstock.ops.dev_services.jars import fetch
from penstock.ops.dev_services.java import QUIET_LOGGING, find_java
from penstock.ops.dev_services.ports import LOOPBACK, choose_ports, is_listening
from penstock.ops.dev_services.service import Daemon, Program, wait_until

NODES = (1, 2, 3)
HEAP_MB = 256
ANSWER_LIMIT_S = 5.0
LIMIT_S = 90.0
_INTERNAL: dict[str, object] = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    # One partition each: its leader is the coordinator of every group, or of every transaction.
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    # A dead broker's partitions get other leaders when its session has ended, and only then does it come back.
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 3000,
}


@dataclass(frozen=True)
class Partition:
    """A partition: who leads it, and who has all of it; node ids."""

    leader: int
    in_sync: frozenset[int]
    replicas: frozenset[int]


class KafkaCluster:
    """The three brokers of one folder; none runs until `start`.

    Args:
        folder: where they keep what they have.
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
        """Return where one broker is asked."""
        return f"{LOOPBACK}:{self._ports[f'broker-{node}']}"

    def start(self) -> None:
        """Format what they store, and return when all three work together."""
        cluster_id = "p" + secrets.token_urlsafe(16)[1:]
        with ThreadPoolExecutor(len(NODES)) as pool:
            list(pool.map(lambda node: self._format(node, cluster_id), NODES))
        for node in NODES:
            self.launch(node)
        self.await_brokers(NODES)

    def launch(self, node: int) -> None:
        """Start a broker on what it stored, and return at once."""
        command = self._java.service_command(
            "kafka.Kafka",
            [str(self._folder / str(node) / "server.properties")],
            classpath=[f"{self._jars}/*"],
            logging=self._folder / str(node) / "log4j2.properties",
            heap_mb=HEAP_MB,
        )
        self._daemons[node].launch(Program(command, self._ports_of(node)))

    def kill(self, node: int) -> None:
        """End a broker by SIGKILL."""
        process = self._daemons[node].process()
        assert process is not None, f"broker {node} does not run"
        process.kill()
        process.wait(LIMIT_S)

    def stop(self) -> None:
        """Stop all that run. Nothing is kept that would be worth the time to close it."""
        for node, daemon in self._daemons.items():
            if daemon.process() is not None:
                self.kill(node)

    def await_brokers(self, nodes: tuple[int, ...]) -> None:
        """Return when exactly these work together, and every partition that there is has all of them in sync."""
        assert wait_until(lambda: self._work_together(nodes), LIMIT_S), f"brokers {nodes} did not come together"

    def await_leaders(self, dead: int) -> None:
        """Return when a dead broker leads nothing any more."""
        assert wait_until(lambda: all(it.leader not in {dead, -1} for it in self.partitions().values()), LIMIT_S), (
            f"broker {dead} still leads partitions"
        )

    def partitions(self) -> Mapping[tuple[str, int], Partition]:
        """Return every partition that there is, as the brokers describe it."""
        topics = self._admin().list_topics(timeout=ANSWER_LIMIT_S).topics
        return {
            (name, number): Partition(it.leader, frozenset(it.isrs), frozenset(it.replicas))
            for name, topic in topics.items()
            for number, it in topic.partitions.items()
        }

    def settings_of(self, category: str) -> dict[str, str]:
        """Return what is set on a category itself, instead of following from the defaults."""
        resource = ConfigResource(ResourceType.TOPIC, category)
        admin = self._admin()
        found = admin.describe_configs([resource], request_timeout=ANSWER_LIMIT_S)[resource].result()
        return {name: str(entry.value) for name, entry in found.items() if not entry.is_default}

    def _admin(self) -> AdminClient:
        # A new one each time: it knows nothing of what was before.
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def _ports_of(self, node: int) -> dict[str, int]:
        return {role: self._ports[f"{role}-{node}"] for role in ("broker", "controller")}

    def _work_together(self, nodes: tuple[int, ...]) -> bool:
        if not all(is_listening(self._ports[f"broker-{node}"]) for node in nodes):
            return False
        try:
            found = set(self._admin().list_topics(timeout=ANSWER_LIMIT_S).brokers)
            return found == set(nodes) and all(it.in_sync == it.replicas for it in self.partitions().values())
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
    """Keep three brokers running in the block."""
    cluster = KafkaCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
