"""What kinds of scenarios are drawn: how processors are put together, and what goes wrong."""

from __future__ import annotations

from dataclasses import dataclass

from support.subjects import EXACT, MOST

from penstock.processors.declare.semantics import Semantics

from .faults import What
from .shapes import Shape, braid, chain, diamond, lone, long, one, spread, stored, table, told, two

ROUNDS_S = (0.2, 1.0, 2.0, 4.0, 9.0)
"""How long there may be between two rounds of input."""


@dataclass(frozen=True)
class Profile:
    """What kind of scenarios are drawn.

    Args:
        name: by which it is chosen.
        shapes: how processors are put together, each as often as it is named.
        faults: what may go wrong, likewise.
        kinds: the kinds of the last processor.
        most_faults: how many faults at most.
        stalls_s: how long processes pause.
        lopsided: how likely all buckets but one lie behind.
        outages_s: how long something is away.
        stops_s: how long those are away that died or were stopped.
        workers: how many a processor may have.
        rounds: how many rounds of input at least, and at most.
        waits_s: how long there may be between two of them.
        archivers: how many there may be.
        outputs: the semantics of outputs; any where there is none.
        buckets: how many buckets categories may have.
        avro: how likely a category is Avro.
        stamped: how likely a category has its writers' times.
        deletes: how likely rows of tables are deleted, too.
        sweeps: whether workers report, and end what others left open that report no more.
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
    buckets: tuple[int, ...] = (2,)
    avro: float = 0.0
    stamped: float = 0.0
    deletes: float = 0.0
    sweeps: bool = False


_DEATHS = (What.KILL, What.KILL, What.STOP, What.POWER, What.DISK)
_STALLS = (What.PAUSE, What.SLOW, What.FAIL, What.LOST)
_ALL = (*_DEATHS, *_STALLS, What.BROKERS, What.FULL)
PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            "mixed",
            (one, one, told, two, chain, diamond, long, table),
            _ALL,
            buckets=(1, 2, 2, 2, 3),
            avro=0.15,
            stamped=0.15,
            deletes=0.5,
        ),
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
            (*_DEATHS, What.PAUSE, What.PAUSE, *_STALLS, What.STORE, What.BROKERS, What.DELAY, What.DELAY),
            most_faults=12,
            stalls_s=(30.0, 70.0),
            workers=(2, 3),
        ),
        Profile("promises", (chain, told), (What.FAIL, What.FAIL, What.KILL), most_faults=6),
        Profile("late", (one,), _ALL, kinds=("late", "differences")),
        Profile("sliding", (one, told, chain), _ALL, kinds=("sliding",)),
        Profile("tables", (table,), _ALL, stamped=0.4, deletes=0.7, waits_s=(1.0, 4.0, 9.0)),
        Profile(
            "lookups",
            (one,),
            (What.ROWS, What.ROWS, *_DEATHS, *_STALLS, What.BROKERS),
            kinds=("lookup", "remembering"),
            outages_s=(2.0, 60.0),
        ),
        Profile("spread", (spread,), _ALL, buckets=(1, 2, 3, 5)),
        Profile("avro", (one, two, chain, table), (*_ALL, What.BROKERS), avro=0.7),
        Profile("stamped", (one, two, told, chain), _ALL, stamped=0.8),
        Profile("long", (long, braid), _ALL, most_faults=12, workers=(1, 1, 2)),
        Profile("buckets", (one, told, two, chain, chain, long), _ALL, buckets=(1, 3, 5, 8), workers=(1, 2, 3)),
        Profile(
            "markers",
            (one, chain),
            (What.MARKERS, What.MARKERS, What.CUT, What.KILL, What.DISK, What.DISK, What.PAUSE),
            kinds=("stateless", "stateful", "unsure", "aggregator", "timers"),
            outputs=(EXACT,),
            outages_s=(2.0, 60.0),
            most_faults=6,
            workers=(2, 2, 3),
            sweeps=True,
        ),
    )
}
