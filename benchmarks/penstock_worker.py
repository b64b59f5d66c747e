"""The measured side: one Penstock worker, from the end of its first batch to the last checkpoint.

    python penstock_worker.py BOOTSTRAP (filter|columns|few|many|once|once_columns|sql_filter|sql_few|sql_many) GROUP

Prints the messages read in that time, the seconds, and their processor time.
"""

from __future__ import annotations

import sys

from events import Clicks, ClicksInColumns, ClicksOnce, ClicksOnceInColumns, CountFew, CountMany, queries
from measuring import measured

import penstock as ps
from penstock.ops.kernel import ends_of
from penstock.processors.declare import plan_of
from penstock.transport.kafka import KafkaBus, KafkaSettings

PROCESSORS: dict[str, type[ps.Processor]] = {
    "filter": Clicks,
    "columns": ClicksInColumns,
    "once": ClicksOnce,
    "once_columns": ClicksOnceInColumns,
    "few": CountFew,
    "many": CountMany,
}


def main(bootstrap: str, work: str, group: str) -> None:
    """Run a processor to the end of its input."""
    # Queries are compiled only if one is measured: sqlglot and the compiled programs take memory.
    processor = (queries() if work.startswith("sql_") else PROCESSORS)[work]
    processor.name = group
    bus = KafkaBus(KafkaSettings(bootstrap))
    print(*measured(processor, bus, sum(ends_of(plan_of(processor).inputs, bus).values())))


if __name__ == "__main__":
    main(*sys.argv[1:])
