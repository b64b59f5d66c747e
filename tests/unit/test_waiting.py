"""Commands that wait for a broker at their start."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

import penstock as ps
from penstock.ops.kernel import Environment, assemble_worker, prepare
from penstock.ops.shell import BrokerWait
from penstock.ops.shell.process import waiting
from penstock.transport import BusRefuses, BusUnreachable, CategorySpec
from penstock.transport.bus import OwnershipListener
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.readers import MemoryReader


class Word(ps.Record, frozen=True):
    """A word."""

    text: str
    at: ps.EventTime


WORDS = ps.Category("words", Word, key="text", event_time="at", buckets=2)


class Discard(ps.Stateless):
    """Writes nothing."""

    reads = WORDS

    def process(self, event: Word) -> Iterable[ps.Record]:
        """Write nothing."""
        return ()


class LateGroup(MemoryBus):
    """A bus whose groups answer at the third attempt."""

    attempts = 0

    def reader(
        self, group: str, categories: Sequence[str], ownership: OwnershipListener, identity: str | None = None
    ) -> MemoryReader:
        """Join a group if it answers."""
        self.attempts += 1
        if self.attempts < 3:
            raise BusUnreachable("The group does not answer.")
        return super().reader(group, categories, ownership, identity)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry without a pause."""
    monkeypatch.setattr(waiting, "RETRY_EVERY_S", 0.0)


def late_group(folder: Path) -> LateGroup:
    """Return a bus for a worker whose predecessor died while it left its group."""
    bus = LateGroup()
    bus.create(CategorySpec.of(WORDS))
    note = folder / "state" / Discard.name / "workers" / "0.revocation"
    note.parent.mkdir(parents=True)
    note.touch()
    return bus


def assemble(bus: LateGroup, folder: Path, *, fail_fast: bool) -> None:
    """Start and stop a worker."""
    environment = Environment(folder / "state")
    with assemble_worker(prepare(Discard, bus), bus, environment, call_bus=BrokerWait(fail_fast=fail_fast)):
        pass


def test_a_worker_waits_until_its_predecessor_has_left_the_group(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The predecessor's note remains until the group answers."""
    bus = late_group(tmp_path)
    with caplog.at_level(logging.WARNING):
        assemble(bus, tmp_path, fail_fast=False)

    assert bus.attempts == 3  # the third leaves the group
    assert "Waiting for Kafka" in caplog.text
    assert "Kafka answers" in caplog.text
    assert not list(tmp_path.rglob("*.revocation"))


def test_with_fail_fast_the_command_fails(tmp_path: Path) -> None:
    """The note remains for the next worker."""
    with pytest.raises(BusUnreachable, match="The group does not answer"):
        assemble(late_group(tmp_path), tmp_path, fail_fast=True)

    assert list(tmp_path.rglob("*.revocation"))


def test_a_rejection_is_not_retried() -> None:
    """A wrong password stays wrong."""

    def refuse() -> None:
        raise BusRefuses("The password is wrong.")

    with pytest.raises(BusRefuses):
        BrokerWait(fail_fast=False)(refuse)
