"""Messages with a key and a null value: tombstones, as outputs and as inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import DeclarationError

if TYPE_CHECKING:
    from .categories import AnyCategory

_KINDS = __name__.rpartition(".declare.")[0] + "."
"""The package of the kinds of processors."""


class Tombstone(msgspec.Struct, frozen=True, gc=False):
    """An output with a key and without a value. Tables delete the row of the key, and compacted topics its earlier messages.

    Args:
        key: the key. It gets the message key and the bucket of a record with this key. For a key of several fields, see `composite_key`.

    Examples:
        >>> import penstock as ps
        >>> class Session(ps.Record, frozen=True):
        ...     user: str
        ...     at: int
        ...     is_open: bool
        >>> class OpenSessions(ps.Stateless):
        ...     reads = ps.Category("sessions", Session, key="user", event_time="at")
        ...     writes = ps.Category("open_sessions", Session, key="user", event_time="at", compacted=True)
        ...
        ...     def process(self, event):
        ...         return [event if event.is_open else ps.Tombstone(event.user)]
        >>> OpenSessions().process(Session("ann", 5, False))
        [Tombstone(key='ann')]
    """

    key: str


def expect_own_process(processor: type) -> None:
    """Check that the method that receives tombstones does not belong to one of the kinds of processors.

    Raises:
        DeclarationError: it belongs to a processor of Penstock, such as a join, which needs the fields of a record.
    """
    declared: Any = processor
    if declared.tombstones and declared.process.__module__.startswith(_KINDS):
        base = next(one for one in processor.__mro__ if "process" in vars(one))
        raise DeclarationError(
            f"{processor.__name__}: a {base.__name__} needs the fields of a record, which a tombstone lacks. Nothing was read. Declare `tombstones = "
            "False`, or process the tombstones in a Stateless or Stateful of your own."
        )


def with_tombstones(process: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of user code that receives deletions as `Tombstone`."""

    def call(event: Any, *arguments: Any) -> Any:
        return process(Tombstone(event.deleted_key) if type(event) is RowDeletion else event, *arguments)

    return call


class RowDeletion:
    """A tombstone that a processor reads. In a table, it deletes the row of its key.

    It has the key, or its fields, and the event time under the field names of the category, and no other field.

    Args:
        category: the category of the message.
        key: the key of the message.
        at_ms: when the message arrived, used as its event time (milliseconds since 1970, UTC).
    """

    __slots__ = ("_fields", "deleted_at_ms", "deleted_key")

    def __init__(self, category: AnyCategory, key: str, at_ms: int) -> None:
        self.deleted_key = key
        self.deleted_at_ms = at_ms
        self._fields: dict[str, Any] = category.key_attributes(key)
        if category.times.attribute is not None:
            self._fields[category.times.attribute] = at_ms

    def __getattr__(self, name: str) -> Any:
        try:
            return self._fields[name]
        except KeyError:
            raise AttributeError(f"a tombstone has no field {name!r}") from None
