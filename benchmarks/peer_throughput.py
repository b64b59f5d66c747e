"""Throughput of one Penstock worker beside other systems and a tuned confluent-kafka loop with the same work, in one run.

    python benchmarks/peer_throughput.py [--messages 1000000] [--rounds 3] [--only penstock quix …] [--works W1 W2 W3 W4]

Installs the other systems into a cache folder, and starts its own broker. Each run is one process that reads a topic with four
partitions. Its time is from the first message to the last result in the broker. Each run's results are read back and compared with
the input. Prints one table in Markdown: messages/s, the ratio to the loop, and the largest memory.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import NamedTuple

from events import by_dim, by_topic, clicks, few_counts, make, many_counts
from peers.installation import NotInstalledError, cache_folder
from peers.process import RunFailedError, run
from peers.results import Broker, Results, difference
from peers.systems import SYSTEMS, WORKS, Commands, Run
from rounds import broker, create, fill, in_turn, options, unique

from penstock.transport.kafka import KafkaBus, KafkaSettings

YARDSTICK = "loop"


class Case(NamedTuple):
    """A case: keys of `SYSTEMS` and `WORKS`."""

    system: str
    work: str


@dataclass(frozen=True)
class Measurement:
    """One run.

    Args:
        rate: messages/s; 0 after a failure.
        rss_mib: the largest memory in MiB; 0 after a failure.
        failure: one or two words about a run that failed or whose results are wrong; the whole text is in the log.
    """

    rate: float = 0.0
    rss_mib: float = 0.0
    failure: str | None = None


def main() -> None:
    """Install, measure and print."""
    parser = options(__doc__, messages=1_000_000, rounds=3)
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="the systems to measure")
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS), help="the kinds of work to measure")
    parser.add_argument("--cache", type=Path, default=cache_folder(), help="the folder for the other systems")
    parser.add_argument("--limit-s", type=float, default=900.0, help="the most seconds for one run")
    given = parser.parse_args()
    installed = install(dict.fromkeys((YARDSTICK, *given.only)), given.cache)
    cases = [Case(*case) for case in product(installed, given.works) if case[1] in SYSTEMS[case[0]].works]
    with broker() as bootstrap, closing(Broker(bootstrap)) as results, tempfile.TemporaryDirectory() as folder:
        bus = KafkaBus(KafkaSettings(bootstrap))
        create(bus, (clicks, few_counts, many_counts))
        fill(bus, (by_topic, by_dim), make(given.messages))
        bench = Bench(bootstrap, results, installed, given.messages, given.limit_s, Path(folder))
        show(given.works, in_turn(cases, given.rounds, bench.measure))


def install(names: Mapping[str, None], cache: Path) -> dict[str, Commands]:
    """Install systems, and report each one that cannot be installed."""
    installed = {}
    for name in names:
        try:
            installed[name] = SYSTEMS[name].install(cache)
        except NotInstalledError as error:
            print(f"{SYSTEMS[name].title} is not measured: {error}", file=sys.stderr)
    return installed


@dataclass(frozen=True)
class Bench:
    """Measures cases on one broker, whose sources are filled.

    Args:
        bootstrap: the address of the broker.
        results: reads results.
        commands: the commands of the installed systems.
        messages: the number of messages of each source.
        limit_s: the most seconds for one run.
        folder: a folder for state and logs.
    """

    bootstrap: str
    results: Broker
    commands: Mapping[str, Commands]
    messages: int
    limit_s: float
    folder: Path
    _expected: dict[tuple[str, str | None], Results] = field(default_factory=dict)

    def measure(self, case: Case) -> Measurement:
        """Run a case, check its results, and report it on the standard error."""
        measured = self._measure(case)
        outcome = measured.failure or f"{measured.rate:,.0f} messages/s, {measured.rss_mib:,.0f} MiB"
        print(f"{SYSTEMS[case.system].title}, {case.work}: {outcome}", file=sys.stderr, flush=True)
        return measured

    def _measure(self, case: Case) -> Measurement:
        work, group = WORKS[case.work], unique(case.system)
        begins = self.results.ends(work.sink)
        command = self.commands[case.system](Run(self.bootstrap, case.work, group, self.folder / group, self.messages))
        try:
            ended = run(command, self.folder / f"{group}.log", self.limit_s)
        except RunFailedError as error:
            return Measurement(failure=str(error))
        written = self.results.written(work.sink, begins, work.field)
        wrong = difference(written.results, self._truth(work.source, work.field))
        if wrong is not None:
            return Measurement(failure=f"wrong: {wrong}")
        return Measurement(_rate(ended.lines, self.messages, written.last_s), ended.rss_mib)

    def _truth(self, source: str, field: str | None) -> Results:
        if (source, field) not in self._expected:
            self._expected[source, field] = self.results.expected(source, field)
        return self._expected[source, field]


def _rate(lines: Sequence[str], messages: int, last_s: float) -> float:
    """Return the messages/s of a run.

    Args:
        lines: the output, with the time of the first message, or with the messages and seconds as its last line.
        messages: the number of messages of the source.
        last_s: when the last result arrived at the broker.
    """
    firsts = [line for line in lines if line.startswith("first ")]
    if firsts:
        return messages / (last_s - float(firsts[0].split()[1]))
    done, seconds, *_ = lines[-1].split()
    return int(done) / float(seconds)


def show(works: Sequence[str], measured: Mapping[Case, Sequence[Measurement]]) -> None:
    """Print the table in Markdown."""
    print(f"| | {' | '.join(f'{work}: {WORKS[work].title}' for work in works)} | MiB |")
    print(f"| --- |{' ---: |' * (len(works) + 1)}")
    for system in dict.fromkeys(case.system for case in measured):
        cells = [_cell(measured, Case(system, work)) for work in works]
        rss = max(one.rss_mib for case, runs in measured.items() if case.system == system for one in runs)
        print(f"| {SYSTEMS[system].title} | {' | '.join(cells)} | {rss:,.0f} |")


def _cell(measured: Mapping[Case, Sequence[Measurement]], case: Case) -> str:
    """Return the median rate with its ratio to the loop, or the failure."""
    if case not in measured:
        return "—"
    failures = [one.failure for one in measured[case] if one.failure]
    if failures:
        return failures[0].splitlines()[0].partition(":")[0]
    rate = _median(measured[case])
    yardstick = _median(measured[Case(YARDSTICK, case.work)])
    return f"{rate:,.0f} ({rate / yardstick:.2f})" if yardstick else f"{rate:,.0f}"


def _median(runs: Sequence[Measurement]) -> float:
    return statistics.median(one.rate for one in runs)


if __name__ == "__main__":
    main()
