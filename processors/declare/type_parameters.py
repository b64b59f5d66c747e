"""Type parameters of processors, for type checkers. A class without parameters accepts all types."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypeVar

from .records import AnyRecord
from .tombstones import Tombstone

Event = TypeVar("Event", default=Any)
"""The record of the input; a union if there are several inputs."""
Output = TypeVar("Output", bound=AnyRecord | Tombstone, default=Any)
"""The record of the output; a union if there are several outputs, or with `Tombstone`."""
State = TypeVar("State", default=Any)
"""The state of a key."""
Value = TypeVar("Value", default=Any)
"""The value of a monoid."""
Row = TypeVar("Row", default=Any)
"""The row or the right event of a join; with `| None` if it may be missing."""
