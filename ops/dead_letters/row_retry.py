"""Retries of rows that a sink has refused.

A letter of such a row has the sink in place of a category, and the row as JSON in place of a message. Its retry writes the row again, and marks
the letter afterwards. A crash between the two repeats the row, which at-least-once outputs allow.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import msgspec

from ...processors import PenstockError
from ...processors.declare import Processor, Semantics, Sink, SinkBatch, SinkWriter, dead_letters_of, plan_of
from ...processors.models import decode_model
from .letters import Letter, NotRetried


class RowRetry:
    """Writes the rows of letters to the sinks of a processor. Close it.

    Args:
        processor: the processor, as its app declares it now.
    """

    def __init__(self, processor: type[Processor]) -> None:
        self._processor = processor
        self._sinks = {sink.name: sink for sink in plan_of(processor).sinks}
        self._writers: dict[str, SinkWriter] = {}
        self._claimed: set[tuple[str, int]] = set()
        self._failures: dict[str, str] = {}

    def is_of_sink(self, letter: Letter) -> bool:
        """Return whether a letter is of a row."""
        return letter.content.category in self._sinks

    def write(self, letter: Letter) -> None:
        """Write the row of a letter; durable on return.

        Raises:
            NotRetried: the sink does not store it, or has failed before, or a repeated row would break the declared semantics.
        """
        sink, semantics = self._sinks[letter.content.category], self._processor.output_semantics
        if semantics is not Semantics.AT_LEAST_ONCE:
            raise NotRetried(
                f"{self._processor.__name__} writes rows {semantics.value}, and a retry that is interrupted writes a row twice. Send it yourself: "
                "`penstock dead-letters show` prints it."
            )
        row = self._row(sink, letter)
        if sink.name in self._failures:
            raise NotRetried(self._failures[sink.name])
        try:
            refused = self._write(sink, letter, row)
        except PenstockError as error:
            # The other rows of the sink would wait for the same outage, one after the other.
            cause = str(error.__cause__ or error).removesuffix(".")
            self._failures[sink.name] = f"{sink.name} failed: {cause}. Correct the cause, and repeat the command."
            raise NotRetried(self._failures[sink.name]) from error
        if refused:
            raise NotRetried(f"{sink.name} refuses the row again: {refused[0].reason}")

    def _row(self, sink: Sink, letter: Letter) -> Any:
        if letter.content.truncated_bytes:
            raise NotRetried("The letter is truncated, so the row is incomplete. Write it again at its source.")
        try:
            return msgspec.json.decode(letter.content.value or b"", type=sink.record, dec_hook=decode_model)
        except (msgspec.MsgspecError, TypeError) as error:
            raise NotRetried(
                f"The row does not fit {sink.record_name} any more: {error}. Drop the letter, or restore the record."
            ) from error

    def _write(self, sink: Sink, letter: Letter, row: Any) -> Any:
        name, bucket = self._processor.name, letter.content.bucket
        if sink.name not in self._writers:
            self._writers[sink.name] = sink.open()
        writer = self._writers[sink.name]
        if (sink.name, bucket) not in self._claimed:
            writer.claim(name, bucket)
            self._claimed.add((sink.name, bucket))
        first = {dead_letters_of(self._processor).name: letter.number}
        return writer.write(SinkBatch(name, bucket, first, [row], "", Semantics.AT_LEAST_ONCE))

    def close(self) -> None:
        """Close the sinks."""
        with ExitStack() as stack:
            for writer in self._writers.values():
                stack.callback(writer.close)
