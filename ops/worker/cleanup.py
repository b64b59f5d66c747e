"""Several things of which each is to be done, also where another one fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ...processors.errors import PenstockError

_LOG = logging.getLogger("penstock.worker")


def attempt_all(calls: Iterable[Callable[[], object]]) -> Exception | None:
    """Make every call, and log what each raises. Return what the first that failed has raised; None where none did."""
    first: Exception | None = None
    for call in calls:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - logged, and given to the caller
            first = first or error
            _LOG.warning("%s", error, exc_info=None if isinstance(error, PenstockError) else error)
    return first


def do_all(calls: Iterable[Callable[[], object]]) -> None:
    """Make every call, then raise what the first that failed has raised."""
    error = attempt_all(calls)
    if error is not None:
        raise error
