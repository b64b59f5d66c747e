"""Profiles of scenarios: topologies and faults."""

from __future__ import annotations

from dataclasses import dataclass

from support.subjects import EXACT, LEAST, MOST

from penstock.processors.declare import Semantics

from .faults import FaultKind
from .shapes import (
    Shape,
    between_checkpoints,
    braid,
    chain,
    diamond,
    estimated,
    into_sink,
    long_chain,
    looped,
    minimal,
    remote,
    repartitioned,
    retried,
    single,
    sql_join,
    sql_two_phases,
    sql_windows,
    table,
    tiers,
    two_inputs,
    two_phases,
    with_upstream,
)

ROUNDS_S = (0.2, 1.0, 2.0, 4.0, 9.0)
"""Possible times between two rounds of input."""


@dataclass(frozen=True)
class Profile:
    """A distribution of scenarios.

    Args:
        name: the name on the command line; it is part of each seed.
        shapes: the topologies; a repeated one is more likely.
        faults: the kinds of faults; a repeated one is more likely.
        kinds: the kinds of the last processor.
        most_faults: the maximum number of faults.
        pauses_s: the range of pauses.
        lopsided: the probability that all buckets but one lag.
        outages_s: the range of outages.
        downtimes_s: the range of times until a killed or stopped process restarts.
        full_s: the range of times for which a disk is full.
        workers: possible numbers of workers of a processor.
        rounds: the minimum and the maximum number of rounds.
        round_intervals_s: possible times between two rounds.
        events: the minimum and the maximum number of events of a round.
        archivers: possible numbers of archivers.
        outputs: the semantics of outputs; empty for any.
        buckets: possible numbers of buckets of categories.
        avro: the probability of an Avro category.
        stamped: the probability of a category with its writers' times.
        deletes: the probability of deleted rows in tables.
        sweeps: whether workers report, and abort transactions of workers that no longer report.
        snapshots: whether snapshots of the whole app are taken.
        rates: possible rates at which the brokers accept messages, in bytes per second; 0 for any rate.
        in_checkpoints: whether faults of processes only hit during checkpoints.
        trickles: the probability that the brokers send few messages at a time.
        foreign: whether the input has headers of other programs, and aborted transactions that stay open for a round.
        to_the_end: whether all workers start after the input, and stop at its end.
        hesitation_s: the maximum time for which the producer of each input waits after an outage before it writes again.
        requests: the requests that are slow, fail, or get no answer; empty for any.
        rocks: whether states are in RocksDB, with the library's backups.
        elsewhere: the probability that the last processor writes to a second cluster. Its outputs are not exactly once then.
    """

    name: str
    shapes: tuple[Shape, ...]
    faults: tuple[FaultKind, ...]
    kinds: tuple[str, ...] = ()
    most_faults: int = 8
    pauses_s: tuple[float, float] = (1.0, 70.0)
    lopsided: float = 0.2
    outages_s: tuple[float, float] = (0.5, 110.0)
    downtimes_s: tuple[float, float] = (0.1, 70.0)
    full_s: tuple[float, float] = (0.001, 30.0)
    workers: tuple[int, ...] = (1, 1, 2, 3)
    rounds: tuple[int, int] = (5, 20)
    round_intervals_s: tuple[float, ...] = ROUNDS_S
    events: tuple[int, int] = (2, 12)
    outputs: tuple[Semantics, ...] = ()
    archivers: tuple[int, ...] = (0,)
    buckets: tuple[int, ...] = (2,)
    avro: float = 0.0
    stamped: float = 0.0
    deletes: float = 0.0
    sweeps: bool = False
    snapshots: bool = False
    rates: tuple[int, ...] = (0,)
    in_checkpoints: bool = False
    trickles: float = 0.0
    foreign: bool = False
    to_the_end: bool = False
    hesitation_s: float = 0.0
    requests: tuple[str, ...] = ()
    rocks: bool = False
    elsewhere: float = 0.0


_DEATHS = (FaultKind.KILL, FaultKind.KILL, FaultKind.STOP, FaultKind.POWER, FaultKind.DISK)
_STALLS = (FaultKind.PAUSE, FaultKind.SLOW, FaultKind.FAIL, FaultKind.LOST)
_ALL = (*_DEATHS, *_STALLS, FaultKind.BROKERS, FaultKind.FULL)
PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            "mixed",
            (single, single, with_upstream, two_inputs, chain, diamond, long_chain, table),
            _ALL,
            buckets=(1, 2, 2, 2, 3),
            avro=0.15,
            stamped=0.15,
            deletes=0.5,
        ),
        Profile("calm", (single, with_upstream, two_inputs, chain, diamond), (), most_faults=0),
        Profile(
            "stalls",
            (single, two_inputs, with_upstream),
            (FaultKind.PAUSE, *_STALLS, FaultKind.BROKERS),
            outputs=(EXACT,),
            most_faults=14,
            pauses_s=(20.0, 70.0),
            workers=(2, 3),
        ),
        Profile(
            "zombies",
            (single,),
            (FaultKind.PAUSE,),
            kinds=("aggregator", "windowed"),
            outputs=(LEAST,),
            most_faults=12,
            pauses_s=(46.0, 60.0),
            workers=(2,),
            rounds=(12, 16),
            round_intervals_s=(1.0,),
        ),
        Profile(
            "silence",
            (two_inputs, two_inputs, chain, diamond),
            (FaultKind.BROKERS, FaultKind.SLEEP, FaultKind.STOP, FaultKind.PAUSE),
            outages_s=(61.0, 110.0),
            pauses_s=(61.0, 110.0),
            most_faults=4,
            hesitation_s=10.0,
        ),
        # Producers that pause for longer than the idle timeout, and workers that come back to what was written meanwhile.
        Profile(
            "resumed",
            (two_inputs, two_inputs, two_inputs, diamond, chain),
            (FaultKind.STOP, FaultKind.KILL, FaultKind.SLOW, FaultKind.BROKERS),
            lopsided=0.0,
            downtimes_s=(0.1, 130.0),
            most_faults=3,
            rounds=(6, 12),
            round_intervals_s=(0.1, 0.1, 1.0, 65.0, 95.0),
        ),
        Profile(
            "behind",
            (chain,),
            (FaultKind.STOP, FaultKind.PAUSE),
            lopsided=1.0,
            outputs=(EXACT,),
            workers=(1,),
            outages_s=(61.0, 110.0),
            pauses_s=(61.0, 110.0),
            downtimes_s=(61.0, 110.0),
            most_faults=3,
            kinds=("closing", "sessions", "ordered", "timers"),
            rounds=(16, 24),
            round_intervals_s=(4.0, 9.0, 15.0),
        ),
        Profile(
            "early",
            (single, with_upstream),
            _ALL,
            kinds=("early",),
            rounds=(12, 20),
            round_intervals_s=(1.0, 2.0, 4.0),
        ),
        # Without restarts: a process that starts with a wrong clock cannot know it.
        Profile(
            "clocks",
            (single, with_upstream),
            (FaultKind.CLOCK, FaultKind.CLOCK, FaultKind.CLOCK, FaultKind.PAUSE, FaultKind.SLOW, FaultKind.BROKERS),
            kinds=("scheduled", "scheduled", "catching up", "early", "retrying", "closing"),
            pauses_s=(1.0, 20.0),
            outages_s=(0.5, 20.0),
            most_faults=14,
        ),
        Profile("schedules", (single,), _ALL, kinds=("scheduled", "catching up"), buckets=(1, 2, 2, 3)),
        Profile(
            "twice",
            (two_inputs,),
            (FaultKind.DISK, FaultKind.DISK, FaultKind.KILL),
            kinds=("joining",),
            outputs=(MOST,),
            most_faults=3,
            rounds=(18, 26),
            round_intervals_s=(4.0, 9.0, 15.0),
        ),
        Profile(
            "full",
            (single, two_inputs),
            (FaultKind.FULL, FaultKind.FULL, FaultKind.FULL, FaultKind.KILL),
            most_faults=6,
        ),
        # Disks that are full for as long as a worker takes to end: it could write its state again just before it ends.
        Profile(
            "nearly-full",
            (single, two_inputs),
            (FaultKind.FULL,),
            most_faults=12,
            full_s=(0.001, 0.01),
        ),
        Profile(
            "archive",
            (minimal,),
            (FaultKind.KILL, FaultKind.PAUSE, FaultKind.PAUSE, FaultKind.PAUSE, FaultKind.BROKERS, FaultKind.WAREHOUSE),
            archivers=(1, 2, 2),
            pauses_s=(30.0, 70.0),
            rounds=(10, 16),
            round_intervals_s=(2.0, 4.0, 9.0),
        ),
        Profile(
            "expired",
            (single, two_inputs),
            (FaultKind.EXPIRE, FaultKind.KILL),
            most_faults=2,
            rounds=(12, 20),
            workers=(1,),
        ),
        Profile(
            "tombstones",
            (single,),
            _ALL,
            kinds=("deleting",),
            buckets=(1, 2, 3),
            avro=0.3,
        ),
        Profile(
            "deletions",
            (single,),
            (FaultKind.CLEAN, FaultKind.CLEAN, FaultKind.CLEAN, FaultKind.KILL, FaultKind.PAUSE),
            kinds=("forgetting",),
            most_faults=14,
            pauses_s=(46.0, 100.0),
            downtimes_s=(46.0, 100.0),
            workers=(2,),
            rounds=(24, 36),
            round_intervals_s=(4.0, 9.0),
        ),
        Profile(
            "recreated",
            (single,),
            (FaultKind.RECREATE,),
            kinds=("stateful", "stateless"),
            outputs=(EXACT, MOST),
            most_faults=1,
        ),
        Profile(
            "grown",
            (single,),
            (FaultKind.GROW, FaultKind.KILL),
            kinds=("stateful",),
            outputs=(EXACT, MOST),
            most_faults=2,
        ),
        Profile(
            "remote",
            (remote,),
            (
                *_DEATHS,
                FaultKind.PAUSE,
                FaultKind.PAUSE,
                *_STALLS,
                FaultKind.STORE,
                FaultKind.BROKERS,
                FaultKind.DELAY,
                FaultKind.DELAY,
            ),
            most_faults=12,
            pauses_s=(30.0, 70.0),
            workers=(2, 3),
        ),
        # A backlog behind brokers that take longer for its outputs than a transaction or a membership lasts.
        Profile(
            "quotas",
            (single, with_upstream, with_upstream, chain),
            (FaultKind.KILL, FaultKind.STOP, FaultKind.DISK, FaultKind.PAUSE, FaultKind.BROKERS),
            kinds=("timers", "timers", "timers", "stateful", "unsure", "stateless", "closing", "retrying"),
            most_faults=2,
            workers=(1, 2),
            rounds=(2, 6),
            round_intervals_s=(0.1, 0.2, 1.0),
            events=(30, 60),
            rates=(400,),
        ),
        # Lost states that catch up with their outputs for longer than a checkpoint, and further faults meanwhile.
        Profile(
            "catch-ups",
            (single,),
            (FaultKind.DISK, FaultKind.DISK, FaultKind.KILL),
            kinds=("stateful", "aggregator", "timers", "closing", "windowed", "sessions", "ordered", "flow", "sliding"),
            outputs=(EXACT, MOST),
            most_faults=4,
            downtimes_s=(46.0, 50.0),
            workers=(1,),
            rounds=(8, 14),
            events=(10, 20),
            round_intervals_s=(0.2, 1.0),
            in_checkpoints=True,
            trickles=1.0,
        ),
        Profile(
            "foreign",
            (single,),
            _ALL,
            kinds=("refusing", "refusing", "retrying", "counting retries", "closing"),
            avro=0.2,
            foreign=True,
        ),
        # Runs of a chain that start together and stop at the end of their input. They wait for no bucket that is silent, and for no run
        # before them that is silent for long, was stopped, or has not begun.
        Profile(
            "ends",
            (single, with_upstream, chain, chain, long_chain),
            (FaultKind.KILL, FaultKind.POWER, FaultKind.DISK, FaultKind.PAUSE, FaultKind.BROKERS),
            kinds=("stateful", "aggregator", "timers", "closing", "windowed", "sessions", "ordered", "sliding"),
            in_checkpoints=True,
            lopsided=0.0,
            pauses_s=(1.0, 15.0),
            downtimes_s=(0.1, 15.0),
            most_faults=6,
            rounds=(2, 6),
            round_intervals_s=(0.1, 0.2),
            sweeps=True,
            to_the_end=True,
        ),
        Profile("promises", (chain, with_upstream), (FaultKind.FAIL, FaultKind.FAIL, FaultKind.KILL), most_faults=6),
        # Outliers and a bound that follows them, so that events lie behind their own watermark.
        Profile(
            "estimates",
            (estimated,),
            _ALL,
            buckets=(1, 2, 2),
            rounds=(30, 60),
            round_intervals_s=(0.1, 0.2, 1.0),
            events=(2, 4),
        ),
        Profile("late", (single,), _ALL, kinds=("late", "differences")),
        Profile("asynchronous", (single,), _ALL, kinds=("asynchronous",)),
        Profile("retries", (single, single, with_upstream), _ALL, kinds=("retrying", "counting retries")),
        Profile(
            "retried",
            (retried,),
            (*_DEATHS, *_STALLS, FaultKind.PAUSE, FaultKind.BROKERS),
            kinds=("closing", "windowed", "stateful", "timers", "sessions", "counting retries"),
            most_faults=4,
            round_intervals_s=(0.2, 1.0, 2.0),
            snapshots=True,
            trickles=1.0,
        ),
        Profile(
            "loops",
            (looped,),
            (*_DEATHS, *_STALLS, FaultKind.PAUSE, FaultKind.BROKERS),
            kinds=("closing", "windowed", "stateful", "timers", "sessions"),
            most_faults=6,
            buckets=(1, 2, 3),
            round_intervals_s=(0.2, 1.0, 2.0, 4.0),
            snapshots=True,
        ),
        Profile("pipes", (single,), _ALL, kinds=("pipe",)),
        Profile("sliding", (single, with_upstream, chain), _ALL, kinds=("sliding",)),
        Profile("tables", (table,), _ALL, stamped=0.4, deletes=0.7, round_intervals_s=(1.0, 4.0, 9.0)),
        Profile(
            "lookups",
            (single,),
            (FaultKind.ROWS, FaultKind.ROWS, *_DEATHS, *_STALLS, FaultKind.BROKERS),
            kinds=("lookup", "remembering", "broadcast"),
            outages_s=(2.0, 60.0),
        ),
        Profile(
            "laser",
            (tiers,),
            (*_ALL, FaultKind.DISK, FaultKind.DISK, FaultKind.BACKUP_STORE),
            deletes=0.5,
            buckets=(1, 2, 3),
            avro=0.2,
        ),
        Profile("spread", (repartitioned,), _ALL, buckets=(1, 2, 3, 5)),
        Profile("phases", (two_phases,), _ALL, buckets=(1, 2, 3)),
        Profile("avro", (single, two_inputs, chain, table), (*_ALL, FaultKind.BROKERS), avro=0.7),
        Profile("stamped", (single, two_inputs, with_upstream, chain), _ALL, stamped=0.8),
        # Faults after which no output repeats, so that nothing is late.
        Profile(
            "prompt",
            (between_checkpoints,),
            (FaultKind.STOP, FaultKind.SLOW, FaultKind.SLOW, FaultKind.SLOW),
            kinds=("closing", "windowed", "timers", "sessions", "ordered"),
            workers=(1, 1, 2),
            most_faults=14,
            rounds=(30, 50),
            round_intervals_s=(0.1, 0.2),
            trickles=0.3,
        ),
        Profile("long", (long_chain, braid), _ALL, most_faults=12, workers=(1, 1, 2)),
        # Consumers that start on the newest statement of each upstream shard, often without the message that contained its end offsets.
        Profile(
            "compacted",
            (chain, long_chain, long_chain, repartitioned),
            (
                FaultKind.CLEAN,
                FaultKind.CLEAN,
                FaultKind.CLEAN,
                FaultKind.CLEAN,
                FaultKind.KILL,
                FaultKind.DISK,
                FaultKind.DISK,
                FaultKind.STOP,
                FaultKind.PAUSE,
                FaultKind.BROKERS,
            ),
            kinds=("closing", "windowed", "timers", "sessions", "ordered", "sliding", "stateful"),
            most_faults=20,
            downtimes_s=(0.1, 20.0),
            outages_s=(0.5, 30.0),
            buckets=(3, 5, 8),
            workers=(1, 1, 2),
            rounds=(8, 16),
            round_intervals_s=(0.2, 1.0, 2.0, 4.0),
            events=(1, 4),
            sweeps=True,
        ),
        # Real states and backups, which workers on other disks restore.
        Profile(
            "backups",
            (single, single, with_upstream, chain),
            (
                *(FaultKind.DISK,) * 4,
                FaultKind.KILL,
                FaultKind.KILL,
                FaultKind.POWER,
                FaultKind.STOP,
                FaultKind.PAUSE,
                FaultKind.PAUSE,
                FaultKind.FULL,
                FaultKind.SLOW,
                FaultKind.FAIL,
                FaultKind.LOST,
                FaultKind.DELAY,
                FaultKind.BACKUP_STORE,
                FaultKind.ROLLBACK,
                FaultKind.ROLLBACK,
            ),
            kinds=(
                "stateful",
                "aggregator",
                "timers",
                "closing",
                "windowed",
                "sessions",
                "ordered",
                "sliding",
                "flow",
                "forgetting",
            ),
            most_faults=20,
            pauses_s=(10.0, 70.0),
            downtimes_s=(0.1, 20.0),
            outages_s=(4.0, 70.0),
            workers=(1, 2, 2, 3),
            rounds=(12, 20),
            round_intervals_s=(0.2, 1.0, 2.0, 4.0, 9.0),
            rocks=True,
        ),
        # Brokers that clients do not reach, one by one.
        Profile(
            "leaders",
            (single, with_upstream, two_inputs, chain, chain, diamond),
            (FaultKind.LEADERS, FaultKind.LEADERS, FaultKind.LEADERS, FaultKind.KILL, FaultKind.STOP, FaultKind.DISK),
            buckets=(2, 3, 5),
            workers=(1, 2, 3),
            sweeps=True,
        ),
        Profile(
            "buckets",
            (single, with_upstream, two_inputs, chain, chain, long_chain),
            _ALL,
            buckets=(1, 3, 5, 8),
            workers=(1, 2, 3),
        ),
        Profile(
            "markers",
            (single, chain),
            (
                FaultKind.MARKERS,
                FaultKind.MARKERS,
                FaultKind.CUT,
                FaultKind.UNMARKED,
                FaultKind.UNMARKED,
                FaultKind.KILL,
                FaultKind.DISK,
                FaultKind.DISK,
                FaultKind.PAUSE,
            ),
            kinds=("stateless", "stateful", "unsure", "aggregator", "timers"),
            outputs=(EXACT,),
            outages_s=(2.0, 60.0),
            most_faults=6,
            workers=(2, 2, 3),
            sweeps=True,
        ),
        Profile(
            "snapshots",
            (chain, diamond, long_chain, repartitioned),
            (*_DEATHS, *_STALLS, FaultKind.PAUSE, FaultKind.BROKERS),
            most_faults=4,
            buckets=(1, 2, 3),
            round_intervals_s=(0.2, 1.0, 2.0),
            snapshots=True,
        ),
        # Workers without buckets, whose brokers are slow to open their writers.
        Profile(
            "spares",
            (chain, diamond),
            (FaultKind.STOP, FaultKind.KILL, FaultKind.SLOW, FaultKind.SLOW),
            outputs=(EXACT,),
            most_faults=16,
            downtimes_s=(0.1, 20.0),
            workers=(2, 3),
            buckets=(1,),
            round_intervals_s=(0.2, 1.0, 2.0),
            snapshots=True,
            requests=("open transactions",),
        ),
        Profile(
            "restores",
            (single, single, chain),
            (*_DEATHS, *_STALLS, FaultKind.PAUSE, FaultKind.BROKERS),
            kinds=("stateful", "aggregator", "windowed", "closing", "sessions", "timers"),
            most_faults=4,
            buckets=(1, 2, 3),
            round_intervals_s=(0.2, 1.0, 2.0),
            snapshots=True,
        ),
        Profile(
            "clusters",
            (single, single, with_upstream, chain),
            (FaultKind.SECOND, FaultKind.SECOND, FaultKind.SECOND, *_DEATHS, *_STALLS, FaultKind.BROKERS),
            kinds=("stateless", "stateful", "unsure", "aggregator", "timers", "closing"),
            outputs=(LEAST, MOST),
            avro=0.3,
            elsewhere=1.0,
        ),
        Profile(
            "sinks",
            (into_sink,),
            (*_DEATHS, FaultKind.PAUSE, *_STALLS, FaultKind.STORE, FaultKind.BROKERS, FaultKind.DELAY, FaultKind.DELAY),
            most_faults=10,
            pauses_s=(10.0, 70.0),
            workers=(1, 2, 3),
        ),
        Profile(
            "sql",
            (sql_windows, sql_windows, sql_join, sql_two_phases),
            _ALL,
            buckets=(1, 2, 2, 3),
            avro=0.15,
        ),
    )
}
