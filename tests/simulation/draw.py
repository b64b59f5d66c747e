"""Draws a scenario from a seed before the run starts."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from support.subjects import BUCKETS, EXACT

from penstock.processors.shard import Gap, Step, steps_of

from .category_settings import CategorySettings
from .faults import GLOBAL_FAULTS, ON_EMPTY_DISKS, Fault, FaultKind
from .network import BROKERS
from .nodes import TABLES, TIERS, Node
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
STORE_REQUESTS = ("claim state", "read state", "write state", "write state", "write state")
"""Requests to a remote store."""
SINK_REQUESTS = ("claim sink", "write sink", "write sink")
"""Requests to the store of a sink."""
BACKUP_REQUESTS = ("backup list", "backup read", "backup create", "backup delete", "backup write", "backup write")
"""Requests to the backup store."""
BACKUP_POINTS = (
    "snapshot state",
    "after snapshot state",
    "backup upload",
    *("restore file",) * 6,
    *(f"after {name}" for name in BACKUP_REQUESTS),
)
"""Further points at which faults hit workers with real backups."""
_COMMON_POINTS = ("", "poll", "describe", "positions", "open state", "close state")


@lru_cache(maxsize=4096)
def fault_points(node: Node) -> tuple[str, ...]:
    """Return the points at which faults hit a processor's workers: each gap of a checkpoint, and the end of each request."""
    steps = steps_of(node.make())
    gaps = [f"gap {Gap(step)}" for step in (*steps, None)]
    after = [f"after {request}" for request in requests_of(node)]
    return (*_COMMON_POINTS, *gaps, *after)


@lru_cache(maxsize=4096)
def requests_of(node: Node) -> tuple[str, ...]:
    """Return the requests of a checkpoint that can be slow, fail, or get no answer."""
    steps = steps_of(node.make())
    of_store = STORE_REQUESTS if node.is_remote else SINK_REQUESTS if node.sink else ()
    if Step.COMMIT_TRANSACTION in steps:
        return (*of_store, "flush in transaction", "add positions", "commit transaction", "open transactions")
    requests = dict.fromkeys(_REQUESTS[step] for step in steps if step in _REQUESTS)
    return (*of_store, *(request for request in requests if not (node.is_remote and "save" in request)))


ARCHIVER_POINTS = (
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
"""The points at which faults hit archivers."""
ARCHIVERS_SHARE = 0.8
"""The share of faults that hit archivers, in scenarios with archivers."""
_OTHER_REQUESTS = ("positions", "describe", "ends", "flush")
SKEW_PROBABILITY = 0.5
"""The probability of wrong writers' clocks."""
ON_MINUTES_PROBABILITY = 0.5
"""The probability that event times are whole minutes, so that some lie exactly on a watermark or on the end of a window."""
REPARTITION_BUCKETS = (1, 2, 3, 5)
"""Possible numbers of buckets of a repartitioned category."""


def draw_scenario(seed: int, profile: Profile) -> Scenario:
    """Draw a scenario."""
    rng = random.Random(f"{profile.name} {seed}")
    nodes = _without_repeated_repartitions(rng.choice(profile.shapes)(rng, profile))
    rounds_s = tuple(rng.choice(profile.round_intervals_s) for _ in range(rng.randint(*profile.rounds)))
    quiet = (
        not any(node.estimates(name) for node in nodes for name in node.reads if name in {"left", "right"})
        and rng.random() < 0.5
    )
    scenario = Scenario(
        seed, nodes, rounds_s, rng.randint(*profile.events), quiet, len(nodes[-1].reads) > 1 and rng.random() < 0.5
    )
    scenario = replace(scenario, lopsided=rng.random() < profile.lopsided)
    scenario = replace(
        scenario, archivers=rng.choice(profile.archivers), sweeps=profile.sweeps, snapshots=profile.snapshots
    )
    scenario = replace(
        scenario, category_settings=_category_settings(rng, profile, scenario), skewed=rng.random() < SKEW_PROBABILITY
    )
    on_minutes = random.Random(f"{seed} minutes").random() < ON_MINUTES_PROBABILITY
    further = random.Random(f"{seed} brokers")
    scenario = replace(
        scenario,
        rate=further.choice(profile.rates),
        trickles=further.random() < profile.trickles,
        foreign=profile.foreign,
        to_the_end=profile.to_the_end,
        hesitation_s=profile.hesitation_s,
        rocks=profile.rocks,
    )
    if scenario.to_the_end:
        scenario = replace(scenario, quiet=False, ends_early=False)
    scenario = replace(
        scenario, on_minutes=on_minutes, deletes=_may_delete(scenario) and rng.random() < profile.deletes
    )
    count = rng.randint(0, profile.most_faults)
    faults = [_fault(rng, profile, scenario) for _ in range(count)] if profile.faults else []
    return replace(scenario, faults=tuple(sorted(faults, key=lambda fault: fault.at_s)))


def _without_repeated_repartitions(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Replace a repartition of a repartitioned category, which would change nothing."""
    keyed = {f"{node.name}.out" for node in nodes if node.kind == "repartition"}
    again = [node for node in nodes if node.kind == "repartition" and keyed & set(node.reads)]
    return tuple(replace(node, kind="stateless") if node in again else node for node in nodes)


def _category_settings(rng: random.Random, profile: Profile, scenario: Scenario) -> CategorySettings:
    """Draw the settings of categories; inputs of one processor have the same number of buckets."""
    usual = rng.choice(profile.buckets)
    keyed = {
        f"{node.name}.out": rng.choice(REPARTITION_BUCKETS) for node in scenario.nodes if node.kind == "repartition"
    }
    names = [*scenario.sources, *(f"{node.name}.out" for node in scenario.nodes)]
    sizes = [(name, keyed.get(name, usual)) for name in names]
    # Two categories that copy the same bytes as other records would have different names of Avro schemas.
    plain = {name for node in scenario.nodes if len(node.reads) > 1 for name in node.reads if name.endswith(".out")}
    return CategorySettings(
        tuple((name, size) for name, size in sizes if size != BUCKETS),
        frozenset(name for name in names if rng.random() < profile.avro and name not in plain),
        frozenset(name for name in names if rng.random() < profile.stamped),
        frozenset(keyed),
        frozenset(_written_elsewhere(rng, profile, scenario.nodes[-1])),
    )


def _written_elsewhere(rng: random.Random, profile: Profile, last: Node) -> list[str]:
    """Draw whether the output of the last processor, which no other one reads, is on the second cluster."""
    may_be = profile.elsewhere > 0 and last.output is not EXACT
    return [f"{last.name}.out"] if may_be and rng.random() < profile.elsewhere else []


def _may_delete(scenario: Scenario) -> bool:
    """Tell whether rows of a table may be deleted. A deletion as of an event's time needs messages with their own times."""
    last = scenario.nodes[-1]
    if last.kind in TIERS:
        return True
    if last.kind not in TABLES:
        return False
    has_times = last.reads[0] in scenario.category_settings.stamped and not scenario.skewed
    return has_times or last.kind == "table"


def _fault(rng: random.Random, profile: Profile, scenario: Scenario) -> Fault:
    kind, at_s = rng.choice(profile.faults), round(rng.uniform(0, scenario.length_s + 10), 3)
    node = rng.choice(scenario.nodes)
    target = f"{node.name}-{rng.randrange(node.workers)}"
    points: tuple[str, ...] = fault_points(node)[len(_COMMON_POINTS) * profile.in_checkpoints :]
    points += BACKUP_POINTS * profile.rocks
    if scenario.archivers and rng.random() < ARCHIVERS_SHARE:
        target, points = f"archiver-{rng.randrange(scenario.archivers)}", ARCHIVER_POINTS
    match kind:
        case FaultKind.CLEAN:
            return Fault(at_s, kind)
        case FaultKind.LEADERS:
            return Fault(at_s, kind, str(rng.randrange(BROKERS)), duration_s=_duration(rng, profile.outages_s))
        case FaultKind.EXPIRE:
            point = ON_EMPTY_DISKS if node.backups and node.output is not EXACT else ""
            return Fault(at_s, kind, node.name, point)
        case FaultKind.RECREATE | FaultKind.GROW:
            # After every bucket has been read and saved: an unread bucket accepts any topic.
            return Fault(max(at_s, 0.6 * scenario.length_s, 8.0), kind, rng.choice(node.reads))
        case _ if kind in GLOBAL_FAULTS:
            return Fault(at_s, kind, duration_s=_duration(rng, profile.outages_s))
        case _:
            return _process_fault(rng, profile, node, Fault(at_s, kind, target), points)


def _process_fault(rng: random.Random, profile: Profile, node: Node, fault: Fault, points: tuple[str, ...]) -> Fault:
    """Draw the point and the duration of a fault of one process."""
    match fault.kind:
        case FaultKind.PAUSE:
            return replace(fault, point=rng.choice(points), duration_s=_duration(rng, profile.pauses_s))
        case FaultKind.KILL | FaultKind.POWER | FaultKind.DISK | FaultKind.STOP:
            # They restart soon, or after their session has expired.
            point = "" if fault.kind is FaultKind.STOP else rng.choice(points)
            return replace(fault, point=point, duration_s=_duration(rng, profile.downtimes_s))
        case FaultKind.SLOW | FaultKind.FAIL | FaultKind.LOST:
            any_request = (*requests_of(node), *_OTHER_REQUESTS, *BACKUP_REQUESTS * profile.rocks)
            point = rng.choice(profile.requests or any_request)
            return replace(fault, point=point, duration_s=_duration(rng, (0.5, 40.0)))
        case FaultKind.DELAY:
            point = rng.choice(BACKUP_REQUESTS[2:]) if profile.rocks else "write sink" if node.sink else "write state"
            return replace(fault, point=point, duration_s=_duration(rng, (0.5, 90.0)))
        case FaultKind.CUT | FaultKind.UNMARKED:
            return replace(fault, point="commit transaction", duration_s=_duration(rng, profile.outages_s))
        case kind:
            range_s = profile.full_s if kind is FaultKind.FULL else (0.001, 30.0)
            return replace(fault, point=rng.choice(points), duration_s=_duration(rng, range_s))


def _duration(rng: random.Random, range_s: tuple[float, float]) -> float:
    """Draw a duration from a logarithmic distribution."""
    low, high = range_s
    return round(math.exp(rng.uniform(math.log(low), math.log(high))), 3)
