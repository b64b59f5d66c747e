"""What it gains to decode events between checkpoints, where outputs at most once must wait for the checkpoint.

    python benchmarks/overlap.py [--messages 3000000] [--rounds 3] [--interval 2]

Measures figure 9 of "Realtime Data Processing at Facebook" (Chen et al., 2016) again: events are read, decoded, and stored in Scuba's
store at most once, so the offsets are committed before. *Buffered*, a plain loop holds the messages until then, and decodes and stores
them afterwards. *Overlapped*, the same loop decodes them as they arrive. Penstock always does the latter; its worker writes to the same
store as a sink. Starts its own broker. Each process checks that it has stored each event once. Prints the medians of the rate, of
the used cores, and of the processor time of each event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from events import by_dim, make
from rounds import Run, broker, fill, in_turn, options, printed, unique

from penstock.transport.codecs import Codecs
from penstock.transport.kafka import KafkaBus, KafkaSettings

WAYS = {
    "buffered": "plain loop, buffered",
    "overlapped": "plain loop, overlapped",
    "penstock": "Penstock, overlapped",
}
SAMPLE = 10_000


def main() -> None:
    """Measure and print."""
    parser = options(__doc__, messages=3_000_000, rounds=3)
    parser.add_argument("--interval", type=float, default=2.0, help="the seconds between checkpoints")
    given = parser.parse_args()
    with broker() as bootstrap:
        bus = KafkaBus(KafkaSettings(bootstrap))
        fill(bus, [by_dim], make(given.messages))
        size_bytes = sum(map(len, Codecs(bus).of(by_dim).encode(list(make(SAMPLE))))) / SAMPLE

        def measure(way: str) -> Run:
            arguments = (bootstrap, way, unique(way), str(given.interval))
            events, seconds, cpu_s, stored = map(float, printed("overlap_worker.py", *arguments))
            if stored != given.messages:
                raise RuntimeError(f"{WAYS[way]}: {stored:,.0f} of {given.messages:,} events were stored.")
            return Run(events, seconds, cpu_s)

        show(in_turn(list(WAYS), given.rounds, measure), size_bytes)


def show(measured: Mapping[str, Sequence[Run]], size_bytes: float) -> None:
    """Print the table; ratios are to the buffered loop."""
    print(f"{'way':<26}{'events/s':>12}{'MB/s':>8}{'ratio':>8}{'cores':>8}{'CPU us/event':>14}")
    yardstick = median(run.rate for run in measured["buffered"])
    for way, runs in measured.items():
        rate = median(run.rate for run in runs)
        cores, cpu_us = median(run.cores for run in runs), median(run.cpu_us for run in runs)
        size = rate * size_bytes / 1e6
        print(f"{WAYS[way]:<26}{rate:>12,.0f}{size:>8.0f}{rate / yardstick:>8.2f}{cores:>8.2f}{cpu_us:>14.2f}")


if __name__ == "__main__":
    main()
