"""Categories on Kafka: topics, their sizes and their ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

from ..category_spec import CategorySpec, CategoryState, Durability, Topic
from ..errors import BatchesRefused, BusError, BusRefuses, BusUnreachable, GroupInUse, MissingCategory
from ..messages import CERTAINLY_FITS_BYTES, Bucket, Position
from .client_log import refusal_in, refusal_message
from .error_translation import translate, translated
from .every_broker import all_brokers_show
from .peek import Peeker
from .positions import committed_in, to_commit
from .settings import KafkaSettings

ANSWER_LIMIT_S = 10.0
"""How long a broker may take to answer."""
SETTLE_LIMIT_S = 30.0
"""How long a broker may take until it shows everywhere what it has agreed to."""

DECISION_LIMIT_S = 120.0
"""How long a transaction of a worker that died may stay undecided: its timeout, and the time until the broker looks."""

ASK_AGAIN_S = 1.0
"""How long is waited for metadata before it is looked why none comes."""
SETTLE_STEP_S = 0.02
_SAFE_REPLICAS = 3
_AS_THE_CLUSTER_SAYS = -1
_SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
_FRAME_BYTES = 100
"""What Kafka adds to a message that is sent alone, at most."""

# Whoever starts reads such a topic whole: closed segments, which alone are compacted, are to be small.
_COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(16 * 2**20), "min.cleanable.dirty.ratio": "0.2"}

# A partition that was created, or whose leader moved, a moment ago.
_OCCUPIED = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
    }
)
_LEADERLESS = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._NOENT,
    }
)

_SILENCE = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN})

_UNDECIDED = frozenset(
    {
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError._WAIT_COORD,
    }
)


def _may_pass(error: KafkaError) -> bool:
    """Tell whether a question for committed positions is worth asking again: a transaction, or the coordinator, is undecided."""
    return error.code() in _UNDECIDED or error.retriable()


class KafkaCatalog:
    """The topics of a cluster."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._refusals: list[str] = []
        configuration = settings.for_admin()
        configuration["error_cb"] = self._note_refusal
        with translated("The Kafka client rejects its settings"):
            self._admin = AdminClient(configuration)

    def create(self, spec: CategorySpec) -> None:
        """Create a topic that notes when messages arrive; safe from the loss of a broker where the cluster has brokers enough."""
        topic = topic_of(spec, len(self._metadata().brokers))
        with self._translated(f"Category {spec.name} was not created"):
            asked = self._admin.create_topics([topic], request_timeout=ANSWER_LIMIT_S)[spec.name]
            try:
                asked.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    # Another process may have created it a moment ago, and whoever was second goes on with it.
                    self._settle(f"category {spec.name}", lambda seen: _buckets(seen, spec.name) > 0)
                raise
        self._settle(f"category {spec.name}", lambda seen: _buckets(seen, spec.name) == spec.buckets)

    def delete(self, name: str) -> None:
        """Delete a topic."""
        self._expect_admission()
        with self._translated(f"Category {name} was not deleted"):
            self._admin.delete_topics([name], request_timeout=ANSWER_LIMIT_S)[name].result()
        self._settle(f"the deletion of category {name}", lambda seen: _buckets(seen, name) == 0)

    def resize(self, name: str, buckets: int) -> None:
        """Raise the number of partitions."""
        self._expect_admission()
        with self._translated(f"Category {name} was not resized to {buckets} buckets"):
            request = [NewPartitions(name, buckets)]
            self._admin.create_partitions(request, request_timeout=ANSWER_LIMIT_S)[name].result()
        self._settle(f"category {name} with {buckets} buckets", lambda seen: _buckets(seen, name) == buckets)

    def names(self) -> list[str]:
        """Return the names of all topics but Kafka's own, sorted."""
        return sorted(name for name in self._metadata().topics if not name.startswith("__"))

    def describe(self, name: str) -> CategoryState:
        """Return a topic as it stands."""
        buckets, config = self._existing(name), self._config(name)
        retention_ms = int(config["retention.ms"].value)
        compacted = "compact" in config["cleanup.policy"].value
        spec = CategorySpec(
            name,
            buckets,
            None if retention_ms < 0 else timedelta(milliseconds=retention_ms),
            compacted=compacted,
            delete_retention=timedelta(milliseconds=int(config["delete.retention.ms"].value)) if compacted else None,
        )
        starts = self._offsets(name, buckets, OffsetSpec.earliest())
        return CategoryState(spec, starts, self._offsets(name, buckets, OffsetSpec.latest()), self._topic(name).id)

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Return the id and size of topics, without those that are missing."""
        found: dict[str, Topic] = {}
        asked = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=ANSWER_LIMIT_S)
        for name, future in asked.items():
            try:
                described = future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._translate(error.args[0], f"Category {name} was not described") from error
            else:
                found[name] = Topic(str(described.topic_id), len(described.partitions))
        return found

    def _topic(self, name: str) -> Topic:
        try:
            return self.topics([name])[name]
        except KeyError:
            raise self._missing(name) from None

    def _config(self, name: str) -> Any:
        resource = ConfigResource(ResourceType.TOPIC, name)
        with self._translated(f"Category {name} was not described"):
            return self._admin.describe_configs([resource], request_timeout=ANSWER_LIMIT_S)[resource].result()

    def durability(self, name: str) -> Durability:
        """Return how safe a topic's events are."""
        self._existing(name)
        config = self._config(name)
        return Durability(
            min(len(partition.replicas) for partition in self._metadata().topics[name].partitions.values()),
            int(config["min.insync.replicas"].value),
            unclean_election=config["unclean.leader.election.enable"].value == "true",
            uses_arrival_time=config["message.timestamp.type"].value == "LogAppendTime",
        )

    def message_limit(self, name: str) -> int:
        """Return how large a message may be: what this client sends, and what the topic takes where it does not compress."""
        self._existing(name)
        if self._settings.message_limit < CERTAINLY_FITS_BYTES:
            raise BatchesRefused(
                f"message.max.bytes in [kafka-settings] is {self._settings.message_limit:,}, and Penstock needs {CERTAINLY_FITS_BYTES:,} at "
                "least. Nothing was read or written. Raise it, or remove it for the default of 1,000,000."
            )
        topic = int(self._config(name)["max.message.bytes"].value)
        if topic < self._settings.batch_limit:
            raise BatchesRefused(
                f"Category {name} takes batches of {topic:,} bytes at most (max.message.bytes), and this client sends batches of up to "
                f"{self._settings.batch_limit:,}: the broker would reject small messages that travel together. Nothing was written. Raise the "
                f"limit: `kafka-configs.sh --bootstrap-server {self._settings.bootstrap} --alter --topic {name} --add-config "
                f"max.message.bytes=1048588`; or lower batch.size in [kafka-settings] to 16384, where the category takes that."
            )
        return min(self._settings.message_limit, topic) - _FRAME_BYTES

    def ends(self, name: str) -> dict[int, int]:
        """Return the offset after the last event of each bucket."""
        return self._offsets(name, self._existing(name), OffsetSpec.latest())

    def ends_of(self, buckets: Collection[Bucket]) -> dict[Bucket, int]:
        """Return the offset after the last event of some buckets."""
        if not buckets:
            return {}
        request = {TopicPartition(*bucket): OffsetSpec.latest() for bucket in buckets}
        answer = self._admin.list_offsets(request, request_timeout=ANSWER_LIMIT_S)
        try:
            return {Bucket(each.topic, each.partition): future.result().offset for each, future in answer.items()}
        except KafkaException as error:
            if error.args[0].code() in _LEADERLESS:
                self._metadata()  # the client may go on with what it knew before: whoever asks again asks who leads now
            raise self._translate(error.args[0], "The ends of buckets were not read") from error

    def stable_ends(self, name: str) -> dict[int, int]:
        """Return the end of each bucket as readers find it, who are given nothing of a transaction that is still open."""
        return self._offsets(name, self._existing(name), OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)

    def at_time(self, name: str, time: datetime) -> dict[int, int]:
        """Return, by bucket, the offset of the first event that arrived at `time` or later; the end where none did."""
        buckets = self._existing(name)
        found = self._offsets(name, buckets, OffsetSpec.for_timestamp(int(time.timestamp() * 1000)))
        ends = self._offsets(name, buckets, OffsetSpec.latest())
        return {bucket: ends[bucket] if offset < 0 else offset for bucket, offset in found.items()}

    def waiting_since(self, positions: Collection[Position]) -> dict[Position, int]:
        """Return when the first event from each position on arrived at the bus."""
        if not positions:
            return {}
        with self._translated("The oldest waiting events were not read"), closing(Peeker(self._settings)) as peeking:
            return peeking.arrivals_ms(positions, ANSWER_LIMIT_S)

    def committed(self, group: str, name: str) -> dict[int, int]:
        """Return a group's committed positions in a topic, by bucket, when no transaction is deciding about them."""
        return {position.bucket.number: position.offset or 0 for position in self.positions(group, name)}

    def positions(self, group: str, name: str) -> list[Position]:
        """Return a group's committed positions in a topic, each with the checkpoint that committed it."""
        wanted = [TopicPartition(name, bucket) for bucket in range(self._existing(name))]
        deadline = time.monotonic() + DECISION_LIMIT_S
        # Not the admin client: librdkafka (2.16) ends the whole process where that one meets a coordinator that moves. A new
        # client each time, since one whose broker was restarted may wait for the coordinator for ever.
        asking = Consumer(self._settings.for_asking(group))
        try:
            while True:
                try:
                    return committed_in(asking.committed(wanted, ANSWER_LIMIT_S))
                except KafkaException as error:
                    if not _may_pass(error.args[0]) or time.monotonic() > deadline:
                        raise self._translate(
                            error.args[0], f"The positions of group {group} in {name} were not read"
                        ) from error
                time.sleep(SETTLE_STEP_S)
        finally:
            asking.close()

    def set_committed(self, group: str, positions: Sequence[Position]) -> None:
        """Set where a group goes on that has no members."""
        asking = Consumer(self._settings.for_asking(group))
        try:
            asking.commit(offsets=to_commit(positions), asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() in _OCCUPIED:
                raise GroupInUse(
                    f"Group {group} has members: a worker of that name runs, or has stopped so lately that its buckets still wait for it. "
                    "Its positions were not changed. Stop its workers, wait a minute, and try again."
                ) from error
            raise self._translate(error.args[0], f"The positions of group {group} were not set") from error
        finally:
            asking.close()

    def forget_group(self, group: str) -> None:
        """Remove a group that has no members."""
        try:
            self._admin.delete_consumer_groups([group], request_timeout=ANSWER_LIMIT_S)[group].result()
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.NON_EMPTY_GROUP:
                raise GroupInUse(
                    f"Group {group} has members: a worker of that name runs, or was killed so lately that its buckets still wait for it. Its "
                    "positions were not removed. Stop its workers, wait a minute, and try again."
                ) from error
            if code != KafkaError.GROUP_ID_NOT_FOUND:
                raise self._translate(error.args[0], f"Group {group} was not removed") from error

    def _existing(self, name: str) -> int:
        buckets = self._buckets(name)
        if not buckets:
            raise self._missing(name)
        return buckets

    def _missing(self, name: str) -> MissingCategory:
        return MissingCategory(
            f"There is no category {name} on the bus at {self._settings.bootstrap}. Create it with `penstock category "
            "create`; `penstock category list` shows those that exist."
        )

    def _buckets(self, name: str) -> int:
        # All topics are asked for: asking for one that is missing may create it on brokers that are set so.
        return _buckets(self._metadata(), name)

    def _expect_admission(self) -> None:
        """Hold that a broker answers, and lets us in: to what changes something, a refusal is silence that lasts."""
        self._metadata()

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._translate(error.args[0], what) from error

    def _translate(self, error: KafkaError, what: str) -> BusError:
        """Return Penstock's error for a failed request; the error of an outage names the address."""
        return translate(error, f"{what}. {self._unreachable()}" if error.code() in _SILENCE else what)

    def _unreachable(self) -> str:
        return f"No Kafka broker answers at {self._settings.bootstrap} within {ANSWER_LIMIT_S:.0f} s"

    def _metadata(self) -> Any:
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while True:
            try:
                return self._admin.list_topics(timeout=ASK_AGAIN_S)
            except KafkaException as error:
                self._admin.poll(0)
                if self._refusals:
                    raise BusRefuses(refusal_message(self._settings.bootstrap, self._refusals.pop())) from error
                if error.args[0].code() not in _SILENCE or time.monotonic() > deadline:
                    raise translate(error.args[0], self._unreachable()) from error
            time.sleep(SETTLE_STEP_S)

    def _note_refusal(self, error: KafkaError) -> None:
        """Take note that a broker does not let us in: calls come to nothing then, as they do where nobody answers."""
        refusal = refusal_in(error)
        if refusal is not None:
            self._refusals.append(refusal)

    def _offsets(
        self,
        name: str,
        buckets: int,
        which: OffsetSpec,
        seen: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[int, int]:
        request = {TopicPartition(name, bucket): which for bucket in range(buckets)}
        deadline = time.monotonic() + SETTLE_LIMIT_S
        while True:
            answer = self._admin.list_offsets(request, isolation_level=seen, request_timeout=ANSWER_LIMIT_S)
            try:
                return {partition.partition: future.result().offset for partition, future in answer.items()}
            except KafkaException as error:
                if error.args[0].code() not in _LEADERLESS or time.monotonic() > deadline:
                    raise self._translate(error.args[0], f"The offsets of category {name} were not read") from error
            time.sleep(SETTLE_STEP_S)

    def _settle(self, what: str, shown: Callable[[Any], bool]) -> None:
        """Wait until every broker shows what the cluster has agreed to: clients ask now this one, now that one."""
        deadline = time.monotonic() + SETTLE_LIMIT_S
        while not all_brokers_show(self._metadata(), shown, self._settings, ASK_AGAIN_S):
            if time.monotonic() > deadline:
                raise BusUnreachable(
                    f"The cluster agreed, but not every broker shows {what} after {SETTLE_LIMIT_S:.0f} s. Look at the brokers' logs."
                )
            time.sleep(SETTLE_STEP_S)


def _buckets(metadata: Any, name: str) -> int:
    topic = metadata.topics.get(name)
    return 0 if topic is None else len(topic.partitions)


def topic_of(spec: CategorySpec, brokers: int) -> NewTopic:
    """Return what is asked of a cluster of so many brokers for a category."""
    retention_ms = -1 if spec.retention is None else spec.retention // timedelta(milliseconds=1)
    config = {
        "retention.ms": str(retention_ms),
        "cleanup.policy": "delete",
        # When an event arrived is what the broker says: a writer's clock may be anything.
        "message.timestamp.type": "LogAppendTime",
        **(_COMPACTED if spec.compacted else {}),
    }
    if spec.delete_retention is not None:
        config["delete.retention.ms"] = str(spec.delete_retention // timedelta(milliseconds=1))
    if brokers < _SAFE_REPLICAS:
        return NewTopic(spec.name, spec.buckets, _AS_THE_CLUSTER_SAYS, config=config)
    return NewTopic(spec.name, spec.buckets, _SAFE_REPLICAS, config=config | _SAFE)
