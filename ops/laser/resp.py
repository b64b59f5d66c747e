"""Replies of the Redis protocol, versions 2 and 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


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
    return b"".join(encode_reply(reply, version) for reply in replies)


def _one_line(text: str) -> str:
    return " ".join(text.split())
