"""The client library's errors as ours: the one place that knows its codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from ..errors import (
    BucketMismatch,
    BusError,
    BusRefuses,
    BusUnreachable,
    CategoryExists,
    DeliveryFailed,
    Dismissed,
    Fenced,
    MessageRefused,
    MissingCategory,
    OffsetOutOfRange,
    SettingsRefused,
    Unsettled,
)

_UNREACHABLE = (
    "Look whether the broker runs, the address is right, and security.protocol in [kafka-settings] is what is spoken there; nothing was "
    "lost, start again when it answers."
)
_SETTLING = "The cluster is changing or has just begun; nothing was lost, it answers soon."
_MEANING: dict[int, tuple[type[BusError], str]] = {
    KafkaError._TRANSPORT: (BusUnreachable, _UNREACHABLE),
    KafkaError._ALL_BROKERS_DOWN: (BusUnreachable, _UNREACHABLE),
    KafkaError._RESOLVE: (BusUnreachable, _UNREACHABLE),
    KafkaError._TIMED_OUT: (BusUnreachable, _UNREACHABLE),
    KafkaError.REQUEST_TIMED_OUT: (BusUnreachable, _UNREACHABLE),
    KafkaError.NETWORK_EXCEPTION: (BusUnreachable, _UNREACHABLE),
    KafkaError.NOT_COORDINATOR: (BusUnreachable, _SETTLING),
    KafkaError.COORDINATOR_NOT_AVAILABLE: (BusUnreachable, _SETTLING),
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS: (BusUnreachable, _SETTLING),
    KafkaError.NOT_LEADER_FOR_PARTITION: (BusUnreachable, _SETTLING),
    KafkaError.LEADER_NOT_AVAILABLE: (BusUnreachable, _SETTLING),
    KafkaError.FENCED_LEADER_EPOCH: (BusUnreachable, _SETTLING),
    KafkaError.UNKNOWN_LEADER_EPOCH: (BusUnreachable, _SETTLING),
    KafkaError._NOENT: (BusUnreachable, _SETTLING),
    KafkaError._AUTHENTICATION: (BusRefuses, "Mend the credentials in [kafka-settings]."),
    KafkaError.SASL_AUTHENTICATION_FAILED: (BusRefuses, "Mend the credentials in [kafka-settings]."),
    KafkaError._SSL: (BusRefuses, "Mend what is said of TLS in [kafka-settings]."),
    KafkaError._INVALID_ARG: (SettingsRefused, "Mend [kafka-settings]; nothing was asked of the bus."),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (BusError, "Ask for access to the category."),
    KafkaError.GROUP_AUTHORIZATION_FAILED: (BusError, "Ask for access to the consumer group."),
    KafkaError.UNKNOWN_TOPIC_OR_PART: (MissingCategory, "Create it with `penstock category create`."),
    KafkaError._UNKNOWN_TOPIC: (MissingCategory, "Create it with `penstock category create`."),
    KafkaError._UNKNOWN_PARTITION: (
        BucketMismatch,
        "Compare the buckets that are declared with `penstock category describe`.",
    ),
    KafkaError.TOPIC_ALREADY_EXISTS: (CategoryExists, "Delete it first, or use another name."),
    KafkaError._AUTO_OFFSET_RESET: (OffsetOutOfRange, "Events between are gone from the bus."),
    KafkaError.OFFSET_OUT_OF_RANGE: (OffsetOutOfRange, "Events between are gone from the bus."),
    # The group forms anew, which a member that keeps its buckets learns only at its next poll.
    KafkaError.ILLEGAL_GENERATION: (Unsettled, "The position is saved again with the next checkpoint."),
    KafkaError.REBALANCE_IN_PROGRESS: (Unsettled, "The position is saved again with the next checkpoint."),
    KafkaError.UNKNOWN_MEMBER_ID: (Fenced, "The buckets have a new owner; what was not saved is done again there."),
    KafkaError.FENCED_INSTANCE_ID: (Dismissed, "Another worker uses the same identity; stop one of them."),
    KafkaError._FATAL: (Dismissed, "The member has to join anew."),
    KafkaError._FENCED: (Fenced, "Another worker uses the same identity, or the bus ended the transaction."),
    KafkaError.INVALID_PRODUCER_EPOCH: (
        Fenced,
        "Another worker uses the same identity, or the bus ended the transaction.",
    ),
    KafkaError._MSG_TIMED_OUT: (DeliveryFailed, _UNREACHABLE),
    KafkaError.MSG_SIZE_TOO_LARGE: (
        MessageRefused,
        "Make the record smaller, or raise the category's max.message.bytes.",
    ),
}


def translate(error: KafkaError, what: str) -> BusError:
    """Return one of our errors for one of the client's.

    Args:
        error: the client's error.
        what: what was tried, and on what, as the beginning of a sentence.
    """
    kind, advice = _MEANING.get(error.code(), (BusError, "The bus gave no reason that Penstock knows; see its log."))
    return kind(f"{what}: {error.str().strip().rstrip('.')}. {advice}")


# Conditions that the client itself recovers from while we go on polling.
_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
    }
)


def passes(error: KafkaError) -> bool:
    """Tell whether a reader that meets this error need only go on polling."""
    return error.code() in _PASSING or bool(error.retriable())


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise our errors in place of the client's.

    Args:
        what: what is tried, and on what, as the beginning of a sentence.
    """
    try:
        yield
    except KafkaException as error:
        raise translate(error.args[0], what) from error
