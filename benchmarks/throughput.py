"""Throughput of one worker beside a plain confluent-kafka loop that does the same work, in one run.

    python benchmarks/throughput.py [--messages 1000000] [--rounds 3]

Starts a broker of its own. Prints messages/s of both, round by round in turn, and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from uuid import uuid4

from events import by_dim, by_topic, clicks, few_counts, make, many_counts

from penstock.ops.local import running_kafka
from penstock.transport.bus import Bus, CategorySpec, Outgoing
from penstock.transport.codec_of import Codecs
from penstock.transport.kafka import KafkaBus, KafkaSettings

HERE = Path(__file__).parent
WORKS = {
    "filter": "keep a third, three fields of five",
    "few": "count per 5 minutes, 50 keys",
    "many": "count per 5 minutes, 100,000 keys",
}


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--messages", type=int, default=1_000_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--kafka", help="use this broker, filled by an earlier run, instead of an own one")
    given = arguments.parse_args()
    if given.kafka:
        measure(given.kafka, given.rounds)
        return
    with tempfile.TemporaryDirectory() as folder, running_kafka(Path(folder)) as bootstrap:
        measure(bootstrap, given.rounds, given.messages)


def measure(bootstrap: str, rounds: int, messages: int = 0) -> None:
    """Fill the broker if asked to, then run both sides in turn."""
    if messages:
        fill(KafkaBus(KafkaSettings(bootstrap)), messages)
    print(f"{'work':<38}{'plain loop/s':>14}{'penstock/s':>14}{'ratio':>8}")
    for work, what in WORKS.items():
        rates: dict[str, list[float]] = {"plain_loop": [], "penstock_worker": []}
        for round_ in range(rounds):
            for side, measured in rates.items():
                measured.append(rate(side, bootstrap, work, f"{side}-{work}-{round_}-{uuid4().hex[:6]}"))
        plain, ours = (statistics.median(measured) for measured in rates.values())
        print(f"{what:<38}{plain:>14,.0f}{ours:>14,.0f}{ours / plain:>8.2f}", flush=True)


def rate(side: str, bootstrap: str, work: str, group: str) -> float:
    """Run one side in a process of its own; messages/s."""
    command = [sys.executable, str(HERE / f"{side}.py"), bootstrap, work, group]
    done, seconds = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(done) / float(seconds)


def fill(bus: Bus, messages: int) -> None:
    """Create the categories and write the events, keyed by topic and by dimension."""
    for category in (by_topic, by_dim, clicks, few_counts, many_counts):
        bus.catalog.create(CategorySpec.of(category))
    codecs, writer, events = Codecs(bus), bus.writer(), make(messages)
    while batch := list(islice(events, 10_000)):
        for category in (by_topic, by_dim):
            keys = [key.encode() for key in category.keys_of(batch)]
            writer.send(category.name, map(Outgoing, keys, codecs.of(category).encode(batch)))
    writer.flush()
    writer.close()


if __name__ == "__main__":
    main()
