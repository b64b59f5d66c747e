"""Checks that a processor's categories keep their topics and numbers of buckets.

The worker checks them when it opens a shard, and every few seconds while it runs. Another tool may recreate a topic or add partitions to it,
and the client would continue to read and write without an error.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Executor, Future

from ....processors import counted
from ....processors.declare import AnyCategory, Processor, plan_of
from ....transport import Bucket, BucketMismatch, Bus, BusUnreachable, Topic, TopicRecreated, placement_of
from ...shell import MachineClock
from ..telemetry import BUS, Waits

_LOG = logging.getLogger("penstock.worker")
CHECK_EVERY_S = 2.0
"""The interval of a running worker's checks."""
MISSING_CHECKS = 3
"""The number of checks in a row without a topic after which it counts as deleted: a starting broker does not know all topics at once."""


def expect_bucket_count(processor: type[Processor], category: AnyCategory, found: int) -> None:
    """Raise BucketMismatch if a category has another number of buckets than a processor declares."""
    if found == category.buckets:
        return
    inputs = ", ".join(f"{other.name} ({other.buckets})" for other in plan_of(processor).inputs)
    if found < category.buckets:
        choices = (
            f"Declare buckets={found}, or add buckets, which also moves its readers' states: `penstock category resize {category.name} "
            f"{category.buckets} --app …`."
        )
    else:
        choices = (
            f"If no processor with state has read it yet, declare buckets={found}. Otherwise add buckets only with `penstock category resize`, "
            "which also moves state. Another tool has added these, so later events of some keys are in another bucket than their state. Copy "
            f"{category.name} to a new category with a penstock.Repartition, and read that one with a renamed processor."
        )
    raise BucketMismatch(
        f"Category {category.name} has {counted(found, 'bucket')} on the bus, but {processor.__name__} declares {category.buckets}; its inputs are "
        f"{inputs}. Events of one key would be in different buckets, so the worker stops. It read nothing from undeclared buckets. {choices}"
    )


def expect_bucket_counts(processor: type[Processor], topics: Mapping[str, Topic]) -> None:
    """Raise BucketMismatch if an input or output of a processor has another number of buckets than it declares."""
    for category in categories_of(processor):
        if category.name in topics:
            expect_bucket_count(processor, category, topics[category.name].buckets)


def categories_of(processor: type[Processor]) -> Iterable[AnyCategory]:
    """Return a processor's inputs and outputs, each category once."""
    plan = plan_of(processor)
    return {category.name: category for category in (*plan.inputs, *plan.outputs)}.values()


class TopicWatch:
    """Checks a processor's categories every few seconds. One thread.

    Args:
        processor: the processor.
        bus: contains its categories.
        threads: request the topics beside the loop.
        clock: determines when a check is due.
        waits: note the clusters that do not answer.
    """

    def __init__(
        self, processor: type[Processor], bus: Bus, threads: Executor, clock: MachineClock, waits: Waits
    ) -> None:
        self._waits = waits
        self._processor = processor
        self._bus = bus
        self._threads = threads
        self._clock = clock
        self._expected: dict[str, str] = {}
        self._missing: dict[str, int] = {}
        self._asked_s = clock.monotonic_s()
        self._placement = placement_of(categories_of(processor))
        self._clusters = [None, *dict.fromkeys(self._placement.values())]
        self._answers: dict[str | None, Future[dict[str, Topic]]] = {}

    def expect(self, topic_ids: Mapping[str, str]) -> None:
        """Record the topics of an opened shard."""
        self._expected.update(topic_ids)

    def expect_declared(self, owned: Iterable[Bucket]) -> None:
        """Check that a worker owns no undeclared buckets. The bus is asked only if it does.

        Raises:
            BucketMismatch: it does; the events of this poll must not be processed.
        """
        declared = plan_of(self._processor).inputs[0].buckets
        if any(bucket.number >= declared for bucket in owned):
            inputs = [category.name for category in plan_of(self._processor).inputs]
            expect_bucket_counts(self._processor, self._bus.catalog.topics(inputs))

    def check_if_due(self) -> None:
        """Check the bus's last answer, and request the next one when it is due; return at once.

        Raises:
            TopicRecreated: a category was recreated or deleted.
            BucketMismatch: a category has another number of buckets.
        """
        for cluster, answer in list(self._answers.items()):
            if answer.done():
                del self._answers[cluster]
                self._check(answer, cluster)
        now_s = self._clock.monotonic_s()
        if self._expected and now_s - self._asked_s >= CHECK_EVERY_S:
            self._asked_s = now_s
            # One request for each cluster: the outage of one hides no change on another.
            for cluster in self._clusters:
                if cluster not in self._answers:
                    self._answers[cluster] = self._threads.submit(self._bus.catalog.topics, self._names(cluster))

    def expect_same(self) -> None:
        """Check at once: if the bus does not have a position any more, the topic may have been recreated.

        Raises:
            TopicRecreated, BucketMismatch: as in `check_if_due`.
        """
        names = self._names(None)  # inputs and changelog are on the main cluster
        self._compare(self._bus.catalog.topics(names), names)

    def _names(self, cluster: str | None) -> set[str]:
        """Return the categories to check on a cluster."""
        names = {*self._expected, *(category.name for category in categories_of(self._processor))}
        return {name for name in names if self._placement.get(name) == cluster}

    def _check(self, answer: Future[dict[str, Topic]], cluster: str | None) -> None:
        name = BUS if cluster is None else f"the Kafka cluster {cluster}"
        try:
            topics = answer.result()
        except BusUnreachable as error:
            self._waits.begin(name)
            _LOG.debug("%s", error)  # the reader reports the outage, too
        else:
            self._waits.end(name)
            self._compare(topics, self._names(cluster))

    def _compare(self, topics: Mapping[str, Topic], names: Collection[str]) -> None:
        expect_bucket_counts(self._processor, topics)
        for name in self._expected.keys() & set(names):
            topic_id = self._expected[name]
            if name in topics and topics[name].id != topic_id:
                raise TopicRecreated(_recreated_message(self._processor.name, name, topic_id, topics[name].id))
            self._missing[name] = 0 if name in topics else self._missing.get(name, 0) + 1
            if self._missing[name] >= MISSING_CHECKS:
                raise TopicRecreated(_deleted_message(self._processor.name, name))


def _recreated_message(owner: str, name: str, before: str, now: str) -> str:
    return (
        f"Category {name} was deleted and created again while {owner} ran (topic id {before}, now {now}). Its old offsets now belong to other "
        "events, so continuing would skip events. The worker stops and saves nothing more. Start at the first event of the new topic with an "
        "empty state (`penstock reset APP:PROCESSOR --to earliest`, with `--state empty` if it keeps state), or rename the processor, which then "
        "reads from the first event."
    )


def _deleted_message(owner: str, name: str) -> str:
    return (
        f"Category {name} was deleted while {owner} ran. The worker stops and saves nothing more; its saved state is unchanged. If you create the "
        "category again, its offsets start anew. Then start at its first event with an empty state (`penstock reset APP:PROCESSOR --to earliest`, "
        "with `--state empty` if it keeps state), or rename the processor."
    )
