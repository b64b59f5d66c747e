"""Random topologies of processors."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from support.subjects import EXACT, LEAST

import penstock as ps
from penstock.processors.declare import Semantics

from .nodes import DEFAULT_SHARE, PASS_THROUGH, TABLES, TIERS, Node, pairs_of

ONE_INPUT = (
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
"""Kinds with one input."""
TWO_INPUTS = ("joining", "merging")
"""Kinds with two inputs."""
BY_ESTIMATE = (
    "sessions",
    "sessions",
    "sessions",
    "timers",
    "timers",
    "closing",
    "late",
    "differences",
    "early",
    "windowed",
    "ordered",
    "sliding",
)
"""Kinds with one input whose results depend on a watermark. Kinds that may split a result at it are more likely."""
SHARES = (DEFAULT_SHARE, 0.7, 0.7)
"""Possible shares of events on time."""


class Choice(Protocol):
    """The part of a profile that shapes use."""

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of the last processor; empty for any."""
        ...

    @property
    def outputs(self) -> Sequence[Semantics]:
        """The semantics of outputs; empty for any."""
        ...

    @property
    def workers(self) -> Sequence[int]:
        """Possible numbers of workers."""
        ...


Shape = Callable[[random.Random, Choice], tuple[Node, ...]]


def _last(
    rng: random.Random, choice: Choice, kinds: Sequence[str], *reads: str, uses_upstream_watermarks: bool
) -> Node:
    kind = rng.choice(choice.kinds or kinds)
    pairs = [pair for pair in pairs_of(kind) if not choice.outputs or pair[1] in choice.outputs]
    pair = rng.choice(pairs)
    return Node("last", kind, *pair, reads, rng.choice(choice.workers), uses_upstream_watermarks, rng.random() < 0.5)


def _pass_through(
    rng: random.Random, choice: Choice, name: str, reads: str, *, uses_upstream_watermarks: bool | None = None
) -> Node:
    kind, workers = rng.choice(PASS_THROUGH), rng.choice(choice.workers)
    return Node(
        name,
        kind,
        EXACT,
        EXACT,
        (reads,),
        workers,
        rng.random() < 0.5 if uses_upstream_watermarks is None else uses_upstream_watermarks,
    )


def single(rng: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return one processor with a watermark from its events."""
    return (_last(rng, choice, ONE_INPUT, "left", uses_upstream_watermarks=False),)


def minimal(_: random.Random, __: Choice) -> tuple[Node, ...]:
    """Return a minimal processor, for runs that concern archivers."""
    return (Node("last", "stateless", EXACT, EXACT, ("left",), 1),)


def remote(rng: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return an aggregator with a remote store."""
    node = _last(rng, choice, ("aggregator",), "left", uses_upstream_watermarks=False)
    return (replace(node, backups=False, writing=rng.choice(list(ps.WriteMode))),)


def into_sink(rng: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return one processor whose outputs are rows of a sink. Exactly once needs results that follow from the events."""
    [node] = single(rng, choice)
    if node.output is EXACT and node.kind in {"unsure", "clock", "random", "forgetting"}:
        node = replace(node, kind="stateful")
    # A sink has no buckets, where the kind has its own comparison of them.
    return (replace(node, kind="rekeyed" if node.kind == "repartition" else node.kind, sink=True),)


def with_upstream(rng: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return one processor with upstream watermarks."""
    return (_last(rng, choice, ONE_INPUT, "left", uses_upstream_watermarks=True),)


def two_inputs(rng: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return one processor with two inputs."""
    return (_last(rng, choice, TWO_INPUTS, "left", "right", uses_upstream_watermarks=rng.random() < 0.3),)


def estimated(rng: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return one processor whose watermark is estimated from the lateness of its events. Its state is exact: lost events would change it."""
    inputs = rng.choice((("left",), ("left",), ("left",), ("left", "right")))
    kinds = BY_ESTIMATE if len(inputs) == 1 else ("joining",)
    node = _last(rng, choice, kinds, *inputs, uses_upstream_watermarks=False)
    return (replace(node, state=EXACT, on_time=rng.choice(SHARES)),)


def table(rng: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return one processor that reads a table."""
    return (_last(rng, choice, TABLES, "left", "right", uses_upstream_watermarks=False),)


def tiers(rng: random.Random, _: Choice) -> tuple[Node, ...]:
    """Return one or two servers of a Laser table."""
    kind = rng.choice(TIERS)
    nodes = [Node(name, kind, EXACT, LEAST, ("left",), 1, backups=rng.random() < 0.5) for name in ("first", "last")]
    return tuple(nodes[: rng.choice((1, 2))])


def chain(rng: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return two processors; the second uses the first one's watermarks."""
    first = _pass_through(rng, choice, "first", "left")
    return first, _last(rng, choice, ONE_INPUT, "first.out", uses_upstream_watermarks=True)


def repartitioned(rng: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return two processors; the second reads the first one's repartitioned output."""
    first, last = chain(rng, choice)
    return replace(first, kind="repartition"), last


def retried(rng: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return two processors; the first one retries events, which hold back the second one's watermarks."""
    first, last = chain(rng, choice)
    return replace(first, kind="retrying"), last


def looped(rng: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return two processors; events circulate in the first one, which holds back the second one's watermarks."""
    first, last = chain(rng, choice)
    # The watermark of its input survives on the bus: without a state, an estimate from events that are not read again does not.
    return replace(first, kind="looping", uses_upstream_watermarks=True), last


def two_phases(rng: random.Random, choice: Choice, prefix: str = "") -> tuple[Node, ...]:
    """Return the two phases of an aggregator."""
    workers = rng.choice(choice.workers)
    first = Node("first", f"{prefix}partials", EXACT, EXACT, ("left",), workers, rng.random() < 0.5)
    return first, _last(rng, choice, (f"{prefix}combining",), "first.out", uses_upstream_watermarks=True)


def sql_windows(rng: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return a query with windows, with or without upstream watermarks."""
    return (_last(rng, choice, ("sql windows",), "left", uses_upstream_watermarks=rng.random() < 0.5),)


def sql_join(rng: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return a query that joins two categories."""
    last = _last(rng, choice, ("sql join",), "left", "right", uses_upstream_watermarks=rng.random() < 0.6)
    return (replace(last, estimated=rng.choice(((), ("right",))) if last.uses_upstream_watermarks else ()),)


def sql_two_phases(rng: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return the two phases of a query."""
    return two_phases(rng, choice, "sql ")


def diamond(rng: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return two processors; the second also reads an external category."""
    first = replace(_pass_through(rng, choice, "first", "left"), kind="stateless")
    last = _last(rng, choice, TWO_INPUTS, "first.out", "right", uses_upstream_watermarks=True)
    return first, replace(last, estimated=rng.choice(((), ("right",))))


def long_chain(rng: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return a chain of three or four processors with upstream watermarks."""
    nodes = [_pass_through(rng, choice, "first", "left")]
    for name in ("second", "third")[: rng.choice((1, 1, 2))]:
        nodes.append(_pass_through(rng, choice, name, f"{nodes[-1].name}.out", uses_upstream_watermarks=True))
    return *nodes, _last(rng, choice, ONE_INPUT, f"{nodes[-1].name}.out", uses_upstream_watermarks=True)


def between_checkpoints(rng: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return a chain whose upstream processors publish watermarks between checkpoints, because they write at least once."""
    *upstream, last = long_chain(rng, choice)
    return *(replace(node, state=LEAST, output=LEAST) for node in upstream), last


def braid(rng: random.Random, choice: Choice) -> tuple[Node, ...]:
    """Return three processors; the last reads the outputs of the other two."""
    first = replace(_pass_through(rng, choice, "first", "left"), kind="stateless")
    second = replace(
        _pass_through(rng, choice, "second", "right", uses_upstream_watermarks=first.uses_upstream_watermarks),
        kind="stateless",
    )
    return first, second, _last(rng, choice, TWO_INPUTS, "first.out", "second.out", uses_upstream_watermarks=True)
