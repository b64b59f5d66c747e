"""Throughput of one worker beside a plain confluent-kafka loop with the same work, in one run.

    python benchmarks/throughput.py [--messages 1000000] [--rounds 3]

Starts its own broker. Prints messages/s of both sides in turn for each round, and the ratio of the medians.
"""

from __future__ import annotations

from functools import partial

from events import by_dim, by_topic, clicks, few_counts, make, many_counts, queries
from rounds import broker, create, fill, medians, options, rate, unique

from penstock.processors.declare import plan_of
from penstock.transport.kafka import KafkaBus, KafkaSettings

WORKS = {
    "filter": "keep a third, three fields of five",
    "columns": "the same with process_columns",
    "once": "the same without columns, exactly once",
    "few": "count per 5 minutes, 50 keys",
    "many": "count per 5 minutes, 100,000 keys",
    "sql_filter": "SQL: keep a third, three fields",
    "sql_few": "SQL: count per 5 minutes, 50 keys",
    "sql_many": "SQL: the same, 100,000 keys",
}
SIDES = ("plain_loop.py", "penstock_worker.py")


def main() -> None:
    """Measure and print."""
    parser = options(__doc__, messages=1_000_000, rounds=3)
    parser.add_argument("--kafka", help="use this broker, filled by an earlier run, instead of a new one")
    given = parser.parse_args()
    if given.kafka:
        measure(given.kafka, given.rounds)
        return
    with broker() as bootstrap:
        bus = KafkaBus(KafkaSettings(bootstrap))
        written = [category for query in queries().values() for category in plan_of(query).outputs]
        create(bus, (clicks, few_counts, many_counts, *written))
        fill(bus, (by_topic, by_dim), make(given.messages))
        measure(bootstrap, given.rounds)


def measure(bootstrap: str, rounds: int) -> None:
    """Run both sides in turn."""
    print(f"{'work':<38}{'plain loop/s':>14}{'penstock/s':>14}{'ratio':>8}")
    for work, what in WORKS.items():
        plain, ours = medians(SIDES, rounds, partial(_rate, bootstrap, work)).values()
        print(f"{what:<38}{plain:>14,.0f}{ours:>14,.0f}{ours / plain:>8.2f}", flush=True)


def _rate(bootstrap: str, work: str, side: str) -> float:
    return rate(side, bootstrap, work, unique(work))


if __name__ == "__main__":
    main()
