"""Transactions: messages and positions that are committed together or not at all."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from ...processors import backoff
from ..bounded_calls import NoAnswer
from ..errors import Aborted, BusError, BusUnreachable, DeliveryFailed, Fenced, OutputsTimedOut, unconfirmed_commit
from ..messages import Outgoing, Position
from .error_translation import is_outage, is_retryable, translate, translated
from .open_transactions import ABORTED_KEY, LeftOpen, OpenTransactions
from .positions import is_membership, to_commit
from .settings import KafkaSettings
from .writer import KafkaWriter

_LOG = logging.getLogger("penstock.kafka")
STEP_LIMIT_S = 10.0
"""The time limit of one attempt at a step of a transaction."""
ASK_LIMIT_S = 5.0
"""The time limit for an answer that distinguishes a cluster without a coordinator from an outage."""
OPENING_LIMIT_S = 300.0
"""The time limit for opening a writer while no broker answers."""
COMMIT_LIMIT_S = 30.0
"""The time limit for repeating a step of a commit. Then a new writer has a better chance: after a broker restart, an old one may search for the
coordinator forever."""
CONFIRMATION_LIMIT_S = 10.0
"""The time limit for the group's positions to show a commit that the coordinator has confirmed; it usually takes milliseconds."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.01, 1.0
"""The bounds of the times between attempts: in an outage, the client often fails at once."""
ANSWER_LIMIT_S = 3 * STEP_LIMIT_S
"""The time limit for an attempt to return, in case the client ignores the attempt's own limit."""


class KafkaTransactionalWriter(KafkaWriter):
    """A transactional producer. Each transaction begins with the first message after a commit.

    Args:
        settings: the cluster.
        identity: the transactional id.
        membership: returns the present metadata of the group's member. The coordinator refuses the positions of a former member
            (KIP-447).
        timeout_s: the time limit of an open transaction.
        open_transactions: finds transactions of earlier writers whose markers are missing.
        opening_limit_s: the time limit for opening while no broker answers.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        identity: str,
        membership: Callable[[], Any],
        timeout_s: float,
        open_transactions: OpenTransactions,
        *,
        opening_limit_s: float = OPENING_LIMIT_S,
    ) -> None:
        super().__init__(settings, settings.for_transactional_writer(identity, timeout_s), STEP_LIMIT_S)
        self._began_s = 0.0
        self._identity = identity
        self._membership = membership
        self._open_transactions = open_transactions
        self._member: bytes | None = None
        self._is_open = False
        try:
            self._initialise(opening_limit_s)
            self._abort_left_open(opening_limit_s)
        except BaseException:
            # Later, the client would still open a transaction of this identity, and fence the next writer.
            self._kept.close()
            raise

    def _initialise(self, limit_s: float) -> None:
        """End the open transaction of an earlier process of this identity, and fence the process if it still runs."""
        try:
            self._retry_step(lambda: self._producer.init_transactions(STEP_LIMIT_S), limit_s)
        except BusUnreachable as error:
            if not self._kept.is_answered(ASK_LIMIT_S):
                raise
            raise BusUnreachable(
                f"Transaction of {self._identity}: brokers answer, but none of them coordinates transactions. Outputs exactly once wait, and nothing is "
                "lost. This passes while a cluster starts. If it stays, the cluster has no transactions: its service does not support them, or "
                "transaction.state.log.replication.factor is greater than its number of brokers. Then correct the brokers, or declare "
                "`output_semantics = penstock.Semantics.AT_LEAST_ONCE`."
            ) from error

    def _abort_left_open(self, limit_s: float) -> None:
        """Abort transactions that the coordinator has ended without a marker; see `OpenTransactions`."""
        deadline, waits_s = time.monotonic() + limit_s, backoff(FIRST_WAIT_S, LONGEST_WAIT_S)
        while True:
            try:
                found = self._open_transactions.find()
                if found is not None:
                    self._abort_in(found)
            except (BusUnreachable, Aborted, OutputsTimedOut) as error:
                if time.monotonic() > deadline:
                    raise
                _LOG.info("%s", error)
                time.sleep(next(waits_s))
            else:
                return

    def _abort_in(self, found: LeftOpen) -> None:
        """Abort a transaction in the same buckets: its markers end all open transactions of this identity there."""
        if found.offset is not None:
            _LOG.warning(
                "Transaction of %s: an earlier one was left open in %s and in the positions of its group. It is aborted, and its events are read "
                "again.",
                self._identity,
                ", ".join(map(str, found.buckets)) or "no category",
            )
        self._begin()
        for category, number in found.buckets:
            with translated(f"The open transaction in {category}/{number} was not aborted"):
                self._producer.produce(category, None, ABORTED_KEY, number, self._record_failure)
        try:
            self.flush()
            if found.offset is not None:
                offsets, group = [found.offset], found.group
                self._retry_step(
                    lambda: self._producer.send_offsets_to_transaction(offsets, group, STEP_LIMIT_S), COMMIT_LIMIT_S
                )
        finally:
            self._retry_step(lambda: self._producer.abort_transaction(STEP_LIMIT_S), COMMIT_LIMIT_S)
            self._is_open = False

    def send(self, category: str, messages: Iterable[Outgoing]) -> None:
        """Queue messages in the transaction."""
        self._begin()
        with self._blaming_time():  # it waits while the queue of the client is full
            super().send(category, messages)

    def _begin(self) -> None:
        if not self._is_open:
            with translated(f"The transaction of {self._identity} was not begun"):
                self._producer.begin_transaction()
            self._is_open, self._began_s = True, time.monotonic()

    def flush(self) -> None:
        """Wait until all sent messages are stored in the transaction.

        Raises:
            OutputsTimedOut: the time limit of the transaction has passed.
        """
        with self._blaming_time():
            super().flush()

    @contextmanager
    def _blaming_time(self) -> Iterator[None]:
        """Name the cause of a failure after the time limit of the transaction: the brokers abort it then, and fence the writer."""
        try:
            yield
        except (Aborted, Fenced) as error:
            if not self._is_open or time.monotonic() - self._began_s < self._limit_s:
                raise
            raise self._timed_out(f"Transaction of {self._identity}: it was not committed") from error

    def _timed_out(self, failure: str) -> OutputsTimedOut:
        error = super()._timed_out(failure)
        return error.reworded(
            f"{error} The transaction was aborted, and the same events are read again, fewer at a time. To allow more time, set "
            "`transaction.timeout.ms` in [kafka-settings]."
        )

    def enlist(self) -> None:
        """Make the next commit depend on the present membership."""
        self._member = self._membership()

    def commit(self, positions: Sequence[Position]) -> None:
        """Commit the sent messages and the positions atomically. The commit counts when the group's positions show it."""
        self._begin()
        offsets = to_commit(positions)
        if offsets and self._member is None:
            self.enlist()
        if offsets and not is_membership(self._member or b""):
            raise Aborted(
                f"Transaction of {self._identity}: its worker was no member of its group when the checkpoint began. The transaction was aborted. "
                "The owner of the buckets reads its input again."
            )
        with self._blaming_time():
            self._commit(offsets)
        if offsets and not self._are_in_force(offsets):
            raise Fenced(unconfirmed_commit(self._identity, CONFIRMATION_LIMIT_S))

    def _commit(self, offsets: Sequence[TopicPartition]) -> None:
        try:
            if offsets:
                self._retry_step(
                    lambda: self._producer.send_offsets_to_transaction(list(offsets), self._member, STEP_LIMIT_S),
                    COMMIT_LIMIT_S,
                )
            self._retry_step(lambda: self._producer.commit_transaction(STEP_LIMIT_S), COMMIT_LIMIT_S)
        except BusUnreachable as error:
            raise _unknown_outcome(error) from error
        self._is_open = False

    def _are_in_force(self, offsets: Sequence[TopicPartition]) -> bool:
        try:
            return self._open_transactions.are_in_force(offsets, CONFIRMATION_LIMIT_S)
        except BusUnreachable as error:
            raise _unknown_outcome(error) from error

    def _replace(self) -> None:
        """Fail the messages. Only another writer can end the transaction, and begin a new one."""
        self._drop_waiting()

    def _failure(self, failed: Sequence[tuple[KafkaError, str]]) -> BusError:
        """Return Aborted if the events can be processed again, which includes an expired transaction and a fenced writer."""
        failure = super()._failure(failed)
        if isinstance(failure, OutputsTimedOut):
            return failure
        return Aborted(f"{failure} The transaction was aborted.") if isinstance(failure, DeliveryFailed) else failure

    def abort(self) -> None:
        """Abort the sent messages."""
        if self._is_open and not self._kept.is_stuck:
            self._is_open = False
            self._failed.clear()
            self._retry_step(lambda: self._producer.abort_transaction(STEP_LIMIT_S), STEP_LIMIT_S)

    def close(self) -> None:
        """Abort uncommitted messages and close the connection."""
        self._open_transactions.close()
        for end in (self.abort, super().close):
            if self._kept.is_stuck:
                break  # a call is still running in the client; the next writer ends its transaction
            try:
                end()
            except BusError as error:
                _LOG.info("%s The bus aborts the open transaction, at the latest when it expires.", error)
        self._kept.close()

    def _retry_step(self, step: Callable[[], None], limit_s: float) -> None:
        """Take a step of the transaction, and repeat it while its error is retriable."""
        deadline, waits_s = time.monotonic() + limit_s, backoff(FIRST_WAIT_S, LONGEST_WAIT_S)
        while True:
            try:
                self._kept.call(step, ANSWER_LIMIT_S)
            except NoAnswer as error:
                raise Fenced(
                    f"Transaction of {self._identity}: the Kafka client has not answered for {ANSWER_LIMIT_S:.0f} s and is replaced. The "
                    "group's positions show whether the transaction was committed."
                ) from error
            except KafkaException as error:
                failure = error.args[0]
                if not failure.retriable() or time.monotonic() > deadline:
                    raise _translated_failure(failure, f"Transaction of {self._identity}") from error
                time.sleep(next(waits_s))
            else:
                return


def _unknown_outcome(error: BusUnreachable) -> Fenced:
    return Fenced(f"{error} The group's positions show whether the transaction was committed.")


def _translated_failure(error: KafkaError, request: str) -> BusError:
    """Return Penstock's error for a step of a transaction that is not repeated."""
    translation = translate(error, request)
    if not (is_outage(error) or is_retryable(error)):
        return translation  # a new transaction would fail, too
    if error.txn_requires_abort():
        return Aborted(f"{request}: {error.str()}. The transaction was aborted, and its input is read again.")
    if error.fatal() or not isinstance(translation, BusUnreachable):
        return Fenced(
            f"{request}: {error.str()}. The transaction was aborted unless it was committed already, which the group's positions show."
        )
    return translation
