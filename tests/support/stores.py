"""What the tests of remote state share: aggregators of their own, stores under test, and states that are opened and closed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import penstock as ps
from penstock.processors.declare.stores import WriteMode
from penstock.processors.keyed_state.changes import Changes
from penstock.processors.keyed_state.key_layout import encode_window_key
from penstock.processors.shard.position import StatePosition
from penstock.processors.shard.shard import HeldOutput
from penstock.state.protocols import Outbox, RemoteState, ShardIdentity
from penstock.state.remote import RemoteStates, remote_states
from penstock.transport.messages import BY_KEY

from .databases import Postgres, Redis
from .proxy import Proxy, Target

EVER = -(2**63)
A, B, C = (encode_window_key(key, EVER) for key in "abc")
OUTBOX = Outbox(
    {"hits": 4},
    StatePosition({"hits": 9}),
    [
        HeldOutput("pages", b"a", b"1", BY_KEY, None),
        HeldOutput("pages", None, b"2", 3, [("source", b"web"), ("source", None)]),
        HeldOutput("pages", b"b", None, BY_KEY, None),
    ],
)
LIMIT_S = 30.0
OVERWRITING, APPENDING = WriteMode.READ_MERGE_WRITE, WriteMode.APPEND
_numbers = count()


class Hit(ps.Record, frozen=True):
    """What is counted."""

    page: str
    at: ps.EventTime


hits = ps.Category("hits", Hit, key="page", event_time="at", buckets=4)


class Log(ps.monoids.Monoid[list[Any]]):
    """Everything in order, so that what is lost, doubled or swapped shows."""

    def identity(self) -> list[Any]:
        return []

    def lift(self, observation: Any) -> list[Any]:
        return [observation]

    def combine(self, left: list[Any], right: list[Any]) -> list[Any]:
        return [*left, *right]


def fresh(what: str) -> str:
    """Return a name that no other test uses."""
    return f"{what}_{next(_numbers)}"


def aggregator(of: ps.monoids.Monoid[Any], windows: Any = None) -> type[ps.Aggregator]:
    """Make an aggregator of a name that no other test uses."""

    class Counted(ps.Aggregator):
        name = fresh("counted")
        reads, monoid, window = hits, of, windows or ps.windows.GlobalWindow()

    return Counted


def identity_of(processor: type[ps.Aggregator], bucket: int = 0) -> ShardIdentity:
    """Return whose state a shard of a processor is."""
    return ShardIdentity(processor.name, bucket, processor.state_shape())


@dataclass(frozen=True)
class Place:
    """A store under test.

    Args:
        url: its address.
        target: what a proxy passes on to.
        server: the process.
        saved: what the answer to a save contains, and no other answer.
    """

    url: str
    target: Target
    server: Postgres | Redis
    saved: bytes = field(repr=False)

    def through(self, proxy: Proxy) -> str:
        return self.url.replace(f":{self.target[1]}/", f":{proxy.port}/")


class Opened:
    """Opens states, as who calls through the seam does, and closes what was opened."""

    def __init__(self) -> None:
        self._folders: list[RemoteStates] = []

    def __call__(self, url: str, processor: type[ps.Aggregator], writing: WriteMode = APPENDING) -> RemoteState:
        return self.folder(remote_states(url, processor, write_mode=writing)).open(identity_of(processor))

    def folder(self, states: RemoteStates) -> RemoteStates:
        self._folders.append(states)
        return states

    def close(self) -> None:
        for states in self._folders:
            states.close()


def lifted(monoid: ps.monoids.Monoid[Any], **observations: Any) -> Changes:
    """Give one partial for each key."""
    return {encode_window_key(key, EVER): monoid.encode(monoid.lift(seen)) for key, seen in observations.items()}


def values(state: RemoteState, monoid: ps.monoids.Monoid[Any], *slots: bytes) -> list[Any]:
    """Fetch slots' partials, decoded."""
    return [None if found is None else monoid.decode(found) for found in state.fetch(slots)]


def fold(monoid: ps.monoids.Monoid[Any], observations: list[Any]) -> Any:
    """Combine observations one by one, in Python."""
    partial = monoid.identity()
    for observation in observations:
        partial = monoid.combine(partial, monoid.lift(observation))
    return partial


def new_database(postgres: Postgres) -> str:
    """Make a database of PostgreSQL in which nobody has made tables yet; its address."""
    name = fresh("database")
    with postgres.session() as session:
        session.execute(f"CREATE DATABASE {name}")
    return postgres.url.replace("/postgres", f"/{name}")


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, with a limit."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)
