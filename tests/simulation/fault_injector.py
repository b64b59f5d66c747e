"""The fault injector: each fault waits for its time and its point, and takes effect once.

waiting --its time--> armed for a process --its point--> hits a request or the process
                 --> global faults take effect at once
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
from support.kinds import HOUR_MS, Event

from penstock.transport import Bucket, Outgoing
from penstock.transport.memory.groups import SESSION_MS

from .faults import GLOBAL_FAULTS, ON_EMPTY_DISKS, REQUEST_FAULTS, Fault, FaultKind
from .inputs import END_MS
from .machines import Machine
from .nodes import Node
from .scheduler import Process

if TYPE_CHECKING:
    from .world import World

COPY = "copy."
"""The first part of the name of a process of the clone, which a fault of the app's process may hit instead."""
FIRST_FOREIGN = 1_000_000
"""The number of the first event of a recreated category."""
JUMP_FACTOR = 100_000
"""How much further than its duration a clock jumps: from two minutes to a month."""
FOREIGN_EVENTS = 20
"""How many more events than before a recreated category contains."""


class FaultInjector:
    """The faults of a run.

    Args:
        world: the simulated world.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._scheduler = world.scheduler
        self._armed: list[Fault] = []
        self._waiting = list(world.scenario.faults)
        self.may_refuse = False
        """Whether a fault happened after which a processor may refuse to continue."""
        self._warehouse_unreachable_until_ms = 0.0

    @property
    def are_waiting(self) -> bool:
        """Whether faults wait for their time."""
        return bool(self._waiting)

    @property
    def are_armed(self) -> bool:
        """Whether faults wait for their point."""
        return bool(self._armed)

    def warehouse_is_unreachable(self) -> bool:
        """Return whether the warehouse is unreachable now."""
        return self._scheduler.now_ms < self._warehouse_unreachable_until_ms

    def heal(self) -> None:
        """Drop all remaining faults."""
        self._armed.clear()
        self._waiting.clear()

    def arm(self) -> None:
        """Arm the faults whose time has come, and apply global faults."""
        now_s = self._world.clock.monotonic_s()
        while self._waiting and self._waiting[0].at_s <= now_s:
            fault = self._waiting.pop(0)
            if fault.kind in GLOBAL_FAULTS:
                self._apply_to_all(fault)
            else:
                self._armed.append(fault)

    def interfere(self, process: Process, point: str) -> None:
        """Apply the fault that is armed for this point of the process."""
        fault = self._take_armed(process, point, lambda kind: kind not in REQUEST_FAULTS)
        if fault is not None:
            self._apply_to_process(process, fault)

    def strike(self, process: Process, point: str) -> Fault | None:
        """Return the fault that hits the current request of a process."""
        fault = self._take_armed(process, point, REQUEST_FAULTS.__contains__)
        if fault is not None:
            self._world.note(process.name, f"{fault.kind.value} ({point}, {fault.duration_s:.1f} s)")
        return fault

    def _take_armed(self, process: Process, point: str, fits: Callable[[FaultKind], bool]) -> Fault | None:
        for fault in self._armed:
            if (
                fault.target in {process.name, process.name.removeprefix(COPY)}
                and fits(fault.kind)
                and fault.point in {"", point}
            ):
                self._armed.remove(fault)
                return fault
        return None

    def _apply_to_process(self, process: Process, fault: Fault) -> None:
        machine = next(machine for machine in self._world.machines.all if machine.process is process)
        at = f" at '{fault.point}'" if fault.point else ""
        lasts = f", {fault.duration_s:.1f} s" if fault.duration_s else ""
        self._world.note(process.name, f"{fault.kind.value}{at}{lasts}")
        until_ms = self._scheduler.now_ms + fault.duration_s * 1000
        match fault.kind:
            case FaultKind.PAUSE:
                self._scheduler.pause(process, fault.duration_s)
            case FaultKind.STOP:
                machine.starts_ms = until_ms
                if machine.worker is not None:
                    machine.worker.stop()
            case FaultKind.KILL | FaultKind.POWER | FaultKind.DISK:
                self._scheduler.kill(process)
                machine.starts_ms = until_ms
                if fault.kind is FaultKind.POWER:
                    machine.disk.cut_power()
                if fault.kind is FaultKind.DISK:
                    _replace_disk(machine)
            case FaultKind.FULL:
                machine.disk.full_until_ms = until_ms
            case FaultKind.CLOCK:
                # Longer faults are further jumps, some of them back.
                ahead_ms = int(fault.duration_s * 1000) * JUMP_FACTOR
                machine.clock.jump(ahead_ms if int(ahead_ms) % 3 else -ahead_ms, until_ms)

    def _apply_to_all(self, fault: Fault) -> None:
        at = f" {fault.point}" if fault.point else ""
        lasts = f" for {fault.duration_s:.1f} s" if fault.duration_s else ""
        self._world.note(fault.target, f"{fault.kind.value}{at}{lasts}")
        match fault.kind:
            case FaultKind.SLEEP:
                for machine in self._world.machines.all:
                    if machine.process is not None and machine.is_up:
                        self._scheduler.pause(machine.process, fault.duration_s)
            case FaultKind.BROKERS | FaultKind.MARKERS:
                self._world.brokers.go_down(fault.duration_s, loses_markers=fault.kind is FaultKind.MARKERS)
            case FaultKind.LEADERS:
                self._world.brokers.cut_off(int(fault.target), fault.duration_s)
            case FaultKind.SECOND:
                self._world.second_brokers.go_down(fault.duration_s)
            case FaultKind.CLEAN:
                self._clean()
            case FaultKind.ROLLBACK:
                self._world.backup_files.go_back(self._scheduler.now_ms - fault.duration_s * 1000)
            case FaultKind.RECREATE | FaultKind.GROW | FaultKind.EXPIRE:
                self.may_refuse = True
                self._change(fault)
            case _:
                self._make_unreachable(fault.kind, self._scheduler.now_ms + fault.duration_s * 1000)

    def _change(self, fault: Fault) -> None:
        """Change a category or a group; afterwards a processor may refuse to continue."""
        match fault.kind:
            case FaultKind.RECREATE:
                self._recreate(fault.target)
            case FaultKind.GROW:
                topic = self._world.cluster.topic(fault.target)
                self._world.bus.resize(fault.target, topic.spec.buckets + 1)
            case _:
                self._expire(next(node for node in self._world.processors if node.name == fault.target), fault)

    def _make_unreachable(self, kind: FaultKind, until_ms: float) -> None:
        """Make a service unreachable for a while."""
        if kind is FaultKind.BACKUP_STORE:
            self._world.backup_store.unreachable_until_ms = self._world.backup_files.unreachable_until_ms = until_ms
        elif kind is FaultKind.STORE:
            self._world.store.unreachable_until_ms = until_ms
        elif kind is FaultKind.ROWS:
            self._world.rows.unreachable_until_ms = until_ms
        else:
            self._warehouse_unreachable_until_ms = until_ms

    def _recreate(self, name: str) -> None:
        """Recreate a category with other events, so saved positions do not apply to it."""
        self._kill(self._world.machines.all)
        before, bus = self._world.cluster.topic(name), self._world.bus
        bus.delete(name)
        bus.create(before.spec)
        for number, log in enumerate(before.logs):
            for place in range(log.end + FOREIGN_EVENTS):
                foreign = Event("foreign", END_MS - HOUR_MS, FIRST_FOREIGN + place)
                bus.append(name, Outgoing(b"foreign", msgspec.json.encode(foreign), number))

    def _kill(self, machines: list[Machine]) -> None:
        for machine in machines:
            if machine.process is not None:
                self._scheduler.kill(machine.process)

    def _clean(self) -> None:
        """Compact the compacted topics, and drop deletions after their retention."""
        now_ms = self._world.clock.now_ms()
        for topic in self._world.cluster.topics.values():
            if topic.spec.compacted:
                kept_ms = (topic.spec.delete_retention or timedelta(days=1)) // timedelta(milliseconds=1)
                for log in topic.logs:
                    log.compact(now_ms, now_ms - kept_ms)

    def _expire(self, node: Node, fault: Fault) -> None:
        """Kill all workers of a processor; when they restart, the group's positions and the read events have expired."""
        machines = self._world.machines.of(node)
        self._kill(machines)
        for machine in machines:
            machine.starts_ms = self._scheduler.now_ms + SESSION_MS + 1000
            if fault.point == ON_EMPTY_DISKS:
                _replace_disk(machine)
        self._trim(node)

        def expire() -> None:
            self._scheduler.sleep(SESSION_MS / 1000)
            self._world.cluster.tick()
            self._world.cluster.group(node.name).committed.clear()

        self._scheduler.spawn(Process("brokers"), "brokers", expire)

    def _trim(self, node: Node) -> None:
        """Drop the events that a processor's backups include."""
        store = self._world.backup_store
        found = {identity: store.newest(identity) for identity in store.backups if identity.processor == node.name}
        for identity, backup in found.items():
            for name, offset in ({} if backup is None else backup.content.position().offsets).items():
                if name in node.reads:
                    self._world.cluster.log(Bucket(name, identity.bucket)).trim(offset)


def _replace_disk(machine: Machine) -> None:
    machine.disk.replace()
    machine.disks += 1
