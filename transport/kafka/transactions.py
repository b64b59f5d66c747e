"""Transactions: messages and positions that are committed together or not at all."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from ..bounded_calls import NoAnswer, call_with_limit
from ..errors import Aborted, BusError, BusUnreachable, DeliveryFailed, Fenced
from ..messages import Outgoing, Position
from .error_translation import is_outage, is_retryable, translate, translated
from .open_transactions import ABORTED_KEY, LeftOpen, OpenTransactions
from .positions import is_membership, to_commit
from .settings import KafkaSettings
from .writer import KafkaWriter

_LOG = logging.getLogger("penstock.kafka")
STEP_LIMIT_S = 10.0
"""The time limit of one attempt at a step of a transaction."""
OPENING_LIMIT_S = 300.0
"""The time limit for opening a writer while no broker answers."""
COMMIT_LIMIT_S = 30.0
"""The time limit for repeating a step of a commit. Then a new writer has a better chance: after a broker restart, an old one may search for the
coordinator forever."""
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
        super().__init__(settings.for_transactional_writer(identity, timeout_s), STEP_LIMIT_S)
        self._identity = identity
        self._membership = membership
        self._member: bytes | None = None
        self._is_open = False
        self._is_responsive = True
        # Ends the open transaction of an earlier process of this identity, and fences the process if it still runs.
        self._retry_step(lambda: self._producer.init_transactions(STEP_LIMIT_S), opening_limit_s)
        self._abort_left_open(open_transactions, opening_limit_s)

    def _abort_left_open(self, open_transactions: OpenTransactions, limit_s: float) -> None:
        """Abort transactions that the coordinator has ended without a marker; see `OpenTransactions`."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                found = open_transactions.find()
                if found is not None:
                    self._abort_in(found)
            except (BusUnreachable, Aborted) as error:
                if time.monotonic() > deadline:
                    raise
                _LOG.info("%s", error)
            else:
                return

    def _abort_in(self, found: LeftOpen) -> None:
        """Abort a transaction in the same buckets: its markers end all open transactions of this identity there."""
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
        super().send(category, messages)

    def _begin(self) -> None:
        if not self._is_open:
            with translated(f"The transaction of {self._identity} was not begun"):
                self._producer.begin_transaction()
            self._is_open = True

    def enlist(self) -> None:
        """Make the next commit depend on the present membership."""
        self._member = self._membership()

    def commit(self, positions: Sequence[Position]) -> None:
        """Commit the sent messages and the positions atomically."""
        self._begin()
        offsets = to_commit(positions)
        if offsets and self._member is None:
            self.enlist()
        if offsets and not is_membership(self._member or b""):
            raise Aborted(
                f"Transaction of {self._identity}: its worker was no member of its group when the checkpoint began. The transaction was aborted. "
                "The owner of the buckets reads its input again."
            )
        try:
            if offsets:
                self._retry_step(
                    lambda: self._producer.send_offsets_to_transaction(offsets, self._member, STEP_LIMIT_S),
                    COMMIT_LIMIT_S,
                )
            self._retry_step(lambda: self._producer.commit_transaction(STEP_LIMIT_S), COMMIT_LIMIT_S)
        except BusUnreachable as error:
            raise Fenced(f"{error} The group's positions show whether the transaction was committed.") from error
        self._is_open = False

    def _failure(self, failed: Sequence[tuple[KafkaError, str]]) -> BusError:
        """Return Aborted if the events can be processed again, which includes an expired transaction and a fenced writer."""
        failure = super()._failure(failed)
        return Aborted(f"{failure} The transaction was aborted.") if isinstance(failure, DeliveryFailed) else failure

    def abort(self) -> None:
        """Abort the sent messages."""
        if self._is_open and self._is_responsive:
            self._is_open = False
            self._failed.clear()
            self._retry_step(lambda: self._producer.abort_transaction(STEP_LIMIT_S), STEP_LIMIT_S)

    def close(self) -> None:
        """Abort uncommitted messages and close the connection."""
        if not self._is_responsive:
            return  # a call is still running in the client; the next writer ends its transaction
        try:
            self.abort()
            super().close()
        except BusError as error:
            _LOG.info("%s The bus aborts the open transaction, at the latest when it expires.", error)

    def _retry_step(self, step: Callable[[], None], limit_s: float) -> None:
        """Take a step of the transaction, and repeat it while its error is retriable."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                call_with_limit(step, ANSWER_LIMIT_S)
            except NoAnswer as error:
                self._is_responsive = False
                raise Fenced(
                    f"Transaction of {self._identity}: the Kafka client has not answered for {ANSWER_LIMIT_S:.0f} s and is replaced. The "
                    "group's positions show whether the transaction was committed."
                ) from error
            except KafkaException as error:
                failure = error.args[0]
                if not failure.retriable() or time.monotonic() > deadline:
                    raise _translated_failure(failure, f"Transaction of {self._identity}") from error
            else:
                return


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
