"""The event times of a shard without state, as its checkpoints commit them: each input's beside the position in that input.

ShardTime --saved--> SavedTimes --committed with the positions--> SavedTimes --> ShardTime of the next owner

So an owner continues exactly where the last one stopped, and the same events lead to the same watermarks, however often workers restart.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import msgspec

from .watermarks import NEVER_MS, BucketProgress

MAX_TEXT = 3_900
"""The most characters of an input's event time. Kafka accepts 4,096 bytes beside a position (`offset.metadata.max.bytes`)."""


class _Columns(msgspec.Struct, frozen=True, array_like=True):
    """An input's event time, with its histogram in order of the bins: the bins as distances from the one before, which are mostly equal."""

    events: int
    newest_ms: int
    bound_ms: int | None
    watermark_ms: int
    steps: list[int]
    counts: list[int]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Columns).decode


def text_of(progress: BucketProgress) -> str:
    """Return an input's event time as text.

    The histogram of lateness is left out if the text would be too long: its length grows with the number of different latenesses.
    """
    bins = sorted(progress.counts)
    steps = [after - before for before, after in pairwise([0, *bins])]
    text = _packed(progress, steps, [progress.counts[bin_] for bin_ in bins])
    return text if len(text) <= MAX_TEXT else _packed(progress, [], [])


def _packed(progress: BucketProgress, steps: list[int], counts: list[int]) -> str:
    columns = _Columns(progress.events, progress.newest_ms, progress.bound_ms, progress.watermark_ms, steps, counts)
    return b64encode(zlib.compress(_encode(columns))).decode()


def progress_of(text: str) -> BucketProgress:
    """Return the event time that a text contains."""
    saved = _decode(zlib.decompress(b64decode(text)))
    counts = dict(zip(accumulate(saved.steps), saved.counts, strict=True))
    return BucketProgress(saved.events, saved.newest_ms, saved.bound_ms, saved.watermark_ms, counts)


@dataclass(frozen=True)
class SavedTimes:
    """The event times of a shard at a checkpoint.

    Args:
        low_ms: its low watermark (milliseconds since 1970, UTC).
        inputs: the event time of each input as text; only without state, which contains them otherwise.
    """

    low_ms: int = NEVER_MS
    inputs: Mapping[str, str] = field(default_factory=dict)


NO_TIMES = SavedTimes()
"""Those of a shard without a checkpoint."""
