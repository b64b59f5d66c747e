"""Whether a cluster has transactions, asked before a worker starts that needs them."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from ...processors import backoff
from ..bounded_calls import NoAnswer
from ..errors import BusUnreachable, NoTransactions
from .client_log import quiet_outages
from .error_translation import is_outage, is_retryable, translate
from .kept_client import KeptClient
from .settings import KafkaSettings

COORDINATOR_LIMIT_S = 20.0
"""How long a cluster may need for its first coordinator of transactions: before, it creates a topic."""
METADATA_LIMIT_S = 5.0
_TIMEOUT_S = 10.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 1.0
_LOG_TOPIC = "__transaction_state"
"""Kafka's own topic with the states of transactions. A cluster that has it also has transactions, at another time."""
_UNSUPPORTED = frozenset({KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE})


def expect_transactions(settings: KafkaSettings, identity: str) -> None:
    """Check that a cluster coordinates transactions, within 30 s. An outage of the coordinators is no reason to doubt it.

    Args:
        settings: the cluster.
        identity: a transactional id that no running writer uses.

    Raises:
        NoTransactions: brokers answer, and the cluster has never coordinated transactions.
        BusError: no broker answers, or this user may not use the id.
    """
    configuration = settings.for_transactional_writer(identity, _TIMEOUT_S)
    with quiet_outages(), closing(KeptClient(settings, Producer, configuration, "Checking transactions")) as kept:
        refusal = _refusal(kept, identity)
        if refusal is None or (refusal.code() not in _UNSUPPORTED and _has_log(kept)):
            return
    raise NoTransactions(
        f"Brokers answer, but none of them coordinates transactions ({refusal.str().strip().rstrip('.')}), which outputs exactly once need. Nothing "
        "was started. The service has no transactions, or transaction.state.log.replication.factor is greater than the number of brokers. Correct the "
        "brokers, or declare `output_semantics = ps.Semantics.AT_LEAST_ONCE`. `penstock doctor` shows what else the cluster lacks."
    )


def _refusal(kept: KeptClient[Producer], identity: str) -> KafkaError | None:
    """Return the last error of the search for a coordinator; None if there is one."""
    deadline, waits_s = time.monotonic() + COORDINATOR_LIMIT_S, backoff(_FIRST_WAIT_S, _LONGEST_WAIT_S)
    while True:
        left_s = max(deadline - time.monotonic(), _FIRST_WAIT_S)
        try:
            _begin(kept, left_s)
        except NoAnswer:
            return KafkaError(KafkaError._TIMED_OUT, "the client did not return")
        except KafkaException as error:
            failure: KafkaError = error.args[0]
            if is_retryable(failure):
                return None  # a coordinator prefers another writer of this identity
            if not (is_outage(failure) or failure.code() in _UNSUPPORTED):
                raise translate(failure, f"Transactions of {identity} were not checked") from error
            if time.monotonic() >= deadline or not failure.retriable():
                return failure
            time.sleep(next(waits_s))
        else:
            return None


def _begin(kept: KeptClient[Producer], limit_s: float) -> None:
    # Frames of an error refer to the keeper alone: the client ends when it is closed.
    kept.call(lambda: kept.client.init_transactions(limit_s), limit_s + METADATA_LIMIT_S)


def _has_log(kept: KeptClient[Producer]) -> bool:
    """Return whether the topic of transactions exists.

    Raises:
        BusUnreachable: no broker answers.
    """
    try:
        metadata: Any = kept.client.list_topics(timeout=METADATA_LIMIT_S)
    except KafkaException as error:
        raise translate(error.args[0], "Transactions were not checked") from error
    if not metadata.brokers:
        raise BusUnreachable("Transactions were not checked: no broker answers. Check that the brokers run.")
    return _LOG_TOPIC in metadata.topics
