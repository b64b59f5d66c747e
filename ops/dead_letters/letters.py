"""Stored dead letters, and marks of the handled ones.

    <processor>.dead_letters        the letters, in order of rejection
    <processor>.dead_letter_marks   compacted    key  a letter's offset    value  whether it was retried or dropped, as JSON

A letter without a mark is pending. Marks do not change letters: a letter expires with the retention of its category. The next retry or drop
after that deletes its mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import Enum
from typing import NamedTuple

import msgspec

from ...processors import PenstockError
from ...processors.declare import DeadLetter
from ...transport import Bucket, Bus, CategorySpec, OffsetRange, read_offset_range
from ...transport.codecs import UndecodableValue, decode_dead_letter, value_of
from ...transport.tables import BusTable, TableKeys

_SUFFIX = ".dead_letters"


class NoDeadLetters(PenstockError):
    """A processor has no such dead letter, or none at all."""


class NotRetried(PenstockError):
    """A dead letter cannot be retried, and stays pending."""


class LetterState(Enum):
    """The state of a dead letter."""

    PENDING = "pending"
    RETRIED = "retried"
    DROPPED = "dropped"


class HandledMark(msgspec.Struct, frozen=True):
    """The record that a dead letter was handled.

    Args:
        state: how it was handled.
        rejected_at_ms: the rejection time of the letter (milliseconds since 1970, UTC). It identifies the letter if its category is created again.
        at_ms: when it was handled (milliseconds since 1970, UTC).
        reason: why it was dropped; empty for a retry.
    """

    state: LetterState
    rejected_at_ms: int
    at_ms: int
    reason: str = ""


class Letter(NamedTuple):
    """A stored dead letter.

    Args:
        number: its offset in the category of dead letters.
        content: the letter.
        mark: its mark; None while it is pending.
    """

    number: int
    content: DeadLetter
    mark: HandledMark | None

    @property
    def state(self) -> LetterState:
        """Its state."""
        return LetterState.PENDING if self.mark is None else self.mark.state


class LetterGroup(msgspec.Struct):
    """Letters of one processor with one reason and one input category.

    Args:
        processor: the processor.
        reason: the first line of the reason, with # in place of numbers.
        category: the category of the rejected messages.
        first_ms: the time of the first rejection (milliseconds since 1970, UTC).
        last_ms: the time of the last rejection.
        pending: the number of letters that were neither retried nor dropped.
        retried: the number of retried letters.
        dropped: the number of dropped letters.
    """

    processor: str
    reason: str
    category: str
    first_ms: int
    last_ms: int
    pending: int = 0
    retried: int = 0
    dropped: int = 0


def processors_with_letters(bus: Bus) -> list[str]:
    """Return the names of the processors that have a category of dead letters."""
    return [name.removesuffix(_SUFFIX) for name in bus.catalog.names() if name.endswith(_SUFFIX)]


def letters_of(processor: str) -> str:
    """Return the category of a processor's dead letters."""
    return processor + _SUFFIX


def marks_of(processor: str) -> BusTable[int, HandledMark]:
    """Return the table of a processor's marks, by the letter's offset."""
    spec = CategorySpec(f"{processor}.dead_letter_marks", buckets=1, compacted=True)
    return BusTable(spec, TableKeys(lambda number: str(number).encode(), int), msgspec.json.Decoder(HandledMark).decode)


def read_letters(
    bus: Bus,
    processor: str,
    start: int | None = None,
    end: int | None = None,
    *,
    wait_for_transactions: bool = False,
) -> Iterator[Letter]:
    """Yield the dead letters that are stored now, in order, each with its mark. Messages of other programs are skipped.

    Args:
        bus: the bus.
        processor: the name of the processor.
        start: the first offset; None for the first stored letter.
        end: the offset after the last letter; None for all.
        wait_for_transactions: whether to wait for marks that are being committed. Otherwise those letters are still pending.

    Raises:
        NoDeadLetters: the processor has no category of dead letters.
    """
    category = letters_of(processor)
    if not bus.catalog.topics([category]):
        raise NoDeadLetters(
            f"There is no category {category}: no worker of a processor {processor} has run on this Kafka cluster. Check the name with "
            "`penstock dead-letters show`."
        )
    first, last = bus.catalog.describe(category).starts[0], bus.catalog.stable_ends(category)[0]
    start, end = max(first, start or 0), last if end is None else min(last, end)
    if start >= end:
        return
    marks = marks_of(processor).read(bus, wait_for_transactions=wait_for_transactions)
    for batch in read_offset_range(bus, OffsetRange(Bucket(category, 0), start, end)):
        for message in batch.messages:
            with suppress(UndecodableValue):
                content, mark = decode_dead_letter(value_of(message)), marks.get(message.offset())
                applies = mark is not None and mark.rejected_at_ms == content.at
                yield Letter(message.offset(), content, mark if applies else None)


def letter_at(bus: Bus, processor: str, number: int) -> Letter:
    """Return the dead letter at an offset; raise NoDeadLetters if there is none."""
    found = next(read_letters(bus, processor, number, number + 1), None)
    if found is None:
        raise NoDeadLetters(
            f"{processor} has no dead letter at offset {number}; it may have expired. List offsets with `penstock dead-letters show {processor} "
            "--last 10`."
        )
    return found


def group_letters(processor: str, letters: Iterable[Letter]) -> list[LetterGroup]:
    """Return the letters' groups, the one with the most pending letters first."""
    groups: dict[tuple[str, str], LetterGroup] = {}
    for letter in letters:
        content = letter.content
        reason = re.sub(r"\d+", "#", content.reason.partition("\n")[0])
        group = groups.setdefault(
            (reason, content.category), LetterGroup(processor, reason, content.category, content.at, content.at)
        )
        group.first_ms, group.last_ms = min(group.first_ms, content.at), max(group.last_ms, content.at)
        setattr(group, letter.state.value, getattr(group, letter.state.value) + 1)
    return sorted(groups.values(), key=lambda group: -group.pending)
