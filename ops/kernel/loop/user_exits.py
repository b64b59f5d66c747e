"""What user code raises beside errors: KeyboardInterrupt, asyncio.CancelledError, or the panic of a library in Rust."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ....processors import USER_CODE_ERRORS, ProcessorFailed, error_in_words


@contextmanager
def exits_named(name: str, place: Callable[[BaseException], str | None]) -> Iterator[None]:
    """Raise ProcessorFailed with the place for exceptions that are no errors, and no error policy covers.

    Where Python handles Ctrl-C, as in tests, a KeyboardInterrupt is the person's, and other exceptions are the test's.

    Args:
        name: the name of the processor.
        place: returns where user code raised an exception; None if it did not.
    """
    try:
        yield
    except USER_CODE_ERRORS:
        raise
    except BaseException as error:
        found = None if signal.getsignal(signal.SIGINT) is signal.default_int_handler else place(error)
        if found is None:
            raise
        raise ProcessorFailed(
            f"{found}: {name} raised {error_in_words(error)}, which no error policy covers. Nothing since the last checkpoint was saved, and nothing was "
            f"skipped: these events are read again after a restart. Fix {name}: raise an exception that derives from Exception."
        ) from error
