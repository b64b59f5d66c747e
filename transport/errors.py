"""Errors of the bus, by what the caller does next."""

from __future__ import annotations

from typing import Self

from ..processors import PenstockError


class BusError(PenstockError):
    """A request to the bus failed. Saved data is unaffected."""

    def reworded(self, text: str) -> Self:
        """Return the same error with another text."""
        return type(self)(text)


class BusUnreachable(BusError):
    """No broker answers: retry later, or correct the address or credentials."""


class BusRefuses(BusUnreachable):
    """A broker rejects this client: correct the credentials or the TLS settings."""


class SettingsRefused(BusError):
    """The client library rejects the settings, before any request: correct them."""


class SettingNotReported(BusError):
    """The brokers do not report a setting of a category that a promise depends on: grant the right to read it."""


class NoTransactions(BusError):
    """The cluster has no transactions: correct its settings, or declare outputs at least once."""


class MissingCategory(BusError):
    """A category is missing on the bus: create it."""


class BucketMismatch(BusError):
    """A category on the bus has another number of buckets than declared, or than its co-partitioned inputs."""


class CompactedInput(BusError):
    """A compacted category keeps only the latest event of each key, which cannot rebuild a lost state: a user must decide."""


class CategoryExists(BusError):
    """A category of this name exists."""


class DeliveryFailed(BusError):
    """Sent messages did not reach the bus: stop before saving the position that covers them."""


class OutputsTimedOut(DeliveryFailed):
    """The bus did not accept sent messages in time: continue from the last committed position, and send less at a time, or allow more time.

    Args:
        reason: what was not accepted.
        accepted: the share of the messages that the bus accepted in time; 0 if it accepted no message, or if that is unknown.
    """

    def __init__(self, reason: str, accepted: float = 0.0) -> None:
        super().__init__(reason)
        self.accepted = accepted

    def reworded(self, text: str) -> Self:
        """Return the same error with another text."""
        return type(self)(text, self.accepted)


class Fenced(BusError):
    """A newer owner has replaced this one: discard unsaved work and rejoin."""


class MembershipLost(BusError):
    """A group membership has ended permanently: close the reader, and join with another one."""


class IdentityTaken(MembershipLost):
    """Another process has joined the group with the member's identity."""


class CommitUnconfirmed(BusError):
    """The group is rebalancing: keep the owned buckets, continue polling, and commit again later."""


class Aborted(BusError):
    """A transaction was aborted: continue from the last committed position."""


class GroupInUse(BusError):
    """A group has members, so its positions cannot be set: stop its workers."""


class OffsetOutOfRange(BusError):
    """A position is before the first event on the bus or after the last one: events have expired; a user must decide."""


class TopicRecreated(BusError):
    """A category was deleted and created again since it was read: its positions are invalid; a user must decide."""


class BatchesRefused(BusError):
    """A category's size limit is below this client's batch size: raise the category's limit."""


class MessageRefused(BusError):
    """The bus rejects a message for its size or format: change the processor or the category's limits."""


class ForeignMessage(BusError):
    """A category of Penstock contains a message in another format: use the version that wrote it."""


def unconfirmed_commit(identity: str, limit_s: float) -> str:
    """Return the message of a commit that the brokers have confirmed and not carried out."""
    return (
        f"Transaction of {identity}: the brokers confirmed its commit, but {limit_s:.0f} s later the group's positions do not show it. An overloaded "
        "or restarting broker can leave a commit half done, above all one that is alone. It counts as not committed: its outputs are aborted, its "
        "events are read again, and no output is lost. If this repeats, look for an overload in the brokers' logs, and use three brokers."
    )
