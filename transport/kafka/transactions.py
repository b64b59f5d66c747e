"""Transactions: messages and positions that count together or not at all."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from ..errors import Aborted, BusError, BusUnreachable, DeliveryFailed, Fenced
from ..messages import Outgoing, Position
from .bounded_calls import NoAnswer, call_with_limit
from .error_translation import is_outage, is_retryable, translate, translated
from .open_transactions import ABORTED_KEY, Found, OpenTransactions
from .positions import is_membership, to_commit
from .settings import KafkaSettings
from .writer import KafkaWriter

_LOG = logging.getLogger("penstock.kafka")
STEP_LIMIT_S = 10.0
"""How long one attempt at a step of a transaction may take."""
OPENING_LIMIT_S = 300.0
"""How long a writer tries to open while no broker answers."""
COMMIT_LIMIT_S = 30.0
"""How long a step of a commit is tried again. After it a new writer does better: one whose broker was restarted may look for the
coordinator for ever."""
ANSWER_LIMIT_S = 3 * STEP_LIMIT_S
"""How long is waited for an attempt to come back at all, whatever limit it was given."""


class KafkaTransactionalWriter(KafkaWriter):
    """A producer of transactions; each begins with the first message after a commit.

    Args:
        settings: the cluster.
        identity: the transactional id.
        membership: gives what the coordinator needs to know of the group's member, as of now: it refuses the positions of
            one that is no member any more (KIP-447).
        timeout_s: how long a transaction may stay open.
        leftovers: what an earlier writer of the identity may have left open without the coordinator knowing.
        opening_limit_s: how long it tries to open while no broker answers.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        identity: str,
        membership: Callable[[], Any],
        timeout_s: float,
        leftovers: OpenTransactions,
        *,
        opening_limit_s: float = OPENING_LIMIT_S,
    ) -> None:
        super().__init__(settings.for_transactional_writer(identity, timeout_s))
        self._identity = identity
        self._membership = membership
        self._member: bytes | None = None
        self._begun = False
        self._answers = True
        # The client looks for the coordinator at once where it is connected to a broker already, and otherwise half a second later.
        with suppress(KafkaException):
            self._producer.list_topics(timeout=STEP_LIMIT_S)
        # Ends what a dead process of this identity left open, and fences one that is not quite dead.
        self._persist(lambda: self._producer.init_transactions(STEP_LIMIT_S), opening_limit_s)
        self._abort_leftovers(leftovers, opening_limit_s)

    def _abort_leftovers(self, leftovers: OpenTransactions, limit_s: float) -> None:
        """Abort what is still open in the log although the coordinator takes it for ended; see `OpenTransactions`."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                found = leftovers.find()
                if found is not None:
                    self._abort_together_with(found)
            except (BusUnreachable, Aborted) as error:
                if time.monotonic() > deadline:
                    raise
                _LOG.info("%s", error)
            else:
                return

    def _abort_together_with(self, found: Found) -> None:
        """Abort a transaction that touches the same buckets: its markers end all that this identity has open there."""
        self._begin()
        for category, number in found.buckets:
            with translated(f"What was open in {category}/{number} was not aborted"):
                self._producer.produce(category, None, ABORTED_KEY, number, self._note_failure)
        try:
            self.flush()
            if found.offset is not None:
                offsets, group = [found.offset], found.group
                self._persist(
                    lambda: self._producer.send_offsets_to_transaction(offsets, group, STEP_LIMIT_S), COMMIT_LIMIT_S
                )
        finally:
            self._persist(lambda: self._producer.abort_transaction(STEP_LIMIT_S), COMMIT_LIMIT_S)
            self._begun = False

    def send(self, category: str, messages: Iterable[Outgoing]) -> None:
        """Hand messages over."""
        self._begin()
        super().send(category, messages)

    def _begin(self) -> None:
        if not self._begun:
            with translated(f"Transaction of {self._identity} was not begun"):
                self._producer.begin_transaction()
            self._begun = True

    def enlist(self) -> None:
        """Note the membership that the next commit depends on."""
        self._member = self._membership()

    def commit(self, positions: Sequence[Position]) -> None:
        """Make what was sent and the positions count."""
        self._begin()
        offsets = to_commit(positions)
        if offsets and self._member is None:
            self.enlist()
        if offsets and not is_membership(self._member or b""):
            raise Aborted(
                f"Transaction of {self._identity}: its worker was no member of its group when the checkpoint began. It is taken back, and "
                "its input is read again by whoever owns the buckets."
            )
        try:
            if offsets:
                self._persist(
                    lambda: self._producer.send_offsets_to_transaction(offsets, self._member, STEP_LIMIT_S),
                    COMMIT_LIMIT_S,
                )
            self._persist(lambda: self._producer.commit_transaction(STEP_LIMIT_S), COMMIT_LIMIT_S)
        except BusUnreachable as error:
            raise Fenced(f"{error} Whether the transaction counts, the group's positions tell.") from error
        self._begun = False

    def _failure(self, failed: Sequence[tuple[KafkaError, str]]) -> BusError:
        """A transaction that ran out of time, or whose writer was fenced, is begun again; other failures would come again."""
        failure = super()._failure(failed)
        return Aborted(f"{failure} The transaction is taken back.") if isinstance(failure, DeliveryFailed) else failure

    def abort(self) -> None:
        """Drop what was sent."""
        if self._begun and self._answers:
            self._begun = False
            self._failed.clear()
            self._persist(lambda: self._producer.abort_transaction(STEP_LIMIT_S), STEP_LIMIT_S)

    def close(self) -> None:
        """Drop what was not committed and let go of the connection."""
        if not self._answers:
            return  # a call is still under way in it; the writer that comes next ends what it left open
        try:
            self.abort()
            super().close()
        except BusError as error:
            _LOG.info("%s What was open counts for nothing: the bus ends it, at the latest when its time is up.", error)

    def _persist(self, step: Callable[[], None], limit_s: float) -> None:
        """Take a step of the transaction, again while the error says that it may succeed."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                call_with_limit(step, ANSWER_LIMIT_S)
            except NoAnswer as error:
                self._answers = False
                raise Fenced(
                    f"Transaction of {self._identity}: the Kafka client has not come back for {ANSWER_LIMIT_S:.0f} s, and is replaced by another. "
                    "Whether the transaction counts, the group's positions tell."
                ) from error
            except KafkaException as error:
                failure = error.args[0]
                if not failure.retriable() or time.monotonic() > deadline:
                    raise _meaning(failure, f"Transaction of {self._identity}") from error
            else:
                return


def _meaning(error: KafkaError, what: str) -> BusError:
    """Return what it means that a step of a transaction failed for good."""
    meaning = translate(error, what)
    if not (is_outage(error) or is_retryable(error)):
        return meaning  # it would fail again
    if error.txn_requires_abort():
        return Aborted(f"{what}: {error.str()}. It is taken back, and its input is read again.")
    if error.fatal() or not isinstance(meaning, BusUnreachable):
        return Fenced(
            f"{what}: {error.str()}. It is taken back unless it was committed already, which the group's positions tell."
        )
    return meaning
