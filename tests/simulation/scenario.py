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
        deletes: whether rows of tables are deleted.
        sweeps: whether workers report, and abort transactions of workers that no longer report.
        snapshots: whether snapshots of the whole app are taken.
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
    deletes: bool = False
    sweeps: bool = False
    snapshots: bool = False
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
        return any(node.kind in LATE for node in self.nodes)

    def __str__(self) -> str:
        quiet = ", the last of them in one bucket" if self.quiet else ""
        input_ = f"{len(self.rounds_s)} rounds of {self.events} events in {self.length_s:.0f} s{quiet}"
        input_ += ", all inputs but the first end half way" if self.ends_early else ""
        input_ += ", some buckets lag" if self.lopsided else ""
        input_ += ", writers' clocks go wrong" if self.skewed else ""
        input_ += ", rows are deleted" if self.deletes else ""
        category_settings = [f"  {self.category_settings}"] if str(self.category_settings) else []
        archivers = [f"  {self.archivers} archivers"] if self.archivers else []
        return "\n".join(
            [f"seed {self.seed}: {input_}", *(f"  {node}" for node in self.nodes), *category_settings, *archivers]
        )
