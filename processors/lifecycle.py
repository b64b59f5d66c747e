"""Start and end of a processor: its `open` and `close`, which may be `async def`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .declare.processor import Processor
from .declare.stateless import Stateless


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
    """Yield a started processor, and end it after the context."""
    try:
        yield processor
    finally:
        end(processor)
