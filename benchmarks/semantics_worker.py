"""The measured side: one worker of one row, which ends after a number of events.

    python semantics_worker.py BOOTSTRAP ROW READS WANTED

ROW is the row's number. Prints the messages between its first batch and its last checkpoint, the seconds, and their processor time.
"""

from __future__ import annotations

import sys

from measuring import measured
from rounds import unique
from semantics_rows import ROWS, live

from penstock.transport.kafka import KafkaBus, KafkaSettings


def main(bootstrap: str, row: str, reads: str, wanted: str) -> None:
    """Run the row's processor."""
    processor = ROWS[int(row)].processor(unique("semantics"), live(reads))
    print(*measured(processor, KafkaBus(KafkaSettings(bootstrap)), int(wanted)))


if __name__ == "__main__":
    main(*sys.argv[1:])
