"""What the client library says while it works, for the log: an outage in one line, not in one for each attempt.

A refusal is something else than an outage, though calls end in the same way, with no answer in time: it is kept, for whoever asks why.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

from confluent_kafka import KafkaError

OUTAGE_LOG = logging.getLogger("penstock.kafka")
"""Where an outage is told."""
CLIENT_LOG = logging.getLogger("penstock.kafka.client")
"""Where the library's own lines go."""
REPEAT_S = 30.0
"""How long a condition must last to be reported again."""

_REFUSALS = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
_CONNECTION = re.compile(r"^\S+://\S+: ")
"""The library names the connection first, by an address of its own making."""


def outage_reporter(bootstrap: str) -> Callable[[KafkaError], None]:
    """Return an error callback for a client of the cluster at `bootstrap`.

    The client recovers by itself from all that it reports here but a refusal; what it cannot recover from comes back from calls.
    """
    reported: dict[int, float] = {}

    def report(error: KafkaError) -> None:
        now = time.monotonic()
        if now - reported.get(error.code(), -REPEAT_S) >= REPEAT_S:
            reported[error.code()] = now
            OUTAGE_LOG.warning("%s", _told(bootstrap, error))

    return report


def _told(bootstrap: str, error: KafkaError) -> str:
    refusal = refusal_in(error)
    if refusal is not None:
        return f"{refused(bootstrap, refusal)} What is not acknowledged is sent again when it does."
    return f"Kafka at {bootstrap}: {error.str()}. Waiting for it; what is not acknowledged is sent again."


def refusal_in(error: KafkaError) -> str | None:
    """Return why a broker does not let the client in, if that is what an error says."""
    says = error.str().strip().rstrip(".")
    return _CONNECTION.sub("", says) if error.code() in _REFUSALS else None


def refused(bootstrap: str, refusal: str) -> str:
    """Return a paragraph about it, with where to look."""
    return (
        f"Kafka at {bootstrap} does not let this client in: {refusal}. Look at security.protocol, sasl.mechanism, sasl.username, "
        "sasl.password and ssl.ca.location in [kafka-settings] of the configuration, and whether the address is that of the listener they "
        "are for; the broker's log says more."
    )
