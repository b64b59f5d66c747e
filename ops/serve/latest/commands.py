"""The Redis commands of one connection."""

from __future__ import annotations

import hmac
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

from ....processors import PenstockError
from .key_patterns import MOST_PATTERN_BYTES, KeyPattern
from .pairs import NotServed, Pairs
from .resp import NEWEST, OLDEST, Failure, Reply, Status

MOST_SCANNED = 1_000
"""The most keys that one SCAN looks at."""
MOST_CURSORS = 1_024
"""The number of unfinished scans that a server remembers; older ones start again."""
_OPEN_COMMANDS = frozenset({b"AUTH", b"HELLO", b"QUIT"})
"""Commands that need no token."""
_TRANSACTIONS = frozenset({b"MULTI", b"EXEC", b"DISCARD", b"WATCH", b"UNWATCH"})
_MOST_DIGITS = 19
"""The digits of the largest number of 64 bits."""

Arguments = Sequence[bytes]


class Later(NamedTuple):
    """A reply that takes time: a function for another thread."""

    reply: Callable[[], Reply]


class Cursors:
    """The unfinished scans of a server. A Redis cursor is a number, and a place among keys is none."""

    def __init__(self) -> None:
        self._places: OrderedDict[int, tuple[int, bytes]] = OrderedDict()
        self._numbers = count(1)

    def add(self, place: tuple[int, bytes]) -> int:
        """Return a cursor for a place: a bucket and its next key."""
        cursor = next(self._numbers)
        self._places[cursor] = place
        if len(self._places) > MOST_CURSORS:
            self._places.popitem(last=False)
        return cursor

    def place(self, cursor: int) -> tuple[int, bytes] | None:
        """Return the place of a cursor; None if it is unknown. Cursor 0 is the begin."""
        return (0, b"") if cursor == 0 else self._places.get(cursor)


class LaserServices(NamedTuple):
    """What all connections of a server share.

    Args:
        name: the name of the table.
        pairs: its pairs.
        token: the password of AUTH; None for none.
        cursors: unfinished scans.
    """

    name: str
    pairs: Pairs
    token: bytes | None
    cursors: Cursors


class ClientSession:
    """Runs the commands of one connection, in order.

    Args:
        services: shared by all connections.
    """

    def __init__(self, services: LaserServices) -> None:
        self._services = services
        self._pairs = services.pairs
        self.is_authenticated = services.token is None
        """Whether the client has sent the token, or there is none."""
        self.version = OLDEST
        self.is_ended = False
        """Whether the client has sent QUIT."""
        self._commands: dict[bytes, tuple[Callable[[Arguments], Reply], int, int | None]] = {
            b"GET": (self._get, 1, 1),
            b"MGET": (self._mget, 1, None),
            b"EXISTS": (self._exists, 1, None),
            b"TTL": (self._ttl, 1, 1),
            b"PTTL": (self._pttl, 1, 1),
            b"TYPE": (self._type, 1, 1),
            b"SCAN": (self._scan, 1, None),
            b"PING": (self._ping, 0, 1),
            b"ECHO": (self._ping, 1, 1),
            b"CLIENT": (self._client, 1, None),
            b"AUTH": (self._auth, 1, 2),
            b"HELLO": (self._hello, 0, None),
            b"SELECT": (self._select, 1, 1),
            b"INFO": (self._info, 0, None),
            b"COMMAND": (self._command, 0, None),
            b"QUIT": (self._quit, 0, None),
        }

    def run(self, request: Sequence[bytes]) -> Reply | Later:
        """Return the reply to a request. Only `PENSTOCK.LAG` is answered later, by Kafka."""
        name, arguments = request[0].upper(), request[1:]
        if not self.is_authenticated and name not in _OPEN_COMMANDS:
            return Failure("NOAUTH Authentication required.")
        try:
            if name == b"PENSTOCK.LAG":
                return Later(self._lag)
            return self._run(name, arguments)
        except NotServed as error:
            return _loading(error)

    def _run(self, name: bytes, arguments: Arguments) -> Reply:
        if name in _TRANSACTIONS:
            return Failure(
                "ERR Laser has no transactions; send a pipeline without one, in redis-py pipeline(transaction=False)"
            )
        if name not in self._commands:
            return Failure(f"ERR unknown command {_shown(name)}; Laser only reads: {self._names()}")
        command, least, most = self._commands[name]
        if len(arguments) < least or (most is not None and len(arguments) > most):
            return Failure(f"ERR wrong number of arguments for {_shown(name)}")
        return command(arguments)

    def _names(self) -> str:
        return " ".join([*(name.decode() for name in self._commands), "PENSTOCK.LAG"])

    def _get(self, arguments: Arguments) -> bytes | None:
        [pair] = self._pairs.fetch(arguments)
        return None if pair is None else pair.value

    def _mget(self, arguments: Arguments) -> list[bytes | None]:
        return [None if pair is None else pair.value for pair in self._pairs.fetch(arguments)]

    def _exists(self, arguments: Arguments) -> int:
        return sum(pair is not None for pair in self._pairs.fetch(arguments))

    def _ttl(self, arguments: Arguments) -> int:
        remaining_ms = self._pttl(arguments)
        return remaining_ms if remaining_ms < 0 else (remaining_ms + 500) // 1000

    def _pttl(self, arguments: Arguments) -> int:
        [pair] = self._pairs.fetch(arguments)
        if pair is None:
            return -2
        remaining_ms = self._pairs.remaining_ms(pair)
        return -1 if remaining_ms is None else max(0, remaining_ms)

    def _type(self, arguments: Arguments) -> Status:
        return Status("string" if self._exists(arguments) else "none")

    def _scan(self, arguments: Arguments) -> Reply:
        options = {name.upper(): value for name, value in zip(arguments[1::2], arguments[2::2], strict=False)}
        limit = _number(options.get(b"COUNT", b"10"))
        if len(arguments) % 2 == 0 or not options.keys() <= {b"COUNT", b"MATCH", b"TYPE"} or not limit:
            return Failure("ERR syntax error; write SCAN cursor [MATCH pattern] [COUNT number] [TYPE type]")
        cursor = _number(arguments[0])
        place = None if cursor is None else self._services.cursors.place(cursor)
        if place is None:
            return Failure("ERR invalid cursor; start again at 0")
        pattern = options.get(b"MATCH")
        if pattern is not None and len(pattern) > MOST_PATTERN_BYTES:
            return Failure(f"ERR a pattern has at most {MOST_PATTERN_BYTES} bytes")
        keys, following = self._pairs.scan(*place, min(limit, MOST_SCANNED))
        if options.get(b"TYPE", b"string").lower() != b"string":
            keys = []  # values have no other type
        found = keys if pattern is None else list(filter(KeyPattern(pattern).matches, keys))
        following_cursor = 0 if following is None else self._services.cursors.add(following)
        return [str(following_cursor).encode(), found]

    def _ping(self, arguments: Arguments) -> Reply:
        return arguments[0] if arguments else Status("PONG")

    def _auth(self, arguments: Arguments) -> Reply:
        if self._services.token is None:
            return Failure("ERR AUTH called without any password configured")
        if not hmac.compare_digest(arguments[-1], self._services.token):
            return Failure("WRONGPASS invalid username-password pair or user is disabled.")
        self.is_authenticated = True
        return Status("OK")

    def _client(self, arguments: Arguments) -> Reply:
        # Clients introduce themselves, and some of them end a connection on which they cannot.
        return (
            Status("OK")
            if arguments[0].upper() in {b"SETNAME", b"SETINFO"}
            else Failure("ERR CLIENT has SETNAME and SETINFO")
        )

    def _hello(self, arguments: Arguments) -> Reply:
        version = arguments[0] if arguments else str(self.version).encode()
        if version not in {b"2", b"3"}:
            return Failure("NOPROTO unsupported protocol version")
        rest = arguments[1:]
        while rest:
            option, words = rest[0].upper(), {b"AUTH": 2, b"SETNAME": 1}.get(rest[0].upper(), len(rest))
            if len(rest) <= words:
                return Failure("ERR syntax error; write HELLO [version [AUTH username password] [SETNAME name]]")
            reply = self._auth(rest[1:3]) if option == b"AUTH" else None
            if isinstance(reply, Failure):
                return reply
            rest = rest[1 + words :]
        if not self.is_authenticated:
            return Failure("NOAUTH HELLO must be called with the client already authenticated, or with AUTH")
        self.version = OLDEST if version == b"2" else NEWEST
        return {
            "server": b"penstock-laser",
            "version": b"7.0.0",
            "proto": self.version,
            "id": 0,
            "mode": b"standalone",
            "role": b"replica",
            "modules": [],
        }

    def _select(self, arguments: Arguments) -> Reply:
        return Status("OK") if arguments[0] == b"0" else Failure("ERR DB index is out of range; Laser has only 0")

    def _info(self, arguments: Arguments) -> Reply:  # noqa: ARG002 - all sections are one
        return (
            f"# Server\r\nredis_mode:standalone\r\nprocess_id:{os.getpid()}\r\n"
            f"# Laser\r\nlaser_table:{self._services.name}\r\nlaser_day:{self._pairs.day or ''}\r\n"
            f"laser_problem:{' '.join(self._pairs.problem.split())}\r\n"
            f"loading:{int(not self._pairs.is_complete)}\r\n"
            "# Cluster\r\ncluster_enabled:0\r\n"
        ).encode()

    def _command(self, arguments: Arguments) -> Reply:  # noqa: ARG002 - redis-cli asks for descriptions, and works without
        return []

    def _quit(self, arguments: Arguments) -> Reply:  # noqa: ARG002 - as for Redis
        self.is_ended = True
        return Status("OK")

    def _lag(self) -> Reply:
        try:
            return self._pairs.events_behind()
        except NotServed as error:
            return _loading(error)
        except PenstockError as error:
            return Failure(f"ERR the lag is unknown: {error}")


def _loading(error: NotServed) -> Failure:
    """Return a refusal whose code clients know as a server that starts: they ask again, or ask another one."""
    return Failure(f"LOADING {error}")


def _shown(name: bytes) -> str:
    return repr(name[:40].decode(errors="replace"))


def _number(word: bytes) -> int | None:
    """Return a number of up to 64 bits; None for other words. Python would refuse to parse thousands of digits with an error."""
    return int(word) if word.isdigit() and len(word) <= _MOST_DIGITS else None
