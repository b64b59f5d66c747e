"""The measuring side of each benchmark: a broker, events, and rounds that measure all cases in turn."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from penstock.ops.start.dev_services.services import running_kafka
from penstock.processors.declare import AnyCategory, Category, Record
from penstock.transport import Bus, CategorySpec, Outgoing
from penstock.transport.codecs import Codecs

R = TypeVar("R")
M = TypeVar("M")
E = TypeVar("E", bound=Record)
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Run:
    """One run of a script.

    Args:
        events: the events that it read.
        seconds: the time of the run.
        cpu_s: its processor time, in seconds.
    """

    events: float
    seconds: float
    cpu_s: float

    @property
    def rate(self) -> float:
        """The events/s."""
        return self.events / self.seconds

    @property
    def cores(self) -> float:
        """The processor time in the time of the run."""
        return self.cpu_s / self.seconds

    @property
    def cpu_us(self) -> float:
        """The processor time of each event, in microseconds."""
        return self.cpu_s / self.events * 1e6


def options(about: str | None, *, messages: int, rounds: int) -> argparse.ArgumentParser:
    """Return the options of benchmarks that read messages, with these defaults."""
    parser = round_options(about, rounds=rounds)
    parser.add_argument("--messages", type=int, default=messages, help="the number of messages of each measurement")
    return parser


def round_options(about: str | None, *, rounds: int) -> argparse.ArgumentParser:
    """Return the options of all benchmarks, with this default."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help="the number of measurements of each case")
    return parser


@contextmanager
def broker() -> Iterator[str]:
    """Run a broker with temporary data in the block, and yield its bootstrap address."""
    with tempfile.TemporaryDirectory() as folder, running_kafka(Path(folder)) as bootstrap:
        yield bootstrap


def fill(bus: Bus, categories: Sequence[Category[E]], events: Iterator[E]) -> None:
    """Create the categories, and write the events to each of them."""
    create(bus, categories)
    codecs, writer = Codecs(bus), bus.writer()
    while batch := list(islice(events, 10_000)):
        for category in categories:
            keys = [key.encode() for key in category.keys_of(batch)]
            writer.send(category.name, map(Outgoing, keys, codecs.of(category).encode(batch)))
    writer.flush()
    writer.close()


def create(bus: Bus, categories: Iterable[AnyCategory]) -> None:
    """Create empty categories."""
    for category in categories:
        bus.catalog.create(CategorySpec.of(category))


def rate(script: str, *arguments: str) -> float:
    """Run a script of this folder in its own process, and return the messages/s that it prints."""
    done, seconds, *_ = printed(script, *arguments)
    return int(done) / float(seconds)


def printed(script: str, *arguments: str) -> list[str]:
    """Run a script of this folder in its own process, and return the words that it prints."""
    done = subprocess.run(command(script, *arguments), check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.split()


def command(script: str, *arguments: str) -> list[str]:
    """Return the command of a script in this folder."""
    return [sys.executable, str(HERE / script), *arguments]


def unique(name: str) -> str:
    """Return an unused name."""
    return f"{name}-{uuid4().hex[:8]}"


def in_turn(of: Sequence[R], rounds: int, measure: Callable[[R], M]) -> dict[R, list[M]]:
    """Measure all cases in turn in each round, so a slow minute of the machine affects all of them."""
    measured: dict[R, list[M]] = {case: [] for case in of}
    for _ in range(rounds):
        for case, values in measured.items():
            values.append(measure(case))
    return measured


def medians(of: Sequence[R], rounds: int, measure: Callable[[R], float]) -> dict[R, float]:
    """Measure all cases in turn, and return the medians."""
    return {case: statistics.median(values) for case, values in in_turn(of, rounds, measure).items()}
