"""The limit of dead letters per bucket.

Only the rejected events and their order in the bucket determine the result, not the batches in which they were read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import DeclarationError
from ..validation import expect_types
from ..wording import counted


@dataclass(frozen=True)
class DeadLetterLimit:
    """The number of dead letters in a bucket at which the worker stops. Many dead letters indicate a wrong codec rather than bad events.

    The worker stops as soon as one of the limits is exceeded.

    Args:
        share: the maximum share of dead letters among the latest events; checked once there are that many events.
        events: the number of latest events.
        consecutive: the number of consecutive dead letters.

    Raises:
        DeclarationError: the share is not between 0 and 1, or a number is below 1.

    Examples:
        >>> DeadLetterLimit(consecutive=10).share
        0.5
    """

    share: float = 0.5
    events: int = 1_000
    consecutive: int = 100

    def __post_init__(self) -> None:
        expect_types("DeadLetterLimit(…)", self)
        if not 0 <= self.share <= 1 or self.events < 1 or self.consecutive < 1:
            raise DeclarationError(
                f"{self}: `share` must be between 0 and 1, `events` and `consecutive` at least 1. For no limit, declare "
                "`dead_letter_limit = None`."
            )


class Rejections:
    """The rejected events of one bucket.

    Args:
        limit: the limit.
        position: the number of events before the first event to count.
        rejected: the positions of the rejected events among them, in order.
        bucket: the bucket, in words.
    """

    def __init__(
        self, limit: DeadLetterLimit, position: int, rejected: Iterable[int] = (), bucket: str = "this bucket"
    ) -> None:
        self._limit = limit
        self._bucket = bucket
        self._next = position
        self._recent: deque[int] = deque()
        self._run = 0
        self.description = ""
        """The number of dead letters, in words, once they exceed the limit."""
        for at in rejected:
            self._note(at)
        if self._recent and self._recent[-1] != position - 1:
            self._run = 0

    def exceeded_at(self, events: int, rejected: Sequence[int]) -> int | None:
        """Count the next events. Return the index of the rejected event that exceeds the limit, or None.

        Args:
            events: the number of events.
            rejected: the indices of the rejected events, in order.
        """
        found = self.exceeded_by([self._next + index for index in rejected])
        self._next += events
        return None if found is None else rejected[found]

    def exceeded_by(self, positions: Iterable[int]) -> int | None:
        """Count rejected events by their positions. Return the index of the one that exceeds the limit, or None."""
        found = None
        for index, at in enumerate(positions):
            if self._note(at) and found is None:
                found, self.description = index, self._describe()
        return found

    def would_exceed_at(self, rejected: Sequence[int]) -> tuple[int, str] | None:
        """Return the result of `exceeded_at` and its description, without counting."""
        copy = self._copy()
        found = copy.exceeded_at(0, rejected)
        return None if found is None else (found, copy.description)

    def _copy(self) -> Rejections:
        copy = Rejections(self._limit, self._next, bucket=self._bucket)
        copy._recent, copy._run = self._recent.copy(), self._run
        return copy

    def _note(self, at: int) -> bool:
        """Count a rejected event, and return whether it exceeds the limit."""
        limit, recent = self._limit, self._recent
        self._run = self._run + 1 if recent and recent[-1] == at - 1 else 1
        recent.append(at)
        while recent[0] <= at - limit.events:
            recent.popleft()
        many = at + 1 >= limit.events and len(recent) > limit.share * limit.events
        return many or self._run >= limit.consecutive

    def _describe(self) -> str:
        if self._run >= self._limit.consecutive:
            return f"the last {counted(self._run, 'event')} of {self._bucket} in a row"
        return f"{len(self._recent):,} of the last {counted(self._limit.events, 'event')} of {self._bucket}"
