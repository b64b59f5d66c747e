"""Log lines of the client library: one line for an outage, instead of one for each attempt.

After a refusal, calls time out as in an outage. Their errors report the refusal instead.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError

OUTAGE_LOG = logging.getLogger("penstock.kafka")
"""The logger of outages."""
CLIENT_LOG = logging.getLogger("penstock.kafka.client")
"""The logger of the library's own lines."""
REPEAT_S = 30.0
"""The least time between two reports of the same error."""

_REFUSALS = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
_CONNECTION = re.compile(r"^\S+://\S+: ")
"""The library's prefix: an address of the connection."""
_FAILED = re.compile(r"^(?:\w+://)?(?P<address>[^/\s]+)/\S+: ")
"""The prefix of the error of a connection, such as ``sasl_ssl://localhost:9092/bootstrap: ``."""


def outage_reporter(bootstrap: str) -> Callable[[KafkaError], None]:
    """Return an error callback for a client of the cluster at `bootstrap`.

    The client recovers from all these errors except a refusal. Calls raise the errors that it cannot recover from.
    """
    reported: dict[int, float] = {}

    def report(error: KafkaError) -> None:
        now = time.monotonic()
        if now - reported.get(error.code(), -REPEAT_S) >= REPEAT_S:
            reported[error.code()] = now
            OUTAGE_LOG.warning("%s", _outage_line(bootstrap, error))

    return report


def _outage_line(bootstrap: str, error: KafkaError) -> str:
    refusal = refusal_in(error)
    if refusal is not None:
        return (
            f"{refusal_message(bootstrap, refusal)} Unacknowledged messages are sent again when it accepts the client."
        )
    return f"Kafka at {bootstrap}: {error.str()}. The client reconnects and sends unacknowledged messages again."


@contextmanager
def quiet_outages() -> Iterator[None]:
    """Suppress the warnings of clients about an outage in the block, unless the log level is more verbose than warnings.

    For callers that report the outage themselves.
    """
    level = OUTAGE_LOG.level
    if not OUTAGE_LOG.isEnabledFor(logging.INFO):
        OUTAGE_LOG.setLevel(logging.ERROR)
    try:
        yield
    finally:
        OUTAGE_LOG.setLevel(level)


def refusal_in(error: KafkaError) -> str | None:
    """Return the reason why a broker refuses the client; None for another error."""
    reason = error.str().strip().rstrip(".")
    return _CONNECTION.sub("", reason) if error.code() in _REFUSALS else None


def known_cause_in(error: KafkaError) -> str | None:
    """Return why no broker answers, and what to do, if a failed connection shows it. A request only times out."""
    found = _FAILED.match(error.str())
    if found is None:
        return None
    if "Connection refused" in error.str():
        return f"{found['address']} refuses the connection, so nothing listens there. No data was lost. Start the broker, or correct the address."
    if error.code() == KafkaError._BAD_MSG and "Invalid response size" in error.str():
        return (
            f"what listens at {found['address']} is no Kafka broker, or expects TLS. No data was lost. Correct the port of the address, or "
            "security.protocol in [kafka-settings]."
        )
    return None


def refusal_message(bootstrap: str, refusal: str) -> str:
    """Return the error message of a refusal, with the settings to check."""
    return (
        f"Kafka at {bootstrap} refuses this client: {refusal}. Check security.protocol, sasl.mechanism, sasl.username, sasl.password and "
        "ssl.ca.location in [kafka-settings] of the configuration, and that the address belongs to the matching listener. The broker's log "
        "contains the details."
    )
