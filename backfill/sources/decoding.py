"""Raw messages in Spark's Python workers: decoded by the category's own codec, and laid out as the archive has them.

What does not decode is left out, as it is of the archive, and counted for each stretch, so that a stretch that Spark reads a second
time counts once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam

from ...transport.codecs.by_category import Codecs
from ...transport.kafka import KafkaBus, KafkaSettings
from ..archive.archived_rows import ArchivedRows, Messages
from ..spark.batches import Batches, Transform
from ..spark.failures import carried
from ..spark.shipped_app import ShippedApp


class LeftOut(NamedTuple):
    """What a stretch of a bucket has that does not decode.

    Args:
        messages: how many messages.
        offset: where the first of them lies.
        reason: why that one does not.
    """

    messages: int
    offset: int
    reason: str


Place = tuple[str, int, int]
"""Category, bucket, and the first offset that a stretch gave."""
LeftOuts = Mapping[Place, LeftOut]


class LeftOutParam(AccumulatorParam[LeftOuts]):
    """Puts together what tasks say; a task that ran twice says the same twice."""

    def zero(self, value: LeftOuts) -> LeftOuts:  # noqa: ARG002 - as the base has it
        """Return what is said by nobody."""
        return {}

    def addInPlace(self, value1: LeftOuts, value2: LeftOuts) -> LeftOuts:  # noqa: N802 - as the base has it
        """Return both."""
        return {**value1, **value2}


@dataclass(frozen=True)
class Decoding:
    """How the messages of a category are decoded.

    Args:
        app: where workers find the app.
        category: the category's name.
        settings: the bus that schemas are on.
        left_out: told what does not decode.
    """

    app: ShippedApp
    category: str
    settings: KafkaSettings
    left_out: Accumulator[LeftOuts]

    @property
    def transform(self) -> Transform:
        """The step as Spark runs it, on partitions that are stretches."""
        return partial(_run, self)


def _run(decoding: Decoding, batches: Batches) -> Batches:
    with carried(f"Decoding {decoding.category}"):
        yield from _decoded(decoding, batches)


def _decoded(decoding: Decoding, batches: Batches) -> Batches:
    settings = decoding.settings
    rows = _rows_of(decoding.app, decoding.category, settings.bootstrap, tuple(settings.further.items()))
    place: Place | None = None
    left_out: LeftOut | None = None
    for messages in filter(None, map(_messages, batches)):
        made = rows.of(messages)
        place = place or (decoding.category, messages.bucket, messages.offsets[0])
        if made.left_out:
            at = min(made.left_out)
            first = left_out or LeftOut(0, messages.offsets[at], made.left_out[at])
            left_out = first._replace(messages=first.messages + len(made.left_out))
        yield made.batch
    if place and left_out:
        decoding.left_out.add({place: left_out})


def _messages(batch: pa.RecordBatch) -> Messages | None:
    """Return a batch of one stretch as messages; None where there are none."""
    columns: dict[str, list[Any]] = batch.to_pydict()
    if not batch.num_rows:
        return None
    return Messages(columns["bucket"][0], columns["value"], columns["offset"], columns["arrived"])


@cache
def _rows_of(app: ShippedApp, category: str, bootstrap: str, further: tuple[tuple[str, str], ...]) -> ArchivedRows:
    declared = next(one for one in app.load().categories() if one.name == category)
    return ArchivedRows(declared, Codecs(KafkaBus(KafkaSettings(bootstrap, dict(further)))).of(declared))
