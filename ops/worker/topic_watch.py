"""Whether a processor's categories are still those that it began with: the same topics, with as many buckets as it declares.

It is looked at whenever a shard is opened, and every few seconds while a worker runs: somebody else may delete and create a topic again, or
add partitions to it, and the client goes on reading and writing as if nothing had happened.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, Future

from ...processors.declare.categories import AnyCategory
from ...processors.declare.processor import Processor
from ...transport.bus import Bus
from ...transport.category_spec import Topic
from ...transport.errors import BucketMismatch, BusUnreachable, TopicRecreated
from ...transport.messages import Bucket
from ..clock import Clock

_LOG = logging.getLogger("penstock.worker")
LOOK_EVERY_S = 2.0
"""How often a running worker looks."""
MISSING_LOOKS = 3
"""How often in a row a topic has to be missing before it is taken for deleted: brokers that start do not know all of them at once."""


def expect_buckets(processor: type[Processor], category: AnyCategory, found: int) -> None:
    """Raise BucketMismatch where a category has another number of buckets than a processor declares."""
    if found == category.buckets:
        return
    inputs = ", ".join(f"{other.name} ({other.buckets})" for other in processor.inputs())
    if found < category.buckets:
        choices = (
            f"Declare buckets={found}, or give it more, with its readers' states: `penstock category resize {category.name} "
            f"{category.buckets} --app …`."
        )
    else:
        choices = (
            f"If nothing that keeps state has read it yet, declare buckets={found}. Otherwise buckets are added with `penstock category resize`, "
            f"which moves state along, and not by other tools: keys that were written since lie apart from their state. Bring {category.name} "
            f"to a category of its own with a penstock.Repartition, and read that under another name."
        )
    raise BucketMismatch(
        f"Category {category.name} has {found} buckets on the bus, but {processor.__name__} declares {category.buckets}; its inputs are "
        f"{inputs}. Events of one key would meet in different buckets, so the worker does not go on; nothing was read of buckets that it "
        f"does not declare. {choices}"
    )


def expect_shapes(processor: type[Processor], topics: Mapping[str, Topic]) -> None:
    """Raise BucketMismatch where one of the categories that a processor reads and writes has another number of buckets than it declares."""
    for category in categories_of(processor):
        if category.name in topics:
            expect_buckets(processor, category, topics[category.name].buckets)


def categories_of(processor: type[Processor]) -> Iterable[AnyCategory]:
    """Return what a processor reads and writes, each category once."""
    return {category.name: category for category in (*processor.inputs(), *processor.outputs())}.values()


class TopicWatch:
    """Looks every few seconds while a worker runs. One thread calls.

    Args:
        processor: whose categories.
        bus: where they are.
        threads: asks the bus.
        clock: tells when it is time.
    """

    def __init__(self, processor: type[Processor], bus: Bus, threads: Executor, clock: Clock) -> None:
        self._processor = processor
        self._bus = bus
        self._threads = threads
        self._clock = clock
        self._expected: dict[str, str] = {}
        self._missing: dict[str, int] = {}
        self._asked_s = clock.monotonic_s()
        self._answer: Future[dict[str, Topic]] | None = None

    def expect(self, topic_ids: Mapping[str, str]) -> None:
        """Note of which topics a shard was opened."""
        self._expected.update(topic_ids)

    def expect_declared(self, owned: Iterable[Bucket]) -> None:
        """See that there are no buckets among a worker's own that its processor does not declare; asks the bus only where there are.

        Raises:
            BucketMismatch: there are; what came with them is not to be processed.
        """
        declared = self._processor.inputs()[0].buckets
        if any(bucket.number >= declared for bucket in owned):
            expect_shapes(self._processor, self._bus.catalog.topics([one.name for one in self._processor.inputs()]))

    def look(self) -> None:
        """Take note of what the bus answered, and ask it again when it is time; never waits.

        Raises:
            TopicRecreated: a category is another topic now, or none.
            BucketMismatch: a category has another number of buckets.
        """
        if self._answer is not None and self._answer.done():
            answer, self._answer = self._answer, None
            self._judge(answer)
        now_s = self._clock.monotonic_s()
        if self._answer is None and self._expected and now_s - self._asked_s >= LOOK_EVERY_S:
            self._asked_s = now_s
            self._answer = self._threads.submit(self._bus.catalog.topics, self._names)

    def expect_same(self) -> None:
        """Ask the bus at once: where a position is not on it any more, the topic may be another.

        Raises:
            TopicRecreated, BucketMismatch: as `look`.
        """
        self._compare(self._bus.catalog.topics(self._names))

    @property
    def _names(self) -> set[str]:
        return {*self._expected, *(category.name for category in categories_of(self._processor))}

    def _judge(self, answer: Future[dict[str, Topic]]) -> None:
        try:
            topics = answer.result()
        except BusUnreachable as error:
            _LOG.debug("%s", error)  # the reader says so, too, and waits
        else:
            self._compare(topics)

    def _compare(self, topics: Mapping[str, Topic]) -> None:
        expect_shapes(self._processor, topics)
        for name, topic_id in self._expected.items():
            if name in topics and topics[name].id != topic_id:
                raise TopicRecreated(_recreated(self._processor.name, name, topic_id, topics[name].id))
            self._missing[name] = 0 if name in topics else self._missing.get(name, 0) + 1
            if self._missing[name] >= MISSING_LOOKS:
                raise TopicRecreated(_deleted(self._processor.name, name))


def _recreated(owner: str, name: str, before: str, now: str) -> str:
    return (
        f"Category {name} was deleted and created again while {owner} ran (topic id {before}, now {now}). Its old offsets stand for other events "
        "there: to go on would skip events. The worker ends, and saves nothing more. Choose: begin with the first event of the new topic and an "
        "empty state (`penstock reset APP:PROCESSOR --to earliest`, with `--state empty` where it keeps state), or give the processor another name, under which it reads "
        "from the first event."
    )


def _deleted(owner: str, name: str) -> str:
    return (
        f"Category {name} was deleted while {owner} ran. The worker ends, and saves nothing more; what it had saved stays. Where the category is "
        "created again it is another topic, whatever its name: begin with its first event and an empty state then (`penstock reset "
        "APP:PROCESSOR --to earliest`, with `--state empty` where it keeps state), or give the processor another name."
    )
