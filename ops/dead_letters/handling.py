"""Retries and drops of dead letters.

pending letters --retry--> one transaction: the messages to their input category, the marks of their letters
pending letters of rows --retry--> the rows to their sink, then one transaction: the marks of their letters
pending letters --drop--> one transaction: the marks of their letters
expired letters --------> their marks are deleted after either

A crash leaves whole transactions: each letter is either pending, or retried and marked. Only rows may be in their sink twice. Opening the writer ends the transaction of an
interrupted command and fences a running one, so no two commands retry the same letter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from ...processors import PenstockError, counted
from ...processors.declare import AnyCategory, Message, Processor, plan_of, split_messages
from ...transport import (
    CERTAINLY_FITS_BYTES,
    Bucket,
    Bus,
    BusError,
    MessageCopy,
    OffsetOutOfRange,
    OffsetRange,
    Outgoing,
    SettingNotReported,
    TransactionalWriter,
    create_missing_categories,
    read_offset_range,
    size_of,
)
from ...transport.codecs import Codecs, rejected_message
from ...transport.tables import registrations_on
from .letters import HandledMark, Letter, LetterState, NotRetried, letters_of, marks_of, read_letters
from .row_retry import RowRetry

RETRY_HEADER = "penstock.retry_of"
"""The header of a retried message: the category and offset of its dead letter, as `category/offset`."""
MOST_LETTERS = 500
MOST_BYTES = 16_000_000
"""The most letters of a transaction, and the size of messages that ends it."""
MOST_MARKS = 10_000
"""The most marks of expired letters that a transaction deletes."""
TRANSACTION_LIMIT_S = 60.0


class HandlingFailed(PenstockError):
    """A retry or a drop was interrupted. The remaining letters are pending."""


Selection = Callable[[Letter], bool]


@dataclass
class HandlingResult:
    """The result of a retry or a drop.

    Args:
        handled: the number of letters that were retried or dropped.
        refused: the number of letters that stay pending, by reason.
    """

    handled: int = 0
    refused: dict[str, int] = field(default_factory=dict)


def other_readers(bus: Bus, processor: type[Processor]) -> dict[str, list[str]]:
    """Return the other processors that read a processor's inputs, by category. Programs without Penstock are unknown."""
    inputs = [category.name for category in plan_of(processor).inputs]
    registered = [(name, found.inputs or {}) for name, found in registrations_on(bus).items()]
    return {
        category: names
        for category in inputs
        if (names := sorted(name for name, read in registered if category in read and name != processor.name))
    }


def retry(
    bus: Bus, processor: type[Processor], selection: Selection, *, before_commit: Callable[[], None] = lambda: None
) -> HandlingResult:
    """Append the messages of pending letters to their input categories, each exactly once, in the order of their rejection.

    Rows that a sink has refused are written to it again, at least once.

    Args:
        bus: the bus.
        processor: the processor, as its app declares it now.
        selection: selects letters.
        before_commit: called before each transaction is committed; a test may raise there.

    Raises:
        HandlingFailed: the bus failed; the message contains the number of retried letters.
    """
    with closing(RowRetry(processor)) as rows:
        message_of = _Retry(bus, processor, rows).message
        inputs = [category.name for category in plan_of(processor).inputs]
        return _handle(
            bus, processor.name, selection, LetterState.RETRIED, message_of, inputs=inputs, before_commit=before_commit
        )


def drop(bus: Bus, processor: str, selection: Selection, reason: str) -> HandlingResult:
    """Mark pending letters as dropped, with a reason. The letters stay readable until they expire.

    Raises:
        HandlingFailed: the bus failed; the message contains the number of dropped letters.
    """
    return _handle(bus, processor, selection, LetterState.DROPPED, lambda _: None, reason=reason)


def _handle(
    bus: Bus,
    processor: str,
    selection: Selection,
    state: LetterState,
    message_of: Callable[[Letter], tuple[str, Outgoing] | None],
    *,
    inputs: Sequence[str] = (),
    reason: str = "",
    before_commit: Callable[[], None] = lambda: None,
) -> HandlingResult:
    marks, result = marks_of(processor), HandlingResult()
    create_missing_categories(bus, marks.spec)
    written = [marks.spec.name, *(name for name in inputs if bus.catalog.topics([name]))]
    try:
        with closing(
            bus.transactional_writer(f"{processor}.dead_letters", None, TRANSACTION_LIMIT_S, written)
        ) as writer:
            # The marks are read only now: until the writer is open, another command may still commit.
            letters = read_letters(bus, processor, wait_for_transactions=True)
            pending = (letter for letter in letters if letter.mark is None and selection(letter))
            for handled, messages in _transactions(pending, message_of, result):
                for category, message in messages:
                    writer.send(category, [message])
                now_ms = time.time_ns() // 1_000_000
                writer.send(
                    marks.spec.name,
                    [marks.put(one.number, HandledMark(state, one.content.at, now_ms, reason)) for one in handled],
                )
                writer.flush()
                before_commit()
                writer.commit([])
                result.handled += len(handled)
            _forget_expired(bus, processor, writer)
    except BusError as error:
        raise HandlingFailed(
            f"{error} At least {counted(result.handled, 'letter')} of {processor} {'was' if result.handled == 1 else 'were'} {state.value} and marked. No letter was {state.value} without a "
            "mark. Run the same command again: it continues with the pending letters."
        ) from error
    return result


def _forget_expired(bus: Bus, processor: str, writer: TransactionalWriter) -> None:
    """Delete the marks of expired letters. An offset that has expired never belongs to another letter of the same category."""
    marks, letters = marks_of(processor), letters_of(processor)
    first = bus.catalog.describe(letters).starts[0]
    expired = sorted(number for number in marks.read(bus, wait_for_transactions=True) if number < first)
    for begin in range(0, len(expired), MOST_MARKS):
        writer.send(marks.spec.name, map(marks.delete, expired[begin : begin + MOST_MARKS]))
        writer.flush()
        writer.commit([])


_Messages = list[tuple[str, Outgoing]]


def _transactions(
    pending: Iterable[Letter], message_of: Callable[[Letter], tuple[str, Outgoing] | None], result: HandlingResult
) -> Iterator[tuple[list[Letter], _Messages]]:
    """Yield the letters and messages of each transaction; count the letters that are refused."""
    letters: list[Letter] = []
    messages: _Messages = []
    size = 0
    for letter in pending:
        try:
            message = message_of(letter)
        except NotRetried as refusal:
            result.refused[str(refusal)] = result.refused.get(str(refusal), 0) + 1
            continue
        letters.append(letter)
        if message is not None:
            messages.append(message)
            size += size_of(message[1])
        if len(letters) == MOST_LETTERS or size >= MOST_BYTES:
            yield letters, messages
            letters, messages, size = [], [], 0
    if letters:
        yield letters, messages


class _Retry:
    """Prepares the messages of a processor's retried letters."""

    def __init__(self, bus: Bus, processor: type[Processor], rows: RowRetry) -> None:
        self._rows = rows
        self._bus = bus
        self._processor = processor
        self._codecs = Codecs(bus)
        self._inputs: dict[str, AnyCategory] = {}

    def message(self, letter: Letter) -> tuple[str, Outgoing] | None:
        """Return the category and the message of a letter; None for a row, which is in its sink then.

        Raises:
            NotRetried: the message would be lost, replace another one, or be rejected again.
        """
        if self._rows.is_of_sink(letter):
            self._rows.write(letter)
            return None
        category = self._input(letter.content.category)
        if not 0 <= letter.content.bucket < category.buckets:
            raise NotRetried(
                f"Its origin is bucket {letter.content.bucket} of {category.name}, which has {counted(category.buckets, 'bucket')}. Another "
                "program wrote the letter, or the category was created again. Drop it, or write the message yourself."
            )
        message = self._whole_message(letter, category)
        self._expect_decodable(category, message)
        key = message.key()
        bucket = message.partition()
        if category.partitioner is not None and key is not None:
            [bucket] = category.buckets_of_message_keys([key])
        origin = f"{self._processor.name}.dead_letters/{letter.number}".encode()
        headers = [*(message.headers() or ()), (RETRY_HEADER, origin)]
        marked = Outgoing(key, message.value(), bucket, headers)
        if size_of(marked) <= CERTAINLY_FITS_BYTES or size_of(marked) <= self._bus.catalog.message_limit(category.name):
            return category.name, marked
        return category.name, marked._replace(headers=message.headers())  # the original fitted

    def _input(self, name: str) -> AnyCategory:
        """Return an input with its present number of buckets."""
        if name not in self._inputs:
            declared = next((category for category in plan_of(self._processor).inputs if category.name == name), None)
            if declared is None:
                raise NotRetried(
                    f"{self._processor.__name__} neither reads nor writes {name}, so it would never receive the message."
                )
            state = self._bus.catalog.describe(name)
            try:
                state.expect_known_cleanup()
            except SettingNotReported as error:
                raise NotRetried(
                    f"{error} If it is, the message would replace newer messages of its key. Grant DescribeConfigs on the category, or write the "
                    "corrected record yourself."
                ) from error
            spec = state.spec
            if spec.compacted:
                raise NotRetried(
                    f"{name} is compacted, so the message would replace newer messages of its key. Write the corrected record yourself."
                )
            self._inputs[name] = replace(declared, buckets=spec.buckets)
        return self._inputs[name]

    def _whole_message(self, letter: Letter, category: AnyCategory) -> Message:
        """Return a letter's message; a truncated one is read at its origin."""
        content = letter.content
        if not content.truncated_bytes:
            return rejected_message(content)
        origin = OffsetRange(Bucket(content.category, content.bucket), content.offset, content.offset + 1)
        try:
            batches = list(read_offset_range(self._bus, origin))
        except OffsetOutOfRange:
            batches = []
        # The letter of an event whose message has several contains this event alone.
        messages = split_messages(self._codecs.of(category), [each for batch in batches for each in batch.messages])
        found = next((each for each in messages if (each.value() or b"").startswith(content.value or b"")), None)
        if found is None:
            raise NotRetried(
                f"The letter is truncated, and {content.category} does not contain the whole message any more. Write it again at its source."
            )
        return MessageCopy(
            found.value(), found.key(), content.bucket, content.offset, found.timestamp(), found.headers()
        )

    def _expect_decodable(self, category: AnyCategory, message: Message) -> None:
        if message.value() is None:
            return  # a deletion for a table
        codec = self._codecs.of(category)
        bad = codec.decode(split_messages(codec, [message])).bad
        if bad:
            raise NotRetried(
                f"A message of {category.name} still does not decode with the declared codec and record. Correct them, or drop the letter."
            )
