"""How processors are put together, drawn by lot."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from support.subjects import EXACT

import penstock as ps
from penstock.processors.declare.semantics import Semantics

from .nodes import PASSING, TABLES, Node, pairs_of

ONE = (
    "stateless",
    "rekeyed",
    "stateful",
    "unsure",
    "aggregator",
    "timers",
    "clock",
    "closing",
    "windowed",
    "sessions",
    "ordered",
    "random",
    "forgetting",
    "sliding",
    "flow",
    "repartition",
)
"""Kinds of one input."""
TWO = ("joining", "merging")
"""Kinds of two."""


class Choice(Protocol):
    """What shapes need to know of a profile."""

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of the last processor; any where there is none."""
        ...

    @property
    def outputs(self) -> Sequence[Semantics]:
        """The semantics of outputs; any where there is none."""
        ...

    @property
    def workers(self) -> Sequence[int]:
        """How many a processor may have."""
        ...


Shape = Callable[[random.Random, Choice], tuple[Node, ...]]


def _last(lots: random.Random, choice: Choice, kinds: Sequence[str], *reads: str, promised: bool) -> Node:
    kind = lots.choice(choice.kinds or kinds)
    pairs = [pair for pair in pairs_of(kind) if not choice.outputs or pair[1] in choice.outputs]
    pair = lots.choice(pairs)
    return Node("last", kind, *pair, reads, lots.choice(choice.workers), promised, lots.random() < 0.5)


def _passing(lots: random.Random, choice: Choice, name: str, reads: str, *, promised: bool | None = None) -> Node:
    kind, workers = lots.choice(PASSING), lots.choice(choice.workers)
    return Node(name, kind, EXACT, EXACT, (reads,), workers, lots.random() < 0.5 if promised is None else promised)


def one(lots: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return one processor that goes by its events."""
    return (_last(lots, choice, ONE, "left", promised=False),)


def lone(_: random.Random, __: Choice) -> tuple[Node, ...]:
    """Return one processor that is no matter."""
    return (Node("last", "stateless", EXACT, EXACT, ("left",), 1),)


def stored(lots: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return an aggregator whose state lies in a store."""
    node = _last(lots, choice, ("aggregator",), "left", promised=False)
    return (replace(node, backups=False, writing=lots.choice(list(ps.WriteMode))),)


def told(lots: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return one processor with upstream watermarks."""
    return (_last(lots, choice, ONE, "left", promised=True),)


def two(lots: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return one processor of two inputs."""
    return (_last(lots, choice, TWO, "left", "right", promised=lots.random() < 0.3),)


def table(lots: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return one processor that reads a table."""
    return (_last(lots, choice, TABLES, "left", "right", promised=False),)


def chain(lots: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return two processors; the second uses the first one's watermarks."""
    first = _passing(lots, choice, "first", "left")
    return first, _last(lots, choice, ONE, "first.out", promised=True)


def spread(lots: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return two processors, the second of which reads what the first has keyed anew."""
    first, last = chain(lots, choice)
    return replace(first, kind="repartition"), last


def diamond(lots: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return two processors, the second of which also reads what comes from outside."""
    first = replace(_passing(lots, choice, "first", "left"), kind="stateless")
    return first, _last(lots, choice, TWO, "first.out", "right", promised=True)


def long(lots: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return three or four processors, each with the watermarks of the one before."""
    nodes = [_passing(lots, choice, "first", "left")]
    for name in ("second", "third")[: lots.choice((1, 1, 2))]:
        nodes.append(_passing(lots, choice, name, f"{nodes[-1].name}.out", promised=True))
    return *nodes, _last(lots, choice, ONE, f"{nodes[-1].name}.out", promised=True)


def braid(lots: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return three processors, the last of which reads what the other two write."""
    first = replace(_passing(lots, choice, "first", "left"), kind="stateless")
    second = replace(_passing(lots, choice, "second", "right", promised=first.promised), kind="stateless")
    return first, second, _last(lots, choice, TWO, "first.out", "second.out", promised=True)
