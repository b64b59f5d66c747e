"""Cleanup calls, all of which are made even if one fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ....processors import PenstockError

_LOG = logging.getLogger("penstock.worker")


def attempt_all(calls: Iterable[Callable[[], object]]) -> Exception | None:
    """Make every call, and log each error; equal ones once. Return the first error; None without errors."""
    first: Exception | None = None
    logged: set[str] = set()
    for call in calls:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - logged and returned
            first = first or error
            if str(error) in logged:
                continue
            logged.add(str(error))
            _LOG.warning("%s", error, exc_info=None if isinstance(error, PenstockError) else error)
    return first


def do_all(calls: Iterable[Callable[[], object]]) -> None:
    """Make every call, then raise the first error."""
    error = attempt_all(calls)
    if error is not None:
        raise error
