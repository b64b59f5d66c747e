"""How many of the latest events of a bucket were rejected, and when that is too many to go on.

What decides is which events were rejected, in the order of their bucket, never how they were batched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import DeclarationError
from ..validation import expect_types


@dataclass(frozen=True)
class DeadLetterLimit:
    """Of how many events in a bucket a processor may set aside before its worker stops: more are a wrong codec, not bad events.

    The worker stops at whichever comes first.

    Args:
        share: more than this share of the latest events is rejected; counted once there are so many.
        events: how many the latest are.
        consecutive: so many are rejected one after the other.

    Raises:
        DeclarationError: a share outside of 0 to 1, or a number below one.
    """

    share: float = 0.5
    events: int = 1_000
    consecutive: int = 100

    def __post_init__(self) -> None:
        expect_types("DeadLetterLimit(…)", self)
        if not 0 <= self.share <= 1 or self.events < 1 or self.consecutive < 1:
            raise DeclarationError(
                f"{self}: the share lies between 0 and 1, and both numbers are 1 at least. To set aside any number of events, declare "
                "`dead_letter_limit = None`."
            )


class Rejections:
    """Follows the rejected events of one bucket.

    Args:
        limit: how many are too many.
        position: how many events lie before the first that is noted.
        rejected: which of them were rejected, in order.
    """

    def __init__(self, limit: DeadLetterLimit, position: int, rejected: Iterable[int] = ()) -> None:
        self._limit = limit
        self._next = position
        self._recent: deque[int] = deque()
        self._run = 0
        self.said = ""
        """How many there were when there were too many."""
        for at in rejected:
            self._note(at)
        if self._recent and self._recent[-1] != position - 1:
            self._run = 0

    def exceeded_at(self, events: int, rejected: Sequence[int]) -> int | None:
        """Note the next events; return the index of the rejected one at which there are too many, None where there are not.

        Args:
            events: how many they are.
            rejected: the indices of those that were rejected, in order.
        """
        found = None
        for index in rejected:
            if self._note(self._next + index) and found is None:
                found, self.said = index, self._told()
        self._next += events
        return found

    def would_exceed_at(self, rejected: Sequence[int]) -> tuple[int, str] | None:
        """Return what `exceeded_at` would, and what it would say, and note nothing."""
        copy = self._copy()
        found = copy.exceeded_at(0, rejected)
        return None if found is None else (found, copy.said)

    def _copy(self) -> Rejections:
        copy = Rejections(self._limit, self._next)
        copy._recent, copy._run = self._recent.copy(), self._run
        return copy

    def _note(self, at: int) -> bool:
        """Note a rejected event; tell whether that is too many."""
        limit, recent = self._limit, self._recent
        self._run = self._run + 1 if recent and recent[-1] == at - 1 else 1
        recent.append(at)
        while recent[0] <= at - limit.events:
            recent.popleft()
        many = at + 1 >= limit.events and len(recent) > limit.share * limit.events
        return many or self._run >= limit.consecutive

    def _told(self) -> str:
        if self._run >= self._limit.consecutive:
            return f"the last {self._run:,} events of this bucket, one after the other"
        return f"{len(self._recent):,} of the last {self._limit.events:,} events of this bucket"
