"""Headers of messages that are copied into columns, with a client that is played by the test."""

from __future__ import annotations

import ctypes
from collections.abc import MutableSequence
from typing import NamedTuple

import pytest

from penstock.transport.kafka.column_queue import _Client, _Job, _Message, load_library

NO_HEADERS = 1
VALUE = b"x" * 100
SIZE_IN_A_RECORD = b"\xc8\x01"
"""200 as a varint: the size of the value in zigzag encoding."""


class Place(NamedTuple):
    """The memory around a value."""

    before: bytes
    after: bytes


class PlayedClient:
    """A client that has one message with the header a=1, or without headers, at some place in memory."""

    def __init__(self, place: Place, *, has_header: bool) -> None:
        self.asked = 0
        self._has_header = has_header
        memory = place.before + VALUE + place.after
        self._memory = ctypes.create_string_buffer(memory, len(memory))
        self._message = _Message(value=ctypes.addressof(self._memory) + len(place.before), value_size=len(VALUE))

    def gathered(self) -> tuple[int, int]:
        """Let the library copy the message; return the numbers of messages and headers in columns."""
        library = load_library()
        assert library is not None
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        functions = {
            "consume": ctypes.CFUNCTYPE(ctypes.c_ssize_t, pointer, ctypes.c_int, ctypes.POINTER(pointer), size)(
                self._consume
            ),
            "timestamp": ctypes.CFUNCTYPE(ctypes.c_int64, pointer, pointer)(lambda *_: 0),
            "headers": ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer)(self._headers),
            "header": ctypes.CFUNCTYPE(
                ctypes.c_int,
                pointer,
                size,
                ctypes.POINTER(ctypes.c_char_p),
                ctypes.POINTER(pointer),
                ctypes.POINTER(size),
            )(self._header),
            "topic_name": ctypes.CFUNCTYPE(pointer, pointer)(lambda _: ctypes.addressof(self._memory)),
            "destroy": ctypes.CFUNCTYPE(None, pointer)(lambda _: None),
        }
        client = _Client(**{name: ctypes.cast(function, pointer).value for name, function in functions.items()})
        room = (pointer * 10)()
        job = _Job(ctypes.pointer(client), None, ctypes.cast(room, pointer), len(room))
        library.gather.penstock_gather(ctypes.addressof(job))
        try:
            return job.runs[0].sizes.messages, job.runs[0].sizes.headers
        finally:
            library.gather.penstock_release(job.runs[0].memory)
            library.gather.penstock_release(ctypes.cast(job.runs, pointer))

    def _consume(self, queue: int, timeout_ms: int, messages: MutableSequence[int], limit: int) -> int:
        messages[0] = ctypes.addressof(self._message)
        return 1

    def _headers(self, message: int, headers: int) -> int:
        self.asked += 1
        return 0 if self._has_header else NO_HEADERS

    def _header(
        self,
        headers: int,
        at: int,
        name: MutableSequence[bytes],
        value: MutableSequence[int],
        size: MutableSequence[int],
    ) -> int:
        if at:
            return NO_HEADERS
        name[0], value[0], size[0] = b"a", ctypes.addressof(self._memory), 1
        return 0


def test_a_record_of_the_broker_without_headers_is_recognised_by_its_bytes() -> None:
    """The client, which takes as long as the rest of the copy, is not asked."""
    client = PlayedClient(Place(SIZE_IN_A_RECORD, b"\0"), has_header=False)

    assert client.gathered() == (1, 0)
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
    client = PlayedClient(Place(b"\0" * 16 + place.before, place.after), has_header=True)

    assert client.gathered() == (1, 1)
    assert client.asked > 0
