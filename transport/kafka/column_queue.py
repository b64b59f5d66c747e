"""A queue of fetched messages, which librdkafka fills and `gather.c` empties into columns.

buckets of a consumer --forward--> queue --consume--> messages --gather, in a thread--> columns --take--> batches

While a worker processes a full batch, the next one is copied by a thread that needs no interpreter lock.

A message as a Python object costs more than half of a plain consumer's time. The membership of the group, commits, seeks and errors stay with
the consumer: it serves its own queue, and only fetched messages of forwarded buckets come here.
"""

from __future__ import annotations

import ctypes
import os
import select
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from weakref import finalize

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, KafkaError, cimpl

from ..message_columns import BytesColumn, ColumnBatch, Flags, MessageColumns, Numbers
from ..messages import Bucket

LIBRARY = Path(__file__).with_name("gather.so")
"""The compiled `gather.c`; built at the installation if there is a C compiler."""

_WAKE = b"m"
_Sizes = ctypes.c_int64 * 4


_COLUMNS = (
    *("offset", "timestamp", "value_end", "key_end", "header_end"),
    *("timestamp_kind", "has_value", "has_key"),
    *("values", "keys", "header_bytes"),
    *("name_size", "header_size"),
)


class _Client(ctypes.Structure):
    """The functions of librdkafka that `gather.c` calls."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("consume", "timestamp", "headers", "header", "destroy")]


class _Message(ctypes.Structure):
    """rd_kafka_message_t of rdkafka.h."""

    _fields_ = [
        ("error", ctypes.c_int32),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("value", ctypes.c_void_p),
        ("value_size", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_size", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private_part", ctypes.c_void_p),
    ]


class _Columns(ctypes.Structure):
    """The columns that `gather.c` fills."""

    _fields_ = [(name, ctypes.c_void_p) for name in _COLUMNS]


class Library(NamedTuple):
    """The two C libraries.

    Args:
        gather: the compiled `gather.c`.
        rdkafka: the librdkafka that the Kafka client has loaded.
        client: its functions, for `gather`.
    """

    gather: ctypes.CDLL
    rdkafka: ctypes.CDLL
    client: _Client


class _Run(ctypes.Structure):
    """Messages of one bucket, and the columns that `gather.c` fills with them."""

    _fields_ = [("messages", ctypes.c_void_p), ("count", ctypes.c_int64), ("columns", _Columns)]


class _Runs(ctypes.Structure):
    """What `gather.c` copies at once."""

    _fields_ = [
        ("client", ctypes.POINTER(_Client)),
        ("runs", ctypes.POINTER(_Run)),
        ("count", ctypes.c_int64),
        ("thread", ctypes.c_void_p),
    ]


class QueueError(NamedTuple):
    """An error or the end of a bucket, in place of a message."""

    bucket: Bucket
    offset: int
    error: KafkaError


class Taken(NamedTuple):
    """Messages and errors that were in the queue."""

    batches: Sequence[ColumnBatch]
    errors: Sequence[QueueError]


@cache
def load_library() -> Library | None:
    """Return the libraries; None where `gather.c` was not compiled, or the client hides its librdkafka."""
    try:
        gather, rdkafka = ctypes.CDLL(str(LIBRARY)), ctypes.CDLL(cimpl.__file__)
        address = {name: _address(getattr(rdkafka, f"rd_kafka_{name}")) for name in _FUNCTIONS.values()}
        _declare(rdkafka)
    except (OSError, AttributeError):
        return None
    gather.penstock_consume.restype = ctypes.c_ssize_t
    gather.penstock_consume.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    gather.penstock_describe.restype = ctypes.c_int64
    gather.penstock_describe.argtypes = [ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 3]
    gather.penstock_measure.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    for name in ("penstock_gather", "penstock_gather_begin", "penstock_gather_end"):
        getattr(gather, name).argtypes = [ctypes.c_void_p]
    return Library(gather, rdkafka, _Client(**{field: address[name] for field, name in _FUNCTIONS.items()}))


_FUNCTIONS = {
    "consume": "consume_batch_queue",
    "timestamp": "message_timestamp",
    "headers": "message_headers",
    "header": "header_get_all",
    "destroy": "message_destroy",
}


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


def _declare(rdkafka: ctypes.CDLL) -> None:
    """Declare the functions that Python calls."""
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    for name, restype, argtypes in (
        ("queue_new", pointer, [pointer]),
        ("queue_get_consumer", pointer, [pointer]),
        ("queue_get_partition", pointer, [pointer, text, ctypes.c_int32]),
        ("queue_forward", None, [pointer, pointer]),
        ("queue_destroy", None, [pointer]),
        ("queue_io_event_enable", None, [pointer, ctypes.c_int, text, ctypes.c_size_t]),
        ("topic_name", text, [pointer]),
        ("message_destroy", None, [pointer]),
        ("name", text, [pointer]),
    ):
        function = getattr(rdkafka, f"rd_kafka_{name}")
        function.restype, function.argtypes = restype, argtypes


class ColumnQueue:
    """A queue of fetched messages of one consumer. One thread.

    It is released before the consumer, also if it is not closed: otherwise the end of the consumer would wait for the queue forever.

    Args:
        library: the C libraries.
        consumer: open.
        handle: the consumer's rd_kafka_t.
        limit: the greatest number of messages of `take`.
    """

    def __init__(self, library: Library, consumer: Consumer, handle: int, limit: int) -> None:
        self._gather, self._rdkafka, self._client = library
        self._handle = handle
        self._limit = limit
        self._ready: list[ColumnBatch | QueueError] = []
        self._ahead: list[_Gathering] = []
        self._queue = self._rdkafka.rd_kafka_queue_new(handle)
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        self._own = self._rdkafka.rd_kafka_queue_get_consumer(handle)
        for queue in filter(None, (self._queue, self._own)):
            self._rdkafka.rd_kafka_queue_io_event_enable(queue, self._wake_write, _WAKE, len(_WAKE))
        pipe = (self._wake_read, self._wake_write)
        self._release = finalize(self, _release, self._rdkafka, (self._own, self._queue), pipe, self._ahead, consumer)

    def forward(self, buckets: Iterable[Bucket]) -> None:
        """Let the next messages of buckets of the consumer come to this queue. Assigning a bucket to the consumer ends that."""
        for category, number in buckets:
            source = self._rdkafka.rd_kafka_queue_get_partition(self._handle, category.encode(), number)
            if source:
                self._rdkafka.rd_kafka_queue_forward(source, self._queue)
                self._rdkafka.rd_kafka_queue_destroy(source)

    def wait(self, timeout_s: float) -> None:
        """Wait until this queue or the consumer's own may have something."""
        if select.select([self._wake_read], [], [], timeout_s)[0]:
            os.read(self._wake_read, 4096)

    def take(self, limit: int, paused: Collection[Bucket] = ()) -> Taken:
        """Return up to `limit` messages, at most one batch for each bucket, without waiting.

        Args:
            limit: the greatest number of messages.
            paused: the buckets whose messages wait.
        """
        if all(item.bucket in paused for item in self._ready):
            gathering = self._ahead.pop() if self._ahead else self._consume(limit)
            if gathering is not None:
                self._ready += gathering.finish()
                self._gather_ahead(limit, gathering.count)
        taken = self._take_ready(limit, paused)
        return Taken(
            [item for item in taken if isinstance(item, ColumnBatch)],
            [item for item in taken if isinstance(item, QueueError)],
        )

    def _take_ready(self, limit: int, paused: Collection[Bucket]) -> list[ColumnBatch | QueueError]:
        """Remove the next items from the gathered ones; a batch that exceeds the limit is split."""
        items, self._ready = self._ready, []
        taken: list[ColumnBatch | QueueError] = []
        for item in items:
            count = len(item.messages) if isinstance(item, ColumnBatch) else 0
            if item.bucket in paused or limit <= 0:
                self._ready.append(item)
            elif isinstance(item, ColumnBatch) and count > limit:
                taken.append(item.part(0, limit))
                self._ready.append(item.part(limit, count))
                limit = 0
            else:
                taken.append(item)
                limit -= count
        return taken

    def _gather_ahead(self, limit: int, taken: int) -> None:
        """Begin to copy the next messages, if there are enough of them to be worth it."""
        following = self._consume(limit) if taken >= min(limit, self._limit) else None
        if following is not None:
            following.start()
            self._ahead.append(following)

    def drop(self, buckets: Collection[Bucket]) -> None:
        """Forget the messages of buckets that `take` has not returned yet: the consumer will read these buckets from another offset, or no more."""
        while self._ahead:
            self._ready += self._ahead.pop().finish()
        self._ready = [item for item in self._ready if item.bucket not in buckets]

    def _consume(self, limit: int) -> _Gathering | None:
        """Remove messages from the queue; return None if there are none."""
        messages = np.empty(min(limit, self._limit), np.uintp)
        count = self._gather.penstock_consume(
            ctypes.byref(self._client), self._queue, messages.ctypes.data, len(messages)
        )
        if count <= 0:
            return None
        pointers = messages[:count]
        topics, partitions = np.empty(count, np.int64), np.empty(count, np.int64)
        codes = np.empty(count, np.int32)
        failed = self._gather.penstock_describe(
            pointers.ctypes.data, count, topics.ctypes.data, partitions.ctypes.data, codes.ctypes.data
        )
        errors = [self._error(int(pointers[at])) for at in np.flatnonzero(codes)] if failed else []
        if failed:
            good = codes == 0
            pointers, topics, partitions = pointers[good], topics[good], partitions[good]
        runs = [
            (Bucket(self._name(topic), number), of_bucket)
            for topic, number, of_bucket in _by_bucket(pointers, topics, partitions)
        ]
        return _Gathering(self._gather, self._client, runs, errors)

    def _error(self, pointer: int) -> QueueError:
        """Return an error, and release its message."""
        message = _Message.from_address(pointer)
        reason = ctypes.string_at(message.value, message.value_size).decode(errors="replace") if message.value else None
        found = QueueError(
            Bucket(self._name(message.topic), message.partition), message.offset, KafkaError(message.error, reason)
        )
        self._rdkafka.rd_kafka_message_destroy(pointer)
        return found

    def _name(self, topic: int | None) -> str:
        return str(self._rdkafka.rd_kafka_topic_name(topic).decode()) if topic else ""

    def close(self) -> None:
        """Release the queue; the consumer is still open."""
        self._release()


def _release(
    rdkafka: ctypes.CDLL,
    queues: Iterable[int | None],
    pipe: Iterable[int],
    ahead: list[_Gathering],
    _consumer: Consumer,
) -> None:
    """Release the messages and queues of a consumer, which is held until then, and the pipe that the queues write to."""
    while ahead:  # the end of the consumer revokes its buckets, and then nothing may be here
        ahead.pop().finish()
    for queue in filter(None, queues):
        rdkafka.rd_kafka_queue_io_event_enable(queue, -1, None, 0)
        rdkafka.rd_kafka_queue_destroy(queue)
    for end in pipe:
        os.close(end)


class _Gathering:
    """Messages that were removed from the queue, on their way into columns. `finish` also releases them.

    Args:
        library: the compiled `gather.c`.
        client: the functions that it calls.
        runs: the messages of each bucket.
        errors: errors and ends of buckets among them.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        client: _Client,
        runs: Sequence[tuple[Bucket, npt.NDArray[np.uintp]]],
        errors: Sequence[QueueError],
    ) -> None:
        self._library = library
        self._errors = errors
        self._messages = runs  # the addresses stay in memory as long as `gather.c` uses them
        self._columns = [self._columns_for(client, pointers) for _, pointers in runs]
        given = (_Run * len(runs))(
            *(
                _Run(pointers.ctypes.data, len(pointers), columns.pointers())
                for (_, pointers), columns in zip(runs, self._columns, strict=True)
            )
        )
        self._runs = _Runs(ctypes.pointer(client), given, len(runs), None)
        self._is_started = self._is_finished = False

    @property
    def count(self) -> int:
        """The number of messages, including errors."""
        return sum(len(pointers) for _, pointers in self._messages) + len(self._errors)

    def _columns_for(self, client: _Client, pointers: npt.NDArray[np.uintp]) -> _Gathered:
        sizes = _Sizes()
        self._library.penstock_measure(ctypes.byref(client), pointers.ctypes.data, len(pointers), sizes)
        return _Gathered(len(pointers), *sizes)

    def start(self) -> None:
        """Begin to copy in a thread. If there can be no thread, `finish` copies."""
        self._is_started = self._library.penstock_gather_begin(ctypes.byref(self._runs)) == 0

    def finish(self) -> list[ColumnBatch | QueueError]:
        """Return the batches and errors; wait until the messages are copied.

        Raises:
            RuntimeError: called a second time; the messages do not exist any more, and no thread may be joined twice.
        """
        if self._is_finished:
            raise RuntimeError("these messages are released already")
        self._is_finished = True
        complete = self._library.penstock_gather_end if self._is_started else self._library.penstock_gather
        complete(ctypes.byref(self._runs))
        batches = [
            ColumnBatch(bucket, columns.messages(bucket.number))
            for (bucket, _), columns in zip(self._messages, self._columns, strict=True)
        ]
        return [*batches, *self._errors]


class _Gathered:
    """The memory of columns of known sizes."""

    def __init__(self, count: int, value_bytes: int, key_bytes: int, headers: int, header_bytes: int) -> None:
        self.offset, self.timestamp, self.value_end, self.key_end, self.header_end = np.empty((5, count), np.int64)
        self.timestamp_kind, self.has_value, self.has_key = np.empty((3, count), np.int8)
        self.values, self.keys, self.header_bytes = (
            np.empty(size, np.uint8) for size in (value_bytes, key_bytes, header_bytes)
        )
        self.name_size, self.header_size = np.empty((2, headers), np.int64)

    def pointers(self) -> _Columns:
        """Return the addresses of the columns."""
        return _Columns(**{name: getattr(self, name).ctypes.data for name in _COLUMNS})

    def messages(self, number: int) -> MessageColumns:
        """Return the filled columns as messages of a bucket."""
        return MessageColumns(
            number,
            self.offset,
            self.timestamp,
            self.timestamp_kind,
            BytesColumn(
                self.values.data, _starts(self.value_end, gap=1), self.value_end, self.has_value.view(np.bool_)
            ),
            BytesColumn(self.keys.data, _starts(self.key_end, gap=0), self.key_end, self.has_key.view(np.bool_)),
            self._headers() if len(self.name_size) else None,
        )

    def _headers(self) -> list[list[tuple[str, bytes | None]] | None]:
        flat, begin, buffer = [], 0, self.header_bytes.tobytes()
        for name_size, size in zip(self.name_size.tolist(), self.header_size.tolist(), strict=True):
            middle = begin + name_size
            end = middle + max(size, 0)
            flat.append((buffer[begin:middle].decode(errors="replace"), buffer[middle:end] if size >= 0 else None))
            begin = end
        ends = self.header_end.tolist()
        return [flat[start:end] or None for start, end in zip([0, *ends], ends, strict=False)]


def _starts(ends: Numbers, gap: int) -> Numbers:
    starts = np.empty_like(ends)
    starts[0] = 0
    np.add(ends[:-1], gap, out=starts[1:])
    return starts


def _by_bucket(
    pointers: npt.NDArray[np.uintp], topics: Numbers, partitions: Numbers
) -> Iterable[tuple[int, int, npt.NDArray[np.uintp]]]:
    """Yield the messages of each topic and partition, in order."""
    if not len(pointers):
        return
    changes = _changes(topics, partitions)
    if len(changes) > 1:
        order = np.lexsort((partitions, topics))  # keeps the order of equal ones
        pointers, topics, partitions = pointers[order], topics[order], partitions[order]
        changes = _changes(topics, partitions)
    for begin, end in zip(changes, [*changes[1:], len(pointers)], strict=True):
        yield int(topics[begin]), int(partitions[begin]), pointers[begin:end]


def _changes(topics: Numbers, partitions: Numbers) -> list[int]:
    """Return the indices at which another bucket begins."""
    is_change: Flags = (topics[1:] != topics[:-1]) | (partitions[1:] != partitions[:-1])
    return [0, *(np.flatnonzero(is_change) + 1).tolist()]


def open_column_queue(consumer: Consumer, client_id: str, limit: int) -> ColumnQueue | None:
    """Return a column queue of a consumer; None where columns are not available.

    Args:
        consumer: open.
        client_id: its `client.id`, which confirms that its handle was found.
        limit: the greatest number of messages of `ColumnQueue.take`.
    """
    library = load_library()
    if library is None:
        return None
    # The handle is the first field of the object after its head.
    handle = ctypes.c_void_p.from_address(id(consumer) + object.__basicsize__).value
    if not handle or not library.rdkafka.rd_kafka_name(handle).decode().startswith(f"{client_id}#consumer-"):
        return None
    return ColumnQueue(library, consumer, handle, limit)
