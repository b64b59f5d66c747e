"""Kafka on this machine: one KRaft node with broker and controller in one process, on 127.0.0.1 only.

Its folder contains `data` (formatted once), the configuration (written at each start) and the files of `service.py`.
"""

import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ...shell import LOOPBACK, ReportStep, choose_ports, is_listening
from .jars import JarSet, Module, fetch
from .java import QUIET_LOGGING, Java, find_java
from .service import Daemon, ServiceProgram, ServiceStatus

NAME = "kafka"
# The logging binding is in Kafka's distribution, but not among the dependencies of its module.
JARS = JarSet(
    "kafka-4.3.0",
    (
        Module("org.apache.kafka", "kafka_2.13", "4.3.0"),
        Module("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4", alone=True),
    ),
)
NODE = 1
HEAP_MB = 512
REQUEST_LIMIT_S = 5.0
FORMAT_LIMIT_S = 60.0


@dataclass(frozen=True)
class Listener:
    """The listener for clients and other brokers. The default requires no authentication.

    Args:
        protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        broker: its settings in the broker's configuration.
        formatting: additional arguments of the format command, for instance to create SCRAM users.
        client: librdkafka settings of clients. They may contain secrets and are never printed.
    """

    protocol: str = "PLAINTEXT"
    broker: Mapping[str, object] = field(default_factory=dict, repr=False)
    formatting: tuple[str, ...] = field(default=(), repr=False)
    client: Mapping[str, str] = field(default_factory=dict, repr=False)


class KafkaService:
    """The Kafka service of a folder. Callers of `up` and `down` hold a lock.

    Args:
        folder: the folder of the services.
        listener: the listener; None for the default.
    """

    name = NAME

    def __init__(self, folder: Path, listener: Listener | None = None) -> None:
        self._listener = listener or Listener()
        self._folder = folder / NAME
        self._data = self._folder / "data"
        self._logging = self._folder / "log4j2.properties"
        self._daemon = Daemon(NAME, self._folder)

    def up(self, progress: ReportStep) -> ServiceStatus:
        """Start Kafka unless it runs, and return when it answers.

        Raises:
            LocalServiceError: it could not be started; a process that this call started has ended.
        """
        if self._daemon.process() is None:
            self._start(progress)
        else:
            self._daemon.await_ready(self._answers)
        return self.status()

    def status(self) -> ServiceStatus:
        """Return the status of the broker, with the endpoint `bootstrap`."""
        address = self._address()
        return self._daemon.status({} if address is None else {"bootstrap": address}, self._answers)

    def running_address(self) -> str | None:
        """Return the address of the broker if its process runs, also while it does not answer; else None."""
        return None if self._daemon.process() is None else self._address()

    def _address(self) -> str | None:
        broker = self._daemon.record().ports.get("broker")
        return None if broker is None else f"{LOOPBACK}:{broker}"

    def down(self) -> None:
        """Stop Kafka if it runs. It keeps its data and ports."""
        self._daemon.stop()

    def _start(self, progress: ReportStep) -> None:
        java = find_java()
        jars = fetch(JARS, java, progress)
        ports = choose_ports(("broker", "controller"), self._daemon.record().ports)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._logging.write_text(QUIET_LOGGING, encoding="utf-8")
        configuration = self._configure("server.properties", ports, self._data)
        if not self._data.exists():
            progress(f"{NAME}: formatting {self._data}")
            self._format(java, jars, ports)
        progress(f"{NAME}: starting")
        command = java.service_command(
            "kafka.Kafka",
            [str(configuration)],
            classpath=[f"{jars}/*"],
            logging=self._logging,
            heap_mb=HEAP_MB,
        )
        self._daemon.start(ServiceProgram(command, ports), self._answers)

    def _configure(self, file: str, ports: dict[str, int], data: Path) -> Path:
        path = self._folder / file
        lines = (f"{key}={value}\n" for key, value in _settings(ports, data, self._listener).items())
        path.write_text("".join(lines), encoding="utf-8")
        return path

    def _format(self, java: Java, jars: Path, ports: dict[str, int]) -> None:
        # Formatted under another name and renamed, so that `data` is always completely formatted.
        unfinished = self._folder / "data.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        configuration = self._configure("format.properties", ports, unfinished)
        # 16 random bytes in URL-safe base64, like Kafka's own IDs. The fixed first letter prevents an ID that looks like an option.
        cluster_id = "p" + secrets.token_urlsafe(16)[1:]
        java.run(
            "kafka.tools.StorageTool",
            ["format", "-t", cluster_id, "-c", str(configuration), *self._listener.formatting],
            classpath=[f"{jars}/*"],
            logging=self._logging,
            limit_s=FORMAT_LIMIT_S,
        )
        unfinished.rename(self._data)

    def _answers(self) -> bool:
        broker = self._daemon.record().ports.get("broker")
        # Checked first, because librdkafka increases the interval between its connection attempts.
        if broker is None or not is_listening(broker):
            return False
        try:
            client = AdminClient({"bootstrap.servers": f"{LOOPBACK}:{broker}", "log_level": 0, **self._listener.client})
            metadata = client.list_topics(timeout=REQUEST_LIMIT_S)
        except KafkaException:
            return False
        return metadata.cluster_id == self._cluster_id() and NODE in metadata.brokers

    def _cluster_id(self) -> str | None:
        try:
            lines = (self._data / "meta.properties").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return None
        return next((line.partition("=")[2] for line in lines if line.startswith("cluster.id=")), None)


def _settings(ports: dict[str, int], data: Path, listener: Listener) -> dict[str, object]:
    broker = f"BROKER://{LOOPBACK}:{ports['broker']}"
    controller = f"{LOOPBACK}:{ports['controller']}"
    return {
        "process.roles": "broker,controller",
        "node.id": NODE,
        # `controller.quorum.bootstrap.servers` would store the address in the data, so the port could not change.
        "controller.quorum.voters": f"{NODE}@{controller}",
        "listeners": f"{broker},CONTROLLER://{controller}",
        "advertised.listeners": broker,
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": f"BROKER:{listener.protocol},CONTROLLER:PLAINTEXT",
        "log.dirs": data,
        "auto.create.topics.enable": "false",
        # There is only one node.
        "default.replication.factor": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        # 50 each by default. They are created on first use, which should be fast.
        "offsets.topic.num.partitions": 8,
        "transaction.state.log.num.partitions": 8,
        "share.coordinator.state.topic.num.partitions": 8,
        # Tests kill consumers and producers, and wait until others detect it.
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        # A killed broker can register again only after the end of its previous session: 9 s by default.
        "broker.heartbeat.interval.ms": 1000,
        "broker.session.timeout.ms": 4000,
        # The default is a week of event time: flights of 2013 would expire within minutes.
        "log.retention.ms": -1,
        # 128 MB of the heap by default.
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
        **listener.broker,
    }
