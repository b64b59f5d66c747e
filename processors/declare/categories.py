"""Categories: named, typed and keyed streams on the bus."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from operator import attrgetter
from types import MemberDescriptorType, UnionType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from msgspec import inspect as shapes

from ..errors import DeclarationError
from ..time import Times
from ..user_code import error_in_words
from ..validation import did_you_mean, is_function_of, similar_member, suggestion
from ..wording import as_code
from .codecs import CodecSpec, Payload, SplittingCodec, accepts_unions, is_codec_spec
from .column_events import ColumnEvents, KeyGroups, RowKeys
from .composite_keys import KeyPart, composite_key, content_of_key, joined
from .event_batch import EventBatch
from .event_times import EventTimes, EventTimeSource, expect_source
from .field_paths import FieldPath, find_field
from .keys import COMPOSITE_CODECS, AnyKeyCodec, InvalidKey, KeyCodec, MessageKeys, NamedKeyFormat, is_key_codec
from .metadata import metadata_of, payload_of
from .partitioner import AnyPartitioner, Partitioner, bucket_of, buckets_of
from .records import AnyRecord, RecordType, fields_of, is_union, members_of, plain, type_name
from .tombstones import RowDeletion

R = TypeVar("R", bound=AnyRecord)
AnyEventBatch = EventBatch | ColumnEvents
EVENT_BATCHES = (EventBatch, ColumnEvents)

CodecName = Literal["json", "avro"]
_ANY_KEY = "0"
"""A key of one value that fits every key codec for text and numbers."""
_OF_KAFKA = {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
MAX_NAME = 249
"""The longest name of a category."""
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
LEGAL_CLUSTER = re.compile(r"[a-zA-Z0-9_-]+")
"""The names of clusters."""


def is_legal_name(name: str, longest: int = MAX_NAME) -> bool:
    """Return whether Kafka accepts a name of a topic; and of a folder."""
    return bool(_LEGAL_NAME.fullmatch(name)) and name not in {".", ".."} and len(name) <= longest


@dataclass(frozen=True, eq=False)
class Category(Generic[R]):
    """A named stream of one record type, split into buckets by key.

    Args:
        name: the name on the bus: letters, digits, `.`, `_` and `-`.
        record: the type of the records: a `Record`, a standard dataclass or a pydantic model.
        key: the key field; several fields, as a tuple of their names; or a function that returns the key of a record. Events of one key are in
            one bucket, in order. The key of several fields is the JSON array of their values, as `composite_key` returns it.
        event_time: the field with the event time, an int (milliseconds since 1970, UTC) or a datetime with an offset; the dotted path of a
            field in a nested record; a `TimeField` for other units; or a function that returns the event time of a record.
        buckets: the number of buckets, the unit of parallelism. One worker at a time reads a bucket.
        retention: how long the bus keeps an event after it was written; None forever.
        codec: the encoding: `"json"`, `"avro"`, an object of `penstock.codecs`, or your own `penstock.codecs.CodecSpec`.
        partitioner: how its producers choose the bucket of a message key, and how Penstock does: a `Partitioner`, or a function that returns
            the bucket of a message key (bytes) among a number of buckets. None if it is unknown: a processor with state per key then
            cannot read the category, and Penstock writes with MURMUR2.
        key_codec: how the bytes of a message key represent the key: a `KeyCodec`; or, for keys in the format of a schema registry,
            `penstock.codecs.ConfluentAvro`, `ConfluentJson` or `ConfluentProtobuf`.
        compacted: whether a new topic keeps the latest message of each key, instead of all messages for the retention.
        replicas: the number of replicas of a new topic; by default three if the cluster has three brokers, else the cluster's default.
        settings: further settings of a new topic by Kafka's names, such as `{"compression.type": "zstd"}`. They override Penstock's.
        cluster: the name of the Kafka cluster that contains it, as in `[clusters.NAME]` of the configuration; None for the main cluster.
            Processors can write to another cluster than the main one, and not read from it.

    Raises:
        DeclarationError: the name is invalid; a field is missing; the event time is no time; the key is optional or has the wrong type.

    Fields have their Python name or their name on the bus. Afterwards, `key` has the names on the bus.

    Examples:
        >>> import penstock as ps
        >>> class Click(ps.Record, frozen=True):
        ...     user: str
        ...     at: int
        >>> Category("clicks", Click, key="user", event_time="at", retention=timedelta(days=30))
        Category('clicks', Click)
    """

    name: str
    record: type[R]
    key: str | tuple[str, ...] | Callable[[R], str]
    event_time: EventTimeSource
    buckets: int = 8
    retention: timedelta | None = field(default=timedelta(days=7))
    codec: CodecName | CodecSpec = "json"
    partitioner: AnyPartitioner | None = Partitioner.MURMUR2
    key_codec: AnyKeyCodec = KeyCodec.TEXT
    compacted: bool = False
    replicas: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    cluster: str | None = None

    # The same with unions of records. A checker cannot infer R from them, so they need `Category[Placed | Paid]`.
    if TYPE_CHECKING:

        def __init__(  # noqa: PLR0917 - the fields
            self,
            name: str,
            record: type[R] | UnionType,
            key: str | tuple[str, ...] | Callable[[R], str],
            event_time: EventTimeSource,
            buckets: int = 8,
            retention: timedelta | None = timedelta(days=7),
            codec: CodecName | CodecSpec = "json",
            partitioner: AnyPartitioner | None = Partitioner.MURMUR2,
            key_codec: AnyKeyCodec = KeyCodec.TEXT,
            compacted: bool = False,
            replicas: int | None = None,
            settings: Mapping[str, str] = ...,
            cluster: str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        self._check_types()
        self._check_union()
        if not is_legal_name(self.name):
            raise DeclarationError(
                f"Category name {self.name!r} is invalid. Use only letters, digits, '.', '_' and '-', at most {MAX_NAME}."
            )
        if self.name in _OF_KAFKA:
            raise DeclarationError(
                f"{self.name} is a topic of Kafka itself, which no program may write. Name another topic."
            )
        if self.buckets < 1:
            raise DeclarationError(f"Category {self.name}: `buckets={self.buckets}` must be at least 1.")
        if self.codec not in ("json", "avro") and not is_codec_spec(self.codec):
            raise DeclarationError(
                f"Category {self.name}: codec {as_code(self.codec)} is unknown. Use 'json' or 'avro', or an object of penstock.codecs, such as "
                f"penstock.codecs.MessagePack().{suggestion(CodecSpec, self.codec) or did_you_mean(str(self.codec), ('json', 'avro'))}"
            )
        self._check_fields()

    def _check_union(self) -> None:
        if is_union(self.record) and not accepts_unions(self.codec):
            raise DeclarationError(
                f"Category {self.name}: its codec {self.codec!r} does not support several record types ({self.record_name}). Use JSON or MessagePack, or declare "
                "one record type with a field for the type and optional fields."
            )

    def _check_types(self) -> None:
        for name, given, kinds, wanted in (
            ("name", self.name, str, "a str"),
            ("buckets", self.buckets, int, "an int"),
            ("retention", self.retention, (timedelta, type(None)), "a timedelta, or None forever"),
        ):
            if not isinstance(given, kinds) or isinstance(given, bool):
                raise DeclarationError(
                    f"Category {as_code(self.name)}: {name}={as_code(given)} has the wrong type. Declare {wanted}."
                )
        self._check_key_types()
        self._check_topic_types()
        expect_source(self.name, self.event_time)
        if self.retention is not None and self.retention <= timedelta():
            raise DeclarationError(
                f"Category {self.name!r}: `retention={self.retention}` must be greater than zero. Declare None to keep events forever."
            )

    def _check_key_types(self) -> None:
        key: object = self.key
        if not isinstance(key, (str, tuple)) and not is_function_of(key, "record"):
            field = f' Did you mean `key="{key.__name__}"`?' if isinstance(key, MemberDescriptorType) else ""
            raise DeclarationError(
                f"Category {self.name!r}: key={as_code(self.key)} has the wrong type. Declare the name of a field, a tuple of several names, or a "
                f"function of the record.{field}"
            )
        if isinstance(self.key, tuple) and (len(self.key) < 2 or not all(isinstance(each, str) for each in self.key)):
            raise DeclarationError(
                f"Category {self.name!r}: key={self.key!r} is not a tuple of the names of several fields. Declare such as "
                '`key=("tenant", "id")`; or for one field its name.'
            )
        if not isinstance(self.partitioner, (Partitioner, type(None))) and not is_function_of(
            self.partitioner, "key", "buckets"
        ):
            raise DeclarationError(
                f"Category {self.name!r}: partitioner={as_code(self.partitioner)} has the wrong type. Declare a penstock.Partitioner; a function of the "
                f"message key and the number of buckets; or None if it is unknown.{similar_member(Partitioner, self.partitioner)}"
            )
        if not is_key_codec(self.key_codec):
            raise DeclarationError(
                f"Category {self.name!r}: key_codec={as_code(self.key_codec)} has the wrong type. Declare a penstock.KeyCodec, or an object of "
                f"penstock.codecs: ConfluentAvro(…), ConfluentJson(…), ConfluentProtobuf(…), KeyFields(…) or ConnectKeys(…).{similar_member(KeyCodec, self.key_codec)}"
            )

    def _check_topic_types(self) -> None:
        if not isinstance(self.compacted, bool):
            raise DeclarationError(
                f"Category {self.name!r}: compacted={self.compacted!r} has the wrong type. Declare True or False."
            )
        if self.replicas is not None and (type(self.replicas) is not int or self.replicas < 1):
            raise DeclarationError(
                f"Category {self.name!r}: replicas={self.replicas!r} is invalid. Declare a positive int, or None for the default."
            )
        settings: object = self.settings
        if not isinstance(settings, Mapping) or not all(
            isinstance(each, str) for pair in settings.items() for each in pair
        ):
            raise DeclarationError(
                f"Category {self.name!r}: settings={self.settings!r} has the wrong type. Declare a dict of Kafka's setting names and their values, "
                'both as str, such as {"compression.type": "zstd"}.'
            )
        cluster: object = self.cluster
        if cluster is not None and not (isinstance(cluster, str) and LEGAL_CLUSTER.fullmatch(cluster)):
            raise DeclarationError(
                f"Category {self.name!r}: cluster={cluster!r} is invalid. Declare the name of a table [clusters.NAME] in the configuration (letters, "
                "digits, '_' and '-'), or None for the main cluster."
            )

    def _check_fields(self) -> None:
        metadata_of(self._any_record)  # raises for a metadata field of a wrong type
        self.times  # noqa: B018 - reports an unknown field
        if isinstance(self.key, str):
            object.__setattr__(
                self, "key", self._key_field(self.key).name
            )  # the columns of the warehouse have this name
        elif isinstance(self.key, tuple):
            self._check_composite_key(self.key)
        needs_int = isinstance(self.key_codec, KeyCodec) and self.key_codec.name in {"INT32", "INT64"}
        if needs_int and isinstance(self.key, str) and self._key_is_text:
            raise DeclarationError(
                f"Category {self.name}: `key_codec={self.key_codec}` needs an int, but the key field {self.key!r} is a str. "
                "Declare the field as an int, or another `key_codec`."
            )

    def _check_composite_key(self, names: tuple[str, ...]) -> None:
        fields = [self._key_field(name) for name in names]
        found = tuple(field.name for field in fields)
        if len(set(found)) < len(found):
            raise DeclarationError(
                f"Category {self.name}: `key={names!r}` names a field twice. Declare each field once."
            )
        if isinstance(self.key_codec, KeyCodec) and self.key_codec not in COMPOSITE_CODECS:
            raise DeclarationError(
                f"Category {self.name}: `key_codec={self.key_codec}` is for one value, but the key has the fields {', '.join(found)}. Declare KeyCodec.TEXT, "
                "KeyCodec.JSON, or a codec of a schema registry."
            )
        object.__setattr__(self, "key", found)

    def _key_field(self, name: str) -> FieldPath:
        for member in self.record_types:
            find_field(self.name, "key", member, name)
        field = find_field(self.name, "key", self._any_record, name)
        if field.optional or len(field.names) > 1 or not isinstance(field.shape, (shapes.StrType, shapes.IntType)):
            raise DeclarationError(
                f"Category {self.name}: the key field {name!r} must be a str or an int, without None. For other keys, declare "
                "`key` as a function of the record."
            )
        return field

    def keys_of(self, events: Sequence[R]) -> list[str]:
        """Return the key of each event.

        Raises:
            DeclarationError: the key function raised, or returned no str.
        """
        if isinstance(events, EVENT_BATCHES) and events.is_of(self):
            return events.keys
        return self.computed_keys_of(events)

    def keys_of_rows(self, events: Sequence[R]) -> Sequence[str]:
        """Return the same; of columns, each key is looked up when it is asked for.

        Raises:
            DeclarationError: as above.
        """
        groups = self._key_groups(events)
        return self.keys_of(events) if groups is None else RowKeys(groups)

    def distinct_keys_of(self, events: Sequence[R]) -> Sequence[str]:
        """Return each key at least once, in the order of its first event.

        Raises:
            DeclarationError: as above.
        """
        groups = self._key_groups(events)
        return self.keys_of(events) if groups is None else groups.names

    def _key_groups(self, events: Sequence[R]) -> KeyGroups | None:
        """Return the keys of columns in groups; None where each key must be computed."""
        if isinstance(events, ColumnEvents) and events.is_of(self) and events.has_keys:
            return events.key_groups
        return None

    def computed_keys_of(self, events: Sequence[R]) -> list[str]:
        """Return the same, computed in any case."""
        if self.key_parts:
            return list(map(joined, map(self._key_values, events)))
        if not isinstance(self.key, str):
            return [self._computed_key(event) for event in events]
        keys = list(map(attrgetter(str(self.key_attribute)), events))
        return keys if self._key_is_text else [str(key) for key in keys]

    def encode_keys(self, keys: Sequence[str]) -> list[bytes]:
        """Return the message key of each key.

        Raises:
            InvalidKey: a key does not fit the `key_codec`.
        """
        return self._message_keys.encode(keys)

    def prepare_keys(self) -> None:
        """Check that message keys can be written. With a schema registry, this finds or registers the schema of the keys.

        Raises:
            PenstockError: the registry does not answer, or does not accept the schema.
        """
        if not isinstance(self.key_codec, KeyCodec):
            self.encode_keys([self.any_key])

    def decode_key(self, message_key: bytes) -> str:
        """Return the key of a message key.

        Raises:
            InvalidKey: the bytes do not fit the `key_codec`.
        """
        return self._message_keys.decode(message_key)

    def bucket_of(self, key: str) -> int:
        """Return the bucket of a key.

        Raises:
            InvalidKey: the key does not fit the `key_codec`.
            DeclarationError: the partitioner is unknown or fails.
        """
        return bucket_of(self.encode_keys([key])[0], self.buckets, self._known_partitioner)

    def buckets_of(self, keys: Sequence[str]) -> list[int]:
        """Return the bucket of each key, as `bucket_of` does."""
        return self.buckets_of_message_keys(self.encode_keys(keys))

    def buckets_of_message_keys(self, message_keys: Sequence[bytes]) -> list[int]:
        """Return the bucket of each message key.

        Raises:
            DeclarationError: the partitioner is unknown or fails.
        """
        return buckets_of(message_keys, self.buckets, self._known_partitioner)

    @property
    def partitioning(self) -> tuple[object, ...]:
        """A value that determines the bucket of every key. Categories with equal values have each key in buckets of the same number.

        With keys in the format of a schema registry, this also needs equal schema ids, which a worker compares when it starts.
        """
        if self.key_parts:
            # The names are a part of the message key, except in KeyCodec.TEXT and where the key codec names the fields.
            is_named = self.key_codec is not KeyCodec.TEXT and not isinstance(self.key_codec, NamedKeyFormat)
            parts = self.key_parts if is_named else tuple(part.is_number for part in self.key_parts)
            return (self.buckets, self.partitioner, self.key_codec, parts)
        depends_on_type = self.key_codec is KeyCodec.JSON or not isinstance(self.key_codec, KeyCodec)
        return (self.buckets, self.partitioner, self.key_codec, depends_on_type and self.key_is_number)

    @property
    def _known_partitioner(self) -> AnyPartitioner:
        if self.partitioner is None:
            raise DeclarationError(
                f"Category {self.name}: its partitioner is unknown (`partitioner=None`), so the bucket of a key is unknown, too. Declare the partitioner "
                "of its producers."
            )
        return self.partitioner

    @cached_property
    def _message_keys(self) -> MessageKeys:
        return MessageKeys(self.name, self.key_codec, self.key_is_number, self.key_parts)

    @property
    def key_is_number(self) -> bool:
        """Whether the key is an int field."""
        return isinstance(self.key, str) and not self._key_is_text

    @property
    def key_fields(self) -> tuple[str, ...]:
        """The names on the bus of the key fields; empty if the key is a function."""
        return (self.key,) if isinstance(self.key, str) else self.key if isinstance(self.key, tuple) else ()

    @property
    def key_name(self) -> str:
        """The name of the key: its field, its fields, or its function."""
        return ", ".join(self.key_fields) or cast("Callable[[R], str]", self.key).__qualname__

    @cached_property
    def key_parts(self) -> tuple[KeyPart, ...]:
        """The fields of a key of several; empty for other keys."""
        if not isinstance(self.key, tuple):
            return ()
        return tuple(KeyPart(name, not self._is_text(name)) for name in self.key)

    @property
    def any_key(self) -> str:
        """A key that fits the key codec, if any does."""
        if not self.key_parts:
            return _ANY_KEY
        return composite_key(*(0 if part.is_number else _ANY_KEY for part in self.key_parts))

    def key_attributes(self, key: str) -> dict[str, str | int]:
        """Return the values of the key fields that a key determines, by their Python names; empty if the key is a function.

        Raises:
            InvalidKey: it is no key of several fields, and the category has such keys.
        """
        if not self.key_parts:
            return {self.key_attribute: key} if self.key_attribute else {}
        try:
            content = content_of_key(key, self.key_parts)
        except ValueError as error:
            raise InvalidKey(f"Category {self.name}: the key {key!r} is invalid: {error}.") from error
        return {self._attribute(name): value for name, value in content.items()}

    def event_times_of(self, events: Sequence[R]) -> list[int]:
        """Return the event time of each event (milliseconds since 1970, UTC).

        Raises:
            InvalidEventTime: an event has no valid event time. Codecs refuse such events.
        """
        return events.times if isinstance(events, EVENT_BATCHES) and events.is_of(self) else self.times.of(events)

    def time_array_of(self, events: Sequence[R]) -> Times:
        """Return the same as an array.

        Raises:
            InvalidEventTime: as above.
            OverflowError: an event time has more than 64 bits. Workers reject such events.
        """
        return (
            events.time_array
            if isinstance(events, EVENT_BATCHES) and events.is_of(self)
            else self.times.array_of(events)
        )

    def batch_of(self, events: Sequence[R]) -> AnyEventBatch:
        """Return events to process at once."""
        return events if isinstance(events, EVENT_BATCHES) and events.is_of(self) else EventBatch(self, events)

    @property
    def _any_record(self) -> RecordType:
        """The type of the records, as a checker cannot infer it from R."""
        return cast("RecordType", self.record)

    @cached_property
    def record_types(self) -> tuple[type[AnyRecord], ...]:
        """The types of the records: one, or those of a union."""
        return members_of(self._any_record)

    @property
    def record_name(self) -> str:
        """The name of the record type: `Click`, `Placed | Paid`."""
        return type_name(self.record)

    @cached_property
    def times(self) -> EventTimes:
        """The reader of event times."""
        return EventTimes(self.name, self._any_record, self.event_time)

    @property
    def payload(self) -> Payload:
        """The values of its messages, as its codec sees them."""
        key = self.key if isinstance(self.key, str) else None
        found = payload_of(self.name, self._any_record, self.times.field, key, self.key_parts)
        if found.record is self.record:
            return replace(found, times_of=self.times.of)
        has_time = found.event_time is not None
        return replace(found, times_of=EventTimes(self.name, found.record, self.event_time).of) if has_time else found

    @cached_property
    def splits_messages(self) -> bool:
        """Whether its messages may contain several records, which then have one offset."""
        return isinstance(self.codec, CodecSpec) and isinstance(self.codec.open(self.payload), SplittingCodec)

    @cached_property
    def key_attribute(self) -> str | None:
        """The Python name of the key field; None if the key has several fields or is a function."""
        return self._attribute(self.key) if isinstance(self.key, str) else None

    @cached_property
    def _key_values(self) -> attrgetter[tuple[str | int, ...]]:
        """Returns the values of a key of several fields."""
        return attrgetter(*map(self._attribute, self.key_fields))

    def _attribute(self, name: str) -> str:
        return fields_of(self._any_record)[name].name

    def _computed_key(self, event: R | RowDeletion) -> str:
        if isinstance(event, RowDeletion):
            return event.deleted_key
        try:
            key = self.key(event)  # type: ignore[operator]  # a function, as keys_of checked
        except Exception as error:
            raise DeclarationError(
                f"Category {self.name}: its key function raised {error_in_words(error)}, for {event!r}. Every "
                "event needs a key. Correct the function."
            ) from error
        if not isinstance(key, str):
            raise DeclarationError(
                f"Category {self.name}: its key function returned {key!r} for {event!r}. It must return a str."
            )
        return key

    @cached_property
    def _key_is_text(self) -> bool:
        return self._is_text(str(self.key))

    def _is_text(self, name: str) -> bool:
        return isinstance(plain(fields_of(self._any_record)[name].type), shapes.StrType)

    def __repr__(self) -> str:
        return f"Category({self.name!r}, {self.record_name})"


AnyCategory = Category[Any]


SIZE_SETTING = "max.message.bytes"
"""The setting of a topic for the size of its batches, and so of its messages."""

OVERHEAD_BYTES = 50_000
"""The space for what a retry or a dead letter adds to a message: headers, the reason, a traceback, and the overhead of a batch."""


def size_settings(categories: Iterable[AnyCategory]) -> dict[str, str]:
    """Return the setting of a category that is derived from others: the largest limit that they declare, with overhead; empty if they declare none."""
    declared = [int(size) for category in categories if (size := category.settings.get(SIZE_SETTING, "")).isdecimal()]
    return {SIZE_SETTING: str(max(declared) + OVERHEAD_BYTES)} if declared else {}
