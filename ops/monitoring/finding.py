"""A problem that monitoring found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """The severity of a finding."""

    NOTE = 0
    """Needs no action."""
    WARNING = 1
    """Gets worse without action."""
    CRITICAL = 2
    """Events are not processed, or will expire soon."""


@dataclass(frozen=True)
class Finding:
    """A problem of one processor.

    Args:
        severity: the urgency of the problem.
        kind: a stable name of the problem, without figures.
        processor: the name of the processor.
        message: the problem, its consequence, and the action to take.
    """

    severity: Severity
    kind: str
    processor: str
    message: str
