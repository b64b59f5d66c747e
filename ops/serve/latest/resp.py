"""The Redis protocol, versions 2 and 3: requests, which are arrays of bulk strings or lines of words, and replies.

A request:           *2 CR LF $3 CR LF GET CR LF $2 CR LF UA CR LF
The same as a line:  GET UA CR LF
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ....processors import PenstockError

_END = b"\r\n"
_MIN_WORD_BYTES = len(b"$0") + 2 * len(_END)
_MAX_DIGITS = 10
GUEST_WORDS, GUEST_BYTES = 10, 16 * 2**10
"""The largest request of a client that has not authenticated, as in Redis."""
_HTTP_WORDS = frozenset({b"POST", b"HOST:"})
"""First words of lines that a browser sends to another site's port, and no Redis client."""


class ProtocolError(PenstockError):
    """The bytes of a client are no requests: the connection cannot go on."""


class RequestReader:
    """Parses the requests of a connection, each byte once, in whatever pieces they arrive.

    It allocates memory for received bytes only. A general parser of the protocol prepares lists of the announced length, so a few bytes from a
    client without a password would fill the memory.

    Args:
        most_bytes: the largest size of a request.
        is_trusted: whether a request may have this size. Other clients have small limits, those of Redis, until `trust`.
    """

    def __init__(self, most_bytes: int, *, is_trusted: bool = True) -> None:
        self._largest_bytes = most_bytes
        self._is_trusted = is_trusted
        self._rest = bytearray()  # received, and not parsed
        self._words: list[bytes] = []  # of the request that has begun
        self._missing = 0  # its words that have not been parsed
        self._size: int | None = None  # the bytes of its next word, once they are announced
        self._parsed_bytes = 0  # its bytes that are no longer in the rest
        self._searched_bytes = 0  # of a line whose end has not been found

    def trust(self) -> None:
        """Allow requests of the largest size, from the next one on: the client has authenticated."""
        self._is_trusted = True

    @property
    def unparsed_bytes(self) -> int:
        """The bytes of the request that has begun."""
        return self._parsed_bytes + len(self._rest)

    def feed(self, received: bytes) -> Iterator[Sequence[bytes]]:
        """Yield the complete requests, as lists of words. Consume them all before the next call.

        Raises:
            ProtocolError: the bytes are no requests, or a request is too large.
        """
        self._rest += received
        if self._missing:
            request = self._request()
            if request is None:
                return
            yield request
        if self._is_trusted and self._rest[:1] == b"*":
            yield from self._simple()
        # Not simple again in these bytes: splitting the rest for each unusual request would take the square of their size.
        while self._rest:
            request = self._next()
            if request is None:
                return
            if request:
                yield request

    def _simple(self) -> list[Sequence[bytes]]:
        """Remove and return requests up to the first one that is incomplete or invalid, or whose words contain line ends.

        These are most requests, in few operations.
        """
        lines, at, requests = bytes(self._rest).split(_END), 0, list[Sequence[bytes]]()
        while at + 1 < len(lines) and (count := _simple_count(lines[at])) > 0:
            stop = at + 1 + 2 * count
            if stop >= len(lines):
                break
            words = lines[at + 2 : stop : 2]
            if lines[at + 1 : stop : 2] != [b"$%d" % len(word) for word in words]:
                break
            requests.append(words)
            at = stop
        self._rest = bytearray(_END.join(lines[at:]))
        return requests

    def _next(self) -> Sequence[bytes] | None:
        """Return the next request, without words if it is empty; None if it is incomplete."""
        first = bytes(self._rest[:1])
        if first.isalpha() or first in _END:
            return self._inline()
        _expect(b"*", first)
        head = self._line()
        if head is None:
            return None
        self._missing = self._count(head)
        return self._request()

    def _request(self) -> Sequence[bytes] | None:
        """Return the request that has begun; None if it is incomplete."""
        while self._missing:
            word = self._word()
            if word is None:
                return None
            self._words.append(word)
            self._missing -= 1
        request, self._words, self._parsed_bytes = self._words, [], 0
        return request

    def _word(self) -> bytes | None:
        """Return the next word of the request; None if it is incomplete."""
        if self._size is None:
            line = self._line()
            if line is None:
                return None
            self._size = _number(b"$", line)
            self._expect_bytes(self._parsed_bytes + self._size + len(_END))
        size = self._size
        if len(self._rest) < size + len(_END):
            return None
        word = bytes(self._rest[:size])
        _expect(_END, bytes(self._rest[size : size + len(_END)]))
        self._remove(size + len(_END))
        self._size = None
        return word

    def _inline(self) -> Sequence[bytes] | None:
        """Return the request of a line, as people and health checks send it; None if it is incomplete."""
        end = self._rest.find(_END[1:], self._searched_bytes)
        self._expect_bytes(len(self._rest) if end < 0 else end)
        if end < 0:
            self._searched_bytes = len(self._rest)
            return None
        line = bytes(self._rest[:end])
        words = line.split()
        if words and words[0].upper() in _HTTP_WORDS:
            raise ProtocolError("expected the Redis protocol, and received HTTP")
        if b'"' in line or b"'" in line:
            raise ProtocolError("a request as a line has no quotes; send an array of bulk strings")
        self._expect_words(len(words))
        del self._rest[: end + 1]
        self._searched_bytes = 0
        return words

    def _line(self) -> bytes | None:
        """Remove and return a line with a number; None if its end has not been received."""
        end = self._rest.find(_END, 0, _MAX_DIGITS + 2 * len(_END))
        if end < 0:
            if len(self._rest) > _MAX_DIGITS + len(_END):
                raise ProtocolError("expected a number of bytes or words")
            return None
        line = bytes(self._rest[:end])
        self._remove(end + len(_END))
        return line

    def _remove(self, parsed_bytes: int) -> None:
        del self._rest[:parsed_bytes]  # a bytearray moves its begin, and copies what follows once per halving
        self._parsed_bytes += parsed_bytes

    def _count(self, head: bytes) -> int:
        """Return the number of words of a request; empty requests are skipped, as in Redis."""
        if head == b"*-1":
            return 0
        count = _number(b"*", head)
        self._expect_words(count)
        return count

    def _expect_words(self, count: int) -> None:
        most = self._largest_bytes // _MIN_WORD_BYTES if self._is_trusted else GUEST_WORDS
        if count > most:
            raise ProtocolError(f"a request has {count} words, more than {most}{self._remedy}")

    def _expect_bytes(self, size: int) -> None:
        most = self._largest_bytes if self._is_trusted else min(self._largest_bytes, GUEST_BYTES)
        if size > most:
            raise ProtocolError(f"a request has more than {most} bytes{self._remedy}")

    @property
    def _remedy(self) -> str:
        return "" if self._is_trusted else "; authenticate first, with AUTH"


def _simple_count(head: bytes) -> int:
    """Return the number of words of a request; 0 if it is empty or none."""
    digits = head[1:]
    return int(digits) if head[:1] == b"*" and digits.isdigit() and len(digits) <= _MAX_DIGITS else 0


def _number(kind: bytes, line: bytes) -> int:
    _expect(kind, line[:1])
    digits = line[1:]
    if not (digits.isdigit() and len(digits) <= _MAX_DIGITS):
        raise ProtocolError("expected a number of bytes or words")
    return int(digits)


def _expect(wanted: bytes, found: bytes) -> None:
    if found != wanted:
        raise ProtocolError("expected an array of bulk strings")


class Status(NamedTuple):
    """A short text such as OK."""

    text: str


class Failure(NamedTuple):
    """An error: a code in capital letters, then words."""

    text: str


Reply = Status | Failure | bytes | int | None | Sequence["Reply"] | Mapping[str, "Reply"]
OLDEST, NEWEST = 2, 3
"""The versions of the protocol."""


def encode_reply(reply: Reply, version: int) -> bytes:  # noqa: PLR0911 - one return for each type of reply
    """Return a reply as bytes.

    Args:
        reply: the reply; None is a missing value.
        version: 2 or 3. Only version 3 has maps; version 2 lists keys and values in turn.
    """
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if reply is None:
        return b"$-1\r\n" if version == OLDEST else b"_\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, Status):
        return f"+{reply.text}\r\n".encode()
    if isinstance(reply, Failure):
        return f"-{_one_line(reply.text)}\r\n".encode()
    if isinstance(reply, Mapping):
        pairs = [part for name, value in reply.items() for part in (name.encode(), value)]
        head = b"*%d\r\n" % len(pairs) if version == OLDEST else b"%%%d\r\n" % len(reply)
        return head + _joined(pairs, version)
    return b"*%d\r\n" % len(reply) + _joined(reply, version)


def _joined(replies: Sequence[Reply], version: int) -> bytes:
    # Most are values, whose encoding takes less time than a call.
    return b"".join(
        [
            b"$%d\r\n%b\r\n" % (len(reply), reply) if isinstance(reply, bytes) else encode_reply(reply, version)
            for reply in replies
        ]
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())
