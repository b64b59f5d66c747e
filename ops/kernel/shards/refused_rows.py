"""Rows that a sink refuses, as dead letters of their processor."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from ....processors.declare import DeadLetter, Processor, RefusedRow, SinkBatch, dead_letters_of
from ....processors.models import encode_model
from ....transport import Outgoing
from ....transport.codecs import Codecs, encode_outputs
from ...shell import MachineClock
from ..telemetry import Metrics

_LOG = logging.getLogger("penstock.worker")
_encode = msgspec.json.Encoder(enc_hook=encode_model).encode


@dataclass(frozen=True)
class RefusedRows:
    """Rows of a batch that a sink has left out.

    Args:
        sink: the name of the sink.
        batch: the batch.
        rows: the rows, with the reasons.
    """

    sink: str
    batch: SinkBatch
    rows: Sequence[RefusedRow]


class RowLetters:
    """Turns refused rows into dead letters, and counts them. A letter has the sink in place of a category, and the row as JSON in place of a message.

    Args:
        processor: produced the rows.
        codecs: encode the letters.
        clock: dates them.
        metrics: counts them.
    """

    def __init__(self, processor: type[Processor], codecs: Codecs, clock: MachineClock, metrics: Metrics) -> None:
        self.category = dead_letters_of(processor)
        self._codecs = codecs
        self._clock = clock
        self._metrics = metrics

    def messages(self, refused: RefusedRows) -> Iterator[Outgoing]:
        """Return the messages of letters."""
        now_ms = self._clock.now_ms()
        batch, first = refused.batch, min(refused.batch.first.values(), default=0)
        letters = [
            DeadLetter(refused.sink, batch.bucket, first, each.reason, None, _content_of(each.row), now_ms)
            for each in refused.rows
        ]
        self._metrics.refuse_rows(len(letters))
        _LOG.warning(
            "%s refused %d rows of the batch from offset %d of bucket %d on. They went to %s. The first: %s",
            refused.sink,
            len(letters),
            first,
            batch.bucket,
            self.category.name,
            letters[0].reason,
        )
        return iter(encode_outputs(self.category, self._codecs.of(self.category), letters).messages)


def _content_of(row: object) -> bytes:
    """Return a row as JSON; with a lone surrogate, which JSON in UTF-8 cannot contain, as it is printed."""
    try:
        return _encode(row)
    except UnicodeEncodeError:
        return ascii(row).encode()
