"""The event that user code processes when it writes a log line.

A worker processes thousands of events at a time, and most log nothing. So nothing is recorded for each event: a log line searches its
stack for a method of the user's code whose argument is an event of the present batch.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import FrameType
from typing import Any

from ....processors import is_user_file
from ....processors.declare import AnyCategory, Context
from ....processors.shard import AcceptedBatch
from ....processors.time import Timer
from ....transport import RawBatch

_BATCHES: dict[int, _Batch] = {}
"""The batch that each thread processes."""


@contextmanager
def event_fields(batch: RawBatch, accepted: AcceptedBatch, category: AnyCategory) -> Iterator[None]:
    """Let log lines of this thread contain the bucket, offset and key of an event, while a batch is processed."""
    thread = threading.get_ident()
    _BATCHES[thread] = _Batch(batch, accepted, category)
    try:
        yield
    finally:
        del _BATCHES[thread]


def failed_event(error: BaseException) -> str:
    """Return where this thread's batch failed, within `event_fields`: `clicks/0 at offset 7`; without an event on the stack, `clicks/0`."""
    batch = _BATCHES[threading.get_ident()]
    # The frames of a traceback have ended, and no longer lead to their callers.
    found = [_frame_fields(frame, batch) for frame, _ in traceback.walk_tb(error.__traceback__)]
    offset = next((fields["offset"] for fields in reversed(found) if "offset" in fields), None)
    return batch.bucket if offset is None else f"{batch.bucket} at offset {offset}"


class EventFields(logging.Filter):
    """Adds the fields of the processed event to each line of user code: the key and the time in timers, and the key in windows."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields, and accept the line."""
        batch = _BATCHES.get(threading.get_ident())
        for name, value in _fields(sys._getframe(1), batch).items():  # noqa: SLF001 - the documented way to the stack
            record.__dict__.setdefault(name, value)
        return True


class _Batch:
    def __init__(self, batch: RawBatch, accepted: AcceptedBatch, category: AnyCategory) -> None:
        self._batch = batch
        self._accepted = accepted
        self._category = category

    @property
    def bucket(self) -> str:
        """The bucket, as errors name it."""
        return str(self._batch.bucket)

    @cached_property
    def _indexes(self) -> dict[int, int]:
        return {id(event): at for at, event in enumerate(self._accepted.events)}

    @cached_property
    def _offsets(self) -> Sequence[int]:
        return self._batch.offsets()

    def fields(self, argument: Any) -> dict[str, Any]:
        """Return the fields of an event of the batch; empty for another object."""
        at = self._indexes.get(id(argument))
        if at is None:
            return {}
        [key] = self._category.keys_of([argument])
        return {"bucket": self.bucket, "offset": self._offsets[self._accepted.at[at]], "key": key}


def _fields(frame: FrameType | None, batch: _Batch | None) -> dict[str, Any]:
    """Return the fields of the innermost event or context that a method of user code has as an argument."""
    while frame is not None:
        found = _frame_fields(frame, batch)
        if found:
            return found
        frame = frame.f_back
    return {}


def _frame_fields(frame: FrameType, batch: _Batch | None) -> dict[str, Any]:
    """Return the fields of the event or context that a call of user code has as an argument; empty for other calls."""
    code = frame.f_code
    if not is_user_file(code.co_filename):
        return {}
    arguments = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]
    found = next(filter(None, map(batch.fields, arguments)), {}) if batch is not None else {}
    return found or _context_fields(arguments)


def _context_fields(arguments: Sequence[Any]) -> dict[str, Any]:
    """Return the key of a context and the time of a timer among the arguments of a method."""
    keys = [("key", argument.key) for argument in arguments if isinstance(argument, Context)]
    timers = [("timer", argument.at) for argument in arguments if isinstance(argument, Timer)]
    return dict([*keys, *timers]) if keys else {}
