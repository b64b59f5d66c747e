"""Errors of the bus, by what the caller does next."""

from ..processors.errors import PenstockError


class BusError(PenstockError):
    """A request to the bus failed. Saved data is unaffected."""


class BusUnreachable(BusError):
    """No broker answers: retry later, or correct the address or credentials."""


class BusRefuses(BusUnreachable):
    """A broker rejects this client: correct the credentials or the TLS settings."""


class SettingsRefused(BusError):
    """The client library rejects the settings, before any request: correct them."""


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
