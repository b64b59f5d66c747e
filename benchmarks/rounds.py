"""The measuring side of every benchmark: a broker, events in it, and rounds in which all are measured in turn."""

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
    """Return the options that all benchmarks have, with these defaults."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=messages, help="how many are read for each measurement")
    parser.add_argument("--rounds", type=int, default=rounds, help="how often each is measured")
    return parser


@contextmanager
def broker() -> Iterator[str]:
    """Keep a broker running in the block, whose data goes with it; give its bootstrap address."""
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
    """Create the categories, empty."""
    for category in categories:
        bus.catalog.create(CategorySpec.of(category))


def rate(script: str, *arguments: str) -> float:
    """Run a script beside this one in a process of its own, and return the messages/s that it prints."""
    done, seconds = subprocess.run(
        command(script, *arguments), check=True, stdout=subprocess.PIPE, text=True
    ).stdout.split()
    return int(done) / float(seconds)


def command(script: str, *arguments: str) -> list[str]:
    """Return how a script beside this one is started."""
    return [sys.executable, str(HERE / script), *arguments]


def unique(name: str) -> str:
    """Return a name that nothing has had."""
    return f"{name}-{uuid4().hex[:8]}"


def medians(of: Sequence[R], rounds: int, measure: Callable[[R], float]) -> dict[R, float]:
    """Measure all in turn, round by round, so that a slow minute of the machine meets all of them; return the medians."""
    measured: dict[R, list[float]] = {one: [] for one in of}
    for _ in range(rounds):
        for one, values in measured.items():
            values.append(measure(one))
    return {one: statistics.median(values) for one, values in measured.items()}
