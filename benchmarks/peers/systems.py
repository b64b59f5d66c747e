"""The measured systems: which works each of them does, and the command that does one of them.

Each command reads its source from the beginning to the end that the source had at the start, writes its results to its sink, and
ends. It prints either the time of the first message (`first SECONDS`), or the messages and seconds that it measured itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from events import by_dim, by_topic, clicks, few_counts, many_counts
from peers.installation import PROGRAMS, classes_of, jars_of, python_with
from peers.process import BENCHMARKS
from peers.programs.task import Task


@dataclass(frozen=True)
class Work:
    """A kind of work.

    Args:
        title: what it does.
        source: the topic that it reads, partitioned by the key of the work.
        sink: the topic that it writes.
        field: the field of the counted key; None if it filters clicks.
    """

    title: str
    source: str
    sink: str
    field: str | None


WORKS = {
    "W1": Work("keep a third, three fields of five", by_dim.name, clicks.name, None),
    "W2": Work("count per 5 minutes, 50 keys", by_topic.name, few_counts.name, "topic"),
    "W3": Work("count per 5 minutes, 100,000 keys", by_dim.name, many_counts.name, "dim_id"),
    "W4": Work("W1 exactly once", by_dim.name, clicks.name, None),
}


EVENT_BY_EVENT = {"W1": "filter", "W2": "few", "W3": "many", "W4": "once"}
IN_COLUMNS = {"W1": "columns", "W4": "once_columns"}
"""The names of the kinds of work in plain_loop.py and penstock_worker.py. Counts use columns by themselves."""


@dataclass(frozen=True)
class Run:
    """One measurement.

    Args:
        bootstrap: the address of the broker.
        work: a key of `WORKS`.
        group: an unused name.
        folder: an absent folder for state.
        messages: the number of messages of the source.
    """

    bootstrap: str
    work: str
    group: str
    folder: Path
    messages: int

    @property
    def arguments(self) -> Task:
        """Return the arguments of the peers' programs."""
        work = WORKS[self.work]
        return Task(self.bootstrap, self.work, work.source, work.sink, self.group, str(self.folder), str(self.messages))


Commands = Callable[[Run], list[str]]


@dataclass(frozen=True)
class System:
    """A system.

    Args:
        title: its name and version.
        install: installs it into a cache folder, and returns its command for each run.
        works: the kinds of work that it offers.
    """

    title: str
    install: Callable[[Path], Commands]
    works: tuple[str, ...] = tuple(WORKS)


def _ours(script: str, names: Mapping[str, str]) -> Callable[[Path], Commands]:
    """Return the installation of a script of this folder's parent, by its names of the kinds of work."""
    python = [sys.executable, str(BENCHMARKS / script)]
    return lambda _: lambda run: [*python, run.bootstrap, names[run.work], run.group]


def _kafka_streams(threads: int) -> Callable[[Path], Commands]:
    def install(cache: Path) -> Commands:
        jars = jars_of(cache, "kafka-streams-jars", PROGRAMS / "kafka_streams.xml")
        classes = classes_of(cache, "kafka-streams", PROGRAMS / "KafkaStreamsApp.java", jars)
        java = ["java", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{classes}:{jars}/*"]
        return lambda run: [*java, "KafkaStreamsApp", *run.arguments, str(threads)]

    return install


def _quix(cache: Path) -> Commands:
    python = python_with(cache, "quix-streams", "quixstreams==3.28.1", "confluent-kafka==2.12.2", "orjson==3.13.0")
    return lambda run: [str(python), "-m", "peers.programs.quix_app", *run.arguments]


def _bytewax(cache: Path) -> Commands:
    python = python_with(cache, "bytewax", "bytewax==0.21.1", "confluent-kafka==2.16.1", "orjson==3.13.0")
    return lambda run: [str(python), "-m", "peers.programs.bytewax_flow", *run.arguments]


def _flink(cache: Path) -> Commands:
    python = python_with(cache, "flink", "apache-flink==2.3.0")
    [jar] = jars_of(cache, "flink-jars", PROGRAMS / "flink.xml").glob("*.jar")
    return lambda run: [str(python), "-m", "peers.programs.flink_sql", *run.arguments, str(jar)]


SYSTEMS = {
    "loop": System("confluent-kafka loop, tuned", _ours("plain_loop.py", EVENT_BY_EVENT)),
    "penstock": System("Penstock", _ours("penstock_worker.py", EVENT_BY_EVENT)),
    "penstock-columns": System("Penstock, process_columns", _ours("penstock_worker.py", IN_COLUMNS), tuple(IN_COLUMNS)),
    "kafka-streams": System("Kafka Streams 4.1.0, 1 thread", _kafka_streams(1)),
    "kafka-streams-2": System("Kafka Streams 4.1.0, 2 threads", _kafka_streams(2)),
    "flink-sql": System("Flink SQL 2.3.0", _flink),
    "bytewax": System("Bytewax 0.21.1", _bytewax, ("W1", "W2", "W3")),
    "quix": System("Quix Streams 3.28.1", _quix),
}
