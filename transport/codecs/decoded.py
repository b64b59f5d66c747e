"""Decoded batches: the records of a batch, and the messages that failed to decode."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...processors.declare import Decoded, Message, RecordCheck, RowUpdate, Undecodable

MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that it cannot decode: also for a text that is not UTF-8, and for a value that is nested too deeply."""


def reject_out_of_range(decoded: Decoded, check: RecordCheck) -> Decoded:
    """Move events with a number out of range to the undecodable messages."""
    invalid = check.unfit(decoded.events)
    if not invalid:
        return decoded
    at = decoded.at
    bad = [Undecodable(at[index], reason, untimed=False) for index, reason in invalid.items()]
    kept = [index for index in range(len(at)) if index not in invalid]
    return Decoded([decoded.events[index] for index in kept], [at[index] for index in kept], [*decoded.bad, *bad])


def lacks_event_time(fields: Any, event_time: str | None) -> bool:
    """Return whether decoded fields lack the event time, or contain null there.

    Args:
        fields: the fields, by their names on the bus.
        event_time: the dotted path of the event time; None if it is in no one field.
    """
    if event_time is None or not isinstance(fields, dict):
        return False
    for name in [event_time] if event_time in fields else event_time.split("."):
        if not isinstance(fields, dict):
            return False
        fields = fields.get(name)
        if fields is None:
            return True
    return False


class MissingEventTime(msgspec.ValidationError):
    """A message that lacks only its event time."""


def decode_singly(messages: Sequence[Message], decode: Callable[[Message], Any]) -> Decoded:
    """Decode message by message, collect the messages that fail, and skip messages that contain no record by their format."""
    events: list[Any] = []
    at: list[int] = []
    bad: list[Undecodable] = []
    for index, message in enumerate(messages):
        try:
            events.append(decode(message))
            at.append(index)
        except SkippedMessage:
            continue
        except DeletedRow as deletion:
            bad.append(Undecodable(index, str(deletion), untimed=False, deleted_key=deletion.key))
        except IncompleteRow as incomplete:
            bad.append(Undecodable(index, str(incomplete), untimed=False, update=incomplete.update))
        except ClearedTable as error:
            bad.append(Undecodable(index, str(error), untimed=False, clears_table=True))
        except (*MALFORMED, UndecodableValue) as error:
            reason = f"not UTF-8: {error}" if isinstance(error, UnicodeDecodeError) else str(error)
            bad.append(Undecodable(index, reason, untimed=isinstance(error, MissingEventTime)))
    return Decoded(events, at, bad)


class UndecodableValue(ValueError):
    """The bytes of a message violate the format of its codec."""


class DeletedRow(UndecodableValue):
    """A message deletes a row of a table, and contains no record.

    Args:
        reason: what it means for a processor that does not read the category as a table.
        key: the key of the row; None if it is unknown.
    """

    def __init__(self, reason: str, key: str | None) -> None:
        super().__init__(reason)
        self.key = key


class IncompleteRow(UndecodableValue):
    """A message changes a row of a table, without the values that stay.

    Args:
        update: the row.
    """

    def __init__(self, update: RowUpdate) -> None:
        super().__init__(update.reason)
        self.update = update


class ClearedTable(UndecodableValue):
    """A message deletes all rows of a table, and contains no record."""


class SkippedMessage(Exception):
    """A message contains no record by its format, and is no error."""


def without_bom(value: bytes) -> bytes:
    """Return a text without its byte order mark, with which some programs begin each text."""
    return value.removeprefix(BOM_UTF8)


def value_of(message: Message) -> bytes:
    """Return the value of a message.

    Raises:
        UndecodableValue: the message has no value.
    """
    value = message.value()
    if value is None:
        raise UndecodableValue("the message is empty")
    return value
