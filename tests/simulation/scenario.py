"""What is run: processors, their input, and what goes wrong, all drawn from a seed before anything happens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from support.subjects import BUCKETS, EXACT, LEAST, MOST, PAIRS, Subject

from .faults import Fault, What

ROUNDS_S = (0.2, 1.0, 2.0, 4.0, 9.0)
"""How long there may be between two rounds of input."""


@dataclass(frozen=True)
class Node:
    """A processor, and how many workers it has.

    Args:
        subject: what it is.
        workers: how many, each on a machine of its own.
    """

    subject: Subject
    workers: int


@dataclass(frozen=True)
class Scenario:
    """A run.

    Args:
        seed: it was drawn from; it also decides who goes on when.
        nodes: the processors.
        rounds_s: the time before each round of input.
        events: how many events a round has beside those that keep buckets awake.
        faults: what goes wrong, in order.
    """

    seed: int
    nodes: tuple[Node, ...]
    rounds_s: tuple[float, ...]
    events: int
    faults: tuple[Fault, ...] = ()

    @property
    def length_s(self) -> float:
        """How long the input goes on."""
        return sum(self.rounds_s)


@dataclass(frozen=True)
class Profile:
    """What kind of scenarios are drawn.

    Args:
        name: by which it is chosen.
        subjects: the processors.
        faults: what may go wrong, each as often as it is named.
        most_faults: how many at most.
        stalls_s: how long processes stand still.
        outages_s: how long something is away.
    """

    name: str
    subjects: tuple[Subject, ...]
    faults: tuple[What, ...]
    most_faults: int = 8
    stalls_s: tuple[float, float] = (1.0, 70.0)
    outages_s: tuple[float, float] = (0.5, 100.0)
    workers: tuple[int, ...] = (1, 1, 2, 3)


STEPS = (
    "",
    "flush",
    "flush in transaction",
    "after flush in transaction",
    "prepare state",
    "after prepare state",
    "add positions",
    "after add positions",
    "commit transaction",
    "after commit transaction",
    "apply state",
    "save state",
    "after save state",
    "save position",
    "save state and position",
    "after save state and position",
    "commit",
    "after commit",
    "open state",
    "open transactions",
    "positions",
    "describe",
    "poll",
)
"""Where processes die and stand still."""
REQUESTS = (
    "flush",
    "flush in transaction",
    "add positions",
    "commit transaction",
    "commit",
    "open transactions",
    "positions",
    "describe",
    "ends",
)
"""What may be slow, fail, or not be answered."""

_KINDS = ("stateful", "aggregator", "timers", "closing", "sessions", "ordered", "joining")
LOCAL = (
    *(Subject("stateless", output, output) for output in (LEAST, MOST, EXACT)),
    *(Subject(kind, *pair) for kind in _KINDS for pair in PAIRS),
    *(Subject(kind, EXACT, EXACT) for kind in ("merging", "random")),
)
_TROUBLE = (What.KILL, What.KILL, What.PAUSE, What.STOP, What.SLOW, What.FAIL, What.LOST, What.BROKERS, What.POWER, What.DISK)

PROFILES = {
    profile.name: profile
    for profile in (
        Profile("mixed", LOCAL, _TROUBLE),
        Profile("calm", LOCAL, (), most_faults=0),
        Profile(
            "stalls",
            tuple(one for one in LOCAL if one.output is EXACT),
            (What.PAUSE, What.PAUSE, What.BROKERS, What.SLOW, What.SLOW, What.LOST, What.FAIL),
            most_faults=14,
            stalls_s=(20.0, 70.0),
            outages_s=(20.0, 110.0),
            workers=(2, 3),
        ),
    )
}


def drawn(seed: int, profile: Profile) -> Scenario:
    """Draw a scenario."""
    lots = random.Random(f"{profile.name} {seed}")  # noqa: S311 - repeatable, not secret
    node = Node(lots.choice(profile.subjects), lots.choice(profile.workers))
    rounds_s = tuple(lots.choice(ROUNDS_S) for _ in range(lots.randint(5, 20)))
    scenario = Scenario(seed, (node,), rounds_s, lots.randint(2, 12))
    count = lots.randint(0, profile.most_faults)
    faults = [_fault(lots, profile, scenario) for _ in range(count)] if profile.faults else []
    return replace(scenario, faults=tuple(sorted(faults, key=lambda fault: fault.at_s)))


def _fault(lots: random.Random, profile: Profile, scenario: Scenario) -> Fault:
    what, at_s = lots.choice(profile.faults), round(lots.uniform(0, scenario.length_s + 10), 3)
    node = lots.choice(scenario.nodes)
    who = f"{node.subject.kind}-{lots.randrange(node.workers)}"
    match what:
        case What.BROKERS | What.STORE | What.PLACE:
            return Fault(at_s, what, lasts_s=_length(lots, profile.outages_s))
        case What.PAUSE:
            return Fault(at_s, what, who, lots.choice(STEPS), _length(lots, profile.stalls_s))
        case What.KILL | What.POWER | What.DISK:
            # Killed workers come back soon, or when their session is over.
            return Fault(at_s, what, who, lots.choice(STEPS), _length(lots, (0.1, 70.0)))
        case What.SLOW | What.FAIL | What.LOST:
            return Fault(at_s, what, who, lots.choice(REQUESTS), _length(lots, (0.5, 40.0)))
        case What.FULL:
            return Fault(at_s, what, who, lasts_s=_length(lots, (0.5, 30.0)))
        case _:
            return Fault(at_s, what, who)


def _length(lots: random.Random, between_s: tuple[float, float]) -> float:
    """Draw a time: as likely short as long."""
    low, high = between_s
    return round(low * (high / low) ** lots.random(), 2)
