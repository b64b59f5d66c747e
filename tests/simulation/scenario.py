"""What is run: processors, their input, and what goes wrong, as data that is there before anything happens."""

from __future__ import annotations

from dataclasses import dataclass

from .faults import Fault
from .manner import USUAL, Manner
from .nodes import LATE, Node


@dataclass(frozen=True)
class Scenario:
    """A run.

    Args:
        seed: it was drawn from; it also decides who goes on when.
        nodes: the processors, each after those whose outputs it reads.
        rounds_s: the time before each round of input.
        events: the number of events of a round, without the events that keep buckets active.
        quiet: whether the last events come in one bucket alone, and of the others it is only promised that they are complete.
        lame: whether of several inputs all but the first end half way.
        lopsided: whether all buckets but one lie behind in event time, and get nothing in the second half.
        archivers: how many archivers share the categories that are written from outside.
        manner: how the categories are kept.
        skewed: whether writers' own times follow clocks that go wrong, and not the events.
        deletes: whether rows of tables are deleted, too.
        sweeps: whether workers report, and end what others left open that report no more.
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
    manner: Manner = USUAL
    skewed: bool = False
    deletes: bool = False
    sweeps: bool = False
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

    @property
    def is_late(self) -> bool:
        """Whether some events come too late."""
        return any(node.kind in LATE for node in self.nodes)

    def __str__(self) -> str:
        quiet = ", the last of them in one bucket" if self.quiet else ""
        input_ = f"{len(self.rounds_s)} rounds of {self.events} events in {self.length_s:.0f} s{quiet}"
        input_ += ", all inputs but the first for half of the time" if self.lame else ""
        input_ += ", some buckets behind" if self.lopsided else ""
        input_ += ", writers' clocks go wrong" if self.skewed else ""
        input_ += ", rows are deleted" if self.deletes else ""
        manner = [f"  {self.manner}"] if str(self.manner) else []
        archivers = [f"  {self.archivers} archivers"] if self.archivers else []
        return "\n".join([f"seed {self.seed}: {input_}", *(f"  {node}" for node in self.nodes), *manner, *archivers])
