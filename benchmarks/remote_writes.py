"""The gain of append-only writes to a remote store over read-modify-write.

    python benchmarks/remote_writes.py [--messages 8000000] [--rounds 1] [--intervals 0.5 1 2 5] [--seconds 4]
                                       [--latency-ms 0]

Measures figure 12 of "Realtime Data Processing at Facebook" (Chen et al., 2016) again: the throughput of one worker that
counts 20,000 keys in PostgreSQL, or in Redis, for each way of writing and each interval between its checkpoints. Each is measured
for whole intervals, two at least. With `--latency-ms 1 5`, a proxy between the worker and the store adds that delay in each direction. Starts all
services itself. Prints a table, with the gain of append-only over read-modify-write, and draws docs/figures/remote-writes.svg.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import NamedTuple

from events import by_dim, make
from figures import COLORS, drawing
from matplotlib.axes import Axes
from remote_worker import KEYS, WARM_UP
from rounds import broker, fill, medians, options, rate
from stores import Store, stores

import penstock as ps
from penstock.transport.kafka import KafkaBus, KafkaSettings


class Case(NamedTuple):
    """A case: a store, the delay in each direction in ms, a checkpoint interval in seconds, and a write mode."""

    store: str
    latency_ms: float
    interval: float
    writing: ps.WriteMode


Rates = dict[Case, float]


def main() -> None:
    """Measure, print and draw."""
    parser = options(__doc__, messages=8_000_000, rounds=1)
    parser.add_argument(
        "--intervals", type=float, nargs="+", default=[0.5, 1.0, 2.0, 5.0], help="seconds between checkpoints"
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="the minimum seconds of each measurement")
    parser.add_argument(
        "--latency-ms",
        type=float,
        nargs="+",
        default=[0.0],
        help="delays in each direction between the worker and the store; 0 for a direct connection",
    )
    given = parser.parse_args()
    with broker() as bootstrap, stores() as running:
        fill(KafkaBus(KafkaSettings(bootstrap)), [by_dim], make(WARM_UP + given.messages, dims=KEYS))
        cases = [Case(*case) for case in product(running, given.latency_ms, given.intervals, ps.WriteMode)]
        rates = medians(cases, given.rounds, partial(measure, bootstrap, running, given.seconds))
    show(rates)
    draw(rates)


def measure(bootstrap: str, running: dict[str, Store], seconds: float, case: Case) -> float:
    """Return the messages/s of one worker that starts with an empty store."""
    store = running[case.store]
    store.clear()
    checkpoints = max(2, math.ceil(seconds / case.interval))
    with store.reached_after(case.latency_ms / 1000) as url:
        return rate("remote_worker.py", bootstrap, case.writing.value, str(case.interval), str(checkpoints), url)


def show(rates: Rates) -> None:
    """Print the table, in messages/s."""
    print(
        f"{'store':<12}{'latency ms':>10}{'interval s':>12}"
        + "".join(f"{way.value:>19}" for way in ps.WriteMode)
        + f"{'gain':>8}"
    )
    for store, latency_ms, interval in dict.fromkeys(case[:3] for case in rates):
        of = {way: rates[Case(store, latency_ms, interval, way)] for way in ps.WriteMode}
        gain = of[ps.WriteMode.APPEND] / of[ps.WriteMode.READ_MODIFY_WRITE] - 1
        print(
            f"{store:<12}{latency_ms:>10g}{interval:>12g}"
            + "".join(f"{value:>19,.0f}" for value in of.values())
            + f"{gain:>+8.0%}"
        )


def draw(rates: Rates) -> None:
    """Draw a panel for each store and latency: a row for each store."""
    panel_keys = list(dict.fromkeys(case[:2] for case in rates))
    rows = len({store for store, _ in panel_keys})
    with drawing("remote-writes.svg", len(panel_keys), rows=rows, height=2.6 * rows) as panels:
        for (store, latency_ms), axes in zip(panel_keys, panels, strict=True):
            _draw_lines(axes, {case: value for case, value in rates.items() if case[:2] == (store, latency_ms)})
            axes.set_title(f"{store}, {latency_ms:g} ms away" if latency_ms else store)
            axes.set_ylim(0, 1.05 * max(rates.values()))
        for first in panels[:: len(panels) // rows]:
            first.set_ylabel("messages/s")
        panels[-1].legend(loc="lower right")


def _draw_lines(axes: Axes, rates: Rates) -> None:
    for way, color in zip(ps.WriteMode, COLORS, strict=True):
        points = sorted((case.interval, value) for case, value in rates.items() if case.writing is way)
        axes.plot(*zip(*points, strict=True), marker="o", color=color, label=way.value)
    axes.set_xlabel("seconds between checkpoints")
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid()


if __name__ == "__main__":
    main()
