"""Messages that are copied into columns, with a client that is played by the test.

Each part of a message is in an allocation of its own, so that a sanitizer finds an access outside of it (`make test-asan`).
"""

from __future__ import annotations

import ctypes
from collections.abc import MutableSequence, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from penstock.transport.kafka.column_queue import _Client, _Columns, _Job, _Message, load_library

NO_HEADERS = 1
VALUE = b"x" * 100
SIZE_IN_A_RECORD = b"\xc8\x01"
"""200 as a varint: the size of the value in zigzag encoding."""
POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t
TOPICS = ("a", "t" * 249)

Headers = Sequence[tuple[str, bytes | None]]


class Place(NamedTuple):
    """The memory around a value."""

    before: bytes
    after: bytes


class Played(NamedTuple):
    """A message of the client, or an error."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    topic: str = TOPICS[0]
    partition: int = 0
    place: Place = Place(b"", b"")
    is_error: bool = False


class Gathered(NamedTuple):
    """Messages by bucket, and the numbers of the messages that are errors."""

    batches: dict[tuple[str, int], list[tuple[int, bytes | None, bytes | None, Headers]]]
    errors: list[int]


class PlayedClient:
    """A client that has messages. Their offsets are their numbers.

    Args:
        messages: the messages.
        are_values_in_records: whether there is memory around each value.
    """

    def __init__(self, messages: Sequence[Played], *, are_values_in_records: bool) -> None:
        self.asked = 0
        self.released: list[int] = []
        self._played = messages
        self._are_values_in_records = are_values_in_records
        self._memory: list[np.ndarray[Any, Any]] = []
        self._names = {topic: self._address(topic.encode() + b"\0") for topic in TOPICS}
        self._headers = [
            [
                (self._address(name.encode() + b"\0"), self._address(value), len(value or b""))
                for name, value in message.headers
            ]
            for message in messages
        ]
        self._messages = [self._message(number, message) for number, message in enumerate(messages)]
        self._numbers = {ctypes.addressof(message): number for number, message in enumerate(self._messages)}

    def _address(self, content: bytes | None) -> int | None:
        """Copy bytes into an allocation of their size."""
        if content is None:
            return None
        self._memory.append(np.frombuffer(content, np.uint8).copy())
        return self._memory[-1].ctypes.data

    def _message(self, number: int, played: Played) -> _Message:
        before, after = played.place
        at = None if played.value is None else self._address(before + played.value + after)
        return _Message(
            int(played.is_error),
            self._names[played.topic],
            played.partition,
            None if at is None else at + len(before),
            len(played.value or b""),
            self._address(played.key),
            len(played.key or b""),
            number,
        )

    def gathered(self) -> Gathered:
        """Let the library copy the messages."""
        library = load_library()
        assert library is not None
        functions = {
            "consume": ctypes.CFUNCTYPE(ctypes.c_ssize_t, POINTER, ctypes.c_int, ctypes.POINTER(POINTER), SIZE)(
                self._consume
            ),
            "timestamp": ctypes.CFUNCTYPE(ctypes.c_int64, POINTER, POINTER)(lambda *_: 0),
            "headers": ctypes.CFUNCTYPE(ctypes.c_int, POINTER, ctypes.POINTER(POINTER))(self._headers_of),
            "header": ctypes.CFUNCTYPE(
                ctypes.c_int,
                POINTER,
                SIZE,
                ctypes.POINTER(POINTER),
                ctypes.POINTER(POINTER),
                ctypes.POINTER(SIZE),
            )(self._header),
            "topic_name": ctypes.CFUNCTYPE(POINTER, POINTER)(lambda topic: topic),
            "destroy": ctypes.CFUNCTYPE(None, POINTER)(lambda message: self.released.append(self._numbers[message])),
        }
        client = _Client(
            **{name: ctypes.cast(function, POINTER).value for name, function in functions.items()},
            are_values_in_records=self._are_values_in_records,
        )
        room = np.empty(len(self._played), np.uintp)
        job = _Job(ctypes.pointer(client), None, room.ctypes.data, len(room))
        library.gather.penstock_gather(ctypes.addressof(job))
        batches = {}
        for run in job.runs[: job.count]:
            messages = _Columns(library.gather, run).messages(run.partition)
            batches[run.name.decode(), run.partition] = [
                (message.offset(), message.key(), message.value(), message.headers() or ()) for message in messages
            ]
        library.gather.penstock_release(ctypes.cast(job.runs, POINTER))
        return Gathered(batches, [self._numbers[int(address)] for address in room[: job.errors]])

    def _consume(self, queue: int, timeout_ms: int, messages: MutableSequence[int], limit: int) -> int:
        assert limit == len(self._messages)
        for at, address in enumerate(self._numbers):
            messages[at] = address
        return limit

    def _headers_of(self, message: int, headers: MutableSequence[int]) -> int:
        self.asked += 1
        number = self._numbers[message]
        if not self._headers[number]:
            return NO_HEADERS
        headers[0] = number + 1  # an address that is not NULL
        return 0

    def _header(
        self,
        headers: int,
        at: int,
        name: MutableSequence[int | None],
        value: MutableSequence[int | None],
        size: MutableSequence[int],
    ) -> int:
        known = self._headers[headers - 1]
        if at >= len(known):
            return NO_HEADERS
        name[0], value[0], size[0] = known[at]
        return 0


def varint(size: int) -> bytes:
    """Return the size of a value as a record contains it."""
    left, encoded = 2 * size, bytearray()
    while left >= 0x80:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*encoded, left])


def in_a_record(message: Played) -> Played:
    """Return a message with the memory around its value that a record of the broker has."""
    size = varint(len(message.value)) if message.value is not None else b"\1"
    return message._replace(place=Place(b"\0" * 6 + (message.key or b"") + size, varint(len(message.headers))))


MESSAGES = some.builds(
    Played,
    some.none() | some.binary(max_size=70) | some.sampled_from([b"\0" * size for size in (1, 63, 64, 8_191, 8_192)]),
    some.none() | some.binary(max_size=9),
    some.lists(
        some.tuples(
            some.text(some.characters(codec="utf-8", exclude_characters="\0"), max_size=5),
            some.none() | some.binary(max_size=5),
        ),
        max_size=3,
    ),
    some.sampled_from(TOPICS),
    some.integers(0, 2),
    is_error=some.integers(0, 5).map(lambda one_in_six: not one_in_six),
)


@settings(max_examples=300)
@given(messages=some.lists(MESSAGES, max_size=12), are_values_in_records=some.booleans())
def test_columns_have_the_parts_of_the_messages(messages: list[Played], are_values_in_records: bool) -> None:
    """Each bucket keeps the order of its messages, and errors stay messages. Values outside of records have no surrounding bytes."""
    played = list(map(in_a_record, messages)) if are_values_in_records else messages
    client = PlayedClient(played, are_values_in_records=are_values_in_records)
    expected = Gathered({}, [])
    for number, message in enumerate(messages):
        if message.is_error:
            expected.errors.append(number)
        else:
            batch = expected.batches.setdefault((message.topic, message.partition), [])
            batch.append((number, message.key, message.value, message.headers or ()))

    assert client.gathered() == expected
    assert client.released == [number for number in range(len(messages)) if number not in expected.errors]
    assert client.asked <= len(messages) - len(expected.errors)


def test_a_record_of_the_broker_without_headers_is_recognised_by_its_bytes() -> None:
    """The client, which takes as long as the rest of the copy, is not asked."""
    message = Played(VALUE, place=Place(SIZE_IN_A_RECORD, b"\0"))
    client = PlayedClient([message], are_values_in_records=True)

    assert client.gathered().batches == {("a", 0): [(0, None, VALUE, ())]}
    assert client.asked == 0


@pytest.mark.parametrize(
    "place",
    [
        Place(SIZE_IN_A_RECORD, b"\2\2a\0021"),
        Place(b"\0" * 16, b"\0"),
        Place(b"\xc8\0", b"\0"),
        Place(b"\xc9\1", b"\0"),
        Place(b"\x64", b"\0"),
        Place(b"\0\0\0\x64", b"\0"),
    ],
    ids=["record with headers", "copy", "other size", "other size, first byte", "not zigzag", "older format"],
)
def test_the_client_is_asked_about_other_messages(place: Place) -> None:
    """A value that is not in a record, such as a copy, may be followed by any byte."""
    headers = [("a", b"1")]
    message = Played(VALUE, headers=headers, place=Place(b"\0" * 16 + place.before, place.after))
    client = PlayedClient([message], are_values_in_records=True)

    assert client.gathered().batches == {("a", 0): [(0, None, VALUE, headers)]}
    assert client.asked == 1


def test_an_unknown_client_is_asked_about_each_message() -> None:
    """It is asked once for each message, whatever bytes are around the value."""
    message = Played(VALUE, headers=[("a", b"1")], place=Place(SIZE_IN_A_RECORD, b"\0"))
    client = PlayedClient([message] * 3, are_values_in_records=False)

    assert [headers for *_, headers in client.gathered().batches["a", 0]] == [[("a", b"1")]] * 3
    assert client.asked == 3
