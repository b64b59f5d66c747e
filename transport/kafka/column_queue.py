"""A queue of fetched messages, which librdkafka fills and `gather.c` empties into columns.

buckets of a consumer --forward--> queue --consume--> messages --gather, in a thread--> columns --take--> batches

While a worker processes a full batch, the next one is copied by a thread that needs no interpreter lock.

A message as a Python object costs more than half of a plain consumer's time. The membership of the group, commits, seeks and errors stay with
the consumer: it serves its own queue, and only fetched messages of forwarded buckets come here.
"""

from __future__ import annotations

import ctypes
import logging
import os
import select
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from weakref import finalize

import numpy as np
from confluent_kafka import Consumer, KafkaError, cimpl, libversion

from ...processors import library_obstacle
from ..message_columns import BytesColumn, ColumnBatch, MessageColumns, Numbers
from ..messages import Bucket
from .client_handle import client_versions, handle_obstacle

_LOG = logging.getLogger("penstock.kafka")

LIBRARY = Path(__file__).with_name("gather.so")
"""The compiled `gather.c`; built at the installation if there is a C compiler."""

VALUES_IN_RECORDS = frozenset({"2.15.0", "2.16.0"})
"""The versions of librdkafka whose values are in records with certainty, so that `gather.c` may read the bytes around a value.

rdkafka.h does not promise it. `test_the_client_keeps_values_in_records` shows it for the installed version. For a new version, also read
rd_kafka_msgset_reader_msg_v2: values and headers must point into the buffer of the answer, or into the one that it was unpacked to.
"""

_WAKE = b"m"


class _Client(ctypes.Structure):
    """client_t of `gather.c`: the functions of librdkafka that it calls, and whether values are in records."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("consume", "timestamp", "headers", "header", "topic_name", "destroy")),
        ("are_values_in_records", ctypes.c_int),
    ]


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


class Library(NamedTuple):
    """The two C libraries.

    Args:
        gather: the compiled `gather.c`.
        rdkafka: the librdkafka that the Kafka client has loaded.
        client: its functions, and what `gather` may rely on.
    """

    gather: ctypes.CDLL
    rdkafka: ctypes.CDLL
    client: _Client


class _Sizes(ctypes.Structure):
    """The sizes of columns: messages, headers, and bytes."""

    _fields_ = [(name, ctypes.c_int64) for name in ("messages", "values", "keys", "headers", "header_bytes")]


class _Run(ctypes.Structure):
    """The messages of one bucket, whose columns are in one memory."""

    _fields_ = [
        ("topic", ctypes.c_void_p),
        ("name", ctypes.c_char * 256),
        ("partition", ctypes.c_int64),
        ("sizes", _Sizes),
        ("memory", ctypes.c_void_p),
    ]


class _Job(ctypes.Structure):
    """What `gather.c` takes and copies at once."""

    _fields_ = [
        ("client", ctypes.POINTER(_Client)),
        ("queue", ctypes.c_void_p),
        ("messages", ctypes.c_void_p),
        ("limit", ctypes.c_int64),
        ("taken", ctypes.c_int64),
        ("errors", ctypes.c_int64),
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
    for name in ("penstock_gather", "penstock_gather_begin", "penstock_gather_end", "penstock_release"):
        getattr(gather, name).argtypes = [ctypes.c_void_p]
    functions = {field: address[name] for field, name in _FUNCTIONS.items()}
    return Library(gather, rdkafka, _Client(**functions, are_values_in_records=_are_values_in_records()))


def reader_obstacle() -> str | None:
    """Return why messages are read one by one; None if C code reads them as columns."""
    obstacle = library_obstacle(LIBRARY) or handle_obstacle()
    if obstacle is None and load_library() is None:
        return f"{client_versions()} hides its librdkafka"
    return obstacle


def reader_limit() -> str | None:
    """Return why reading as columns takes more CPU time than it could; None without a reason."""
    if libversion()[0] in VALUES_IN_RECORDS:
        return None
    return (
        f"this version of Penstock was not tested with {client_versions()}, and asks it for the headers of each message"
    )


def _are_values_in_records() -> bool:
    if reader_limit() is None:
        return True
    _LOG.info(
        "This version of Penstock was not tested with %s. Reading asks it for the headers of each message, which takes about 50 ns of CPU time. "
        "No data is affected.",
        client_versions(),
    )
    return False


_FUNCTIONS = {
    "consume": "consume_batch_queue",
    "timestamp": "message_timestamp",
    "headers": "message_headers",
    "header": "header_get_all",
    "topic_name": "topic_name",
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
        ("consume_batch_queue", ctypes.c_ssize_t, [pointer, ctypes.c_int, pointer, ctypes.c_size_t]),
        ("topic_name", text, [pointer]),
        ("message_destroy", None, [pointer]),
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
        self._library = library
        self._rdkafka = library.rdkafka
        self._handle = handle
        self._limit = limit
        self._ready: list[ColumnBatch | QueueError] = []
        self._ahead: list[_Gathering] = []
        self._queue = self._rdkafka.rd_kafka_queue_new(handle)
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        self._poll = select.poll()  # `select` accepts no descriptor above 1,023
        self._poll.register(self._wake_read, select.POLLIN)
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
        if self._poll.poll(timeout_s * 1000):
            os.read(self._wake_read, 4096)

    def take(self, limit: int, paused: Collection[Bucket] = ()) -> Taken:
        """Return up to `limit` messages, at most one batch for each bucket, without waiting.

        Args:
            limit: the greatest number of messages.
            paused: the buckets whose messages wait.
        """
        if all(item.bucket in paused for item in self._ready):
            full = min(limit, self._limit)
            if (self._finish_ahead() or self._receive(self._gathering(full))) >= full:
                self._gather_ahead(full)
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

    def _gathering(self, limit: int) -> _Gathering:
        return _Gathering(self._library, self._queue, limit)

    def _gather_ahead(self, limit: int) -> None:
        """Begin to take and copy the next messages."""
        following = self._gathering(limit)
        following.start()
        self._ahead.append(following)

    def _finish_ahead(self) -> int:
        """Receive the messages that are being copied. Return their number."""
        return sum(self._receive(self._ahead.pop()) for _ in self._ahead[:])

    def _receive(self, gathering: _Gathering) -> int:
        self._ready += gathering.finish()
        return gathering.taken

    def drop(self, buckets: Collection[Bucket]) -> None:
        """Forget the messages of buckets that `take` has not returned yet: the consumer will read these buckets from another offset, or no more."""
        self._finish_ahead()
        self._ready = [item for item in self._ready if item.bucket not in buckets]

    def keep_alive(self) -> None:
        """Take no message of the consumer's own queue, which counts as a poll and calls nothing back. Any thread, before `close`."""
        if self._own:
            self._rdkafka.rd_kafka_consume_batch_queue(self._own, 0, None, 0)

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
    """Messages on their way from a queue into columns.

    Args:
        library: the C libraries.
        queue: the queue.
        limit: the greatest number of messages.
    """

    def __init__(self, library: Library, queue: int, limit: int) -> None:
        self._library = library
        self._messages = np.empty(limit, np.uintp)
        self._job = _Job(
            client=ctypes.pointer(library.client), queue=queue, messages=self._messages.ctypes.data, limit=limit
        )
        self._is_started = self._is_finished = False

    @property
    def taken(self) -> int:
        """The number of messages, including errors, after `finish`."""
        return int(self._job.taken)

    def start(self) -> None:
        """Begin in a thread. If there can be no thread, `finish` does it."""
        self._is_started = self._library.gather.penstock_gather_begin(ctypes.byref(self._job)) == 0

    def finish(self) -> list[ColumnBatch | QueueError]:
        """Return the batches and errors; wait until the messages are copied.

        Raises:
            RuntimeError: called a second time; no thread may be joined twice.
            MemoryError: there is no memory for the messages.
        """
        if self._is_finished:
            raise RuntimeError("these messages are received already")
        self._is_finished = True
        gather = self._library.gather
        (gather.penstock_gather_end if self._is_started else gather.penstock_gather)(ctypes.byref(self._job))
        if self.taken < 0:
            raise MemoryError("no memory for messages of Kafka")
        batches = [self._batch(run) for run in self._job.runs[: self._job.count]]
        gather.penstock_release(self._job.runs)
        errors = [_queue_error(self._library.rdkafka, int(address)) for address in self._messages[: self._job.errors]]
        return [*batches, *errors]

    def _batch(self, run: _Run) -> ColumnBatch:
        columns = _Columns(self._library.gather, run)
        return ColumnBatch(Bucket(run.name.decode(), run.partition), columns.messages(run.partition))


def _queue_error(rdkafka: ctypes.CDLL, address: int) -> QueueError:
    """Return an error, and release its message."""
    message = _Message.from_address(address)
    reason = ctypes.string_at(message.value, message.value_size).decode(errors="replace") if message.value else None
    category = rdkafka.rd_kafka_topic_name(message.topic).decode() if message.topic else ""
    found = QueueError(Bucket(category, message.partition), message.offset, KafkaError(message.error, reason))
    rdkafka.rd_kafka_message_destroy(address)
    return found


class _Memory:
    """Memory of `gather.c`, which is released when no array uses it.

    Args:
        library: the compiled `gather.c`.
        address: where it begins.
        size: in bytes.
    """

    def __init__(self, library: ctypes.CDLL, address: int, size: int) -> None:
        self._release = library.penstock_release
        self._address = address
        self.__array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        self._release(self._address)


class _Columns:
    """The columns of a run, in the order in which they are in its memory.

    Args:
        library: the compiled `gather.c`.
        run: the run.
    """

    def __init__(self, library: ctypes.CDLL, run: _Run) -> None:
        sizes = run.sizes
        numbers, flags = [8 * sizes.messages] * 5 + [8 * sizes.headers] * 2, [sizes.messages] * 3
        ends = np.cumsum([*numbers, *flags, sizes.values, sizes.keys, sizes.header_bytes])
        parts = np.split(np.asarray(_Memory(library, run.memory, int(ends[-1]))), ends[:-1])
        self.offset, self.timestamp, self.value_end, self.key_end, self.header_end, self.name_size, self.header_size = (
            part.view(np.int64) for part in parts[:7]
        )
        self.timestamp_kind, self.has_value, self.has_key = (part.view(np.int8) for part in parts[7:10])
        self.values, self.keys, self.header_bytes = parts[10:]

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


def open_column_queue(consumer: Consumer, handle: int | None, limit: int) -> ColumnQueue | None:
    """Return a column queue of a consumer; None where columns are not available.

    Args:
        consumer: open.
        handle: its rd_kafka_t; None where it is not available.
        limit: the greatest number of messages of `ColumnQueue.take`.
    """
    library = load_library()
    return None if library is None or handle is None else ColumnQueue(library, consumer, handle, limit)
