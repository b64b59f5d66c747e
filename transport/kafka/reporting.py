"""What the client library says while it works, for the log: an outage in one line, not in one for each attempt."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from confluent_kafka import KafkaError

_LOG = logging.getLogger("penstock.kafka")
REPEAT_S = 30.0
"""How long a condition must last to be reported again."""


def outage_reporter(bootstrap: str) -> Callable[[KafkaError], None]:
    """Return an error callback for a client of the cluster at `bootstrap`.

    The client recovers from all that it reports here by itself; what it cannot recover from comes back from calls.
    """
    reported: dict[int, float] = {}

    def report(error: KafkaError) -> None:
        now = time.monotonic()
        if now - reported.get(error.code(), -REPEAT_S) >= REPEAT_S:
            reported[error.code()] = now
            _LOG.warning(
                "Kafka at %s: %s. Waiting for it; what is not acknowledged is sent again.", bootstrap, error.str()
            )

    return report
