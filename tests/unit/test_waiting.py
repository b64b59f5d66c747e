"""Starting while no broker answers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

import penstock as ps
from penstock.ops.cli import waiting
from penstock.ops.cli.waiting import Waiting
from penstock.ops.worker.assembly import Environment, assembled
from penstock.ops.worker.preflight import prepare
from penstock.transport.bus import Ownership
from penstock.transport.category_spec import CategorySpec
from penstock.transport.errors import BusRefuses, BusUnreachable
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.readers import MemoryReader


class Word(ps.Record, frozen=True):
    """A word."""

    text: str
    at: ps.EventTime


WORDS = ps.Category("words", Word, key="text", event_time="at", buckets=2)


class Counting(ps.Stateless):
    """Passes nothing on."""

    reads = WORDS

    def process(self, event: Word) -> Iterable[ps.Record]:
        """Pass nothing on."""
        return ()


class LateGroup(MemoryBus):
    """A bus whose groups answer at the third attempt."""

    attempts = 0

    def reader(
        self, group: str, categories: Sequence[str], ownership: Ownership, identity: str | None = None
    ) -> MemoryReader:
        """Join a group, if it answers."""
        self.attempts += 1
        if self.attempts < 3:
            raise BusUnreachable("The group does not answer.")
        return super().reader(group, categories, ownership, identity)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again at once."""
    monkeypatch.setattr(waiting, "ASK_AGAIN_S", 0.0)


def late_group(folder: Path) -> LateGroup:
    """Return a bus, for a worker whose predecessor died while it let go of buckets."""
    bus = LateGroup()
    bus.create(CategorySpec.of(WORDS))
    note = folder / "state" / Counting.name / "workers" / "0.letting-go"
    note.parent.mkdir(parents=True)
    note.touch()
    return bus


def assemble(bus: LateGroup, folder: Path, *, fail_fast: bool) -> None:
    """Start a worker, and end it."""
    around = Environment(folder / "state")
    with assembled(prepare(Counting, bus), bus, around, when_answered=Waiting(fail_fast=fail_fast)):
        pass


def test_a_worker_waits_for_the_group_that_its_predecessor_has_to_leave(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The note stays until the group has answered."""
    bus = late_group(tmp_path)
    with caplog.at_level(logging.WARNING):
        assemble(bus, tmp_path, fail_fast=False)

    assert bus.attempts == 3  # the third leaves the group
    assert "Waiting for Kafka" in caplog.text
    assert "Kafka answers" in caplog.text
    assert not list(tmp_path.rglob("*.letting-go"))


def test_with_fail_fast_it_does_not_wait(tmp_path: Path) -> None:
    """And the next one leaves the group instead."""
    with pytest.raises(BusUnreachable, match="The group does not answer"):
        assemble(late_group(tmp_path), tmp_path, fail_fast=True)

    assert list(tmp_path.rglob("*.letting-go"))


def test_a_refusal_is_not_waited_out() -> None:
    """A wrong password stays wrong."""

    def refuse() -> None:
        raise BusRefuses("The password is wrong.")

    with pytest.raises(BusRefuses):
        Waiting(fail_fast=False)(refuse)
