"""Loops of apps: processors whose outputs return to them.

orders -> Route -> hops -> Deliver -> returned -> Route        `feedback = returned` on Route closes the loop

Only a declared loop is accepted. See `ops/kernel/event_time/loop_watermark.py` for its event time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from ..declare import Processor, plan_of
from ..errors import DeclarationError
from ..time import GlobalWindow


@dataclass(frozen=True)
class Loop:
    """Processors of which each reads, directly or through others, what each of them writes.

    Args:
        members: the processors, upstream ones first, seen from where the loop is closed.
        categories: the names of the categories that a member writes and a member reads.
    """

    members: tuple[type[Processor], ...]
    categories: frozenset[str]

    @property
    def shards(self) -> Collection[tuple[str, int]]:
        """The name and the bucket number of each shard of a member."""
        return [(member.name, number) for member in self.members for number in range(plan_of(member).inputs[0].buckets)]

    def inputs_of(self, member: type[Processor]) -> list[str]:
        """Return the names of the loop's categories that a member reads."""
        return [category.name for category in plan_of(member).sources if category.name in self.categories]

    def __str__(self) -> str:
        names = [member.__name__ for member in self.members]
        return " -> ".join([*names, names[0]])


def in_topological_order(app: str, processors: Sequence[type[Processor]]) -> list[type[Processor]]:
    """Return processors with upstream ones first; the declared loops are opened where they are closed.

    Raises:
        DeclarationError: processors form a loop that none of them declares.
    """
    writers = _writers(processors)
    upstream = {
        processor: [writer for name in _forward_inputs(processor) for writer in writers.get(name, ())]
        for processor in processors
    }
    try:
        return list(TopologicalSorter(upstream).static_order())
    except CycleError as error:
        raise _undeclared(app, error.args[1]) from error


def loops_of(processors: Sequence[type[Processor]]) -> tuple[Loop, ...]:
    """Return the loops of processors in topological order.

    Raises:
        DeclarationError: a category is declared as feedback and closes no loop; or the outputs of a member follow from the passing of time.
    """
    reached = _reached(processors)
    loops: list[Loop] = []
    for processor in processors:
        if processor in reached[processor] and not any(processor in loop.members for loop in loops):
            members = tuple(
                other for other in processors if other in reached[processor] and processor in reached[other]
            )
            read = {category.name for member in members for category in plan_of(member).sources}
            written = {category.name for member in members for category in plan_of(member).outputs}
            loops.append(Loop(members, frozenset(read & written)))
    _expect_closed(processors, loops)
    for loop in loops:
        for member in loop.members:
            _expect_prompt(member, loop)
    return tuple(loops)


def upstream_of(processor: type[Processor], processors: Sequence[type[Processor]]) -> list[type[Processor]]:
    """Return the processors whose outputs reach a processor, directly or through others; without those of its own loop."""
    reached = _reached(processors)
    return [other for other in processors if processor in reached[other] and other not in reached[processor]]


def _writers(processors: Iterable[type[Processor]]) -> Mapping[str, list[type[Processor]]]:
    writers: dict[str, list[type[Processor]]] = {}
    for processor in processors:
        for category in plan_of(processor).outputs:
            writers.setdefault(category.name, []).append(processor)
    return writers


def _forward_inputs(processor: type[Processor]) -> list[str]:
    plan = plan_of(processor)
    feedback = {category.name for category in plan.feedback_inputs}
    return [category.name for category in plan.sources if category.name not in feedback]


def _undeclared(app: str, cycle: Sequence[type[Processor]]) -> DeclarationError:
    writer, reader = cycle[-2], cycle[-1]
    read = {category.name for category in plan_of(reader).sources}
    name = next(category.name for category in plan_of(writer).outputs if category.name in read)
    shown = " -> ".join(processor.__name__ for processor in cycle)
    return DeclarationError(
        f"The processors of {app} form a cycle: {shown}. Their outputs return to them, so an event may circulate for ever. Nothing was read. If that is "
        f"intended, declare the category {name} as `feedback` of {reader.__name__}. Otherwise, remove one of these connections."
    )


def _reached(processors: Sequence[type[Processor]]) -> Mapping[type[Processor], set[type[Processor]]]:
    """Return the processors downstream of each processor, itself included only in a loop."""
    readers: dict[type[Processor], set[type[Processor]]] = {
        processor: {
            other
            for other in processors
            if {category.name for category in plan_of(processor).outputs}
            & {category.name for category in plan_of(other).sources}
        }
        for processor in processors
    }
    reached = {processor: set(readers[processor]) for processor in processors}
    for _ in processors:
        for found in reached.values():
            found |= {further for processor in tuple(found) for further in readers[processor]}
    return reached


def _expect_closed(processors: Iterable[type[Processor]], loops: Sequence[Loop]) -> None:
    for processor in processors:
        own = next((loop.categories for loop in loops if processor in loop.members), frozenset[str]())
        for category in plan_of(processor).feedback_inputs:
            if category.name not in own:
                raise DeclarationError(
                    f"Processor {processor.__name__} declares {category.name} as `feedback`, but none of its outputs leads to {category.name}. Nothing was "
                    "read. Remove it from `feedback`, or run the processor together with those of its loop, as one app."
                )


def _expect_prompt(member: type[Processor], loop: Loop) -> None:
    """Raise DeclarationError for a member whose outputs may be earlier than the events that have caused them: they would return too late."""
    has_windows = not isinstance(getattr(member, "window", GlobalWindow()), GlobalWindow)
    if plan_of(member).emits_without_input or has_windows or member.max_output_delay or member.close_after_silence:
        raise DeclarationError(
            f"Processor {member.__name__} is part of the loop {loop}. It waits for event time (with timers, schedules, windows, a join or `ordered`), or "
            "declares `max_output_delay` or `close_after_silence`, so its outputs would return with event times that have passed. Nothing was read. Let another processor, "
            f"outside of the loop, read {next(iter(sorted(loop.categories)))} and wait there."
        )
