"""The protocol of all maintenance operations: reset, resize, migration and bootstrap.

start -> stage new states -> change topics -> install states -> move positions -> finish

The start is recorded before the first change. No worker of the processor starts until the end is recorded. Every step can be repeated: if a
command dies, the user repeats it, and it takes all steps again. Before the first change of topics or states, a failure rolls the operation
back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing
from enum import Enum
from typing import NamedTuple

import msgspec

from ...processors import PenstockError
from ...processors.declare import Processor, plan_of
from ..bus import Bus
from ..errors import GroupInUse
from ..messages import Bucket, Position
from .maintenance_log import (
    MAINTENANCE,
    Bootstrap,
    Clone,
    LastReset,
    MaintenanceOperation,
    OperationKind,
    Reset,
    Restore,
    StateLineage,
    can_finish,
    forget_maintenance,
    newest_maintenance,
    record_maintenance,
)
from .upstream_watermarks import delete_watermarks


class MaintenanceRefused(PenstockError):
    """The operation is not possible, or not with these options. Nothing was changed: choose another operation or other options."""


class MaintenanceStep(Enum):
    """One durable step of an operation. Every step can be repeated."""

    RECORD_START = "record the start"
    STAGE_STATE = "stage a new state"
    CHANGE_TOPICS = "change topics"
    INSTALL_STATE = "install a state"
    STORE_BACKUP = "store the state as the newest backup"
    REWRITE_CHANGELOG = "rewrite the changelog"
    RETRACT_WATERMARKS = "retract published watermarks"
    MOVE_POSITIONS = "move positions"
    RECORD_END = "record the end"


PER_SHARD = (MaintenanceStep.INSTALL_STATE, MaintenanceStep.STORE_BACKUP, MaintenanceStep.REWRITE_CHANGELOG)
"""The steps that change one shard, in order."""


class MaintenanceGap(NamedTuple):
    """A point between two steps, where an operation may die: before a step, with its processor and bucket if it has them."""

    before: MaintenanceStep
    processor: str = ""
    bucket: int | None = None


AtGap = Callable[[MaintenanceGap], None]


def no_gap(_: MaintenanceGap) -> None:
    """Do nothing between two steps."""


class MaintenanceTask:
    """One processor's part of an operation. Subclasses override the steps that they need.

    Args:
        processor: the processor whose positions and states change.
        bus: the bus of the processor.
        operation: the operation to record.
        replaces: the newest earlier operation, done or unfinished.
    """

    def __init__(
        self,
        processor: type[Processor],
        bus: Bus,
        operation: MaintenanceOperation,
        replaces: MaintenanceOperation | None,
    ) -> None:
        self.processor = processor
        self.bus = bus
        self.operation = operation
        self.replaces = replaces

    @property
    def buckets(self) -> Sequence[int]:
        """The buckets of the changed shards."""
        raise NotImplementedError

    @property
    def can_roll_back(self) -> bool:
        """Whether no attempt has changed a topic or installed a state yet, so that its record may be deleted."""
        return False

    def check(self) -> None:
        """Raise a PenstockError if the plan is outdated. The start is recorded, so no worker runs."""

    def check_states(self) -> None:
        """Raise StateInUse if a process has one of the states open."""

    def staging(self) -> Generator[int, None, None]:
        """Yield each bucket before its new state is staged; nothing if all are staged."""
        yield from ()

    def change_shard(self, step: MaintenanceStep, bucket: int) -> None:
        """Take one of the steps in `PER_SHARD`."""

    def rewound(self) -> Collection[int]:
        """Return the buckets whose outputs are written again."""
        return ()

    def move_positions(self) -> None:
        """Set the positions of the processor's consumer group."""

    def discard_staged(self) -> None:
        """Delete the staged states."""


class TopicChange:
    """A change of topics by an operation; here no change."""

    def prepare(self) -> None:
        """Raise GroupInUse if a process that must not run is running."""

    def check(self) -> None:
        """Raise MaintenanceRefused if the topics must not change now. This is the last check before the change."""

    def apply(self) -> None:
        """Change the topics."""


def start_operation(
    processor: type[Processor],
    kind: OperationKind,
    lineage: StateLineage,
    previous: MaintenanceOperation | None = None,
) -> MaintenanceOperation:
    """Return an operation that starts now.

    Args:
        processor: the processor whose positions and states change.
        kind: the operation.
        lineage: the states that workers may use afterwards.
        previous: the operation before it, if this one can be rolled back.
    """
    now_ms = time.time_ns() // 1_000_000
    match kind:
        case Reset() | Restore() | Bootstrap():
            last = LastReset(kind, now_ms)
            lineage = msgspec.structs.replace(lineage, resets=lineage.resets + 1, last_reset=last)
        case Clone():
            lineage = msgspec.structs.replace(lineage, clone=kind)
        case _:
            pass
    return MaintenanceOperation(processor.name, kind, now_ms, lineage=lineage, is_done=False, previous=previous)


def require_idle(processor: type[Processor], bus: Bus) -> None:
    """Raise GroupInUse if a worker of a processor runs.

    Positions of a group with members cannot be set; this sets them to their current values.
    """
    catalog = bus.catalog
    # A processor that does not exist yet, such as one of a clone, may have inputs that do not exist either.
    names = catalog.topics([category.name for category in plan_of(processor).inputs])
    positions = [position for name in names for position in catalog.positions(processor.name, name)]
    if not positions and MAINTENANCE.name in catalog.names():
        positions = [Position(Bucket(MAINTENANCE.name, 0), 0)]
    if positions:
        try:
            catalog.set_committed(processor.name, positions)
        except GroupInUse as error:
            raise GroupInUse(
                f"Group {processor.name} has members: a worker of the processor runs, or stopped less than a minute ago. Nothing was changed. Stop its "
                "workers, wait a minute, and try again."
            ) from error


def operation_to_replace(
    processor: type[Processor], bus: Bus, kind: OperationKind, buckets: Collection[int] | None = None
) -> MaintenanceOperation | None:
    """Return the newest operation of a processor: one that is done, or an unfinished one that this operation finishes.

    Args:
        processor: the processor.
        bus: the bus of the processor.
        kind: the operation to start.
        buckets: the buckets to change; None if still unknown.

    Raises:
        MaintenanceRefused: another operation is unfinished, and this one would not finish all of it.
    """
    newest = newest_maintenance(bus, processor.name)
    if newest is None or newest.is_done:
        return newest
    if not can_finish(kind, newest.kind):
        raise MaintenanceRefused(
            f"{processor.__name__}: a {newest.kind} is unfinished; only some of its buckets have changed. Nothing was changed. "
            "Repeat that command, which finishes it; then run this one."
        )
    missing = set() if buckets is None else newest.lineage.newest_buckets.difference(buckets)
    if missing:
        raise MaintenanceRefused(
            f"{processor.__name__}: a {newest.kind} is unfinished, and this command does not include bucket "
            f"{', '.join(map(str, sorted(missing)))} of it. Nothing was changed. Repeat the first command with all of its buckets, days and "
            "options."
        )
    return newest


def perform_maintenance(
    tasks: Sequence[MaintenanceTask], bus: Bus, at_gap: AtGap = no_gap, topics: TopicChange | None = None
) -> None:
    """Perform an operation. Durable on return; may be repeated.

    Args:
        tasks: the parts, one for each processor.
        bus: the bus of the processors.
        at_gap: called before each step.
        topics: the topics that the operation changes; None for none.

    Raises:
        GroupInUse: a worker runs. Nothing was changed.
        MaintenanceRefused: the plan is outdated. Nothing was changed.
    """
    topics = topics or TopicChange()
    # If a task's end is already recorded, an earlier attempt died before the end of another task.
    open_tasks = [task for task in tasks if not task.operation.is_done]
    _prepare(open_tasks, bus, at_gap, topics)
    at_gap(MaintenanceGap(MaintenanceStep.CHANGE_TOPICS))
    topics.apply()
    for step in PER_SHARD:
        for task in open_tasks:
            for bucket in task.buckets:
                at_gap(MaintenanceGap(step, task.processor.name, bucket))
                task.change_shard(step, bucket)
    for task in open_tasks:
        at_gap(MaintenanceGap(MaintenanceStep.RETRACT_WATERMARKS, task.processor.name))
        if rewound := task.rewound():
            delete_watermarks(bus, task.processor.name, rewound)
    for task in open_tasks:
        at_gap(MaintenanceGap(MaintenanceStep.MOVE_POSITIONS, task.processor.name))
        task.move_positions()
    # All positions are set before the first end is recorded: afterwards the old ends of the buckets would be unknown.
    for task in open_tasks:
        at_gap(MaintenanceGap(MaintenanceStep.RECORD_END, task.processor.name))
        record_maintenance(bus, msgspec.structs.replace(task.operation, is_done=True, previous=None))
    for task in tasks:
        task.discard_staged()


def _prepare(tasks: Sequence[MaintenanceTask], bus: Bus, at_gap: AtGap, topics: TopicChange) -> None:
    """Take the steps that can be rolled back, and roll them back if one fails."""
    try:
        topics.prepare()
        for task in tasks:
            at_gap(MaintenanceGap(MaintenanceStep.RECORD_START, task.processor.name))
            _start(task)
        for task in tasks:
            with closing(task.staging()) as buckets:
                for bucket in buckets:
                    at_gap(MaintenanceGap(MaintenanceStep.STAGE_STATE, task.processor.name, bucket))
        topics.check()
    except (Exception, KeyboardInterrupt):
        for task in tasks:
            if task.can_roll_back:
                task.discard_staged()
                _roll_back(bus, task.processor.name)
        raise


def _start(task: MaintenanceTask) -> None:
    """Record the start, after which no worker starts. Then check again for a running worker."""
    require_idle(task.processor, task.bus)
    task.check_states()
    record_maintenance(task.bus, task.operation)
    try:
        require_idle(task.processor, task.bus)
        task.check()
    except PenstockError:
        _record_or_forget(task.bus, task.processor.name, task.replaces)
        raise


def _roll_back(bus: Bus, processor: str) -> None:
    """Restore the record before an unfinished operation that has changed nothing."""
    newest = newest_maintenance(bus, processor)
    if newest is not None and not newest.is_done:
        _record_or_forget(bus, processor, newest.previous)


def _record_or_forget(bus: Bus, processor: str, operation: MaintenanceOperation | None) -> None:
    if operation is None:
        forget_maintenance(bus, processor)
    else:
        record_maintenance(bus, operation)
