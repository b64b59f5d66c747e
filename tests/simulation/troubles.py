"""Faults, carried out: each waits for its time, then for its place, and strikes once.

waiting --its time--> armed, of a process --its point--> strikes a request, or befalls the process
                  --> of all: done at once
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
from support.kinds import HOUR_MS, Event

from penstock.transport.memory.groups import SESSION_MS
from penstock.transport.messages import Bucket, Outgoing

from .faults import OF_ALL, OF_REQUESTS, ON_EMPTY_DISKS, Fault, What
from .inputs import END_MS
from .machines import Machine
from .nodes import Node
from .scheduler import Process

if TYPE_CHECKING:
    from .world import World

FIRST_STRANGE = 1_000_000
"""The number of the first event of a recreated category."""
STRANGE_EVENTS = 20
"""How much further than before they fill it."""


class Troubles:
    """What goes wrong in a run.

    Args:
        world: where.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._scheduler = world.scheduler
        self._armed: list[Fault] = []
        self._waiting = list(world.scenario.faults)
        self.may_refuse = False
        """Whether something happened after which a processor may refuse to go on."""
        self._warehouse_away_until_ms = 0.0

    @property
    def are_waiting(self) -> bool:
        """Whether the time of some has not come."""
        return bool(self._waiting)

    @property
    def are_armed(self) -> bool:
        """Whether some wait for their place."""
        return bool(self._armed)

    def warehouse_is_away(self) -> bool:
        """Return whether the warehouse is unreachable now."""
        return self._scheduler.now_ms < self._warehouse_away_until_ms

    def heal(self) -> None:
        """Let nothing go wrong any more."""
        self._armed.clear()
        self._waiting.clear()

    def arm(self) -> None:
        """Let those faults wait for their place whose time has come."""
        now_s = self._world.clock.monotonic_s()
        while self._waiting and self._waiting[0].at_s <= now_s:
            fault = self._waiting.pop(0)
            if fault.what in OF_ALL:
                self._befall_all(fault)
            else:
                self._armed.append(fault)

    def interfere(self, process: Process, what: str) -> None:
        """Pause or kill a process that comes to a point, if a fault waits for it there."""
        fault = self._struck(process, what, lambda one: one not in OF_REQUESTS)
        if fault is not None:
            self._befall(process, fault)

    def strike(self, process: Process, what: str) -> Fault | None:
        """Return the fault that befalls a request of a process now."""
        fault = self._struck(process, what, OF_REQUESTS.__contains__)
        if fault is not None:
            self._world.note(process.name, f"{fault.what.value} ({what}, {fault.lasts_s:.1f} s)")
        return fault

    def _struck(self, process: Process, what: str, fits: Callable[[What], bool]) -> Fault | None:
        for fault in self._armed:
            if fault.who == process.name and fits(fault.what) and fault.where in {"", what}:
                self._armed.remove(fault)
                return fault
        return None

    def _befall(self, process: Process, fault: Fault) -> None:
        machine = next(machine for machine in self._world.machines.all if machine.process is process)
        where = f" at '{fault.where}'" if fault.where else ""
        lasts = f", {fault.lasts_s:.1f} s" if fault.lasts_s else ""
        self._world.note(process.name, f"{fault.what.value}{where}{lasts}")
        until_ms = self._scheduler.now_ms + fault.lasts_s * 1000
        match fault.what:
            case What.PAUSE:
                self._scheduler.pause(process, fault.lasts_s)
            case What.STOP:
                machine.starts_ms = until_ms
                if machine.worker is not None:
                    machine.worker.stop()
            case What.KILL | What.POWER | What.DISK:
                self._scheduler.kill(process)
                machine.starts_ms = until_ms
                if fault.what is What.POWER:
                    machine.disk.cut_power()
                if fault.what is What.DISK:
                    _lose_disk(machine)
            case What.FULL:
                machine.disk.full_until_ms = until_ms

    def _befall_all(self, fault: Fault) -> None:
        where = f" {fault.where}" if fault.where else ""
        lasts = f" for {fault.lasts_s:.1f} s" if fault.lasts_s else ""
        self._world.note(fault.who, f"{fault.what.value}{where}{lasts}")
        match fault.what:
            case What.SLEEP:
                for machine in self._world.machines.all:
                    if machine.process is not None and machine.is_up:
                        self._scheduler.pause(machine.process, fault.lasts_s)
            case What.BROKERS | What.MARKERS:
                self._world.brokers.go(fault.lasts_s, loses_markers=fault.what is What.MARKERS)
            case What.CLEAN:
                self._clean()
            case What.RECREATE | What.GROW | What.EXPIRE:
                self.may_refuse = True
                self._change(fault)
            case _:
                self._go_away(fault.what, self._scheduler.now_ms + fault.lasts_s * 1000)

    def _change(self, fault: Fault) -> None:
        """Do something to a category or a group after which a processor may refuse to go on."""
        match fault.what:
            case What.RECREATE:
                self._recreate(fault.who)
            case What.GROW:
                topic = self._world.cluster.topic(fault.who)
                self._world.bus.resize(fault.who, topic.spec.buckets + 1)
            case _:
                self._expire(next(node for node in self._world.processors if node.name == fault.who), fault)

    def _go_away(self, what: What, until_ms: float) -> None:
        """Make a service unreachable for a while."""
        if what is What.PLACE:
            self._world.place.away_until_ms = until_ms
        elif what is What.STORE:
            self._world.store.away_until_ms = until_ms
        elif what is What.ROWS:
            self._world.rows.away_until_ms = until_ms
        else:
            self._warehouse_away_until_ms = until_ms

    def _recreate(self, name: str) -> None:
        """Replace a category by one with other events, to which no position belongs."""
        self._kill(self._world.machines.all)
        before, bus = self._world.cluster.topic(name), self._world.bus
        bus.delete(name)
        bus.create(before.spec)
        for number, log in enumerate(before.logs):
            for place in range(log.end + STRANGE_EVENTS):
                strange = Event("strange", END_MS - HOUR_MS, FIRST_STRANGE + place)
                bus.append(name, Outgoing(b"strange", msgspec.json.encode(strange), number))

    def _kill(self, machines: list[Machine]) -> None:
        for machine in machines:
            if machine.process is not None:
                self._scheduler.kill(machine.process)

    def _clean(self) -> None:
        """Compact what is compacted, dropping deletions that are as old as its brokers allow."""
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
            if fault.where == ON_EMPTY_DISKS:
                _lose_disk(machine)
        self._trim(node)

        def expire() -> None:
            self._scheduler.sleep(SESSION_MS / 1000)
            self._world.cluster.tick()
            self._world.cluster.group(node.name).committed.clear()

        self._scheduler.spawn(Process("brokers"), "brokers", expire)

    def _trim(self, node: Node) -> None:
        """Drop what a processor has read, as far as its backups have it."""
        place = self._world.place
        found = {identity: place.newest(identity) for identity in place.backups if identity.processor == node.name}
        for identity, backup in found.items():
            for name, offset in ({} if backup is None else backup.content.position().offsets).items():
                if name in node.reads:
                    self._world.cluster.log(Bucket(name, identity.bucket)).trim(offset)


def _lose_disk(machine: Machine) -> None:
    machine.disk.lose()
    machine.disks += 1
