"""Retries of events whose processing failed: each waits in a category of its attempt, and returns after a while.

a call fails --> NAME.retry_1 --after--> the call fails again --> NAME.retry_2 --after x factor--> … --> dead letters

Every event of a category waits equally long, so the events of a bucket are due in their order, and none blocks an earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from ..errors import DeclarationError, UserCodeError
from ..validation import expect_types
from .categories import AnyCategory, size_settings

MOST_ATTEMPTS = 10
"""The most attempts: each further one needs a category."""


@dataclass(frozen=True)
class Retry:
    """What a worker does with an event for which the processor raises: it tries again later, and meanwhile processes other events.

    After the last attempt, the event goes to the dead letters, with the number of attempts and the last error.

    Args:
        after: the time between the first attempt and the second.
        factor: how much longer each further wait is.
        attempts: the most calls for an event, the first included.
        on: the exceptions after which the worker tries again. After others, the event goes to the dead letters at once.

    Raises:
        DeclarationError: a value is out of range.

    Examples:
        >>> [str(wait) for wait in Retry(after=timedelta(seconds=1), factor=4, attempts=4).waits()]
        ['0:00:01', '0:00:04', '0:00:16']
    """

    after: timedelta = timedelta(seconds=1)
    factor: float = 4.0
    attempts: int = 5
    on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        expect_types("Retry(…)", self)
        if self.after < timedelta(milliseconds=1) or self.factor < 1 or not 2 <= self.attempts <= MOST_ATTEMPTS:
            raise DeclarationError(
                f"{self}: `after` must be at least a millisecond, `factor` at least 1, and `attempts` from 2 to {MOST_ATTEMPTS}."
            )
        kinds: tuple[object, ...] = self.on
        if not kinds or not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
            raise DeclarationError(
                f"Retry(…): `on = {self.on!r}` must be a tuple of exception types, such as `on=(TimeoutError, ConnectionError)`."
            )

    def waits(self) -> list[timedelta]:
        """Return the wait before each further attempt."""
        return [self.after * self.factor**number for number in range(self.attempts - 1)]

    def covers(self, error: UserCodeError) -> bool:
        """Return whether to try again after an exception."""
        return isinstance(error, self.on)


@dataclass(frozen=True)
class RetryChain:
    """The categories in which the events of one processor wait.

    Args:
        processor: the name of the processor.
        retry: the declaration.
        source: the category that the processor declares as its input.
        categories: the category before each further attempt.
    """

    processor: str
    retry: Retry
    source: AnyCategory
    categories: tuple[AnyCategory, ...]

    @staticmethod
    def of(processor: str, source: AnyCategory, retry: Retry) -> RetryChain:
        """Return the chain of a processor. Its categories have the buckets, the keys, the retention and the size limit of the source."""
        names = [f"{retry_prefix(processor)}{number}" for number in range(1, retry.attempts)]
        categories = [replace(source, name=name, compacted=False, settings=size_settings([source])) for name in names]
        return RetryChain(processor, retry, source, tuple(categories))

    def is_of(self, processor: str, source: AnyCategory, retry: Retry) -> bool:
        """Return whether a processor declares the chain."""
        return self.processor == processor and self.source is source and self.retry is retry

    def includes(self, category: str) -> bool:
        """Return whether the events of a category wait for an attempt."""
        return any(waiting.name == category for waiting in self.categories)

    def attempt_of(self, category: str) -> int:
        """Return which attempt an event of a category is, from 1."""
        names = [self.source.name, *(waiting.name for waiting in self.categories)]
        return names.index(category) + 1

    def next_after(self, category: str) -> AnyCategory | None:
        """Return where an event of a category waits for its next attempt; None after the last one."""
        attempt = self.attempt_of(category)
        return self.categories[attempt - 1] if attempt < self.retry.attempts else None

    def waits_ms(self) -> dict[str, int]:
        """Return by category how long its events wait, in milliseconds."""
        waits = self.retry.waits()
        return {
            category.name: wait // timedelta(milliseconds=1)
            for category, wait in zip(self.categories, waits, strict=True)
        }


def retry_prefix(processor: str) -> str:
    """Return the beginning of the names of a processor's retry categories."""
    return f"{processor}.retry_"


def expect_retryable(owner: str, sources: Sequence[AnyCategory], retry: Retry, *, has_sinks: bool) -> None:
    """Raise DeclarationError if the events of some sources cannot wait for a retry."""
    if has_sinks:
        raise DeclarationError(
            f"Processor {owner} retries events (`on_error = penstock.Retry(…)`) and writes a sink. A sink and the category of the waiting events are "
            "not saved together, so an event could be lost or repeated. Nothing was read. Write a category here, and let another processor write it "
            "to the sink."
        )
    if len(sources) != 1:
        raise DeclarationError(
            f"Processor {owner} retries events (`on_error = penstock.Retry(…)`) and reads {', '.join(source.name for source in sources)}. An event would return without the "
            "order of its inputs. Nothing was read. Let a processor with one input make the call, and read its output here."
        )
    [source] = sources
    longest = retry.waits()[-1]
    if source.retention is not None and longest * 2 > source.retention:
        raise DeclarationError(
            f"Processor {owner}: the last wait of `on_error` is {longest}, and the bus keeps events of {source.name} only for {source.retention}. A "
            "stopped worker would lose waiting events. Declare fewer attempts, a smaller `factor`, or a longer `retention`."
        )
