"""Start and end of a processor: its `open` and `close`, which may be `async def`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from .declare import Processor, Stateless
from .errors import USER_CODE_ERRORS, ProcessorFailed
from .user_code import error_in_words

_LOG = logging.getLogger("penstock.worker")


def start(processor: Processor) -> None:
    """Call `open` of a processor, and wait for it."""
    if isinstance(processor, Stateless):
        processor.blocking(processor.open)()
    else:
        processor.open()


def end(processor: Processor) -> None:
    """Call `close` of a processor, wait for it, and close its event loop."""
    if not isinstance(processor, Stateless):
        processor.close()
        return
    try:
        processor.blocking(processor.close)()
    finally:
        processor.close_event_loop()


@contextmanager
def ending(processor: Processor) -> Iterator[Processor]:
    """Yield a started processor, and end it after the context.

    Raises:
        ProcessorFailed: its `close` raised an exception. It is only logged if the context failed, whose error comes first.
    """
    try:
        yield processor
    except BaseException:
        try:
            end(processor)
        except USER_CODE_ERRORS:
            _LOG.exception("%s.close raised an exception after this error:", type(processor).__name__)
        raise
    try:
        end(processor)
    except USER_CODE_ERRORS as error:
        raise ProcessorFailed(
            f"{type(processor).__name__}.close raised {error_in_words(error)}. The worker had ended before, and everything that it reports as processed is "
            "saved. Correct `close`."
        ) from error
