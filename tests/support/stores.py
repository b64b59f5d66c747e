"""Shared parts of the tests of remote state: aggregators, stores under test, and states."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import penstock as ps
from penstock.processors.declare import WriteMode, plan_of
from penstock.processors.keyed_state import Changes, encode_window_key
from penstock.processors.shard import HeldOutput, StatePosition
from penstock.state import Outbox, RemoteState, ShardIdentity
from penstock.state.remote import remote_states
from penstock.state.remote.folder import RemoteStates
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
LIMIT_S = 90.0
OVERWRITING, APPENDING = WriteMode.READ_MERGE_WRITE, WriteMode.APPEND
_numbers = count()


class Hit(ps.Record, frozen=True):
    """An event to count."""

    page: str
    at: ps.EventTime


hits = ps.Category("hits", Hit, key="page", event_time="at", buckets=4)


class Log(ps.monoids.Monoid[list[Any]]):
    """A list of all observations in order, which shows lost, repeated and swapped ones."""

    def identity(self) -> list[Any]:
        return []

    def lift(self, observation: Any) -> list[Any]:
        return [observation]

    def combine(self, left: list[Any], right: list[Any]) -> list[Any]:
        return [*left, *right]


def unique_name(prefix: str) -> str:
    """Return a name that no other test uses."""
    return f"{prefix}_{next(_numbers)}"


def aggregator(of: ps.monoids.Monoid[Any], windows: Any = None) -> type[ps.Aggregator]:
    """Return an aggregator with a name that no other test uses."""

    class Counted(ps.Aggregator):
        name = unique_name("counted")
        reads, monoid, window = hits, of, windows or ps.windows.GlobalWindow()

    return Counted


def identity_of(processor: type[ps.Aggregator], bucket: int = 0) -> ShardIdentity:
    """Return the identity of a processor's shard."""
    return ShardIdentity(processor.name, bucket, plan_of(processor).state_shape)


@dataclass(frozen=True)
class Place:
    """A store under test.

    Args:
        url: its address.
        target: the target of a proxy.
        server: the server process.
        saved: bytes that only the answer to a save contains.
    """

    url: str
    target: Target
    server: Postgres | Redis
    saved: bytes = field(repr=False)

    def through(self, proxy: Proxy) -> str:
        return self.url.replace(f":{self.target[1]}/", f":{proxy.port}/")


class StateOpener:
    """Opens remote states like the worker, and closes them at the end."""

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
    """Return changes with one partial for each key."""
    return {
        encode_window_key(key, EVER): monoid.encode(monoid.lift(observation))
        for key, observation in observations.items()
    }


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
    """Create an empty PostgreSQL database, and return its address."""
    name = unique_name("database")
    with postgres.session() as session:
        session.execute(f"CREATE DATABASE {name}")
    return postgres.url.replace("/postgres", f"/{name}")


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, with a limit."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)
