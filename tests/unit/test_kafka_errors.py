"""The action of a worker for each error of the Kafka client."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from threading import Thread

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.transport import (
    Aborted,
    Bucket,
    BusError,
    BusRefuses,
    BusUnreachable,
    CommitUnconfirmed,
    DeliveryFailed,
    Fenced,
    IdentityTaken,
    MembershipLost,
    MessageRefused,
)
from penstock.transport.kafka import KafkaSettings, catalog
from penstock.transport.kafka.catalog import KafkaCatalog
from penstock.transport.kafka.error_translation import is_outage, is_retryable, is_transient, translate

CODES = {
    code: name
    for name in dir(KafkaError)
    if name.strip("_").isupper() and isinstance(code := getattr(KafkaError, name), int)
}
WAITS = (BusUnreachable, CommitUnconfirmed, DeliveryFailed)
GOES_BACK = (Fenced, Aborted, MembershipLost)

FOR_A_PERSON = [
    "BROKEN_BY_THE_PROGRAM",
    "_INVALID_ARG",
    "_INVALID_TYPE",
    "_NOT_IMPLEMENTED",
    "_NOT_CONFIGURED",
    "_UNSUPPORTED_FEATURE",
    "_EXISTING_SUBSCRIPTION",
    "_READ_ONLY",
    "_NO_OFFSET",
    "_UNKNOWN_GROUP",
    "_UNKNOWN_PROTOCOL",
    "_KEY_SERIALIZATION",
    "_VALUE_SERIALIZATION",
    "_KEY_DESERIALIZATION",
    "_VALUE_DESERIALIZATION",
    "_APPLICATION",
    "_INVALID_DIFFERENT_RECORD",
    "INVALID_REQUEST",
    "INVALID_REQUIRED_ACKS",
    "UNSUPPORTED_VERSION",
    "INCONSISTENT_GROUP_PROTOCOL",
    "INVALID_GROUP_ID",
    "INVALID_COMMIT_OFFSET_SIZE",
    "OFFSET_METADATA_TOO_LARGE",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    "UNSUPPORTED_COMPRESSION_TYPE",
    "INVALID_SESSION_TIMEOUT",
    "INVALID_TRANSACTION_TIMEOUT",
    "TOPIC_EXCEPTION",
    "GROUP_MAX_SIZE_REACHED",
    "POLICY_VIOLATION",
    "THE_MACHINE",
    "_BAD_MSG",
    "_BAD_COMPRESSION",
    "_FAIL",
    "_CRIT_SYS_RESOURCE",
    "_FS",
    "_PARTIAL",
    "_UNDERFLOW",
    "_LOG_TRUNCATION",
    "NO_ERROR_AT_ALL",
    "NO_ERROR",
    "_NOOP",
    "_PARTITION_EOF",
    "_ASSIGN_PARTITIONS",
    "_REVOKE_PARTITIONS",
    "_QUEUE_FULL",
    "ACCESS",
    "_AUTHENTICATION",
    "_SSL",
    "SASL_AUTHENTICATION_FAILED",
    "UNSUPPORTED_SASL_MECHANISM",
    "ILLEGAL_SASL_STATE",
    "SECURITY_DISABLED",
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "UNACCEPTABLE_CREDENTIAL",
    "INVALID_PRINCIPAL_TYPE",
    "PRINCIPAL_DESERIALIZATION_FAILURE",
    "DELEGATION_TOKEN_AUTH_DISABLED",
    "DELEGATION_TOKEN_NOT_FOUND",
    "DELEGATION_TOKEN_OWNER_MISMATCH",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    "DELEGATION_TOKEN_EXPIRED",
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
    "CATEGORIES",
    "UNKNOWN_TOPIC_OR_PART",
    "_UNKNOWN_TOPIC",
    "_UNKNOWN_PARTITION",
    "TOPIC_ALREADY_EXISTS",
    "_AUTO_OFFSET_RESET",
    "OFFSET_OUT_OF_RANGE",
    "MSG_SIZE_TOO_LARGE",
    "RECORD_LIST_TOO_LARGE",
    "INVALID_MSG_SIZE",
    "INVALID_RECORD",
    "INVALID_TIMESTAMP",
    "ADMINISTRATION",
    "INVALID_PARTITIONS",
    "INVALID_REPLICATION_FACTOR",
    "INVALID_REPLICA_ASSIGNMENT",
    "INVALID_CONFIG",
    "LOG_DIR_NOT_FOUND",
    "NON_EMPTY_GROUP",
    "GROUP_ID_NOT_FOUND",
    "TOPIC_DELETION_DISABLED",
    "ELECTION_NOT_NEEDED",
    "NO_REASSIGNMENT_IN_PROGRESS",
    "GROUP_SUBSCRIBED_TO_TOPIC",
    "RESOURCE_NOT_FOUND",
    "DUPLICATE_RESOURCE",
    "INCONSISTENT_VOTER_SET",
    "INVALID_UPDATE_VERSION",
    "FEATURE_UPDATE_FAILED",
    "MISMATCHED_ENDPOINT_TYPE",
    "UNSUPPORTED_ENDPOINT_TYPE",
    "INVALID_REGISTRATION",
    "INVALID_VOTER_KEY",
    "DUPLICATE_VOTER",
    "VOTER_NOT_FOUND",
    "ANOTHER_PROTOCOL_THAN_OURS",
    "UNSUPPORTED_ASSIGNOR",
    "UNKNOWN_SUBSCRIPTION_ID",
    "TELEMETRY_TOO_LARGE",
    "INVALID_RECORD_STATE",
    "SHARE_SESSION_NOT_FOUND",
    "INVALID_SHARE_SESSION_EPOCH",
    "FENCED_STATE_EPOCH",
    "INVALID_REGULAR_EXPRESSION",
    "STREAMS_INVALID_TOPOLOGY",
    "STREAMS_INVALID_TOPOLOGY_EPOCH",
    "STREAMS_TOPOLOGY_FENCED",
    "SHARE_SESSION_LIMIT_REACHED",
]
"""Errors that waiting does not repair; each heading is in capitals, too."""


@pytest.mark.parametrize("code", CODES, ids=CODES.get)
def test_every_error_has_one_action(code: int) -> None:
    """A worker waits, retries or stops, and the exception type matches; a new error of the client fails here until it is classified."""
    error = KafkaError(code)
    kinds = is_outage(error), is_retryable(error), CODES[code] in FOR_A_PERSON
    assert sum(kinds) == 1

    meaning = translate(error, "Reading")
    expected = WAITS if kinds[0] else GOES_BACK if kinds[1] else BusError
    assert isinstance(meaning, expected)
    assert kinds[0] or not isinstance(meaning, WAITS) or isinstance(meaning, BusRefuses)


@pytest.mark.parametrize(
    "name",
    [
        "_WAIT_COORD",
        "_STATE",
        "_MAX_POLL_EXCEEDED",
        "_TIMED_OUT",
        "NOT_ENOUGH_REPLICAS",
        "UNKNOWN",
        "THROTTLING_QUOTA_EXCEEDED",
    ],
)
def test_a_reader_polls_through_an_outage(name: str) -> None:
    """The client recovers from an outage without a restart."""
    assert is_transient(KafkaError(getattr(KafkaError, name)))


def test_a_rejected_message_is_not_treated_as_an_outage() -> None:
    """A retry would always fail again."""
    assert isinstance(translate(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), "Writing"), MessageRefused)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda asked: asked.topics(["readings"]),
        lambda asked: asked.ends_of([Bucket("readings", 0)]),
        lambda asked: asked.forget_group("totals"),
        lambda asked: asked.names(),
    ],
)
def test_every_request_reports_the_address_of_an_unreachable_broker(
    request_of: Callable[[KafkaCatalog], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request can be the first one that meets the outage."""
    monkeypatch.setattr(catalog, "ANSWER_LIMIT_S", 1.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, and not listening: a connection is refused
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(BusUnreachable, match=f"No Kafka broker answers at {address} within 1 s"):
            request_of(KafkaCatalog(KafkaSettings(address)))


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Yield the address of a server that answers each connection so, and closes it."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(100)
                    connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_refused_connection_does_not_blame_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens at the address; whether security.protocol matches is unknown."""
    monkeypatch.setattr(catalog, "ANSWER_LIMIT_S", 3.0)  # the client connects in a thread
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(
            BusUnreachable, match=rf"within 3 s: {address} refuses the connection, .* Start the broker"
        ) as raised:
            KafkaCatalog(KafkaSettings(address)).names()

    assert "security.protocol" not in str(raised.value)


def test_a_server_of_another_protocol_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A web server or the wrong port of a broker is such a server."""
    monkeypatch.setattr(catalog, "ANSWER_LIMIT_S", 3.0)  # the client connects in a thread
    with (
        answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        pytest.raises(BusUnreachable, match=rf"what listens at {address} is no Kafka broker, or expects TLS.* port"),
    ):
        KafkaCatalog(KafkaSettings(address)).names()


def test_a_request_that_the_client_forgot_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with the error of an outage instead of waiting forever."""
    monkeypatch.setattr(catalog, "ANSWER_LIMIT_S", 0.01)
    monkeypatch.setattr(catalog, "FORGOTTEN_AFTER_S", 0.01)
    with pytest.raises(KafkaException) as raised:
        catalog._answer(Future[int]())

    assert isinstance(translate(raised.value.args[0], "A request failed"), BusUnreachable)


def test_an_invalid_name_of_a_topic_is_the_users_to_correct() -> None:
    """The advice is true for both reasons: a character, and a topic whose name differs by a dot."""
    error = KafkaError(KafkaError.TOPIC_EXCEPTION, "Topic 'a_b' collides with existing topic: a.b")
    text = str(translate(error, "Category a_b was not created"))

    assert "Choose another name: at most 249 letters" in text
    assert "differ only by '.' and '_'" in text


def test_a_fenced_member_is_told_from_other_fatal_errors() -> None:
    """The code of a fatal error is the same for all reasons."""
    fenced = KafkaError(
        KafkaError._FATAL, "Broker: Static consumer fenced by other consumer with same group.instance.id"
    )

    assert type(translate(fenced, "Reading")) is IdentityTaken
    assert type(translate(KafkaError(KafkaError._FATAL, "Local: Fatal error"), "Reading")) is MembershipLost


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (KafkaError.INCONSISTENT_GROUP_PROTOCOL, "Another program uses this consumer group"),
        (KafkaError.OFFSET_METADATA_TOO_LARGE, "offset.metadata.max.bytes"),
        (KafkaError._PURGE_QUEUE, "after an earlier failure"),
        (KafkaError._MSG_TIMED_OUT, "they may have arrived"),
        (KafkaError._RESOLVE, "ulimit -n"),
    ],
)
def test_the_remedy_follows_from_the_code(code: int, remedy: str) -> None:
    """An error that is no question of the address or the protocol does not blame them."""
    text = str(translate(KafkaError(code), "Reading"))

    assert remedy in text
    assert "security.protocol" not in text
