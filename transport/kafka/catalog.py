"""Categories as Kafka topics: creation, settings, offsets and committed positions."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NoAnswer
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigEntry,
    ConfigResource,
    ListOffsetsResultInfo,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from ...processors import counted, did_you_mean
from ..category_spec import CategorySpec, CategoryState, Durability, Topic
from ..errors import (
    BatchesRefused,
    BusError,
    BusRefuses,
    BusUnreachable,
    GroupInUse,
    MissingCategory,
)
from ..messages import CERTAINLY_FITS_BYTES, Bucket, Position
from .client_log import known_cause_in, refusal_in, refusal_message
from .error_translation import translate
from .every_broker import all_brokers_show
from .kept_client import KeptClient, brief_client
from .new_topics import LeftOut, is_refusal, refusal, topic_of, without_refused
from .peek import arrivals_ms
from .positions import committed_in, to_commit
from .reported_settings import (
    CLEANUP,
    DELETE_RETENTION,
    MESSAGE_BYTES,
    MIN_IN_SYNC,
    RETENTION,
    TIMESTAMPS,
    UNCLEAN,
    BrokerSettings,
    TopicSettings,
    refusal_of_settings,
    texts,
)
from .settings import KafkaSettings

_LOG = logging.getLogger("penstock.kafka")
ANSWER_LIMIT_S = 10.0
"""The time limit of a request."""
FORGOTTEN_AFTER_S = 2.0
"""How long after its time limit a request without an answer counts as forgotten by the client."""

SETTLE_LIMIT_S = 30.0
"""The time limit for a change to reach every broker."""

DECISION_LIMIT_S = 120.0
"""The time limit for a dead worker's transaction to be decided: its timeout, and the interval of the broker's checks."""

ASK_AGAIN_S = 1.0
"""The wait for metadata between checks for a refusal."""
SETTLE_STEP_S = 0.02
_CLIENTS_AT_ONCE = 8
_T = TypeVar("_T")
_FRAME_BYTES = 100
"""The greatest overhead of a batch with one message."""

_OCCUPIED = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
    }
)
# The errors of a partition that was just created, whose leader has moved, or whose connection broke.
_LEADERLESS = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._NOENT,
        KafkaError._TRANSPORT,
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


def _is_temporary(error: KafkaError) -> bool:
    """Return whether to request committed positions again: a transaction is undecided, or the coordinator is moving."""
    return error.code() in _UNDECIDED or error.retriable()


class Cluster(NamedTuple):
    """A cluster as a whole.

    Args:
        brokers: the number of its brokers.
        settings: the settings of the broker that answered.
    """

    brokers: int
    settings: BrokerSettings


class KafkaCatalog:
    """The topics of a cluster."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._refusals: list[str] = []
        self._causes: deque[str] = deque(maxlen=1)
        self._unknown_limits: set[str] = set()
        configuration = settings.for_admin() | {"error_cb": _recorder(self._refusals, self._causes)}
        self._kept = KeptClient(settings, AdminClient, configuration, "Requests about categories")

    @property
    def _admin(self) -> AdminClient:
        return self._kept.client

    def create(self, spec: CategorySpec) -> None:
        """Create a topic with arrival timestamps; on three or more brokers, it survives the loss of one.

        Managed services permit few settings. There, the topic has the cluster's values instead, and a warning names them.
        """
        topic = topic_of(spec, *self.cluster())
        with self._translated(f"Category {spec.name} was not created"):
            try:
                left_out = _permitted(self._create_topic, spec, topic)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    # Another process may have just created it; the caller then uses it.
                    self._settle(f"category {spec.name}", lambda metadata: _buckets(metadata, spec.name) > 0)
                raise
        if left_out is not None:
            _LOG.warning("%s", left_out)
        self._settle(f"category {spec.name}", lambda metadata: _buckets(metadata, spec.name) == spec.buckets)

    def try_creation(self, spec: CategorySpec) -> LeftOut | None:
        """Let the brokers check the request for a category that does not exist, without creating it. Return the settings that they refuse.

        Raises:
            BusError: they would not create it.
        """
        topic = topic_of(spec, *self.cluster())
        with self._translated(f"Category {spec.name} was not checked"):
            return _permitted(partial(self._create_topic, is_trial=True), spec, topic)

    def cluster(self) -> Cluster:
        """Return what the brokers report about the whole cluster."""
        metadata = self._metadata()
        return Cluster(len(metadata.brokers), self._defaults(metadata))

    def _defaults(self, metadata: Any) -> BrokerSettings:
        """Return the settings of the broker that sent this metadata, as far as it reports them."""
        known = metadata.orig_broker_id in metadata.brokers
        resource = ConfigResource(
            ResourceType.BROKER, str(metadata.orig_broker_id if known else metadata.controller_id)
        )
        try:
            return BrokerSettings(
                texts(_answer(self._admin.describe_configs([resource], request_timeout=ANSWER_LIMIT_S)[resource]))
            )
        except KafkaException:
            return BrokerSettings({})  # many users may not read them

    def _create_topic(self, topic: NewTopic, *, is_trial: bool = False) -> None:
        """Create a topic, or let the brokers check the request. A cluster that has just started, or is overloaded, may have too few brokers for a moment."""
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while True:
            try:
                requests = self._admin.create_topics([topic], request_timeout=ANSWER_LIMIT_S, validate_only=is_trial)
                _answer(requests[topic.topic])
            except KafkaException as error:
                if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR or time.monotonic() > deadline:
                    raise
            else:
                return
            time.sleep(ASK_AGAIN_S)

    def delete(self, name: str) -> None:
        """Delete a topic."""
        self._expect_access()
        with self._translated(f"Category {name} was not deleted"):
            _answer(self._admin.delete_topics([name], request_timeout=ANSWER_LIMIT_S)[name])
        self._settle(f"the deletion of category {name}", lambda metadata: _buckets(metadata, name) == 0)

    def resize(self, name: str, buckets: int) -> None:
        """Raise the number of partitions."""
        self._expect_access()
        with self._translated(f"Category {name} was not resized to {counted(buckets, 'bucket')}"):
            request = [NewPartitions(name, buckets)]
            _answer(self._admin.create_partitions(request, request_timeout=ANSWER_LIMIT_S)[name])
        self._settle(
            f"category {name} with {counted(buckets, 'bucket')}", lambda metadata: _buckets(metadata, name) == buckets
        )

    def names(self) -> list[str]:
        """Return the names of all topics but Kafka's own, sorted."""
        return sorted(name for name in self._metadata().topics if not name.startswith("__"))

    def describe(self, name: str) -> CategoryState:
        """Return the present state of a topic."""
        return self._one(name, self.describe_all([name]))

    def describe_all(self, names: Collection[str]) -> dict[str, CategoryState]:
        """Return the present states of topics, without missing ones, with five requests."""
        metadata = self._metadata()
        configs = self._configs([name for name in names if _buckets(metadata, name)])
        topics = self.topics(configs)
        buckets = {name: topic.buckets for name, topic in topics.items()}
        starts, ends = self._offsets_of(buckets, OffsetSpec.earliest()), self._offsets_of(buckets, OffsetSpec.latest())
        return {
            name: _state(name, topic, configs[name], starts[name], ends[name])
            for name, topic in topics.items()
            if name in starts and name in ends  # others were deleted meanwhile
        }

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Return the ids and sizes of topics, without missing ones."""
        if not names:
            return {}
        requests = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=ANSWER_LIMIT_S)
        described = self._without_missing({name: partial(_answer, future) for name, future in requests.items()})
        return {name: Topic(str(topic.topic_id), len(topic.partitions)) for name, topic in described.items()}

    def _config(self, name: str) -> TopicSettings:
        return self._one(name, self._configs([name]))

    def _configs(self, names: Collection[str]) -> dict[str, TopicSettings]:
        """Return the settings of topics, without missing ones. Settings are unknown if the brokers do not report them, or not to this user."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        requests = self._admin.describe_configs(resources, request_timeout=ANSWER_LIMIT_S) if resources else {}
        return self._without_missing(
            {resource.name: partial(_topic_settings, future) for resource, future in requests.items()}
        )

    def _without_missing(self, requests: Mapping[str, Callable[[], _T]]) -> dict[str, _T]:
        """Return the answers to requests about topics, without missing topics."""
        found: dict[str, _T] = {}
        for name, answer in requests.items():
            try:
                found[name] = answer()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._translate(error.args[0], f"Category {name} was not described") from error
        return found

    def durability(self, name: str) -> Durability:
        """Return the replication and timestamp settings of a topic."""
        self._existing(name)
        config = self._config(name)
        return Durability(
            min(len(partition.replicas) for partition in self._metadata().topics[name].partitions.values()),
            config.min_in_sync,
            unclean_election=config.unclean_election,
            uses_arrival_time=config.uses_arrival_time,
            unknown=config.unknown((MIN_IN_SYNC, UNCLEAN, TIMESTAMPS)),
        )

    def message_limit(self, name: str) -> int:
        """Return the size limit of a message: the lower of the client's and the topic's, as if no message were compressed."""
        self._existing(name)
        if self._settings.message_limit < CERTAINLY_FITS_BYTES:
            raise BatchesRefused(
                f"message.max.bytes in [kafka-settings] is {self._settings.message_limit:,}, and Penstock needs {CERTAINLY_FITS_BYTES:,} at "
                "least. Nothing was read or written. Raise it, or remove it for the default of 1,000,000."
            )
        settings = self._config(name)
        topic = settings.message_bytes
        if topic is None:
            self._note_unknown_limit(name, settings.why_unknown(MESSAGE_BYTES))
            return self._settings.message_limit - _FRAME_BYTES
        if topic < self._settings.batch_limit:
            raise BatchesRefused(
                f"Category {name} accepts batches of at most {topic:,} bytes (max.message.bytes), but this client sends batches of up to "
                f"{self._settings.batch_limit:,}: the broker would reject small messages in one batch. Nothing was written. Raise the "
                f"limit: `kafka-configs.sh --bootstrap-server {self._settings.bootstrap} --alter --topic {name} --add-config "
                f"max.message.bytes=1048588`. Or lower batch.size in [kafka-settings] to 16384, if the category accepts that."
            )
        return min(self._settings.message_limit, topic) - _FRAME_BYTES

    def _note_unknown_limit(self, name: str, reason: str) -> None:
        if name not in self._unknown_limits:
            self._unknown_limits.add(name)
            _LOG.info(
                "It was not checked whether category %s accepts messages of %s bytes, as this client does: %s is unknown, because %s.",
                name,
                f"{self._settings.message_limit:,}",
                MESSAGE_BYTES,
                reason,
            )

    def ends(self, name: str) -> dict[int, int]:
        """Return the offset after the last event of each bucket."""
        return self._offsets(name, self._existing(name), OffsetSpec.latest())

    def ends_of(self, buckets: Collection[Bucket]) -> dict[Bucket, int]:
        """Return the offset after the last event of each bucket, with one request."""
        if not buckets:
            return {}
        request = {TopicPartition(*bucket): OffsetSpec.latest() for bucket in buckets}
        answer = self._admin.list_offsets(request, request_timeout=ANSWER_LIMIT_S)
        try:
            return {
                Bucket(partition.topic, partition.partition): _offset(future) for partition, future in answer.items()
            }
        except KafkaException as error:
            if error.args[0].code() in _LEADERLESS:
                self._metadata()  # refreshes the client's cached leaders for the next request
            raise self._translate(error.args[0], "The ends of buckets were not read") from error

    def stable_ends(self, name: str) -> dict[int, int]:
        """Return the end of each bucket for readers, before the first open transaction."""
        return self._offsets(name, self._existing(name), OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)

    def at_time(self, name: str, time: datetime) -> dict[int, int]:
        """Return, by bucket, the offset of the first event that arrived at `time` or later; the end if there is none."""
        buckets = self._existing(name)
        found = self._offsets(name, buckets, OffsetSpec.for_timestamp(int(time.timestamp() * 1000)))
        ends = self._offsets(name, buckets, OffsetSpec.latest())
        return {bucket: ends[bucket] if offset < 0 else offset for bucket, offset in found.items()}

    def waiting_since(self, positions: Collection[Position]) -> dict[Position, int]:
        """Return when the first event at or after each position arrived at the bus."""
        if not positions:
            return {}
        with self._translated("The oldest waiting events were not read"):
            return arrivals_ms(self._settings, positions, ANSWER_LIMIT_S)

    def committed(self, group: str, name: str) -> dict[int, int]:
        """Return a group's committed positions in a topic, by bucket, once no transaction can change them."""
        return {position.bucket.number: position.offset or 0 for position in self.positions(group, name)}

    def committed_of(self, readers: Collection[tuple[str, str]]) -> dict[tuple[str, str], dict[int, int]]:
        """Return the committed positions of several groups, each in a topic. Several clients ask at once, since each waits for connections."""
        if not readers:
            return {}
        with ThreadPoolExecutor(min(len(readers), _CLIENTS_AT_ONCE), "committed positions") as threads:
            return dict(zip(readers, threads.map(lambda reader: self.committed(*reader), readers), strict=True))

    def positions(self, group: str, name: str) -> list[Position]:
        """Return a group's committed positions in a topic, each with the checkpoint that committed it."""
        partitions = [TopicPartition(name, bucket) for bucket in range(self._existing(name))]
        deadline = time.monotonic() + DECISION_LIMIT_S
        with self._group_client(group) as client:
            while True:
                try:
                    return committed_in(client.committed(partitions, ANSWER_LIMIT_S))
                except KafkaException as error:
                    if not _is_temporary(error.args[0]) or time.monotonic() > deadline:
                        raise self._translate(
                            error.args[0], f"The positions of group {group} in {name} were not read"
                        ) from error
                self._metadata()  # a transaction is decided only if a broker answers
                time.sleep(SETTLE_STEP_S)

    def _group_client(self, group: str) -> AbstractContextManager[Consumer]:
        """Return a new client each time: after a broker restart, an old one may wait for the coordinator forever.

        It is not the admin client: librdkafka (2.16) ends the whole process if the coordinator moves during its request.
        """
        return brief_client(Consumer, self._settings.for_positions(group), f"The positions of group {group}")

    def set_committed(self, group: str, positions: Sequence[Position]) -> None:
        """Set the positions of a group without members."""
        with self._group_client(group) as client:
            try:
                # Without a coordinator, it fails after a session.
                client.commit(offsets=to_commit(positions), asynchronous=False)
            except KafkaException as error:
                if error.args[0].code() in _OCCUPIED:
                    raise GroupInUse(
                        f"Group {group} has members: a worker of the processor runs, or stopped less than a minute ago. "
                        "Its positions were not changed. Stop its workers, wait a minute, and try again."
                    ) from error
                raise self._translate(error.args[0], f"The positions of group {group} were not set") from error

    def forget_group(self, group: str) -> None:
        """Delete a group without members, if it exists."""
        try:
            _answer(self._admin.delete_consumer_groups([group], request_timeout=ANSWER_LIMIT_S)[group])
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.NON_EMPTY_GROUP:
                raise GroupInUse(
                    f"Group {group} has members: a worker of the processor runs, or was killed less than a minute ago. Its "
                    "positions were not deleted. Stop its workers, wait a minute, and try again."
                ) from error
            if code != KafkaError.GROUP_ID_NOT_FOUND:
                raise self._translate(error.args[0], f"Group {group} was not deleted") from error

    def _existing(self, name: str) -> int:
        buckets = self._buckets(name)
        if not buckets:
            raise self._missing(name)
        return buckets

    def _one(self, name: str, found: Mapping[str, _T]) -> _T:
        """Return what was found about a topic; a missing topic is an error."""
        if name not in found:
            raise self._missing(name)
        return found[name]

    def _missing(self, name: str) -> MissingCategory:
        return MissingCategory(
            f"There is no category {name} on the bus at {self._settings.bootstrap}.{did_you_mean(name, self.names())} Create it with `penstock category "
            "create`; `penstock category show` lists the existing ones."
        )

    def _buckets(self, name: str) -> int:
        # Request all topics: a request for one missing topic may create it, depending on the brokers' settings.
        return _buckets(self._metadata(), name)

    def _expect_access(self) -> None:
        """Raise an error unless a broker accepts this client. Requests that change topics would time out after a refusal."""
        self._metadata()

    @contextmanager
    def _translated(self, request: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._translate(error.args[0], request) from error

    def _translate(self, error: KafkaError, request: str) -> BusError:
        """Return Penstock's error for a failed request; the error of an outage names the address."""
        self._replace_if_lost(error)
        return self._silence(error, f"{request}. ") if error.code() in _SILENCE else translate(error, request)

    def _replace_if_lost(self, error: KafkaError) -> None:
        """Replace a client that does not recover from an outage. Requests in other threads end with the old one."""
        if error.code() in _SILENCE and self._kept.is_lost():
            self._kept.replace()

    def _silence(self, error: KafkaError, request: str = "") -> BusError:
        """Return the error of an outage, with its cause if that is known."""
        unknown = self._settings.unknown_hosts()
        reason = f" ({', '.join(unknown)}: unknown host)" if unknown else ""
        silence = (
            f"{request}No Kafka broker answers at {self._settings.bootstrap} within {ANSWER_LIMIT_S:.0f} s{reason}"
        )
        causes = [*self._causes]
        return BusUnreachable(f"{silence}: {causes[0]}") if causes else translate(error, silence)

    def _metadata(self) -> Any:
        deadline = time.monotonic() + ANSWER_LIMIT_S
        self._causes.clear()
        while True:
            try:
                metadata = self._admin.list_topics(timeout=ASK_AGAIN_S)
            except KafkaException as failure:
                error = failure.args[0]
            else:
                self._kept.note_answer()
                return metadata
            # Here, the failure has ended: an error that the client (2.16) raises while another one is handled keeps that one for ever, with the
            # clients in its frames.
            cause = KafkaException(error)
            self._admin.poll(0)
            if self._refusals:
                raise BusRefuses(refusal_message(self._settings.bootstrap, self._refusals.pop())) from cause
            if error.code() not in _SILENCE or time.monotonic() > deadline:
                self._replace_if_lost(error)
                is_silent = error.code() in _SILENCE
                raise (self._silence(error) if is_silent else translate(error, "Topics were not read")) from cause
            time.sleep(SETTLE_STEP_S)

    def _offsets(
        self,
        name: str,
        buckets: int,
        offset: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[int, int]:
        return self._one(name, self._offsets_of({name: buckets}, offset, isolation))

    def _offsets_of(
        self,
        buckets: Mapping[str, int],
        offset: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[str, dict[int, int]]:
        """Return the offsets of topics with these numbers of buckets, without topics that were deleted meanwhile."""
        deadline = time.monotonic() + SETTLE_LIMIT_S
        while buckets:
            request = {TopicPartition(name, bucket): offset for name in buckets for bucket in range(buckets[name])}
            answer = self._admin.list_offsets(request, isolation_level=isolation, request_timeout=ANSWER_LIMIT_S)
            found: dict[str, dict[int, int]] = {name: {} for name in buckets}
            try:
                for partition, future in answer.items():
                    found[partition.topic][partition.partition] = _offset(future)
            except KafkaException as error:
                if error.args[0].code() not in _LEADERLESS or time.monotonic() > deadline:
                    what = f"The offsets of category {partition.topic} were not read"
                    raise self._translate(error.args[0], what) from error
            else:
                return found
            metadata = self._metadata()  # refreshes the client's cached leaders, unless no broker answers
            buckets = {name: count for name, count in buckets.items() if _buckets(metadata, name)}
            time.sleep(SETTLE_STEP_S)
        return {}

    def _settle(self, change: str, is_visible: Callable[[Any], bool]) -> None:
        """Wait until every broker shows a change: clients may ask any of them."""
        deadline = time.monotonic() + SETTLE_LIMIT_S
        while not all_brokers_show(self._metadata(), is_visible, self._settings, ASK_AGAIN_S):
            if time.monotonic() > deadline:
                raise BusUnreachable(
                    f"The cluster accepted the change, but not every broker shows {change} after {SETTLE_LIMIT_S:.0f} s. Check the brokers' logs."
                )
            time.sleep(SETTLE_STEP_S)


def _permitted(create: Callable[[NewTopic], None], spec: CategorySpec, topic: NewTopic) -> LeftOut | None:
    """Create a topic, without preferred settings that the cluster refuses, and return these."""
    wanted, words = dict(topic.config or {}), list[str]()
    while (error := _refusal_of(create, topic)) is not None:
        words.append(error.str().strip().rstrip("."))
        permitted = without_refused(topic, spec, error)
        if permitted is None:
            raise refusal(spec, dict(topic.config or {}), error)
        topic = permitted
    return LeftOut(spec.name, wanted.keys() - dict(topic.config or {}).keys(), words) if words else None


def _refusal_of(create: Callable[[NewTopic], None], topic: NewTopic) -> KafkaError | None:
    """Create a topic; return the error if the cluster refuses its settings."""
    try:
        create(topic)
    except KafkaException as error:
        if is_refusal(error.args[0]):
            return error.args[0]  # type: ignore[no-any-return]  # the client has no types
        raise
    return None


def _recorder(refusals: list[str], causes: deque[str]) -> Callable[[KafkaError], None]:
    """Return an error callback that records the refusals of brokers, and known causes of silence. Requests then time out, as in an outage.

    It does not refer to the catalog, which owns the client: only the cyclic collector would close the client then.
    """

    def record(error: KafkaError) -> None:
        refusal = refusal_in(error)
        if refusal is not None:
            refusals.append(refusal)
        cause = known_cause_in(error)
        if cause is not None:
            causes.append(cause)

    return record


def _answer(future: Future[_T]) -> _T:
    """Return the answer of a request of the admin client.

    If the connection breaks during a request, librdkafka (2.16) may forget the request with its time limit.

    Raises:
        KafkaException: the request failed, or is not answered.
    """
    try:
        return future.result(ANSWER_LIMIT_S + FORGOTTEN_AFTER_S)
    except NoAnswer:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None


def _topic_settings(future: Future[dict[str, ConfigEntry]]) -> TopicSettings:
    """Return the answer of a request for the settings of a topic, as `_answer`; they are unknown if the brokers refuse to report them."""
    try:
        return TopicSettings(texts(_answer(future)))
    except KafkaException as error:
        reason = refusal_of_settings(error.args[0])
        if reason is None:
            raise
        return TopicSettings({}, reason)


def _offset(future: Future[ListOffsetsResultInfo]) -> int:
    """Return the answer of a request for an offset, as `_answer`.

    If the connection breaks during the request, the client (2.16) answers with an invalid offset in place of an error.
    """
    offset = int(_answer(future).offset)
    if offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))
    return offset


def _buckets(metadata: Any, name: str) -> int:
    topic = metadata.topics.get(name)
    return 0 if topic is None else len(topic.partitions)


def _state(
    name: str, topic: Topic, settings: TopicSettings, starts: Mapping[int, int], ends: Mapping[int, int]
) -> CategoryState:
    """Return the state of a topic."""
    may_be_compacted = settings.is_compacted is not False
    spec = CategorySpec(
        name,
        topic.buckets,
        settings.retention,
        compacted=bool(settings.is_compacted),
        delete_retention=settings.delete_retention if may_be_compacted else None,
    )
    unknown = settings.unknown((RETENTION, CLEANUP, *((DELETE_RETENTION,) if may_be_compacted else ())))
    return CategoryState(spec, starts, ends, topic.id, unknown)
