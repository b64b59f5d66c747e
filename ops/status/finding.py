"""A problem of a processor, and its severity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


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
        processor: the name of the processor.
        severity: the urgency of the problem.
        kind: a stable name of the problem, without figures.
        message: the problem, its consequence, and the action to take.
    """

    processor: str
    severity: Severity
    kind: str
    message: str


class Problem(NamedTuple):
    """A finding of the checked processor; see `Finding`."""

    severity: Severity
    kind: str
    message: str
