"""`penstock category send`: writes JSON lines or tombstones to a category, while they arrive.

file or standard input --batches of lines, as they arrive--> records --checked and encoded as declared--> Kafka

Memory is bounded by a batch and the queue of the Kafka client. An error stops before its batch: all earlier lines are written, and the error says
where to continue. A file is checked to its end first, so that an error in it writes nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import BufferedIOBase
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import typer

from ....processors import DeclarationError, PenstockError, counted, with_article
from ....processors.apps import AppName
from ....processors.declare import AnyCategory, RecordCheck, Tombstone
from ....processors.time import FIRST_EVENTS, detect_wrong_unit
from ....transport import Bus, MessageCopy, Writer
from ....transport.codecs import Codecs, encoded_messages, whole_record_json
from ...shell import DEFAULT_FOLDER, Folder, Kafka, audited, connect, interruptible, note, with_clusters

CHUNK_BYTES = 1 << 20
"""The most bytes that are read at once."""
LINE_LIMIT_BYTES = 64 << 20
"""The longest line. Kafka accepts no such message."""
PROGRESS_EVERY_S = 10.0
"""The interval of notes about the progress. Earlier messages are durable then."""


class LinesRefused(PenstockError):
    """A line cannot be written to the category: correct it, and send the rest."""


class SentLines(NamedTuple):
    """Lines that arrived together.

    Args:
        first: the number of the first one, from 1.
        lines: the lines, without their ends.
    """

    first: int
    lines: list[bytes]


def send(
    name: Annotated[str, typer.Argument(help="The category's name.")],
    app_file: Annotated[str, typer.Option("--app", help="The app that declares the category.")],
    file: Annotated[
        Path | None, typer.Argument(help="JSON lines; the default is standard input.", show_default=False)
    ] = None,
    tombstones: Annotated[
        bool, typer.Option("--tombstones", help="Each line is a key; write a tombstone, which deletes it.")
    ] = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Write JSON lines, or tombstones, to a category. Records are checked, keyed and encoded as declared.

    Lines of standard input are written as they arrive. A file is checked to its end first: with an error in it, nothing is written.

    Example: penstock category send flights --app examples/flights/app.py flights.jsonl

    Example: tail -f flights.jsonl | penstock category send flights --app examples/flights/app.py
    """
    declared = AppName.parse(app_file).load_declarations().declared_categories()
    if name not in declared:
        raise typer.BadParameter(f"{app_file} declares no category {name!r}; it has {', '.join(declared)}.")
    bus = with_clusters(connect(kafka, folder), kafka, [declared[name]])
    # The partitioner needs the present number of buckets.
    category = replace(declared[name], buckets=bus.catalog.describe(name).spec.buckets)
    sender = LineSender(category, bus, tombstones=tombstones)
    if file is None:
        with interruptible("The lines that were read are written."):
            sender.send(cast("BufferedIOBase", sys.stdin.buffer))
    else:
        try:
            with file.open("rb") as checked:
                sender.check(checked)
            with file.open("rb") as lines, interruptible("A part of the lines may be written; the file has no error."):
                sender.send(lines)
        except OSError as error:
            raise PenstockError(f"{file} cannot be read: {error.strerror}. Nothing was written.") from error
    note(f"Wrote {counted(sender.written, sender.noun)} to {name}.")


send_command = audited("category send")(send)


class LineSender:
    """Writes lines to a category.

    Args:
        category: the category, with its present number of buckets.
        bus: its bus.
        tombstones: whether each line is a key whose record is deleted.
    """

    def __init__(self, category: AnyCategory, bus: Bus, *, tombstones: bool) -> None:
        self._category = category
        self._bus = bus
        self._decode = _tombstones if tombstones else lambda batch: _records(category, batch)
        self.noun = "tombstone" if tombstones else "record"
        self.written = 0
        """The number of written lines. They are durable after `send`."""

    def check(self, source: BufferedIOBase) -> None:
        """Check all lines of a stream.

        Raises:
            LinesRefused: a line does not fit.
        """
        for _ in self._records_of(source):
            pass

    def send(self, source: BufferedIOBase) -> None:
        """Write the lines of a stream as they arrive; durable on return, also on errors, for the lines before.

        Raises:
            LinesRefused: a line does not fit; its batch was not written.
            BusError: Kafka did not accept a message.
        """
        codec, writer = Codecs(self._bus).of(self._category), self._bus.writer()
        due_s = time.monotonic() + PROGRESS_EVERY_S
        try:
            for records in self._records_of(source):
                writer.send(self._category.name, encoded_messages(self._category, codec, records))
                if not (self.written or self.noun == "tombstone"):
                    self._warn_of_unit(records)
                self.written += len(records)
                if time.monotonic() >= due_s:
                    self._report(writer)
                    due_s = time.monotonic() + PROGRESS_EVERY_S
        finally:
            writer.flush()

    def _warn_of_unit(self, records: Sequence[Any]) -> None:
        """Warn if the times of the first records have another unit than the category declares."""
        times = self._category.event_times_of(records[:FIRST_EVENTS])
        unit = detect_wrong_unit(times, time.time_ns() // 1_000_000)
        if unit is not None:
            note(
                f"Warning: {unit}. A worker stops at such events. Send milliseconds, or declare the unit with a penstock.TimeField."
            )

    def _report(self, writer: Writer) -> None:
        writer.flush()
        note(f"{counted(self.written, self.noun)} written to {self._category.name} …")

    def _records_of(self, source: BufferedIOBase) -> Iterator[Sequence[Any]]:
        """Yield the records of a stream, as many as have arrived at a time."""
        first = 1
        try:
            for batch in line_batches(source):
                first = batch.first
                yield self._decode(batch)
                first += len(batch.lines)
        except LinesRefused as error:
            if not self.written:
                raise LinesRefused(f"{error} Nothing was written.") from error.__cause__
            raise LinesRefused(
                f"{error} Written: {counted(self.written, self.noun)}, before line {first}. Correct the line, and send the rest: "
                f"`tail -n +{first}`."
            ) from error.__cause__


def line_batches(source: BufferedIOBase) -> Iterator[SentLines]:
    """Yield the lines of a stream, as many as have arrived at a time. The last one may lack its end.

    Raises:
        LinesRefused: a line is longer than `LINE_LIMIT_BYTES`.
    """
    first = 1
    begun: list[bytes] = []  # the parts of a line whose end has not arrived
    while chunk := source.read1(CHUNK_BYTES):
        *lines, end = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join([*begun, lines[0]])
            yield SentLines(first, [line.removesuffix(b"\r") for line in lines])
            first += len(lines)
            begun = []
        begun.append(end)
        if sum(map(len, begun)) > LINE_LIMIT_BYTES:
            raise LinesRefused(
                f"Line {first} has more than {LINE_LIMIT_BYTES >> 20} MiB, so no message can contain it."
            )
    if any(begun):
        yield SentLines(first, [b"".join(begun)])


def _records(category: AnyCategory, batch: SentLines) -> Sequence[Any]:
    """Return the records of JSON lines. Blank lines contain none."""
    numbers = [number for number, line in enumerate(batch.lines, batch.first) if line.strip()]
    decoded = whole_record_json(category).decode([MessageCopy(batch.lines[number - batch.first]) for number in numbers])
    bad = {at: reason for at, reason, *_ in decoded.bad} or RecordCheck(category.record).unfit(decoded.events)
    if bad:
        at, reason = min(bad.items())
        raise LinesRefused(f"Line {numbers[at]} is not {with_article(category.record_name)}: {reason}.")
    _expect_keys(category, decoded.events, numbers)
    return decoded.events


def _expect_keys(category: AnyCategory, records: Sequence[Any], numbers: Sequence[int]) -> None:
    """Raise LinesRefused for the first record whose key no message can have."""
    try:
        category.encode_keys(category.keys_of(records))
    except DeclarationError:
        for number, record in zip(numbers, records, strict=True):
            try:
                category.encode_keys(category.keys_of([record]))
            except DeclarationError as error:
                raise LinesRefused(f"Line {number}: {error}") from error
        raise


def _tombstones(batch: SentLines) -> Sequence[Tombstone]:
    """Return a tombstone for the key in each line."""
    try:
        keys = [line.decode() for line in batch.lines]
    except UnicodeDecodeError as error:
        raise LinesRefused(
            f"A line from line {batch.first} on is not UTF-8: {error}. Each line must be a key."
        ) from error
    if "" in keys:
        raise LinesRefused(f"Line {batch.first + keys.index('')} is empty. Each line must be a key.")
    return [Tombstone(key) for key in keys]
