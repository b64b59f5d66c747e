"""The measured side: one Penstock worker, from the first message handled to the last checkpoint.

    python penstock_worker.py BOOTSTRAP (filter|few|many) GROUP

Prints what plain_loop.py prints.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from events import Clicks, CountFew, CountMany

from penstock.ops.collector import relax_collector
from penstock.ops.preflight import ends_of, prepare
from penstock.ops.worker import Worker
from penstock.state.rocks import RocksStateFolder
from penstock.transport.kafka import KafkaBus, KafkaSettings

PROCESSORS = {"filter": Clicks, "few": CountFew, "many": CountMany}


def main(bootstrap: str, work: str, group: str) -> None:
    """Run a processor to the end of its input."""
    processor = PROCESSORS[work]
    processor.name = group
    bus = KafkaBus(KafkaSettings(bootstrap))
    targets = ends_of(processor.inputs(), bus)
    began = 0.0

    def finished(worker: Worker) -> bool:
        nonlocal began
        if worker.tally.events_in and not began:
            began = time.monotonic()
        return worker.has_reached(targets)

    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(prepare(processor, bus), bus, RocksStateFolder(Path(folder)))
        relax_collector()
        worker.run(finished)
        print(worker.tally.events_in, time.monotonic() - began)


if __name__ == "__main__":
    main(*sys.argv[1:])
