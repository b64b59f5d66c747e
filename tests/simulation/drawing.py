"""Scenarios, drawn from a seed before anything happens."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from support.subjects import BUCKETS, EXACT

from penstock.processors.shard.checkpoints import Gap, Step, steps_of

from .faults import OF_ALL, ON_EMPTY_DISKS, Fault, What
from .manner import Manner
from .nodes import TABLES, Node
from .profiles import Profile
from .scenario import Scenario

_REQUESTS = {
    Step.FLUSH_OUTPUTS: "flush",
    Step.SEND_OUTPUTS: "flush",
    Step.COMMIT_OFFSETS: "commit",
    Step.PREPARE_STATE: "prepare state",
    Step.SAVE_STATE: "save state",
    Step.SAVE_POSITION: "save position",
    Step.SAVE_TOGETHER: "save state and position",
}
STORED = ("claim state", "read state", "write state", "write state", "write state")
"""The requests to a store."""
_ANYWHERE = ("", "poll", "describe", "positions", "open state", "close state")


@lru_cache(maxsize=4096)
def places_of(node: Node) -> tuple[str, ...]:
    """Return the points at which a processor's workers die or pause: each gap of a checkpoint, and after each request."""
    steps = steps_of(node.make())
    gaps = [f"gap {Gap(step)}" for step in (*steps, None)]
    after = [f"after {request}" for request in requests_of(node)]
    return (*_ANYWHERE, *gaps, *after)


@lru_cache(maxsize=4096)
def requests_of(node: Node) -> tuple[str, ...]:
    """Return the requests of a checkpoint that may be slow, fail, or not be answered."""
    steps = steps_of(node.make())
    stored = STORED if node.is_remote else ()
    if Step.COMMIT_TRANSACTION in steps:
        return (*stored, "flush in transaction", "add positions", "commit transaction", "open transactions")
    asked = dict.fromkeys(_REQUESTS[step] for step in steps if step in _REQUESTS)
    return (*stored, *(request for request in asked if not (node.is_remote and "save" in request)))


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
    "warehouse list_folder",
)
"""The points at which archivers die or pause."""
ARCHIVERS_SHARE = 0.8
"""How many of the faults befall archivers, where there are any."""
_ASKED = ("positions", "describe", "ends", "flush")
SKEWED = 0.5
"""How likely writers' clocks go wrong, where messages carry their times."""
REPARTITIONED = (1, 2, 3, 5)
"""How many buckets there may be of what was keyed anew."""


def drawn(seed: int, profile: Profile) -> Scenario:
    """Draw a scenario."""
    lots = random.Random(f"{profile.name} {seed}")
    nodes = _keyed_once(lots.choice(profile.shapes)(lots, profile))
    rounds_s = tuple(lots.choice(profile.waits_s) for _ in range(lots.randint(*profile.rounds)))
    quiet = all(node.promised for node in nodes if set(node.reads) <= {"left", "right"}) and lots.random() < 0.5
    scenario = Scenario(
        seed, nodes, rounds_s, lots.randint(2, 12), quiet, len(nodes[-1].reads) > 1 and lots.random() < 0.5
    )
    scenario = replace(scenario, lopsided=lots.random() < profile.lopsided)
    scenario = replace(scenario, archivers=lots.choice(profile.archivers), sweeps=profile.sweeps)
    scenario = replace(scenario, manner=_manner(lots, profile, scenario), skewed=lots.random() < SKEWED)
    scenario = replace(scenario, deletes=_may_delete(scenario) and lots.random() < profile.deletes)
    count = lots.randint(0, profile.most_faults)
    faults = [_fault(lots, profile, scenario) for _ in range(count)] if profile.faults else []
    return replace(scenario, faults=tuple(sorted(faults, key=lambda fault: fault.at_s)))


def _keyed_once(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return processors of which none keys anew what another one has: it would change nothing."""
    keyed = {f"{node.name}.out" for node in nodes if node.kind == "repartition"}
    again = [node for node in nodes if node.kind == "repartition" and keyed & set(node.reads)]
    return tuple(replace(node, kind="stateless") if node in again else node for node in nodes)


def _manner(lots: random.Random, profile: Profile, scenario: Scenario) -> Manner:
    """Draw the settings of categories: inputs of one processor have equally many buckets."""
    usual = lots.choice(profile.buckets)
    keyed = {f"{node.name}.out": lots.choice(REPARTITIONED) for node in scenario.nodes if node.kind == "repartition"}
    names = [*scenario.sources, *(f"{node.name}.out" for node in scenario.nodes)]
    sizes = [(name, keyed.get(name, usual)) for name in names]
    # Of two that pass on the same bytes as other records, the names of Avro's schemas would differ.
    plain = {name for node in scenario.nodes if len(node.reads) > 1 for name in node.reads if name.endswith(".out")}
    return Manner(
        tuple((name, size) for name, size in sizes if size != BUCKETS),
        frozenset(name for name in names if lots.random() < profile.avro and name not in plain),
        frozenset(name for name in names if lots.random() < profile.stamped),
        frozenset(keyed),
    )


def _may_delete(scenario: Scenario) -> bool:
    """Tell whether rows of a table may be deleted: as of an event's time only where messages carry that."""
    last = scenario.nodes[-1]
    if last.kind not in TABLES:
        return False
    has_times = last.reads[0] in scenario.manner.stamped and not scenario.skewed
    return has_times or last.kind == "table"


def _fault(lots: random.Random, profile: Profile, scenario: Scenario) -> Fault:
    what, at_s = lots.choice(profile.faults), round(lots.uniform(0, scenario.length_s + 10), 3)
    node = lots.choice(scenario.nodes)
    who = f"{node.name}-{lots.randrange(node.workers)}"
    places: tuple[str, ...] = places_of(node)
    if scenario.archivers and lots.random() < ARCHIVERS_SHARE:
        who, places = f"archiver-{lots.randrange(scenario.archivers)}", ARCHIVING
    match what:
        case What.CLEAN:
            return Fault(at_s, what)
        case What.EXPIRE:
            where = ON_EMPTY_DISKS if node.backups and node.output is not EXACT else ""
            return Fault(at_s, what, node.name, where)
        case What.RECREATE | What.GROW:
            # After every bucket has been read and saved: an unread bucket accepts any topic.
            return Fault(max(at_s, 0.6 * scenario.length_s, 8.0), what, lots.choice(node.reads))
        case _ if what in OF_ALL:
            return Fault(at_s, what, lasts_s=_length(lots, profile.outages_s))
        case _:
            return _fault_of_one(lots, profile, node, Fault(at_s, what, who), places)


def _fault_of_one(lots: random.Random, profile: Profile, node: Node, fault: Fault, places: tuple[str, ...]) -> Fault:
    """Draw where a fault befalls a process, and for how long."""
    match fault.what:
        case What.PAUSE:
            return replace(fault, where=lots.choice(places), lasts_s=_length(lots, profile.stalls_s))
        case What.KILL | What.POWER | What.DISK | What.STOP:
            # They come back soon, or when their session is over.
            where = "" if fault.what is What.STOP else lots.choice(places)
            return replace(fault, where=where, lasts_s=_length(lots, profile.stops_s))
        case What.SLOW | What.FAIL | What.LOST:
            where = lots.choice((*requests_of(node), *_ASKED))
            return replace(fault, where=where, lasts_s=_length(lots, (0.5, 40.0)))
        case What.DELAY:
            return replace(fault, where="write state", lasts_s=_length(lots, (0.5, 90.0)))
        case What.CUT:
            return replace(fault, where="commit transaction", lasts_s=_length(lots, profile.outages_s))
        case _:
            return replace(fault, where=lots.choice(places), lasts_s=_length(lots, (0.001, 30.0)))


def _length(lots: random.Random, between_s: tuple[float, float]) -> float:
    """Draw a time: as likely short as long."""
    low, high = between_s
    return round(math.exp(lots.uniform(math.log(low), math.log(high))), 3)
