"""The measuring side of each benchmark: a broker, events, and rounds that measure all cases in turn."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from events import Event

from penstock.ops.dev_services import running_kafka
from penstock.processors.declare.categories import AnyCategory, Category
from penstock.transport.bus import Bus
from penstock.transport.category_spec import CategorySpec
from penstock.transport.codecs.by_category import Codecs
from penstock.transport.messages import Outgoing

R = TypeVar("R")
HERE = Path(__file__).parent


def options(about: str | None, *, messages: int, rounds: int) -> argparse.ArgumentParser:
    """Return the options of all benchmarks, with these defaults."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=messages, help="the number of messages of each measurement")
    parser.add_argument("--rounds", type=int, default=rounds, help="the number of measurements of each case")
    return parser


@contextmanager
def broker() -> Iterator[str]:
    """Run a broker with temporary data in the block, and yield its bootstrap address."""
    with tempfile.TemporaryDirectory() as folder, running_kafka(Path(folder)) as bootstrap:
        yield bootstrap


def fill(bus: Bus, categories: Sequence[Category[Event]], events: Iterator[Event]) -> None:
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
    done, seconds = subprocess.run(
        command(script, *arguments), check=True, stdout=subprocess.PIPE, text=True
    ).stdout.split()
    return int(done) / float(seconds)


def command(script: str, *arguments: str) -> list[str]:
    """Return the command of a script in this folder."""
    return [sys.executable, str(HERE / script), *arguments]


def unique(name: str) -> str:
    """Return an unused name."""
    return f"{name}-{uuid4().hex[:8]}"


def medians(of: Sequence[R], rounds: int, measure: Callable[[R], float]) -> dict[R, float]:
    """Measure all cases in turn in each round, so a slow minute of the machine affects all of them; return the medians."""
    measured: dict[R, list[float]] = {case: [] for case in of}
    for _ in range(rounds):
        for case, values in measured.items():
            values.append(measure(case))
    return {case: statistics.median(values) for case, values in measured.items()}
