"""What is run: processors, their input, and what goes wrong, all drawn from a seed before anything happens."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from support.subjects import EXACT, MOST

from penstock.processors.declare.semantics import Semantics
from penstock.state.checkpoints import Gap, Step, steps_of

from .faults import ON_EMPTY_DISKS, Fault, What
from .nodes import PASSING, Node, pairs_of

ROUNDS_S = (0.2, 1.0, 2.0, 4.0, 9.0)
"""How long there may be between two rounds of input."""


@dataclass(frozen=True)
class Scenario:
    """A run.

    Args:
        seed: it was drawn from; it also decides who goes on when.
        nodes: the processors, each after those whose outputs it reads.
        rounds_s: the time before each round of input.
        events: how many events a round has beside those that keep buckets awake.
        quiet: whether the last events come in one bucket alone, and of the others it is only promised that they are complete.
        lame: whether of several inputs all but the first end half way.
        lopsided: whether all buckets but one lie behind in event time, and get nothing in the second half.
        archivers: how many archivers share the categories that are written from outside.
        faults: what goes wrong, in order of time.
    """

    seed: int
    nodes: tuple[Node, ...]
    rounds_s: tuple[float, ...]
    events: int
    quiet: bool = False
    lame: bool = False
    lopsided: bool = False
    archivers: int = 0
    faults: tuple[Fault, ...] = ()

    @property
    def length_s(self) -> float:
        """How long the input goes on."""
        return sum(self.rounds_s)

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the categories that are written from outside."""
        written = {f"{node.name}.out" for node in self.nodes}
        return tuple(dict.fromkeys(name for node in self.nodes for name in node.reads if name not in written))

    def __str__(self) -> str:
        quiet = ", the last of them in one bucket" if self.quiet else ""
        input_ = f"{len(self.rounds_s)} rounds of {self.events} events in {self.length_s:.0f} s{quiet}"
        quiet += ", all inputs but the first for half of the time" if self.lame else ""
        input_ += ", some buckets behind" if self.lopsided else ""
        archivers = [f"  {self.archivers} archivers"] if self.archivers else []
        return "\n".join([f"seed {self.seed}: {input_}", *(f"  {node}" for node in self.nodes), *archivers])


Shape = Callable[[random.Random, "Profile"], tuple[Node, ...]]


@dataclass(frozen=True)
class Profile:
    """What kind of scenarios are drawn.

    Args:
        name: by which it is chosen.
        shapes: how processors are put together, each as often as it is named.
        faults: what may go wrong, likewise.
        kinds: the kinds of the last processor.
        most_faults: how many faults at most.
        stalls_s: how long processes stand still.
        lopsided: how likely all buckets but one lie behind.
        outages_s: how long something is away.
        stops_s: how long those are away that died or were stopped.
        workers: how many a processor may have.
        rounds: how many rounds of input at least, and at most.
        waits_s: how long there may be between two of them.
        archivers: how many there may be.
        outputs: the semantics of outputs; any where there is none.
    """

    name: str
    shapes: tuple[Shape, ...]
    faults: tuple[What, ...]
    kinds: tuple[str, ...] = ()
    most_faults: int = 8
    stalls_s: tuple[float, float] = (1.0, 70.0)
    lopsided: float = 0.2
    outages_s: tuple[float, float] = (0.5, 110.0)
    stops_s: tuple[float, float] = (0.1, 70.0)
    workers: tuple[int, ...] = (1, 1, 2, 3)
    rounds: tuple[int, int] = (5, 20)
    waits_s: tuple[float, ...] = ROUNDS_S
    outputs: tuple[Semantics, ...] = ()
    archivers: tuple[int, ...] = (0,)


_REQUESTS = {
    Step.FLUSH_OUTPUTS: "flush",
    Step.SEND_OUTPUTS: "flush",
    Step.COMMIT_OFFSETS: "commit",
    Step.PREPARE_STATE: "prepare state",
    Step.SAVE_STATE: "save state",
    Step.SAVE_POSITION: "save position",
    Step.SAVE_TOGETHER: "save state and position",
}
_ANYWHERE = ("", "poll", "describe", "positions", "open state", "close state")


@lru_cache(maxsize=4096)
def places_of(node: Node) -> tuple[str, ...]:
    """Return the points at which a processor's workers die or stand still: each gap of a checkpoint, and right after each request."""
    steps = steps_of(node.make())
    gaps = [f"gap {Gap(step)}" for step in (*steps, None)]
    after = [f"after {request}" for request in requests_of(node)]
    return (*_ANYWHERE, *gaps, *after)


@lru_cache(maxsize=4096)
def requests_of(node: Node) -> tuple[str, ...]:
    """Return the requests of a checkpoint that may be slow, fail, or not be answered."""
    steps = steps_of(node.make())
    if Step.COMMIT_TRANSACTION in steps:
        stored = ("save with outbox", "clear outbox", "claim state", "read state") if node.is_remote else ()
        return (*stored, "flush in transaction", "add positions", "commit transaction", "open transactions")
    return tuple(dict.fromkeys(_REQUESTS[step] for step in steps if step in _REQUESTS))


ARCHIVING = (
    "",
    "poll",
    "describe",
    "positions",
    "commit",
    "after commit",
    "warehouse write",
    "after warehouse write",
    "warehouse read",
    "warehouse contents",
)
"""The points at which archivers die or stand still."""
ARCHIVERS_SHARE = 0.8
"""How many of the faults befall archivers, where there are any."""
_ASKED = ("positions", "describe", "ends", "flush")
_ONE = (
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
)
_TWO = ("joining", "merging")


def _node(
    lots: random.Random, profile: Profile, name: str, kinds: tuple[str, ...], *reads: str, promised: bool
) -> Node:
    kind = lots.choice(profile.kinds or kinds)
    pairs = [pair for pair in pairs_of(kind) if not profile.outputs or pair[1] in profile.outputs]
    pair = lots.choice(pairs)
    return Node(name, kind, *pair, reads, lots.choice(profile.workers), promised, lots.random() < 0.5)


def _passing(lots: random.Random, profile: Profile, reads: str) -> Node:
    return Node(
        "first", lots.choice(PASSING), EXACT, EXACT, (reads,), lots.choice(profile.workers), lots.random() < 0.5
    )


def one(lots: random.Random, profile: Profile) -> tuple[Node, ...]:
    """Return one processor that goes by its events."""
    return (_node(lots, profile, "last", _ONE, "left", promised=False),)


def lone(lots: random.Random, profile: Profile) -> tuple[Node, ...]:
    """Return one processor that is no matter."""
    return (Node("last", "stateless", EXACT, EXACT, ("left",), 1),)


def stored(lots: random.Random, profile: Profile) -> tuple[Node, ...]:
    """Return an aggregator whose state lies in a store."""
    node = _node(lots, profile, "last", ("aggregator",), "left", promised=False)
    return (replace(node, backups=False, is_remote=True),)


def told(lots: random.Random, profile: Profile) -> tuple[Node, ...]:
    """Return one processor that goes by what is promised."""
    return (_node(lots, profile, "last", _ONE, "left", promised=True),)


def two(lots: random.Random, profile: Profile) -> tuple[Node, ...]:
    """Return one processor of two inputs."""
    return (_node(lots, profile, "last", _TWO, "left", "right", promised=lots.random() < 0.3),)


def chain(lots: random.Random, profile: Profile) -> tuple[Node, ...]:
    """Return two processors, the second of which goes by what the first promises."""
    first = _passing(lots, profile, "left")
    return first, _node(lots, profile, "last", _ONE, "first.out", promised=True)


def diamond(lots: random.Random, profile: Profile) -> tuple[Node, ...]:
    """Return two processors, the second of which also reads what comes from outside."""
    first = replace(_passing(lots, profile, "left"), kind="stateless")
    return first, _node(lots, profile, "last", _TWO, "first.out", "right", promised=True)


_DEATHS = (What.KILL, What.KILL, What.STOP, What.POWER, What.DISK)
_STALLS = (What.PAUSE, What.SLOW, What.FAIL, What.LOST)
_ALL = (*_DEATHS, *_STALLS, What.BROKERS, What.FULL)
PROFILES = {
    profile.name: profile
    for profile in (
        Profile("mixed", (one, one, told, two, chain, diamond), _ALL),
        Profile("calm", (one, told, two, chain, diamond), (), most_faults=0),
        Profile(
            "stalls",
            (one, two, told),
            (What.PAUSE, *_STALLS, What.BROKERS),
            outputs=(EXACT,),
            most_faults=14,
            stalls_s=(20.0, 70.0),
            workers=(2, 3),
        ),
        Profile(
            "silence",
            (two, two, chain, diamond),
            (What.BROKERS, What.SLEEP, What.STOP, What.PAUSE),
            outages_s=(61.0, 110.0),
            stalls_s=(61.0, 110.0),
            most_faults=4,
        ),
        Profile(
            "behind",
            (chain,),
            (What.STOP, What.PAUSE),
            lopsided=1.0,
            outputs=(EXACT,),
            workers=(1,),
            outages_s=(61.0, 110.0),
            stalls_s=(61.0, 110.0),
            stops_s=(61.0, 110.0),
            most_faults=3,
            kinds=("closing", "sessions", "ordered", "timers"),
            rounds=(16, 24),
            waits_s=(4.0, 9.0, 15.0),
        ),
        Profile("early", (one, told), _ALL, kinds=("early",)),
        Profile(
            "twice",
            (two,),
            (What.DISK, What.DISK, What.KILL),
            kinds=("joining",),
            outputs=(MOST,),
            most_faults=3,
            rounds=(18, 26),
            waits_s=(4.0, 9.0, 15.0),
        ),
        Profile("full", (one, two), (What.FULL, What.FULL, What.FULL, What.KILL), most_faults=6),
        Profile(
            "archive",
            (lone,),
            (What.KILL, What.PAUSE, What.PAUSE, What.PAUSE, What.BROKERS, What.WAREHOUSE),
            archivers=(1, 2, 2),
            stalls_s=(30.0, 70.0),
            rounds=(10, 16),
            waits_s=(2.0, 4.0, 9.0),
        ),
        Profile("expired", (one, two), (What.EXPIRE, What.KILL), most_faults=2, rounds=(12, 20), workers=(1,)),
        Profile(
            "deletions",
            (one,),
            (What.CLEAN, What.CLEAN, What.CLEAN, What.KILL, What.PAUSE),
            kinds=("forgetting",),
            most_faults=14,
            stalls_s=(46.0, 100.0),
            stops_s=(46.0, 100.0),
            workers=(2,),
            rounds=(24, 36),
            waits_s=(4.0, 9.0),
        ),
        Profile(
            "recreated", (one,), (What.RECREATE,), kinds=("stateful", "stateless"), outputs=(EXACT, MOST), most_faults=1
        ),
        Profile("grown", (one,), (What.GROW, What.KILL), kinds=("stateful",), outputs=(EXACT, MOST), most_faults=2),
        Profile(
            "remote",
            (stored,),
            (*_DEATHS, What.PAUSE, What.PAUSE, *_STALLS, What.STORE, What.BROKERS),
            most_faults=12,
            stalls_s=(30.0, 70.0),
            workers=(2, 3),
        ),
        Profile("promises", (chain, told), (What.FAIL, What.FAIL, What.KILL), most_faults=6),
    )
}


def drawn(seed: int, profile: Profile) -> Scenario:
    """Draw a scenario."""
    lots = random.Random(f"{profile.name} {seed}")
    nodes = lots.choice(profile.shapes)(lots, profile)
    rounds_s = tuple(lots.choice(profile.waits_s) for _ in range(lots.randint(*profile.rounds)))
    quiet = nodes[0].promised and lots.random() < 0.5
    scenario = Scenario(
        seed, nodes, rounds_s, lots.randint(2, 12), quiet, len(nodes[-1].reads) > 1 and lots.random() < 0.5
    )
    scenario = replace(scenario, lopsided=lots.random() < profile.lopsided)
    scenario = replace(scenario, archivers=lots.choice(profile.archivers))
    count = lots.randint(0, profile.most_faults)
    faults = [_fault(lots, profile, scenario) for _ in range(count)] if profile.faults else []
    return replace(scenario, faults=tuple(sorted(faults, key=lambda fault: fault.at_s)))


def _fault(lots: random.Random, profile: Profile, scenario: Scenario) -> Fault:
    what, at_s = lots.choice(profile.faults), round(lots.uniform(0, scenario.length_s + 10), 3)
    node = lots.choice(scenario.nodes)
    who = f"{node.name}-{lots.randrange(node.workers)}"
    places: tuple[str, ...] = places_of(node)
    if scenario.archivers and lots.random() < ARCHIVERS_SHARE:
        who, places = f"archiver-{lots.randrange(scenario.archivers)}", ARCHIVING
    match what:
        case What.BROKERS | What.STORE | What.PLACE | What.SLEEP | What.WAREHOUSE:
            fault = Fault(at_s, what, lasts_s=_length(lots, profile.outages_s))
        case What.PAUSE:
            fault = Fault(at_s, what, who, lots.choice(places), _length(lots, profile.stalls_s))
        case What.KILL | What.POWER | What.DISK | What.STOP:
            # They come back soon, or when their session is over.
            where = "" if what is What.STOP else lots.choice(places)
            fault = Fault(at_s, what, who, where, _length(lots, profile.stops_s))
        case What.SLOW | What.FAIL | What.LOST:
            fault = Fault(at_s, what, who, lots.choice((*requests_of(node), *_ASKED)), _length(lots, (0.5, 40.0)))
        case What.CLEAN:
            fault = Fault(at_s, what)
        case What.EXPIRE:
            where = ON_EMPTY_DISKS if node.backups and node.output is not EXACT else ""
            fault = Fault(at_s, what, node.name, where)
        case What.RECREATE | What.GROW:
            # Not before every bucket has been read and saved: of one that nobody has read, any topic is the first.
            fault = Fault(max(at_s, 0.6 * scenario.length_s, 8.0), what, lots.choice(node.reads))
        case _:
            fault = Fault(at_s, what, who, lots.choice(places), _length(lots, (0.001, 30.0)))
    return fault


def _length(lots: random.Random, between_s: tuple[float, float]) -> float:
    """Draw a time: as likely short as long."""
    low, high = between_s
    return round(math.exp(lots.uniform(math.log(low), math.log(high))), 3)
