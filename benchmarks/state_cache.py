"""Throughput and processor time of a stateful worker against the memory for its decoded states.

    python benchmarks/state_cache.py [--messages 1000000] [--rounds 3]

Starts its own broker. Reproduces section 8.3 of "MillWheel" (2013): the state of 100,000 keys, whose events arrive in random order. Prints a
table, and draws docs/figures/state_cache.svg.
"""

from __future__ import annotations

from statistics import median

from events import by_dim, make
from figures import COLORS, drawing
from rounds import Run, broker, fill, in_turn, options, printed, unique

from penstock.transport.kafka import KafkaBus, KafkaSettings

SIZES_MIB = (1, 4, 16, 64, 256)


def main() -> None:
    """Measure, print and draw."""
    given = options(__doc__, messages=1_000_000, rounds=3).parse_args()
    with broker() as bootstrap:
        fill(KafkaBus(KafkaSettings(bootstrap)), (by_dim,), make(given.messages))
        measured = in_turn(SIZES_MIB, given.rounds, lambda size_mib: _run(bootstrap, size_mib))
    rates = [median(run.rate for run in runs) for runs in measured.values()]
    cpu_us = [median(run.cpu_us for run in runs) for runs in measured.values()]
    print(f"{'memory, MiB':>12}{'messages/s':>14}{'CPU us/message':>18}")
    for size, rate, cpu in zip(SIZES_MIB, rates, cpu_us, strict=True):
        print(f"{size:>12}{rate:>14,.0f}{cpu:>18.2f}")
    draw([rate / 1_000 for rate in rates], cpu_us)


def draw(thousands: list[float], cpu_us: list[float]) -> None:
    """Draw thousand messages/s and microseconds of processor time for each message, by the memory."""
    with drawing("state_cache.svg", 2, height=2.8) as panels:
        for panel, values, label in zip(
            panels, (thousands, cpu_us), ("thousand messages/s", "processor time of a message, µs"), strict=True
        ):
            panel.plot(SIZES_MIB, values, "o-", color=COLORS[0])
            panel.set_xscale("log", base=2)
            panel.set_xticks(SIZES_MIB, [str(size) for size in SIZES_MIB])
            panel.set_xlabel("memory for decoded states, MiB")
            panel.set_ylabel(label)
            panel.set_ylim(0, 1.1 * max(values))
            panel.grid(axis="y")


def _run(bootstrap: str, size_mib: int) -> Run:
    messages, seconds, cpu_s, *_ = map(
        float, printed("state_cache_worker.py", bootstrap, str(size_mib), unique("cache"))
    )
    return Run(messages, seconds, cpu_s)


if __name__ == "__main__":
    main()
