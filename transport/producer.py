"""A producer for applications: writes records to categories as a processor does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Generic, TypeVar, cast, final

from ..processors import DeclarationError
from ..processors.declare import AnyCategory, AnyRecord, Category, To, Tombstone, expect_tombstone
from .bus import Bus, TransactionalWriter, Writer
from .codecs import Codecs, encoded_messages
from .errors import BusError
from .kafka import KafkaBus, KafkaSettings

R = TypeVar("R", bound=AnyRecord)

KAFKA_VARIABLE = "PENSTOCK_KAFKA"
TRANSACTION_LIMIT_S = 60.0
"""How long a transaction may stay open before Kafka aborts it."""


@final
class Producer(Generic[R]):
    """Writes records to categories. It checks, encodes, keys and places them as the categories declare.

    Use it as a context manager: a block that ends without an error has written all its records. One thread at a time may use it.

    Args:
        categories: one or more; a record goes to the category of its type.
        kafka: the address of the cluster, `host:port`; the default is the environment variable PENSTOCK_KAFKA. Categories that declare a
            `cluster` need it, and are written to this address; all of them have the same cluster.
        settings: further settings of librdkafka, such as SASL and TLS.
        transactional_id: writes in transactions if given. The same after a restart; one process uses it at a time, and a new one fences the
            earlier one.
        bus: a bus in place of a cluster, such as the memory bus of tests.

    Raises:
        DeclarationError: two categories have the same record type, or they are on several clusters.
        BusError: no cluster is named; a category is missing; no broker answers.

    Examples:
        >>> def record_visits(visits: Category[R], records: list[R]) -> None:
        ...     with Producer(visits, kafka="localhost:9092") as producer:
        ...         producer.send(*records)
    """

    def __init__(
        self,
        *categories: Category[R],
        kafka: str | None = None,
        settings: Mapping[str, str] | None = None,
        transactional_id: str | None = None,
        bus: Bus | None = None,
    ) -> None:
        declared = _by_record(categories)
        if bus is None:
            cluster = _cluster_of(categories)
            bus = KafkaBus(KafkaSettings(kafka or named_cluster(cluster), dict(settings or {})))
        self._bus = bus
        self._transactional_id = transactional_id
        self._codecs = Codecs(self._bus)
        self._writer: Writer | None = None
        self._is_in_transaction = False
        # A partitioner needs the present number of buckets.
        self._categories = {
            record: replace(category, buckets=self._bus.catalog.describe(category.name).spec.buckets)
            for record, category in declared.items()
        }

    def __enter__(self) -> Producer[R]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def send(self, *records: R | Tombstone | To) -> None:
        """Queue records, in order for each key. A background thread writes them; `flush` waits for it.

        A `Tombstone` goes to the only category. `To(category, …)` names one of several, or another key.

        Raises:
            InvalidRecord: a record does not fit its type. None of the records was queued.
            TypeError: there is no category for a record or tombstone, or a key does not fit its category. Nothing was queued.
            DeclarationError: the producer is transactional, and no transaction is open.
            MessageRefused: a record exceeds the size limit of its category.
        """
        if self._transactional_id is not None and not self._is_in_transaction:
            raise DeclarationError(
                "This producer is transactional, so it writes only in `with producer.transaction():`. Nothing was written."
            )
        batches = [
            (category.name, list(encoded_messages(category, self._codecs.of(category), of_category)))
            for category, of_category in self._split(records)
        ]
        for name, messages in batches:
            self._open_writer().send(name, messages)

    def _split(self, records: tuple[R | Tombstone | To, ...]) -> list[tuple[AnyCategory, list[AnyRecord | Tombstone]]]:
        by_record: dict[type[AnyRecord], list[AnyRecord | Tombstone]] = {}
        for given in records:
            category, record = self._addressed(given)
            by_record.setdefault(category.record_types[0], []).append(record)
        return [(self._categories[kind], of_kind) for kind, of_kind in by_record.items()]

    def _addressed(self, given: R | Tombstone | To) -> tuple[AnyCategory, AnyRecord | Tombstone]:
        """Return the category and the record of an argument of `send`."""
        if isinstance(given, To):
            name = getattr(given.category, "name", given.category)
            named = next((category for category in self._categories.values() if category.name == name), None)
            if named is None:
                raise self._no_category(f"{type(given.record).__name__} for {name}")
            return named, given.record_for(named)
        if isinstance(given, Tombstone):
            if len(self._categories) > 1:
                raise TypeError(
                    "This producer writes several categories. Nothing was queued. Name the category of a tombstone: "
                    "penstock.To(category, penstock.Tombstone(key))."
                )
            [category] = self._categories.values()
            return category, expect_tombstone(category, given)
        if type(given) not in self._categories:
            raise self._no_category(type(given).__name__)
        return self._categories[type(given)], given

    def _no_category(self, record: str) -> TypeError:
        written = ", ".join(f"{kind.__name__} to {category.name}" for kind, category in self._categories.items())
        return TypeError(f"There is no category for a {record}; this producer writes {written}. Nothing was queued.")

    def flush(self) -> None:
        """Wait until all sent records are durable. A transaction's records are durable after it.

        Raises:
            DeliveryFailed: some records were not written.
        """
        if self._writer is not None and self._transactional_id is None:
            self._writer.flush()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write the records that are sent in the block atomically, or none of them after an error.

        Raises:
            DeclarationError: the producer has no `transactional_id`, or a transaction is open.
            Aborted: the transaction was aborted; none of its records is visible.
            Fenced: a newer producer has the same `transactional_id`, or no broker answers.
        """
        if self._transactional_id is None or self._is_in_transaction:
            reason = "has no `transactional_id`" if self._transactional_id is None else "is in a transaction already"
            raise DeclarationError(f"This producer {reason}. Nothing was written.")
        writer = cast("TransactionalWriter", self._open_writer())
        self._is_in_transaction = True
        try:
            yield
            writer.commit([])
        except BaseException:
            self._writer = None  # a writer is unusable after an error
            try:
                writer.abort()
            finally:
                writer.close()
            raise
        finally:
            self._is_in_transaction = False

    def close(self) -> None:
        """Close the connection. Records that were not flushed may be lost; an open transaction is aborted."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open_writer(self) -> Writer:
        if self._writer is None:
            if self._transactional_id is None:
                self._writer = self._bus.writer()
            else:
                names = [category.name for category in self._categories.values()]
                self._writer = self._bus.transactional_writer(self._transactional_id, None, TRANSACTION_LIMIT_S, names)
        return self._writer


def named_cluster(other: str | None = None) -> str:
    """Return the addresses of brokers from the environment variable `PENSTOCK_KAFKA`.

    Args:
        other: the name of another cluster than the main one, whose address the variable does not contain.

    Raises:
        BusError: the variable is not set, or another cluster is needed.
    """
    if other is not None:
        raise BusError(
            f"The categories are on cluster {other}, and {KAFKA_VARIABLE} names the main cluster. Nothing was read or written. Give the address of "
            f'{other}: `kafka="HOST:PORT"`.'
        )
    address = os.environ.get(KAFKA_VARIABLE)
    if not address:
        raise BusError(
            f'No Kafka cluster is named. Nothing was read or written. Give `kafka="HOST:PORT"`, or set {KAFKA_VARIABLE}.'
        )
    return address


def _cluster_of(categories: tuple[AnyCategory, ...]) -> str | None:
    """Return the only cluster of categories."""
    by_cluster = {category.cluster: category.name for category in categories}
    if len(by_cluster) > 1:
        places = ", ".join(f"{name} on {cluster or 'the main cluster'}" for cluster, name in by_cluster.items())
        raise DeclarationError(
            f"A producer writes to one cluster, and its categories are on several: {places}. Nothing was written. Use a producer for each cluster."
        )
    return next(iter(by_cluster), None)


def _by_record(categories: tuple[Category[R], ...]) -> dict[type, AnyCategory]:
    found: dict[type, AnyCategory] = {}
    for category in categories:
        for record in category.record_types:
            if record in found:
                raise DeclarationError(
                    f"{found[record].name} and {category.name} have the same record type, {record.__name__}, so a producer cannot "
                    "tell where a record goes. Use a producer for each."
                )
            found[record] = category
    if not found:
        raise DeclarationError("A producer needs a category.")
    return found
