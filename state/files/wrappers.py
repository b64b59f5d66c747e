"""File stores around another one: interruptible, or retrying while the other is unreachable."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import TypeVar

from ...processors import CallRetry, WaitLog
from ..errors import FileStoreRefuses, FileStoreUnreachable
from .file_store import FileStore

_LOG = logging.getLogger("penstock.state")
T = TypeVar("T")
HANGS_S = 10.0
"""The time without an answer after which a store may hang."""


class WrappedFileStore(ABC):
    """Passes every request to another store through `_call`.

    Args:
        files: the other store.
    """

    def __init__(self, files: FileStore) -> None:
        self._files = files

    @abstractmethod
    def _call(self, request: Callable[[], T]) -> T:
        """Make a request and return its answer."""

    @property
    def location(self) -> str:
        """The root."""
        return self._files.location

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store a file."""
        self._call(lambda: self._files.write(path, chunks))

    def create(self, path: str, content: bytes) -> bool:
        """Store a file unless the path exists."""
        return self._call(lambda: self._files.create(path, content))

    def read(self, path: str, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes of a file."""
        return iter(self._call(lambda: [b"".join(self._files.read(path, start))]))

    def list_folder(self, folder: str) -> dict[str, int | None]:
        """Return the sizes of the files in a folder."""
        return self._call(lambda: self._files.list_folder(folder))

    def tags(self, folder: str) -> dict[str, str]:
        """Return a tag of each file in a folder."""
        return self._call(lambda: self._files.tags(folder))

    def delete(self, path: str) -> None:
        """Delete a file."""
        self._call(lambda: self._files.delete(path))


class InterruptibleFileStore(WrappedFileStore):
    """Checks before each request and each chunk whether to cancel. So a store that hangs costs one time limit and no retry.

    Args:
        files: the other store.
        check_canceled: raises to cancel.
    """

    def __init__(self, files: FileStore, check_canceled: Callable[[], None]) -> None:
        super().__init__(files)
        self._check_canceled = check_canceled

    def _call(self, request: Callable[[], T]) -> T:
        self._check_canceled()
        return request()

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store a file."""
        super().write(path, self._checked(chunks))

    def read(self, path: str, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes of a file, without collecting them first."""
        self._check_canceled()
        return self._checked(self._files.read(path, start))

    def _checked(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._check_canceled()
            yield chunk


class RetryingFileStore(WrappedFileStore):
    """Repeats requests while the other store is unreachable, up to a limit, and unless it refuses them. The chunks of a write must be a collection.

    Args:
        files: the other store.
        retry: the time limit and the pauses.
        advice: ends the error at the limit: what it means for the data and what to do.
    """

    def __init__(self, files: FileStore, retry: CallRetry, advice: str) -> None:
        super().__init__(files)
        self._retry = retry
        self._advice = advice
        self._wait = WaitLog(retry.clock)
        self._begun_s: dict[object, float] = {}
        self._answered_s = -inf

    def _call(self, request: Callable[[], T]) -> T:
        one = object()
        self._begun_s[one] = self._retry.clock()
        try:
            answer = retried(request, self._retry, self._advice, self._wait, self.location)
            self._answered_s = self._retry.clock()
        finally:
            del self._begun_s[one]
        return answer

    def log_wait(self) -> None:
        """Log, when due, that the store has answered no request for a while. For another thread: a store that hangs raises no error."""
        begun_s = min(list(self._begun_s.values()), default=inf)
        since_s = max(begun_s, self._answered_s)
        if self._retry.clock() - since_s >= HANGS_S and self._wait.is_due(since_s):
            _LOG.warning(
                "%s has not answered %s: it is unreachable, hangs, or is slow. The request goes on.",
                self.location,
                self._wait,
            )


def retried(request: Callable[[], T], retry: CallRetry, advice: str, wait: WaitLog, location: str) -> T:
    """Return the answer of a store, whose request is repeated while the store is unreachable, unless it refuses it. The wait is logged.

    Args:
        request: the request. It must be repeatable after an unknown outcome.
        retry: the time limit and the pauses.
        advice: ends the error: what it means for the data and what to do.
        wait: the wait for this store, which its requests share.
        location: the store, as the subject of a sentence.

    Raises:
        FileStoreRefuses: the store refuses the request.
        FileStoreUnreachable: the store is unreachable beyond the limit.
    """

    def attempt() -> T | FileStoreRefuses:
        answer: T | FileStoreRefuses
        try:
            answer = request()
        except FileStoreRefuses as error:
            answer = error
        except FileStoreUnreachable as error:
            if wait.is_due():
                waited = f" {location} has not answered {wait}." if str(wait) else ""
                _LOG.warning("%s%s The request is repeated for up to %.0f s.", error, waited, retry.limit_s)
            raise
        waited_s = wait.end()
        if waited_s is not None:
            _LOG.warning("%s answers again, after %.0f s.", location, waited_s)
        return answer

    try:
        outcome = retry.call(attempt, FileStoreUnreachable, lambda _: None)
    except FileStoreUnreachable as error:
        raise FileStoreUnreachable(f"{error} {retry.summary} {advice}") from error
    if isinstance(outcome, FileStoreRefuses):
        raise FileStoreRefuses(f"{outcome} {advice}") from outcome
    return outcome
