"""Translation of the client library's errors; the only module with its error codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from ..errors import (
    Aborted,
    BucketMismatch,
    BusError,
    BusRefuses,
    BusUnreachable,
    CategoryExists,
    CommitUnconfirmed,
    DeliveryFailed,
    Fenced,
    IdentityTaken,
    MembershipLost,
    MessageRefused,
    MissingCategory,
    OffsetOutOfRange,
    SettingsRefused,
)

_Client = TypeVar("_Client")
_Meaning = tuple[type[BusError], str]
_Meanings = dict[_Meaning, tuple[int, ...]]

_CHECK = (
    "No data was lost. Check that the broker runs, that the address is correct, and that security.protocol in [kafka-settings] matches the "
    "listener."
)
_UNREACHABLE: _Meaning = (BusUnreachable, _CHECK)
_CHANGING: _Meaning = (
    BusUnreachable,
    "The cluster is starting or changing its leaders. No data was lost. Try again in a moment.",
)
_REFUSES: _Meaning = (BusRefuses, "Correct the credentials in [kafka-settings].")
_LATER: _Meaning = (CommitUnconfirmed, "The position is saved again with the next checkpoint.")
_SUPERSEDED: _Meaning = (Fenced, "Another worker uses the same identity, or the bus aborted the transaction.")
_UNDELIVERED: _Meaning = (
    DeliveryFailed,
    "No broker has acknowledged them in time; they may have arrived. Check that the brokers run and are not overloaded.",
)
_DROPPED: _Meaning = (
    DeliveryFailed,
    (
        "The client dropped them after an earlier failure: an expired transaction, a replaced client, or a transactional id that the brokers have "
        "forgotten after days of silence. No data was lost."
    ),
)
_REPLACED: _Meaning = (
    BusUnreachable,
    "The client did not recover from an outage and was replaced during the request. No data was lost. Try again.",
)
_UNKNOWN_HOST: _Meaning = (
    BusUnreachable,
    (
        "No data was lost. Check the host name and the DNS of this machine. If other programs can reach it, this process may have too many open "
        "files: compare `ls /proc/PID/fd | wc -l` with `ulimit -n`."
    ),
)
TIMED_OUT = frozenset({KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT_QUEUE})
"""Errors of messages that the brokers did not accept in time."""
_TOO_LARGE: _Meaning = (
    MessageRefused,
    "Make the record smaller, or raise max.message.bytes of the category and message.max.bytes in [kafka-settings].",
)
_NO_ACCESS: _Meaning = (BusError, "No data was lost. Ask the cluster's administrator for access.")
_UNKNOWN: _Meaning = (BusError, "Penstock does not know this error. Check the broker's log.")

# Outages, moving leaders and coordinators, throttling and rebalances end, or the caller retries. A user must correct the other errors.
_OUTAGES: _Meanings = {
    _UNREACHABLE: (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RETRY,
        KafkaError._INTR,
        KafkaError._DESTROY_BROKER,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.BROKER_NOT_AVAILABLE,
    ),
    _REPLACED: (KafkaError._DESTROY,),
    _CHANGING: (
        KafkaError._WAIT_COORD,
        KafkaError._WAIT_CACHE,
        KafkaError._NOENT,
        KafkaError._NODE_UPDATE,
        KafkaError._UNKNOWN_BROKER,
        KafkaError._IN_PROGRESS,
        KafkaError._PREV_IN_PROGRESS,
        KafkaError._ISR_INSUFF,
        KafkaError.UNKNOWN,
        KafkaError.INVALID_MSG,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
        KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REASSIGNMENT_IN_PROGRESS,
        KafkaError.STALE_CTRL_EPOCH,
        KafkaError.STALE_BROKER_EPOCH,
        KafkaError.FETCH_SESSION_ID_NOT_FOUND,
        KafkaError.INVALID_FETCH_SESSION_EPOCH,
        KafkaError.LISTENER_NOT_FOUND,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.OPERATION_NOT_ATTEMPTED,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.INCONSISTENT_TOPIC_ID,
        KafkaError.UNKNOWN_CONTROLLER_ID,
        KafkaError.REBOOTSTRAP_REQUIRED,
    ),
    # A rebalance. A member that keeps its buckets notices it at its next poll.
    _LATER: (
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.MEMBER_ID_REQUIRED,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.UNRELEASED_INSTANCE_ID,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError._STATE,
        KafkaError._CONFLICT,
        KafkaError._OUTDATED,
    ),
    _UNKNOWN_HOST: (KafkaError._RESOLVE,),
    _UNDELIVERED: tuple(TIMED_OUT),
    _DROPPED: (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT),
}
_RETRYABLE: _Meanings = {
    _SUPERSEDED: (
        KafkaError._FENCED,
        KafkaError._INCONSISTENT,
        KafkaError._GAPLESS_GUARANTEE,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.DUPLICATE_SEQUENCE_NUMBER,
    ),
    (Fenced, "The buckets have a new owner, which processes the unsaved events again."): (
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
    ),
    (Aborted, "The transaction was aborted, and its input is read again."): (KafkaError.TRANSACTION_ABORTABLE,),
    (
        IdentityTaken,
        (
            "This worker has joined the group a second time, as after an outage; or another worker uses the same identity. If this repeats without an "
            "outage, stop the other worker."
        ),
    ): (KafkaError.FENCED_INSTANCE_ID,),
    (MembershipLost, "The worker joins the group again."): (KafkaError._FATAL,),
}
_PERMANENT: _Meanings = {
    _REFUSES: (
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
    ),
    (BusRefuses, "Correct the TLS settings in [kafka-settings]."): (KafkaError._SSL,),
    (SettingsRefused, "No request was sent. Correct [kafka-settings]."): (
        KafkaError._INVALID_ARG,
        KafkaError.INVALID_SESSION_TIMEOUT,
    ),
    (
        SettingsRefused,
        (
            "Nothing was read or written. A transaction stays open for a checkpoint interval and ten seconds, and the brokers allow less "
            "(`transaction.max.timeout.ms`, 15 minutes by default). Shorten the processor's interval, such as `checkpoint = "
            "ps.CheckpointInterval(time=timedelta(minutes=1))`, or raise that setting of the brokers."
        ),
    ): (KafkaError.INVALID_TRANSACTION_TIMEOUT,),
    (BusError, "Ask the cluster's administrator for access to the category."): (KafkaError.TOPIC_AUTHORIZATION_FAILED,),
    (BusError, "Ask the cluster's administrator for access to the consumer group."): (
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    ),
    _NO_ACCESS: (
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ),
    (MissingCategory, "Create it with `penstock category create`."): (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
    ),
    (
        BucketMismatch,
        "It was deleted, or has fewer buckets than declared: `penstock category show` shows which, and `penstock category create` creates it.",
    ): (KafkaError._UNKNOWN_PARTITION,),
    (
        BusError,
        (
            "Another program uses this consumer group, which has the processor's name. No event was processed. Stop that program, or give it another "
            "group.id."
        ),
    ): (KafkaError.INCONSISTENT_GROUP_PROTOCOL,),
    (
        BusError,
        (
            "The brokers accept less metadata with a position than a checkpoint needs. The position was not saved. Set offset.metadata.max.bytes of the "
            "brokers to 4096, which is Kafka's default."
        ),
    ): (KafkaError.OFFSET_METADATA_TOO_LARGE,),
    (BusError, "Too few brokers are running. Nothing was changed. Check the brokers, then try again."): (
        KafkaError.INVALID_REPLICATION_FACTOR,
    ),
    (BusError, "Nothing was created. Correct the `settings` of the category."): (KafkaError.INVALID_CONFIG,),
    (
        BusError,
        (
            "The cluster has a policy for new topics. Nothing was created. Declare `settings` and `replicas` that it permits, or let the administrators of "
            "the cluster create the topic."
        ),
    ): (KafkaError.POLICY_VIOLATION,),
    (
        BusError,
        (
            "Nothing was created. Choose another name: at most 249 letters, digits, '.', '_' and '-'. Names that differ only by '.' and '_' are the same for "
            "Kafka's metrics."
        ),
    ): (KafkaError.TOPIC_EXCEPTION,),
    (CategoryExists, "It was not changed. `penstock category show` shows its settings."): (
        KafkaError.TOPIC_ALREADY_EXISTS,
    ),
    (OffsetOutOfRange, "Events at this position have expired on the bus."): (
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._LOG_TRUNCATION,
    ),
    _TOO_LARGE: (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
    ),
    (MessageRefused, "Change the record, or the category's settings."): (
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
    ),
}
_MEANING: dict[int, _Meaning] = {
    code: meaning for table in (_OUTAGES, _RETRYABLE, _PERMANENT) for meaning, codes in table.items() for code in codes
}


_NO_TOKEN = "OAuth token not set"  # noqa: S105 - a part of a message
"""Part of the client's reason if it was opened, but got no token."""


def open_client(kind: Callable[[dict[str, Any]], _Client], configuration: dict[str, Any], request: str) -> _Client:
    """Return a new client of the library.

    Args:
        kind: its class.
        configuration: its settings.
        request: its purpose, as the start of a sentence.

    Raises:
        SettingsRefused: the library rejects a setting; it raises several types of errors.
        BusUnreachable: there is no token for the client yet.
    """
    try:
        return kind(configuration)
    except KafkaException as error:
        if _NO_TOKEN in error.args[0].str():
            raise BusUnreachable(
                f"{request}: there was no token for the Kafka client within 10 s. No data was lost. Correct what makes tokens: the function of oauth_cb, whose "
                "error is in the log, or the service of sasl.oauthbearer.token.endpoint.url."
            ) from error
        raise translate(error.args[0], request) from error
    except (TypeError, ValueError) as error:
        raise SettingsRefused(
            f"{request}: {str(error).rstrip('.')}. No request was sent. Correct [kafka-settings]."
        ) from error


def translate(error: KafkaError, request: str) -> BusError:
    """Return Penstock's error for an error of the client.

    Args:
        error: the client's error.
        request: the request and its object, as the start of a sentence.
    """
    if error.code() == KafkaError._FATAL:
        return membership_lost(error, request)
    kind, advice = _MEANING.get(error.code(), _UNKNOWN)
    return kind(f"{request}: {error.str().strip().rstrip('.')}. {advice}")


def membership_lost(error: KafkaError, request: str) -> MembershipLost:
    """Return Penstock's error for a fatal error of a consumer. Only the client's text shows whether another one has its identity.

    Args:
        error: the client's error.
        request: the request and its object, as the start of a sentence.
    """
    kind = IdentityTaken if "same group.instance.id" in error.str() else MembershipLost
    return kind(f"{request}: {error.str().strip().rstrip('.')}. The worker joins the group again.")


def is_transient(error: KafkaError) -> bool:
    """Return whether a reader can continue polling after this error, because the client recovers."""
    return is_outage(error) or bool(error.retriable())


def is_outage(error: KafkaError) -> bool:
    """Return whether an error is caused by an outage, a changing cluster, or a rebalance."""
    return any(error.code() in codes for codes in _OUTAGES.values())


def is_retryable(error: KafkaError) -> bool:
    """Return whether the request may succeed with another transaction or membership."""
    return any(error.code() in codes for codes in _RETRYABLE.values())


@contextmanager
def translated(request: str) -> Iterator[None]:
    """Raise Penstock's errors instead of the client's.

    Args:
        request: the request and its object, as the start of a sentence.
    """
    try:
        yield
    except KafkaException as error:
        raise translate(error.args[0], request) from error
