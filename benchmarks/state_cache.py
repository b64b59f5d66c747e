"""Throughput of a stateful worker against the memory for its decoded states.

    python benchmarks/state_cache.py [--messages 1000000] [--rounds 3]

Starts its own broker. Reproduces section 8.3 of "MillWheel" (2013): the state of 100,000 keys, whose events arrive in random order. Prints a
table, and draws docs/figures/state_cache.svg.
"""

from __future__ import annotations

from functools import partial

from events import by_dim, make
from figures import drawing
from rounds import broker, fill, medians, options, rate, unique

from penstock.transport.kafka import KafkaBus, KafkaSettings

SIZES_MIB = (1, 4, 16, 64, 256)


def main() -> None:
    """Measure, print and draw."""
    given = options(__doc__, messages=1_000_000, rounds=3).parse_args()
    with broker() as bootstrap:
        fill(KafkaBus(KafkaSettings(bootstrap)), (by_dim,), make(given.messages))
        found = medians(SIZES_MIB, given.rounds, partial(_rate, bootstrap))
    print(f"{'memory, MiB':>12}{'messages/s':>14}")
    for size, per_second in found.items():
        print(f"{size:>12}{per_second:>14,.0f}")
    with drawing("state_cache.svg", 1, height=2.8) as [panel]:
        panel.plot(list(found), [per_second / 1_000 for per_second in found.values()], "o-")
        panel.set_xscale("log", base=2)
        panel.set_xticks(SIZES_MIB, [str(size) for size in SIZES_MIB])
        panel.set_xlabel("memory for decoded states, MiB")
        panel.set_ylabel("thousand messages/s")
        panel.set_ylim(bottom=0)
        panel.grid(axis="y")


def _rate(bootstrap: str, size_mib: int) -> float:
    return rate("state_cache_worker.py", bootstrap, str(size_mib), unique("cache"))


if __name__ == "__main__":
    main()
