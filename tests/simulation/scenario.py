"""A scenario: processors, their input and faults, as data that is complete before the run."""

from __future__ import annotations

from dataclasses import dataclass

from .category_settings import DEFAULT_SETTINGS, CategorySettings
from .faults import Fault
from .nodes import LATE, TIERS, Node


@dataclass(frozen=True)
class Scenario:
    """A scenario.

    Args:
        seed: the seed; it also decides the order of tasks.
        nodes: the processors in upstream order.
        rounds_s: the time before each round of input.
        events: the number of events of a round, without the events that keep buckets active.
        quiet: whether the last events are in one bucket, and the others only have a watermark.
        ends_early: whether all inputs but the first end half way.
        lopsided: whether all buckets but one lag in event time, and get no events in the second half.
        archivers: the number of archivers of the external categories.
        category_settings: the settings of its categories.
        skewed: whether writers' times follow wrong clocks instead of the events.
        on_minutes: whether event times are whole minutes, as all distances between them that processors compare.
        deletes: whether rows of tables are deleted.
        sweeps: whether workers report, and abort transactions of workers that no longer report.
        snapshots: whether snapshots of the whole app are taken.
        rate: the bytes of messages per second that the brokers accept from a worker; 0 for any number.
        trickles: whether the brokers send few messages at a time, so that a state catches up for longer than a checkpoint.
        foreign: whether the input has headers of other programs, and aborted transactions that stay open for a round.
        to_the_end: whether all workers start after the input, and stop at its end.
        hesitation_s: the maximum time for which the producer of each input waits after an outage before it writes again.
        rocks: whether states are in RocksDB, with the library's backups.
        faults: the faults, in order of time.
    """

    seed: int
    nodes: tuple[Node, ...]
    rounds_s: tuple[float, ...]
    events: int
    quiet: bool = False
    ends_early: bool = False
    lopsided: bool = False
    archivers: int = 0
    category_settings: CategorySettings = DEFAULT_SETTINGS
    skewed: bool = False
    on_minutes: bool = False
    deletes: bool = False
    sweeps: bool = False
    snapshots: bool = False
    rate: int = 0
    trickles: bool = False
    foreign: bool = False
    to_the_end: bool = False
    hesitation_s: float = 0.0
    rocks: bool = False
    faults: tuple[Fault, ...] = ()

    @property
    def length_s(self) -> float:
        """The duration of the input."""
        return sum(self.rounds_s)

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the external categories."""
        written = {f"{node.name}.out" for node in self.nodes}
        return tuple(dict.fromkeys(name for node in self.nodes for name in node.reads if name not in written))

    @property
    def tiers(self) -> tuple[Node, ...]:
        """The servers of Laser tables."""
        return tuple(node for node in self.nodes if node.kind in TIERS)

    @property
    def is_late(self) -> bool:
        """Whether some events are late."""
        return self.is_estimated or any(node.kind in LATE for node in self.nodes)

    @property
    def is_estimated(self) -> bool:
        """Whether a watermark is estimated from the lateness of events."""
        return any(node.on_time is not None for node in self.nodes)

    def __str__(self) -> str:
        quiet = ", the last of them in one bucket" if self.quiet else ""
        input_ = f"{len(self.rounds_s)} rounds of {self.events} events in {self.length_s:.0f} s{quiet}"
        input_ += ", all inputs but the first end half way" if self.ends_early else ""
        input_ += ", some buckets lag" if self.lopsided else ""
        input_ += ", writers' clocks go wrong" if self.skewed else ""
        input_ += ", at whole minutes" if self.on_minutes else ""
        input_ += ", rows are deleted" if self.deletes else ""
        input_ += f", brokers accept {self.rate:,} bytes per second" if self.rate else ""
        input_ += ", messages trickle" if self.trickles else ""
        input_ += ", with foreign headers and transactions" if self.foreign else ""
        input_ += ", read to its end" if self.to_the_end else ""
        input_ += f", producers wait up to {self.hesitation_s:.0f} s after an outage" if self.hesitation_s else ""
        input_ += ", states in RocksDB" if self.rocks else ""
        category_settings = [f"  {self.category_settings}"] if str(self.category_settings) else []
        archivers = [f"  {self.archivers} archivers"] if self.archivers else []
        return "\n".join(
            [f"seed {self.seed}: {input_}", *(f"  {node}" for node in self.nodes), *category_settings, *archivers]
        )
