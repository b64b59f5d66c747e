"""The Redis protocol, versions 2 and 3: requests, which are arrays of bulk strings or lines of words, and replies.

A request:           *2 CR LF $3 CR LF GET CR LF $2 CR LF UA CR LF
The same as a line:  GET UA CR LF
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...processors.errors import PenstockError

_END = b"\r\n"
_MIN_WORD_BYTES = len(b"$0") + 2 * len(_END)
_MAX_DIGITS = 10
_HTTP_WORDS = frozenset({b"POST", b"HOST:"})
"""First words of lines that a browser sends to another site's port, and no Redis client."""


class ProtocolError(PenstockError):
    """The bytes of a client are no requests: the connection cannot go on."""


class RequestReader:
    """Parses the requests of a connection.

    It allocates memory for received bytes only. A general parser of the protocol prepares lists of the announced length, so a few bytes from a
    client without a password would fill the memory.

    Args:
        most_bytes: the largest size of a request.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_words = most_bytes // _MIN_WORD_BYTES
        self._rest = b""

    @property
    def unparsed_bytes(self) -> int:
        """The bytes of the request that has begun."""
        return len(self._rest)

    def feed(self, received: bytes) -> Iterator[Sequence[bytes]]:
        """Yield the complete requests, as lists of words. Consume them all before the next call.

        Raises:
            ProtocolError: the bytes are no requests.
        """
        self._rest += received
        while self._rest:
            before = len(self._rest)
            yield from self._simple()
            request = self._any() if self._rest else None
            if request is not None:
                yield request
            if len(self._rest) == before:
                return

    def _simple(self) -> list[Sequence[bytes]]:
        """Remove and return requests up to the first one that is incomplete or invalid, or whose words contain line ends.

        These are most requests, in few operations.
        """
        lines, at, requests = self._rest.split(_END), 0, list[Sequence[bytes]]()
        while at + 1 < len(lines) and (count := _simple_count(lines[at])) > 0:
            stop = at + 1 + 2 * count
            words = lines[at + 2 : stop : 2]
            if stop >= len(lines) or lines[at + 1 : stop : 2] != [b"$%d" % len(word) for word in words]:
                break
            requests.append(words)
            at = stop
        self._rest = _END.join(lines[at:])
        return requests

    def _any(self) -> Sequence[bytes] | None:
        """Return the next request; None if it is empty or incomplete."""
        if self._rest[:1].isalpha() or self._rest[:1] in b"\r\n":
            return self._inline()
        rest, at, words = self._rest, 0, list[bytes]()
        _expect(b"*", rest[:1])
        head = self._line(at)
        if head is None:
            return None
        at += len(head) + len(_END)
        for _ in range(self._count(head)):
            size = self._line(at)
            if size is None:
                return None
            start = at + len(size) + len(_END)
            at = start + _number(b"$", size) + len(_END)
            if at > len(rest):
                return None
            words.append(rest[start : at - len(_END)])
            _expect(_END, rest[at - len(_END) : at])
        self._rest = rest[at:]
        return words or None

    def _inline(self) -> Sequence[bytes] | None:
        """Return the request of a line, as people and health checks send it; None if it is empty or incomplete."""
        line, end, rest = self._rest.partition(_END[1:])
        if not end:
            return None
        words = line.split()
        if words and words[0].upper() in _HTTP_WORDS:
            raise ProtocolError("expected the Redis protocol, and received HTTP")
        if b'"' in line or b"'" in line:
            raise ProtocolError("a request as a line has no quotes; send an array of bulk strings")
        self._rest = rest
        return words or None

    def _line(self, at: int) -> bytes | None:
        """Return the line at a place; None if its end has not been received."""
        end = self._rest.find(_END, at, at + _MAX_DIGITS + 2 * len(_END))
        if end < 0 and len(self._rest) - at > _MAX_DIGITS + len(_END):
            raise ProtocolError("expected a number of bytes or words")
        return None if end < 0 else self._rest[at:end]

    def _count(self, head: bytes) -> int:
        """Return the number of words of a request; empty requests are skipped, as in Redis."""
        if head == b"*-1":
            return 0
        count = _number(b"*", head)
        if count > self._most_words:
            raise ProtocolError(f"a request has {count} words, more than fit into the largest request")
        return count


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
