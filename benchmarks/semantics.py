"""The cost of each pair of semantics: throughput of one worker, and latency from an event to its output, in one run.

    python benchmarks/semantics.py [--messages 500000] [--rounds 3] [--latency-seconds 6]

Starts a broker of its own. Prints a table, in which ratios are to the row of the same kind that is at least once in all,
and draws docs/figures/semantics.svg.
"""

from __future__ import annotations

import statistics
import subprocess
from dataclasses import dataclass
from itertools import groupby

from events import by_dim, make
from figures import COLORS, drawing
from latencies import RATE, Exchange, ask_steadily
from matplotlib.axes import Axes
from rounds import broker, command, create, fill, medians, options, rate, unique
from semantics_rows import ROWS, Row, answers, live

from penstock.transport import Bus
from penstock.transport.kafka import KafkaBus, KafkaSettings

WORKER = "semantics_worker.py"


@dataclass(frozen=True)
class Cost:
    """The measurements of a row.

    Args:
        rate: messages/s.
        ratio: the ratio to the rate of the at-least-once row of its kind.
        median_ms: the median latency.
        p99_ms: the 99th percentile of the latency.
    """

    rate: float
    ratio: float
    median_ms: float
    p99_ms: float


Costs = dict[Row, Cost]


def main() -> None:
    """Measure, print and draw."""
    parser = options(__doc__, messages=500_000, rounds=3)
    parser.add_argument("--latency-seconds", type=int, default=6, help="the seconds of sending for each latency")
    parser.add_argument("--kafka", help="use this broker, filled by an earlier run, instead of a new one")
    given = parser.parse_args()
    if given.kafka:
        show(measure(given.kafka, given.rounds, given.latency_seconds))
        return
    with broker() as bootstrap:
        bus = KafkaBus(KafkaSettings(bootstrap))
        create(bus, [answers])
        fill(bus, [by_dim], make(given.messages))
        show(measure(bootstrap, given.rounds, given.latency_seconds))


def measure(bootstrap: str, rounds: int, latency_seconds: int) -> Costs:
    """Return the measurements of each row."""
    bus = KafkaBus(KafkaSettings(bootstrap))
    wanted = str(bus.catalog.describe(by_dim.name).events)
    rates = medians(ROWS, rounds, lambda row: rate(WORKER, bootstrap, _number(row), by_dim.name, wanted))
    costs = {}
    for _, group in groupby(ROWS, lambda row: row.kind):
        yardstick, *others = group
        for row in (yardstick, *others):
            waited_ms = latencies(bus, bootstrap, row, latency_seconds)
            percentiles = statistics.quantiles(waited_ms, n=100)
            costs[row] = Cost(rates[row], rates[row] / rates[yardstick], percentiles[49], percentiles[98])
    return costs


def latencies(bus: Bus, bootstrap: str, row: Row, seconds: int) -> list[int]:
    """Return the latencies of a row in milliseconds, at a steady rate of events."""
    asks = live(unique("bench_live"))
    create(bus, [asks])
    events = list(make(RATE * seconds))
    exchange = Exchange(bus, asks)
    arguments = command(WORKER, bootstrap, _number(row), asks.name, str(len(events)))
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, text=True) as worker:
        try:
            waited_ms = ask_steadily(exchange, worker, events)
            exchange.close()
        except BaseException:
            worker.kill()
            raise
    return waited_ms


def show(costs: Costs) -> None:
    """Print the table, and draw."""
    print(f"{'processor':<12}{'state, output':<28}{'messages/s':>12}{'ratio':>8}{'median ms':>11}{'99 % ms':>9}")
    for row, cost in costs.items():
        print(
            f"{row.kind:<12}{row.pair:<28}{cost.rate:>12,.0f}{cost.ratio:>8.2f}"
            f"{cost.median_ms:>11,.0f}{cost.p99_ms:>9,.0f}"
        )
    with drawing("semantics.svg", 2, height=4.4) as (throughput, latency):
        _draw_throughput(throughput, costs)
        _draw_latency(latency, costs)


def _draw_throughput(axes: Axes, costs: Costs) -> None:
    bars = axes.barh(_bar_positions(costs), [cost.ratio for cost in costs.values()], color=_colors(costs))
    axes.bar_label(bars, [f"{cost.ratio:.2f}" for cost in costs.values()], padding=3)
    axes.set_yticks(_bar_positions(costs), [f"{row.kind}: {row.pair}" for row in costs])
    axes.set_ylabel("kind: semantics of state, of output")
    axes.set_title("Throughput")
    axes.set_xlabel("ratio to at least once, of the same kind")
    _finish(axes)


def _draw_latency(axes: Axes, costs: Costs) -> None:
    places = _bar_positions(costs)
    axes.barh(places, [cost.p99_ms for cost in costs.values()], color=_colors(costs), alpha=0.35)
    bars = axes.barh(places, [cost.median_ms for cost in costs.values()], color=_colors(costs))
    axes.bar_label(bars, [f"{cost.median_ms:,.0f}" for cost in costs.values()], padding=3)
    axes.set_yticks(places, [""] * len(places))
    axes.set_title("Latency")
    axes.set_xlabel("ms: median, and 99th percentile (pale)")
    _finish(axes)


def _bar_positions(costs: Costs) -> list[float]:
    """Return the vertical position of each row's bar, with gaps between kinds."""
    kinds = list(dict.fromkeys(row.kind for row in costs))
    return [place + 0.7 * kinds.index(row.kind) for place, row in enumerate(costs)]


def _colors(costs: Costs) -> list[str]:
    kinds = list(dict.fromkeys(row.kind for row in costs))
    return [COLORS[kinds.index(row.kind)] for row in costs]


def _finish(axes: Axes) -> None:
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def _number(row: Row) -> str:
    return str(ROWS.index(row))


if __name__ == "__main__":
    main()
