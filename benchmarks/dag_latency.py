"""Latency through one to four processors: from the sending of an event to its final output, and the watermark lag of each stage.

    python benchmarks/dag_latency.py [--seconds 6] [--rate 10000]

Starts its own broker, and each stage in its own process. Measures the declared rate, and some cases at 1,000 events/s as well. Prints a
table, and draws docs/figures/dag_latency.svg of the declared rate.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product

from dag_stages import BUCKETS, Tick, ticks
from figures import COLORS, drawing
from rounds import broker, command, create, unique

from penstock.processors.time import NEVER_MS
from penstock.transport import Bucket, Bus, Outgoing, Position, create_missing_categories
from penstock.transport.codecs import Codecs
from penstock.transport.kafka import KafkaBus, KafkaSettings
from penstock.transport.tables import WATERMARKS, WatermarkOwner, WatermarkTable

STAGES = (1, 2, 3, 4)
INTERVALS_MS = (0, 100, 1_000)
"""The checkpoint intervals; 0 for adaptive checkpoints."""
OUTPUTS = ("AT_LEAST_ONCE", "EXACTLY_ONCE")
UNRECORDED_MS = 100
"""The checkpoint interval of the first cases, which only warm up the broker."""
CALM = 1_000
"""The second rate, in events/s."""
WARM_UP_S = 3.0
KEYS = 1_000
STEP_S = 0.002
FIRST_LIMIT_S = 60.0


@dataclass(frozen=True)
class Case:
    """A case: the events/s, the semantics of outputs, the checkpoint interval, and the number of stages."""

    rate: int
    output: str
    interval_ms: int
    stages: int


CALM_CASES = [
    Case(CALM, output, interval_ms, stages)
    for output, interval_ms in ((OUTPUTS[0], 1_000), (OUTPUTS[1], 0))
    for stages in STAGES
]


@dataclass
class Measured:
    """The measurements of a case, in milliseconds."""

    latencies: list[int] = field(default_factory=list)
    lags: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="the seconds of sending for each case")
    parser.add_argument("--rate", type=int, default=10_000, help="events per second")
    arguments = parser.parse_args()
    with broker() as bootstrap:
        bus = KafkaBus(KafkaSettings(bootstrap))
        create_missing_categories(bus, WATERMARKS)
        for output in OUTPUTS:  # a broker that has just started compiles its code, which takes most of a core
            measure(bus, bootstrap, Case(arguments.rate, output, UNRECORDED_MS, len(STAGES)), arguments.seconds)
        cases = [*cases_at(arguments.rate), *CALM_CASES]
        found = {case: measure(bus, bootstrap, case, arguments.seconds) for case in cases}
    show(found)
    draw(found, arguments.rate)


def cases_at(rate: int) -> list[Case]:
    """Return all cases at a rate. Outputs at least once do not wait for checkpoints, which are never adaptive then."""
    return [
        Case(rate, output, interval_ms, stages)
        for output, interval_ms, stages in product(OUTPUTS, INTERVALS_MS, STAGES)
        if (output, interval_ms) != (OUTPUTS[0], 0)
    ]


def measure(bus: Bus, bootstrap: str, case: Case, seconds: float) -> Measured:
    """Send ticks at a steady rate, and receive the final outputs."""
    run = unique("dag")
    create(bus, [ticks(run, stage) for stage in range(case.stages + 1)])
    measured = Measured()
    with ExitStack() as stack:
        for stage in range(case.stages):
            stack.enter_context(worker(bootstrap, run, stage, case))
        exchange = Exchange(bus, run, case.stages)
        exchange.send(BUCKETS * 10)
        exchange.await_first()
        steady(exchange, WARM_UP_S, case.rate, Measured())
        steady(exchange, seconds, case.rate, measured)
        exchange.close()
    print(f"{case}: {statistics.median(measured.latencies):.0f} ms", flush=True)
    return measured


@contextmanager
def worker(bootstrap: str, run: str, stage: int, case: Case) -> Iterator[None]:
    """Run a stage in the block."""
    arguments = command("dag_stages.py", bootstrap, run, str(stage), str(case.interval_ms), case.output)
    with subprocess.Popen(arguments) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)


class Exchange:
    """Sends ticks to the first stage, receives outputs of the last stage, and reads published watermarks."""

    def __init__(self, bus: Bus, run: str, stages: int) -> None:
        self._input = ticks(run, 0)
        self._output = ticks(run, stages)
        self._run = run
        self._codecs = Codecs(bus)
        self._writer = bus.writer()
        self._reader = bus.scanner([Position(Bucket(self._output.name, number), 0) for number in range(BUCKETS)])
        self._watermarks = WatermarkTable(bus)
        self._lows_ms: dict[WatermarkOwner, int] = {}
        self._sent = 0

    def send(self, count: int) -> None:
        """Send ticks with the current time."""
        now = _now_ms()
        batch = [Tick(f"key-{(self._sent + n) % KEYS}", now) for n in range(count)]
        self._sent += count
        encoded = self._codecs.of(self._input).encode(batch)
        self._writer.send(self._input.name, map(Outgoing, [tick.key.encode() for tick in batch], encoded))
        self._writer.send_now()

    def receive(self, measured: Measured) -> int:
        """Receive outputs and watermarks, and return the number of ticks."""
        received = 0
        for batch in self._reader.poll(STEP_S).batches:
            now = _now_ms()
            events = self._codecs.of(self._output).decode(batch.messages).events
            measured.latencies += [now - tick.at for tick in events]
            received += len(events)
        for owner, statement in self._watermarks.read(0.0):
            if statement is not None and statement.writer.startswith(self._run) and statement.low_ms != NEVER_MS:
                self._lows_ms[owner] = statement.low_ms
        now = _now_ms()
        for (processor, _), low_ms in self._lows_ms.items():  # at each turn, since a watermark ages until the next one
            measured.lags[processor].append(now - low_ms)
        return received

    def await_first(self) -> None:
        """Wait until all stages write outputs."""
        deadline = time.monotonic() + FIRST_LIMIT_S
        while not self.receive(Measured()):
            if time.monotonic() > deadline:
                raise RuntimeError("the last stage has written no output")

    def close(self) -> None:
        """Close the connections."""
        self._writer.close()
        self._reader.close()
        self._watermarks.close()


def steady(exchange: Exchange, seconds: float, rate: int, measured: Measured) -> None:
    """Send and receive at a rate for a time."""
    began, sent = time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        due = int(passed * rate)
        exchange.send(due - sent)
        sent = due
        exchange.receive(measured)


def interval_name(interval_ms: int) -> str:
    """Return the name of an interval."""
    return f"{interval_ms:,} ms" if interval_ms else "adaptive"


def show(found: dict[Case, Measured]) -> None:
    """Print the table."""
    names = f"{'stages':>8}{'p50 ms':>9}{'p95 ms':>9}{'p99 ms':>9}{'lag of each stage, ms':>40}"
    print(f"{'events/s':>8}  {'output':<16}{'checkpoint':>11}{names}")
    for case, measured in found.items():
        lags = ", ".join(f"{statistics.median(lag):.0f}" for _, lag in sorted(measured.lags.items()))
        columns = "".join(f"{value:>9.0f}" for value in percentiles(measured.latencies))
        name = f"{case.rate:>8,}  {case.output:<16}{interval_name(case.interval_ms):>11}{case.stages:>8}"
        print(f"{name}{columns}{lags:>40}")


def draw(found: dict[Case, Measured], rate: int) -> None:
    """Draw the latencies at a rate by the number of stages."""
    with drawing("dag_latency.svg", len(INTERVALS_MS), height=2.8) as panels:
        for panel, interval in zip(panels, INTERVALS_MS, strict=True):
            for output, color in zip(OUTPUTS, COLORS, strict=False):
                shown = [case for case in cases_at(rate) if (case.output, case.interval_ms) == (output, interval)]
                if shown:
                    medians, slowest, _ = zip(*(percentiles(found[case].latencies) for case in shown), strict=True)
                    panel.plot(STAGES, medians, "o-", color=color, label=output.lower().replace("_", " "))
                    panel.plot(STAGES, slowest, "o:", color=color)
            panel.set_title(f"Checkpoint interval: {interval_name(interval)}")
            panel.set_xlabel("processors")
            panel.set_xticks(STAGES)
            panel.set_ylim(bottom=0)
            panel.grid(axis="y")
        panels[0].set_ylabel("ms: median, and 95 % (dotted)")
        panels[-1].legend()


def percentiles(values: Sequence[int]) -> tuple[float, float, float]:
    """Return the median, the 95th and the 99th percentile."""
    cuts = statistics.quantiles(values, n=100)
    return cuts[49], cuts[94], cuts[98]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    main()
